"""SVD token graying: a fractional power of the singular values."""

from functools import cache
from math import ceil, log2

import numpy as np
from keras import ops
from numpy.polynomial import Chebyshev, Polynomial

from keras_cond.ops import scale, singular_map
from keras_cond.ops.gram_matrices import gram_matrices
from keras_cond.ops.polar import on_smaller_side
from keras_cond.ops.quintics import best_quintic
from keras_cond.ops.validation import (
    check_epsilon,
    check_floor,
    check_method,
    float_tensor,
    is_empty,
    token_mask,
)

# Gentle quintics, and a rest of p(s) that is NEAR to 1: their logarithms are then
# polynomials of degree 6, to 7e-5 each and 4e-4 for the rest.
WIDEST = 0.4
NEAR = 0.43
LOG_DEGREE = 6


def svd_graying(
    x, epsilon, mask=None, rescale=False, method="newton_schulz", floor=1e-3
):
    """Raises the singular values of each matrix, relative to the largest, to a power.

    X̃ = U (S/σ_max)^ε Vᵀ. Where s = σ/σ_max is below the floor the power is replaced by
    the line s · floor^(ε−1): its slope at 0 is finite, and so is the gradient.

    Args:
        x: Float tensor of shape (..., N, D): N tokens of D channels, of any unit.
        epsilon: float in (0, 1], the exponent ε, dimensionless; or a scalar tensor or
            variable. 1 leaves the ratios of the singular values as they are.
        mask: None, or a tensor of shape (..., N), true (or nonzero) at real tokens.
            The others take no part and come out unchanged.
        rescale: If True, σ_max is multiplied back, and ε = 1 is the identity. The
            default, False, is the paper's: the largest singular value becomes 1, which
            shrinks usual tokens to the order of one percent.
        method: `"newton_schulz"` (default; X · (XᵀX/σ²)^((ε−1)/2) by matrix products)
            or `"svd"`. They agree to about 1e-4 above the floor; below it the slope of
            the first is up to (4/floor)^(1−ε) where the second's is (1/floor)^(1−ε).
        floor: float in (0, 1), a fraction of σ_max, dimensionless.

    Returns:
        Tensor of the shape and dtype of `x`; dimensionless, or with `rescale` in the
        unit of `x`. Computed in float32, or in float64 for float64. A zero matrix stays
        zero; a matrix with a NaN gives NaN and leaves the others alone.

    Raises:
        ValueError: If `x` holds integers or has fewer than two dimensions, `epsilon` or
            `floor` is out of range, `method` is unknown, or the mask has another shape
            than (..., N).

    Example:

    >>> x = np.diag([4.0, 1.0])
    >>> keras_cond.ops.svd_graying(x, epsilon=0.5)  # diag(1, 0.5)
    >>> keras_cond.ops.svd_graying(x, epsilon=0.5, rescale=True)  # diag(4, 2)

    Reference: "Always Skip Attention", ICCV 2025, arXiv:2505.01996, SVD token graying.
    """
    check_epsilon(epsilon)
    check_method(method)
    check_floor(floor)
    x, dtype = float_tensor(x)
    real = token_mask(mask, x)
    if is_empty(x):  # Backends refuse the maximum of nothing.
        return ops.cast(x, dtype)
    tokens = x if real is None else ops.where(real, x, ops.zeros_like(x))
    epsilon = ops.cast(epsilon, x.dtype)
    unit, peak = scale.unit_peak(tokens)
    if method == "svd":
        grayed = _by_svd(unit, epsilon, floor, rescale)
    else:
        grayed = on_smaller_side(
            unit, lambda a: _by_products(a, epsilon, floor, rescale)
        )
    if rescale:
        grayed = grayed * peak
    if real is not None:
        grayed = ops.where(real, grayed, x)
    return ops.cast(grayed, dtype)


def _by_svd(x, epsilon, floor, rescale):
    factors = u, s, vt = singular_map.singular_factors(x)
    norm, _ = singular_map.norm_and_bound(x, factors)
    divisor = scale.safe(norm)
    s = s / ops.stop_gradient(divisor)[..., 0]

    def gain(s):
        return scale.at_least(s, floor) ** (epsilon - 1)

    def derivative(s):
        return ops.where(s > floor, epsilon, ops.ones_like(s)) * gain(s)

    grayed = singular_map.singular_map(x / divisor, (u, s, vt), gain, derivative)
    return norm * grayed if rescale else grayed


def _by_products(a, epsilon, floor, rescale):
    """Grayed matrix of `a`, of shape (..., r, c), times σ_max(a) with `rescale`.

    Quintics take s to p(s) near 1 by factors h_k(s_k²) with product p(s)/s. Their
    logarithms, and that of 1/p(s) = p(s)^(-2/2), are polynomials of Gram matrices. They
    add up to −log s, and (1 − ε) times that, in a matrix exponential, is the factor
    s^(ε−1) that is wanted.
    """
    square = scale.gram(a)
    fourth = square @ square
    norm, bound = scale.norm_and_bound(a, square, fourth)
    chain, logarithms, largest = _logarithm_chain(floor / scale.LOOSENESS)
    eye = ops.eye(a.shape[-2], dtype=a.dtype)
    total = -ops.log(bound / scale.safe(norm)) * eye
    squares = gram_matrices(a / bound, square / bound**2, fourth / bound**4, chain)
    for (square, fourth), coefficients in zip(squares, logarithms, strict=True):
        total = total + _polynomial(coefficients, eye, square, fourth)
    gain = _exponential((1 - epsilon) * total, eye, largest)
    return gain @ (a if rescale else a / scale.safe(norm))


def _polynomial(c, eye, x, x2):
    """c_0 + c_1 x + … + c_6 x⁶ of a matrix, in two products."""
    x3 = x @ x2
    high = c[3] * eye + c[4] * x + c[5] * x2 + c[6] * x3
    return c[0] * eye + c[1] * x + c[2] * x2 + (x3 @ high)


def _exponential(x, eye, largest):
    """exp(x) of a symmetric matrix with eigenvalues up to `largest`, a float.

    Scaling and squaring with a Taylor polynomial of degree 6, exact to 1e-5 relative.
    """
    squarings = max(0, ceil(log2(largest / 0.5)))
    x = x / 2**squarings
    x2 = x @ x
    x3 = x @ x2
    high = eye / 6 + x / 24 + x2 / 120 + x3 / 720
    result = eye + x + x2 / 2 + (x3 @ high)
    for _ in range(squarings):
        result = result @ result
    return result


@cache
def _logarithm_chain(lower):
    """Quintics that take [lower, 1] near to 1, and logarithms that add up to −log s.

    Returns:
        The chain; the coefficients of polynomials in s²: of log(p(s)/s) for each
        quintic, and of −log(s²)/2 for what the last one leaves; and their sum at 0.
    """
    upper, chain, logarithms = 1.0, [], []
    while not chain or lower < NEAR * upper:
        coefficients, _ = best_quintic(max(lower, WIDEST * upper), upper)
        factor = Polynomial(coefficients)
        chain.append(coefficients)
        logarithms.append(_fit(lambda t, h=factor: np.log(h(t)), 0, upper**2))
        grid = np.linspace(0, upper, 4001)
        lower, upper = lower * factor(lower**2), float(np.max(grid * factor(grid**2)))
    logarithms.append(_fit(lambda t: -np.log(t) / 2, lower**2, upper**2))
    return tuple(chain), logarithms, sum(polynomial[0] for polynomial in logarithms)


def _fit(function, lower, upper):
    """Coefficients of a polynomial of degree `LOG_DEGREE`, the constant one first."""
    fit = Chebyshev.interpolate(function, LOG_DEGREE, domain=[lower, upper])
    return [float(c) for c in fit.convert(kind=Polynomial).coef]
