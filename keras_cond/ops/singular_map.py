"""Functions of singular values by an SVD, with a derivative that is always finite."""

import keras
import numpy as np
from keras import ops

from keras_cond.backends import spread
from keras_cond.ops.scale import (
    POWER_STEPS,
    SQUARINGS,
    bound_of,
    frobenius,
    probe,
    safe,
)
from keras_cond.ops.spectrum import finite_or_zero


def singular_factors(x):
    """Thin SVD that carries no gradient.

    Args:
        x: Float tensor of shape (..., N, D).

    Returns:
        Tuple `(u, s, vt)` of shapes (..., N, r), (..., r), (..., r, D), r = min(N, D).
        A matrix that is not finite is taken as zero.
    """
    finite, _ = finite_or_zero(ops.stop_gradient(x))
    return tuple(map(ops.stop_gradient, ops.svd(finite, full_matrices=False)))


def norm_and_bound(x, factors):
    """Largest singular value of `x`, and a bound of it as in the module `scale`.

    Args:
        x: Float tensor of shape (..., N, D).
        factors: Its `singular_factors`.

    Returns:
        Tuple `(norm, bound)` of tensors of shape (..., 1, 1). The derivative of the
        first is u vᵀ of the first singular vectors; where σ_max is tied, of those that
        the same power steps from the same probe would find.
    """
    u, s, vt = factors
    largest = s[..., :1]
    ratio = s / ops.where(largest > 0, largest, ops.ones_like(largest))
    steps = ratio ** (POWER_STEPS * 2 ** (SQUARINGS + 1))
    first = steps[..., None] * (vt @ spread(probe(vt, axis=-1), vt))
    first = ops.stop_gradient(first / safe(frobenius(first)))
    first_u, first_v = u @ first, ops.swapaxes(vt, -1, -2) @ first
    norm = (ops.swapaxes(first_u, -1, -2) @ x) @ first_v
    power = 2 ** (SQUARINGS + 2)
    schatten = largest * ops.sum(ratio**power, axis=-1, keepdims=True) ** (1 / power)
    return norm, bound_of(norm, schatten[..., None])


def singular_map(x, factors, gain, derivative):
    """U f(S) Vᵀ for an odd function f, where f(s) = s · gain(s).

    The textbook derivative of U and V divides by differences of squared singular
    values and is infinite where two coincide. The derivative of the product is not:
    for X + dX with E = Uᵀ dX V it is U [Γ⁻∘sym(E) + Γ⁺∘skew(E)] Vᵀ and, for the part
    of dX outside the span, dX V gain(S) Vᵀ (or its mirror), with
      Γ⁻_ij = (f(s_i) − f(s_j)) / (s_i − s_j),  f'(s) where they coincide,
      Γ⁺_ij = (f(s_i) + f(s_j)) / (s_i + s_j),  f'(0) where both are 0.
    Here it is added as a linear function of x − stop_gradient(x), which is zero.

    Where s is below ten rounding errors, f is faded out: it lifts small s, and there
    the SVD returns noise, in directions that X does not have.

    Args:
        x: Float tensor of shape (..., N, D), with a largest singular value of about 1.
        factors: Its `singular_factors`.
        gain: Function s → f(s)/s, finite at 0.
        derivative: Function s → f'(s).

    Returns:
        Tensor of shape (..., N, D). NaN for a matrix with a NaN or an infinity.

    Reference: V. Noferini, "A formula for the Fréchet derivative of a generalized
    matrix function", 2017, theorem 4.
    """
    u, s, vt = factors
    ut, v = ops.swapaxes(u, -1, -2), ops.swapaxes(vt, -1, -2)
    eps = float(np.finfo(keras.backend.standardize_dtype(s.dtype)).eps)
    gain, derivative = faded(gain, derivative, 10 * eps)
    weights = gain(s)
    values = s * weights
    change = x - ops.stop_gradient(x)

    row, column = s[..., :, None], s[..., None, :]
    difference, total = row - column, row + column
    # Nearer than this the mean slope is more exact than the rounded difference.
    apart = ops.abs(difference) > eps ** (1 / 3) * total
    minus = ops.where(
        apart,
        (values[..., :, None] - values[..., None, :])
        / ops.where(apart, difference, ops.ones_like(difference)),
        derivative(total / 2),
    )
    positive = total > 0
    plus = ops.where(
        positive,
        (values[..., :, None] + values[..., None, :])
        / ops.where(positive, total, ops.ones_like(total)),
        derivative(ops.zeros_like(total)),
    )
    inner = (ut @ change) @ v
    mirrored = ops.swapaxes(inner, -1, -2)
    core = (minus * (inner + mirrored) + plus * (inner - mirrored)) / 2
    result = ((u @ core) + u * values[..., None, :]) @ vt

    rows, columns = x.shape[-2:]
    known = isinstance(rows, int) and isinstance(columns, int)
    if not known or rows > columns:
        outside = (change @ v) - (u @ inner)
        result = result + ((outside * weights[..., None, :]) @ vt)
    if not known or rows < columns:
        outside = (ut @ change) - (inner @ vt)
        result = result + (u @ (weights[..., :, None] * outside))
    return result


def faded(gain, derivative, width):
    """Multiplies a function by 1 − (width/s)² where s > width, and by 0 below.

    Args:
        gain: Function s → f(s)/s.
        derivative: Function s → f'(s).
        width: float.

    Returns:
        The same two functions of the product.
    """

    def fade(s):
        inverse = width / ops.where(s > width, s, width)
        return 1 - inverse**2, 2 * inverse**2 * ops.cast(s > width, s.dtype)

    def faded_derivative(s):
        factor, slope = fade(s)  # `slope` is s times that of the factor.
        return factor * derivative(s) + slope * gain(s)

    return lambda s: fade(s)[0] * gain(s), faded_derivative
