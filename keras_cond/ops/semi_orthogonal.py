"""Random semi-orthogonal matrices."""

from numbers import Integral

import keras
from keras import ops


def semi_orthogonal(shape, seed=None, dtype=None):
    """Draws matrices O with OᵀO = I (or OOᵀ = I where they are wide), uniformly.

    O = U Vᵀ of a Gaussian matrix U S Vᵀ has the Haar distribution; so has the Q of its
    QR decomposition with a positive diagonal of R, which is what is computed.

    Args:
        shape: Sequence of ints (..., N, D). Each of the leading indices has an
            independent matrix.
        seed: int, `keras.random.SeedGenerator`, or None for a new draw at each call.
        dtype: Name of a float dtype; `keras.config.floatx()` if None. Drawn in float32
            (float64 for float64) and cast.

    Returns:
        Tensor of the given shape and dtype whose min(N, D) singular values are all 1,
        dimensionless.

    Raises:
        ValueError: If `shape` has fewer than two dimensions or one that is not
            positive, or `dtype` is not a float dtype.

    Example:

    >>> o = keras_cond.ops.semi_orthogonal((8, 3), seed=0)
    >>> keras_cond.ops.condition_number(o)  # 1

    Reference: F. Mezzadri, "How to generate random matrices from the classical compact
    groups", 2007; used by "Conditioned Initialization for Attention", ICLR 2026,
    algorithm 1.
    """
    shape = (shape,) if isinstance(shape, Integral) else tuple(shape)
    dtype = keras.backend.standardize_dtype(dtype or keras.config.floatx())
    if len(shape) < 2 or not all(isinstance(n, Integral) and n > 0 for n in shape):
        raise ValueError(
            "The sizes of semi-orthogonal matrices are positive integers, two or more. "
            f"Received: shape={shape}. Expected (..., N, D)."
        )
    if not keras.backend.is_float_dtype(dtype):
        raise ValueError(
            f"Expected a float dtype, such as 'float32'. Received: dtype={dtype!r}."
        )
    rows, columns = shape[-2:]
    tall = (*shape[:-2], max(rows, columns), min(rows, columns))
    exact = dtype if dtype == "float64" else "float32"
    q, r = ops.qr(keras.random.normal(tall, seed=seed, dtype=exact))
    sign = ops.where(ops.diagonal(r, axis1=-2, axis2=-1) < 0, -1.0, 1.0)
    q = q * ops.cast(sign, exact)[..., None, :]
    if rows < columns:
        q = ops.swapaxes(q, -1, -2)
    return ops.cast(q, dtype)
