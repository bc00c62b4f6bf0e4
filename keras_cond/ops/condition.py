"""Conditioned tokens: X plus a correction that bounds its condition number by 2."""

from keras import ops

from keras_cond.ops.polar import polar_factor
from keras_cond.ops.validation import (
    check_floor,
    check_method,
    float_tensor,
    is_empty,
    token_mask,
)


def condition(x, mask=None, method="newton_schulz", floor=1e-3, stop_gradient=False):
    """Conditions each matrix: X + C with C = σ_max(X) · polar(X).

    The singular values become σ_i + σ_max, so κ(X + C) = 2σ_max/(σ_max + σ_min) ≤ 2
    wherever σ_min ≥ floor · σ_max. A null direction (repeated or zero tokens have one)
    stays null; see `polar` for those between. The result follows X: it is rotated,
    permuted and scaled with it. By matrix products it has a first derivative only, on
    JAX in reverse mode.

    The correction of one token depends on every token of its matrix. Applied to the
    sequence of a causal model, it would tell each token about later ones.

    Args:
        x: Float tensor of shape (..., N, D): N tokens of D channels, of any unit.
        mask: None, or a tensor of shape (..., N), true (or nonzero) at real tokens.
            The others take no part and come out unchanged.
        method: `"newton_schulz"` (default, matrix products) or `"svd"`; see `polar`.
            The first finds σ_max by power iteration, within 0.3 % and mostly to
            rounding.
        floor: float in (0, 1), a fraction of σ_max; see `polar`.
        stop_gradient: If True, C counts as constant in the backward pass, which is
            then that of the identity, and cheaper. The default, False, gives the exact
            gradient; the paper does not say which it used.

    Returns:
        Tensor of the shape, dtype and unit of `x`. Computed in float32, or in float64
        for float64. A matrix with a NaN gives NaN and leaves the others alone.

    Raises:
        ValueError: If `x` holds integers or has fewer than two dimensions, the mask has
            another shape than (..., N), or `method` or `floor` is unknown.

    Example:

    >>> x = np.diag([1.0, 0.5, 0.01])
    >>> keras_cond.ops.condition_number(x)  # 100
    >>> keras_cond.ops.condition_number(keras_cond.ops.condition(x))  # 1.98

    Reference: "Conditioned Embedded Tokens", ICCV 2025, arXiv:2505.12789, theorem 4.4.
    """
    check_method(method)
    check_floor(floor)
    x, dtype = float_tensor(x)
    real = token_mask(mask, x)
    if is_empty(x):  # Backends refuse the maximum of nothing.
        return ops.cast(x, dtype)
    tokens = x if real is None else ops.where(real, x, ops.zeros_like(x))
    if stop_gradient:
        tokens = ops.stop_gradient(tokens)
    conditioned = polar_factor(
        tokens, method, floor, conditioned=True, padded=real is not None
    )
    if stop_gradient:
        conditioned = x + (conditioned - tokens)
    if real is not None:
        conditioned = ops.where(real, conditioned, x)
    return ops.cast(conditioned, dtype)
