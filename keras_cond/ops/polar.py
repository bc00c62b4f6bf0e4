"""Polar factor with a relative floor."""

from keras import ops

from keras_cond.ops import scale, singular_map
from keras_cond.ops.gram_iteration import tall_newton_schulz
from keras_cond.ops.newton_schulz import newton_schulz
from keras_cond.ops.quintics import quintic_chain
from keras_cond.ops.validation import (
    check_floor,
    check_method,
    float_tensor,
    is_empty,
)

# The quintics are chosen for intervals no wider than 1 : 50. For the default floor this
# costs no further step; no singular value falls below a tenth on the way, and the
# derivative of the chain at the largest one, which should be 0, is below 1e-4.
WIDEST = 0.02
# A matrix with so many times as many rows as columns, such as an embedding table, is
# worked on through its Gram matrix. Rounding in null directions is then three times as
# large, so not where these are usual: few tokens of many channels, and padding.
TALL = 3


def polar(x, method="newton_schulz", floor=1e-3):
    """Polar factor U Vᵀ of X = U S Vᵀ, with a relative floor.

    polar(X) = U p(S/u) Vᵀ, where u is an upper bound of σ_max (at most 18 % above it)
    and p is odd, 1 (to 1e-6) from floor · σ_max on, and nearly linear below. So a
    direction at or above the floor is lifted to 1, one below it about in proportion,
    and a null one stays null. The plain U Vᵀ is not defined for a rank-deficient X
    (a repeated token is one); this map is single-valued, odd, independent of the scale
    of X and has a derivative of at most about 4/(floor · σ_max). By matrix products it
    has a first derivative only, on JAX in reverse mode.

    Args:
        x: Float tensor of shape (..., N, D), of any unit.
        method: `"newton_schulz"` (default; matrix products alone: fast under XLA, in
            half precision and on export) or `"svd"` (by `keras.ops.svd`, as a
            reference). Both apply the same p.
        floor: float in (0, 1), a fraction of σ_max, dimensionless. The default, 1e-3,
            is as low as float32 carries: rounding in a null direction, about 1e-7, is
            lifted by 1/floor too.

    Returns:
        Tensor of the shape and dtype of `x`, dimensionless. Computed in float32, or in
        float64 for float64. Zero for a zero matrix; NaN for a matrix with a NaN.

    Raises:
        ValueError: If `x` holds integers or has fewer than two dimensions, or `method`
            or `floor` is not as above.

    Example:

    >>> keras_cond.ops.polar(np.diag([3.0, -0.5, 0.0]))  # diag(1, -1, 0)

    References: N. Higham, "Functions of Matrices", chapter 8; N. Amsel et al., "The
    Polar Express", 2025, arXiv:2505.16932.
    """
    check_method(method)
    check_floor(floor)
    x, dtype = float_tensor(x)
    if is_empty(x):  # Backends refuse the maximum of nothing.
        return ops.cast(x, dtype)
    return ops.cast(polar_factor(x, method, floor), dtype)


def polar_factor(x, method, floor, conditioned=False, padded=False):
    """Returns `polar(x)`, or x + σ_max(x) · polar(x) if `conditioned`.

    Args:
        x: Tensor of shape (..., N, D), float32 or float64.
        method: As in `polar`.
        floor: As in `polar`.
        conditioned: bool.
        padded: Whether rows of zeros stand for padding.
    """
    chain = quintic_chain(floor / scale.LOOSENESS, WIDEST)
    if method == "svd":
        return _by_svd(x, chain, conditioned)
    rows, columns = x.shape[-2:]
    known = isinstance(rows, int) and isinstance(columns, int)
    if known and not padded and rows >= TALL * columns:
        return tall_newton_schulz(x, chain, conditioned)
    return on_smaller_side(x, lambda a: newton_schulz(a, chain, conditioned))


def _by_svd(x, chain, conditioned):
    unit, peak = scale.unit_peak(x)
    factors = u, s, vt = singular_map.singular_factors(unit)
    norm, bound = singular_map.norm_and_bound(unit, factors)
    s = s / ops.stop_gradient(bound)[..., 0]
    factor = singular_map.singular_map(
        unit / bound, (u, s, vt), *scalar_functions(chain)
    )
    return x + (peak * norm) * factor if conditioned else factor


def on_smaller_side(x, function):
    """Calls a function of wide matrices on `x`, or on its transpose where it is tall.

    A number of rows or columns that is not known yet counts as the larger one.

    Args:
        x: Tensor of shape (..., N, D).
        function: Takes a tensor (..., r, c), r <= c, and returns one of that shape,
            which is transposed back here.
    """
    rows, columns = x.shape[-2:]
    tall = not isinstance(rows, int) or (isinstance(columns, int) and rows > columns)
    if not tall:
        return function(x)
    return ops.swapaxes(function(ops.swapaxes(x, -1, -2)), -1, -2)


def scalar_functions(chain):
    """Returns s → p(s)/s and s → p'(s) for the composition p of a chain of quintics."""

    def gain(s):
        total = ops.ones_like(s)
        for first, third, fifth in chain:
            square = s * s
            factor = first + square * (third + square * fifth)
            s, total = s * factor, total * factor
        return total

    def derivative(s):
        total = ops.ones_like(s)
        for first, third, fifth in chain:
            square = s * s
            total = total * (first + square * (3 * third + square * 5 * fifth))
            s = s * (first + square * (third + square * fifth))
        return total

    return gain, derivative
