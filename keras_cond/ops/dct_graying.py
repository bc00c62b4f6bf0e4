"""DCT token graying: a fractional power of the coefficients of a 2-D DCT."""

from keras import ops

from keras_cond.ops import scale
from keras_cond.ops.dct import (
    dct_basis,
    dct_of_channels,
    idct_of_channels,
    masked_dct_basis,
)
from keras_cond.ops.validation import (
    check_epsilon,
    check_floor,
    float_tensor,
    is_empty,
    token_mask,
)


def dct_graying(x, epsilon, mask=None, rescale=False, floor=1e-3):
    """Raises the DCT coefficients of each matrix, relative to the largest, to a power.

    X̂ = D_N X D_Dᵀ with the orthonormal DCT-II over tokens and channels, then
    sign(X̂) (|X̂|/max|X̂|)^ε, then the inverse transform. Where the ratio is below the
    floor the power is replaced by the line through 0: its slope is finite, and so is
    the gradient.

    Args:
        x: Float tensor of shape (..., N, D): N tokens of D channels, of any unit.
        epsilon: float in (0, 1], the exponent ε, dimensionless; or a scalar tensor or
            variable. 1 leaves the ratios of the coefficients as they are.
        mask: None, or a tensor of shape (..., N), true (or nonzero) at real tokens.
            The others take no part and come out unchanged; the DCT over tokens then has
            the length and the order of the real ones.
        rescale: If True, max|X̂| is multiplied back, and ε = 1 is the identity. The
            default, False, is the paper's: the largest coefficient becomes 1, which
            shrinks usual tokens to the order of one percent.
        floor: float in (0, 1), a fraction of the largest coefficient, dimensionless.

    Returns:
        Tensor of the shape and dtype of `x`; dimensionless, or with `rescale` in the
        unit of `x`. Computed in float32, or in float64 for float64. A zero matrix stays
        zero; a matrix with a NaN gives NaN and leaves the others alone.

    Raises:
        ValueError: If `x` holds integers or has fewer than two dimensions, `epsilon` or
            `floor` is out of range, or the mask has another shape than (..., N).

    Example:

    >>> x = keras_cond.ops.idct(keras_cond.ops.idct(np.diag([4.0, 1.0]), axis=-2))
    >>> y = keras_cond.ops.dct_graying(x, epsilon=0.5)
    >>> keras_cond.ops.dct(keras_cond.ops.dct(y, axis=-2))  # diag(1, 0.5)

    Reference: "Always Skip Attention", ICCV 2025, arXiv:2505.01996, DCT token graying.
    """
    check_epsilon(epsilon)
    check_floor(floor)
    x, dtype = float_tensor(x)
    real = token_mask(mask, x)
    if is_empty(x):  # Backends refuse the maximum of nothing.
        return ops.cast(x, dtype)
    tokens = x if real is None else ops.where(real, x, ops.zeros_like(x))
    epsilon = ops.cast(epsilon, x.dtype)
    unit, peak = scale.unit_peak(tokens)
    if real is None:
        rows = dct_basis(x, -2)
    else:
        rows = masked_dct_basis(real[..., 0], unit.dtype)

    coefficients = dct_of_channels(rows @ unit)
    largest = ops.max(ops.abs(coefficients), axis=(-2, -1), keepdims=True)
    ratio = coefficients / scale.safe(largest)
    ratio = ratio * scale.at_least(ops.abs(ratio), floor) ** (epsilon - 1)
    grayed = scale.transposed(rows) @ idct_of_channels(ratio)
    if rescale:
        grayed = grayed * (largest * peak)
    if real is not None:
        grayed = ops.where(real, grayed, x)
    return ops.cast(grayed, dtype)
