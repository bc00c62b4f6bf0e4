"""Cost and accuracy of conditioning on one GPU, within ten minutes.

    python examples/benchmarks/gpu.py --backend torch
    python examples/benchmarks/gpu.py --backend jax

times training and inference steps of a ViT-B/16 at 224 pixels, batch 128, with each
method of the table, in float32 and in mixed_bfloat16, as overhead.py does, with peak
memory as the backend counts it. Then it looks how far κ(X + C) departs from 2 where
float32 matrix products are rounded to TF32 or bfloat16, for tokens X of known κ: both
numbers by a float64 SVD on the host. No case starts after `--minutes`; what was left
out is said and written.
"""

import shlex
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks import overhead
from benchmarks.arguments import (
    case_parser,
    check_choice,
    picture_of,
    start,
)

PRECISIONS = ("float32", "mixed_bfloat16")
PRODUCTS = ("float32", "tf32", "bfloat16")
CONDITION_NUMBERS = (10.0, 100.0, 900.0)
TOKENS = (8, 197, 768)
SMOKE = {
    "preset": "vit-smoke",
    "cases": "conditioned_tokens",
    "batch_size": 2,
    "pairs": 2,
}
SMOKE_TOKENS = (2, 12, 16)


def main(argv=None):
    """Run the script.

    Args:
        argv: Command-line arguments; `None` takes those of the process.

    Returns:
        Path of the JSON file.
    """
    began = time.monotonic()
    arguments = parse_arguments(argv)
    start(arguments, "gpu")
    import keras
    from benchmarks.backends import accelerator, machine
    from benchmarks.cases import select_cases
    from benchmarks.pictures import plot_overhead
    from benchmarks.report import format_overhead
    from common.runs import write_results
    from common.tables import format_table

    if not accelerator() and not arguments.smoke:
        raise ValueError(
            f"The backend {keras.backend.backend()!r} finds no GPU. Install its GPU "
            "version, or pass --smoke to see that the script runs."
        )
    words = sys.argv[1:] if argv is None else argv
    results = {
        "command": shlex.join(["python", "examples/benchmarks/gpu.py", *words]),
        "machine": machine(),
        "mode": arguments.mode,
        "accuracy": accuracy(SMOKE_TOKENS if arguments.smoke else TOKENS),
        "cases": [],
        "left_out": [],
    }
    print(format_table(*accuracy_table(results["accuracy"])))
    cases = select_cases(arguments.preset, arguments.cases, arguments.batch_size)
    for precision in PRECISIONS:
        keras.config.set_dtype_policy(precision)
        arguments.mixed_precision = precision
        measured = overhead.measure(cases, arguments)
        for case in cases:
            if time.monotonic() - began > 60 * arguments.minutes:
                results["left_out"].append(f"{case.name}, {precision}")
                continue
            results["cases"].append(next(measured))
            write_results(arguments.json, results)
    write_results(arguments.json, results)
    plot_overhead(picture_of(arguments.json), results)
    print(f"\n{format_overhead(results)}")
    for name in results["left_out"]:
        print(f"left out, {arguments.minutes} minutes are over: {name}")
    print(f"\nNumbers: {arguments.json}\nPicture: {picture_of(arguments.json)}")
    return arguments.json


def parse_arguments(argv):
    """Read the command line."""
    parser = case_parser(__doc__.splitlines()[0], "vit-b", batch_size=128)
    parser.add_argument(
        "--minutes", type=int, default=8, help="no case starts after so many"
    )
    arguments = parser.parse_args(argv)
    check_choice("--mixed-precision", arguments.mixed_precision, ("float32",))
    if arguments.smoke:
        vars(arguments).update(SMOKE)
    return arguments


def accuracy(shape):
    """κ of conditioned tokens where products are rounded, by a float64 SVD.

    Args:
        shape: Sequence of ints (batch, N, D) of the tokens.

    Returns:
        List of dictionaries: `kappa` of the tokens, `products` (how float32 products
        are computed), `largest` κ(X + C) over the batch, and `bound`, the exact one of
        2σ_max/(σ_max + σ_min).
    """
    import numpy as np
    from benchmarks.backends import set_product_precision
    from keras import ops

    import keras_cond

    rows = []
    for kappa in CONDITION_NUMBERS:
        tokens = tokens_of_condition(shape, kappa)
        for products in PRODUCTS:
            set_product_precision(products)
            try:
                result = keras_cond.ops.condition(ops.convert_to_tensor(tokens))
            finally:
                set_product_precision("float32")
            result = ops.convert_to_numpy(result).astype("float64")
            values = np.linalg.svd(result, compute_uv=False)
            largest = float(np.max(values[:, 0] / values[:, -1]))
            bound = 2 * kappa / (kappa + 1)
            rows.append(
                {
                    "kappa": kappa,
                    "products": products,
                    "largest": largest,
                    "bound": bound,
                }
            )
    return rows


def tokens_of_condition(shape, kappa):
    """Tokens, float32, whose singular values fall from 1 to 1/κ in equal ratios."""
    import numpy as np

    batch, rows, columns = shape
    rank = min(rows, columns)
    rng = np.random.default_rng(0)
    u = np.linalg.qr(rng.normal(size=(batch, rows, rank)))[0]
    v = np.linalg.qr(rng.normal(size=(batch, columns, rank)))[0]
    values = np.geomspace(1, 1 / kappa, rank)
    return ((u * values) @ np.swapaxes(v, -1, -2)).astype("float32")


def accuracy_table(rows):
    """Header and rows of the accuracy."""
    return ["κ(X)", "products", "largest κ(X + C)", "exact"], [
        [
            f"{row['kappa']:.0f}",
            row["products"],
            f"{row['largest']:.4f}",
            f"{row['bound']:.4f}",
        ]
        for row in rows
    ]


if __name__ == "__main__":
    main()
