"""Bringing matrices to unit size before they are iterated on, without an SVD.

The products here and in the modules that use this one are written `a @ b`: outside
TensorFlow `keras.ops.matmul` rounds float64 to float32.
"""

from functools import cache

import keras
import numpy as np
from keras import ops

from keras_cond.backends import spread

# ‖X‖ is bounded by the Schatten norm (Σ σ^2p)^(1/2p) with p = 2 ** (SQUARINGS + 1): for
# a side of 10,000 this is at most 15.5 % above σ_max.
SQUARINGS = 4
# Applications of the Gram matrix to the power 2 ** SQUARINGS to one vector. The size
# found errs by less than 0.3 % where many singular values crowd near the largest, and
# by rounding alone where they do not.
POWER_STEPS = 16
# Of the probe that the power steps start from. The products of two residues, and of a
# residue and the multiplier, fit in 32 bits.
PRIME, MULTIPLIER = 10_007, 3_571
ANGLE = 2 * np.pi / PRIME
# Room for the rounding of reduced-precision matrix products (TF32 has 10 bits).
MARGIN = 1.01
# The largest ratio of the bound to σ_max that is planned for: 1.01 · 20,000^(1/64).
LOOSENESS = 1.18


def unit_peak(x):
    """Returns x / max|x| of each matrix, and the maximum, which carries no gradient.

    All that is computed from the result is scale-equivariant, so holding the maximum
    constant leaves the derivative exact (Euler's theorem) and makes squares safe for
    inputs from 1e-12 to 1e12 and beyond.

    Args:
        x: Float tensor of shape (..., N, D).

    Returns:
        Tuple of the scaled tensor, and of a tensor of shape (..., 1, 1): the maximum.
        Where it is 0 or denormal, they are 0 and 1.
    """
    peak, inverse = peak_and_inverse(x)
    return x * inverse, peak


def peak_and_inverse(x):
    """Returns max|x| of each matrix and 1 / max|x|, which carry no gradient.

    Args:
        x: Float tensor of shape (..., N, D).

    Returns:
        Two tensors of shape (..., 1, 1). Where the maximum is 0 or denormal, they are
        1 and 0.
    """
    peak = ops.max(ops.abs(ops.stop_gradient(x)), axis=(-2, -1), keepdims=True)
    tiny = np.finfo(keras.backend.standardize_dtype(x.dtype)).tiny
    zero = peak < float(tiny)
    peak = ops.where(zero, ops.ones_like(peak), peak)
    return peak, ops.where(zero, ops.zeros_like(peak), 1 / peak)


def safe(x):
    """Returns `x` with 1 in place of 0 (and of what is not positive)."""
    return ops.where(x > 0, x, ops.ones_like(x))


def at_least(x, least):
    """Returns the larger of `x` and a float, to within rounding.

    `keras.ops.maximum` rounds float64 to float32, and a choice by `where` takes PyTorch
    as long as a power of each number.
    """
    return ops.relu(x - least) + least


def bound_of(norm, schatten):
    """Returns an upper bound of a spectral norm, 1 where the norm is 0.

    Args:
        norm: Tensor of shape (..., 1, 1): σ_max, or slightly less.
        schatten: Tensor of the same shape, an upper bound of σ_max.

    Returns:
        Tensor of the same shape. Its value comes from the bound; its derivative from
        the norm, since both grow with the scale of X alike.
    """
    ratio = ops.stop_gradient(at_least(schatten / safe(norm), 1.0))
    return safe(norm * ratio * MARGIN)


def transposed(x):
    """Returns xᵀ."""
    return ops.swapaxes(x, -1, -2)


def with_transpose(x):
    """Returns x + xᵀ."""
    return x + transposed(x)


def inner(x, y):
    """Sum of the products of equal entries, shape (..., 1, 1)."""
    return ops.sum(x * y, axis=(-2, -1), keepdims=True)


def gram(a):
    """Returns a aᵀ for a tensor of shape (..., r, c)."""
    return a @ transposed(a)


def norm_and_bound(a, square, fourth):
    """Estimates σ_max from below and bounds it from above, by matrix products.

    Only the last product carries a gradient, u vᵀ, which is the derivative of σ_max.

    Args:
        a: Float tensor of shape (..., r, c), r <= c for least work, with max|a| = 1.
        square: `gram(a)`.
        fourth: The square of that.

    Returns:
        Tuple `(norm, bound)` of tensors of shape (..., 1, 1).
    """
    vector, schatten = first_vector(a, square, fourth)
    norm = frobenius(transposed(vector) @ a)
    return norm, bound_of(norm, schatten)


def measured(a, unit):
    """Gram matrices of a matrix over its size, a bound of its norm, and what gave it.

    Args:
        a: As in `norm_and_bound`.
        unit: float, that the size is counted in.

    Returns:
        Tuple `(square, fourth, size, norm, vector)`: a aᵀ / size² and its square, of
        shape (..., r, r); unit · the bound and an estimate of σ_max, (..., 1, 1); the
        first left singular vector, (..., r, 1).
    """
    square = gram(a)
    fourth = square @ square
    vector, schatten = first_vector(a, square, fourth)
    norm = frobenius(transposed(vector) @ a)
    size = unit * bound_of(norm, schatten)
    return square / size**2, fourth / size**4, size, norm, vector


def first_vector(a, square, fourth):
    """The first left singular vector, and an upper bound of σ_max.

    The Gram matrix is squared four times. The Frobenius norm of the result bounds
    σ_max from above; `a` times a fixed probe, multiplied by it on and on, tends to the
    first singular vector v, and ‖aᵀ v‖ is an estimate of σ_max. Where σ_max is tied, v
    is the part of the probe in the space of the tied vectors: one of the subgradients,
    and the same one whatever the rounding.

    Args:
        a: As in `norm_and_bound`.
        square: As there.
        fourth: As there.

    Returns:
        Tuple `(vector, bound)` of tensors of shape (..., r, 1) and (..., 1, 1), which
        carry no gradient.
    """
    power, size = _normalized(ops.stop_gradient(fourth))
    log_norm = ops.log(size)
    for _ in range(SQUARINGS - 1):
        power = power @ power
        log_norm = 2 * log_norm
    power, size = _normalized(power)
    bound = ops.exp((log_norm + ops.log(size)) / 2 ** (SQUARINGS + 1))

    vector = ops.stop_gradient(a) @ spread(probe(a, axis=-1), a)
    for _ in range(POWER_STEPS):  # Each leaves at least 1/√r of it.
        vector = power @ vector
    return _normalized(vector)[0], bound


def _normalized(x):
    """Each matrix over its Frobenius norm, and that; 1 for the norm of zero."""
    size = safe(ops.sqrt(ops.sum(ops.square(x), axis=(-2, -1), keepdims=True)))
    return x / size, size


def probe(x, axis):
    """A vector of no particular direction, the same for each matrix.

    Args:
        x: Float tensor of shape (..., N, D).
        axis: int, the axis whose length the vector has. It may be of unknown length.

    Returns:
        Tensor of shape (length, 1) with entries in [-1, 1]: cosines of the quadratic
        residues of a prime, an old source of numbers that look random.
    """
    length = x.shape[axis]
    if isinstance(length, int):
        return ops.convert_to_tensor(_known_probe(length), dtype=x.dtype)
    place = ops.arange(ops.shape(x)[axis], dtype="int32")
    return ops.cos(ops.cast(_residue(place), x.dtype) * ANGLE)[:, None]


@cache
def _known_probe(length):
    return np.cos(_residue(np.arange(length, dtype="int32")) * ANGLE)[:, None]


def _residue(place):
    place = place % PRIME
    return (place * place % PRIME) * MULTIPLIER % PRIME


def frobenius(x):
    """Frobenius norm of each matrix, shape (..., 1, 1); its gradient at 0 is 0."""
    square = ops.sum(ops.square(x), axis=(-2, -1), keepdims=True)
    positive = square > 0
    root = ops.sqrt(ops.where(positive, square, ops.ones_like(square)))
    return ops.where(positive, root, ops.zeros_like(root))
