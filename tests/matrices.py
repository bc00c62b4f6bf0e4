"""Matrices with prescribed singular values, and Hypothesis strategies over them.

Written in float64 NumPy; a test casts to the precision it is about.
"""

import dataclasses

import numpy as np
from hypothesis import strategies as st

# (tokens, channels): wide, tall and square, and the degenerate ones. Few of them,
# because JAX compiles every operation once for each shape.
SHAPES = ((5, 12), (20, 5), (7, 7), (1, 6), (6, 1))


def orthonormal(rows, columns, seed):
    """A rows x columns matrix with orthonormal columns (rows >= columns)."""
    rng = np.random.default_rng(seed)
    q, r = np.linalg.qr(rng.standard_normal((rows, columns)))
    # The sign convention makes the draw uniform over the orthogonal group.
    return q * np.where(np.diag(r) < 0, -1.0, 1.0)


def log_spaced(count, kappa):
    """`count` singular values from 1 down to 1/kappa."""
    return np.geomspace(1.0, 1.0 / kappa, count) if count > 1 else np.ones(count)


def with_singular_values(shape, values, seed=0):
    """A matrix of `shape` with the given singular values (padded with zeros)."""
    rows, columns = shape
    rank = min(rows, columns)
    spectrum = np.zeros(rank)
    spectrum[: len(values)] = values
    u = orthonormal(rows, rank, seed)
    v = orthonormal(columns, rank, seed + 1000)
    return (u * spectrum) @ v.T


def with_kappa(shape, kappa, seed=0):
    """A full-rank matrix of `shape`, largest singular value 1, condition kappa."""
    return with_singular_values(shape, log_spaced(min(shape), kappa), seed)


def with_rank(shape, rank, kappa=10.0, seed=0):
    """A matrix of `shape` and `rank` whose non-zero part has condition kappa."""
    return with_singular_values(shape, log_spaced(rank, kappa), seed)


@dataclasses.dataclass(frozen=True)
class Matrix:
    """A matrix together with what it was made from."""

    value: np.ndarray
    singular_values: np.ndarray
    kappa: float
    rank: int
    seed: int


@st.composite
def matrices(draw, max_kappa=1e6, shapes=SHAPES, full_rank=True):
    """Draws a `Matrix`: shape, condition number 1 .. max_kappa, rank, directions."""
    shape = draw(st.sampled_from(shapes))
    smallest = min(shape)
    rank = smallest if full_rank else draw(st.integers(0, smallest))
    kappa = 10.0 ** draw(st.floats(0.0, np.log10(max_kappa)))
    seed = draw(st.integers(0, 10_000))
    values = log_spaced(rank, kappa)
    spectrum = np.zeros(smallest)
    spectrum[:rank] = values
    return Matrix(
        value=with_singular_values(shape, values, seed),
        singular_values=spectrum,
        kappa=kappa if rank > 1 else 1.0,
        rank=rank,
        seed=seed,
    )


def coinciding_inputs(tokens=5, channels=12):
    """The inputs whose singular values coincide or vanish, by name."""
    rng = np.random.default_rng(3)
    noise = rng.standard_normal((tokens, channels))
    repeated = noise.copy()
    repeated[3] = repeated[1]
    blank = noise.copy()
    blank[[0, 2]] = 0.0
    return {
        "identity rows": np.eye(tokens, channels),
        "orthonormal rows": orthonormal(channels, tokens, 1).T,
        "tall orthonormal": orthonormal(channels, tokens, 2),
        "repeated token": repeated,
        "zero rows": blank,
        "all tokens equal": np.tile(noise[:1], (tokens, 1)),
        "all zero": np.zeros((tokens, channels)),
        "two equal values": with_singular_values(
            (tokens, channels), [3.0, 1.0, 1.0, 0.5, 0.5], 4
        ),
    }


def padding_patterns(length, padding=7):
    """Ways to place `length` real tokens among `padding` more, by name.

    All have one length, so that they make one batch: on JAX each shape compiles anew.
    """
    real, blank = [True] * length, [False] * padding
    return {
        "right": np.array(real + blank),
        "left": np.array(blank + real),
        "both sides": np.array(blank[:3] + real + blank[3:]),
        "in the middle": np.array(real[:1] + blank + real[1:]),
    }


def pad(tokens, mask, fill):
    """Places the rows of `tokens` where `mask` is True and `fill` elsewhere."""
    padded = np.full((len(mask), tokens.shape[-1]), fill, tokens.dtype)
    padded[mask] = tokens
    return padded
