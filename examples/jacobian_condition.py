"""Condition number of the Jacobian of one attention head, exactly, at full size.

    python examples/jacobian_condition.py

takes one head of a ViT-B/16 at 224 pixels (197 layer-normalized random tokens of 768
numbers, head width 64, weights as in the usual initialization), seed 0, and prints κ of
the Jacobian of the head's output in its query, key and value weights. Beside it stands
what automatic differentiation would need for the same Jacobian, and its κ where that
fits into `--memory` gigabytes. Measured on two CPU cores: 40 to 60 seconds, 2.4 GB.
"""

import argparse
import resource
import time

import numpy as np

import keras_cond


def main():
    """Run the script."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=197)
    parser.add_argument("--model-dim", type=int, default=768)
    parser.add_argument("--head-dim", type=int, default=64)
    parser.add_argument("--method", choices=["exact", "iterative"], default="exact")
    parser.add_argument("--memory", type=float, default=4.0, help="gigabytes")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    x, weights = random_head(arguments)

    rows = arguments.tokens * arguments.head_dim
    columns = 3 * arguments.model_dim * arguments.head_dim
    print(f"Jacobian: {rows:,} x {columns:,}")
    start = time.perf_counter()
    result = keras_cond.ops.attention_jacobian_condition(
        x, *weights, method=arguments.method
    )
    seconds = time.perf_counter() - start
    print(
        f"{result.method}: κ = {result.value:.6g}, residual {result.residual:.1e}, "
        f"{seconds:.0f} s, peak memory of the process {peak_gigabytes():.1f} GB"
    )

    needed = rows * columns * 8 / 1e9
    if needed > arguments.memory / 2:  # The SVD needs a copy.
        print(
            f"automatic differentiation: the Jacobian has {needed:.1f} GB in float64, "
            f"and the SVD as much again: it does not fit into {arguments.memory:g} GB"
        )
        return
    start = time.perf_counter()
    value = np.linalg.cond(numerical_jacobian(x, weights))
    seconds = time.perf_counter() - start
    print(f"differentiated column by column: κ = {value:.6g}, {seconds:.0f} s")


def random_head(arguments):
    """Returns tokens and the three weights of a head."""
    rng = np.random.default_rng(arguments.seed)
    x = rng.normal(size=(arguments.tokens, arguments.model_dim))
    x = (x - x.mean(axis=1, keepdims=True)) / x.std(axis=1, keepdims=True)
    shape = (3, arguments.model_dim, arguments.head_dim)
    return x, 0.02 * rng.normal(size=shape)


def numerical_jacobian(x, weights):
    """Central differences of the head's output in every weight, in float64."""
    columns, step = [], 1e-6
    for index in np.ndindex(weights.shape):
        sides = []
        for sign in (1, -1):
            moved = weights.copy()
            moved[index] += sign * step
            q, k, v = x @ moved
            scores = q @ k.T / np.sqrt(q.shape[1])
            p = np.exp(scores - scores.max(axis=1, keepdims=True))
            sides.append((p / p.sum(axis=1, keepdims=True) @ v).ravel())
        columns.append((sides[0] - sides[1]) / (2 * step))
    return np.stack(columns, axis=1)


def peak_gigabytes():
    """Returns the largest memory that this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


if __name__ == "__main__":
    main()
