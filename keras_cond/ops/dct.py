"""Orthonormal discrete cosine transform."""

from functools import lru_cache
from numbers import Integral

import keras
import numpy as np
from keras import ops

from keras_cond.backends import spread
from keras_cond.ops.scale import transposed
from keras_cond.ops.validation import float_tensor


def dct(x, axis=-1):
    """Orthonormal DCT-II along one axis.

    y_k = c_k Σ_n x_n cos(π (2n + 1) k / 2N) with c_0 = √(1/N) and c_k = √(2/N).

    Args:
        x: Float tensor of rank 1 or more.
        axis: int, the axis of length N. It may be of unknown length.

    Returns:
        Tensor of the shape, dtype and unit of `x`. Computed in float32, or in float64
        for float64.

    Raises:
        ValueError: If `x` holds integers, is a scalar, or has no such axis.

    Example:

    >>> keras_cond.ops.dct(np.ones((1, 4)))  # [[2, 0, 0, 0]]

    Reference: N. Ahmed, T. Natarajan, K. Rao, "Discrete Cosine Transform", 1974.
    """
    return _transform(x, axis, inverse=False)


def idct(x, axis=-1):
    """Orthonormal DCT-III along one axis: the inverse and the transpose of `dct`.

    Args:
        x: Float tensor of rank 1 or more.
        axis: int, the axis of length N. It may be of unknown length.

    Returns:
        Tensor of the shape, dtype and unit of `x`. Computed in float32, or in float64
        for float64.

    Raises:
        ValueError: If `x` holds integers, is a scalar, or has no such axis.

    Example:

    >>> keras_cond.ops.idct(np.array([[2.0, 0, 0, 0]]))  # [[1, 1, 1, 1]]

    Reference: N. Ahmed, T. Natarajan, K. Rao, "Discrete Cosine Transform", 1974.
    """
    return _transform(x, axis, inverse=True)


def _transform(x, axis, inverse):
    x, dtype = float_tensor(x, rank=1)
    whole = isinstance(axis, Integral) and not isinstance(axis, bool)
    if not whole or not -len(x.shape) <= axis < len(x.shape):
        raise ValueError(
            f"`axis` is not an axis of the tensor. Received: axis={axis!r}, shape="
            f"{tuple(x.shape)}. Expected -{len(x.shape)} <= axis < {len(x.shape)}."
        )
    x = ops.moveaxis(x, axis, -1)
    basis = dct_basis(x, -1)
    basis = basis if inverse else transposed(basis)
    # TensorFlow multiplies no vectors.
    y = x @ basis if len(x.shape) > 1 else (x[None] @ basis)[0]
    return ops.cast(ops.moveaxis(y, -1, axis), dtype)


def dct_basis(x, axis):
    """Matrix of the DCT-II for the length of one axis of `x`, in the dtype of `x`.

    Returns:
        Tensor of shape (N, N), or (..., N, N) as `spread` has it; row k is the k-th
        cosine.
    """
    length = x.shape[axis]
    dtype = keras.backend.standardize_dtype(x.dtype)
    if isinstance(length, int):
        basis = ops.convert_to_tensor(constant_basis(length).astype(dtype))
        return spread(basis, x)
    length = ops.shape(x)[axis]
    place = ops.arange(length, dtype="int32")
    length = ops.cast(length, "int32")
    return spread(_cosines(place[:, None], place[None, :], length, dtype), x)


def dct_of_channels(x):
    """Orthonormal DCT-II along the last axis, in an order of its own.

    Cosines of even frequency are symmetric, the others antisymmetric, so the sums and
    the differences of mirrored channels need products of half the length: half of the
    operations.

    Args:
        x: Float tensor of shape (..., N, D).

    Returns:
        Tensor of that shape: the coefficients of even frequency, then the others; in
        their usual order where D is odd or unknown.
    """
    if not _splits(x):
        return x @ transposed(dct_basis(x, -1))
    even, odd = _half_bases(x)
    front, back = ops.split(x, 2, axis=-1)
    back = ops.flip(back, axis=-1)
    coefficients = (front + back) @ transposed(even), (front - back) @ transposed(odd)
    return ops.concatenate(coefficients, axis=-1)


def idct_of_channels(x):
    """The inverse and the transpose of `dct_of_channels`."""
    if not _splits(x):
        return x @ dct_basis(x, -1)
    parts = zip(ops.split(x, 2, axis=-1), _half_bases(x), strict=True)
    even, odd = (part @ basis for part, basis in parts)
    return ops.concatenate([even + odd, ops.flip(even - odd, axis=-1)], axis=-1)


def _splits(x):
    length = x.shape[-1]
    return isinstance(length, int) and length % 2 == 0


def _half_bases(x):
    """The front halves of the cosines of even and of odd frequency, by channel."""
    dtype = keras.backend.standardize_dtype(x.dtype)
    basis = constant_basis(x.shape[-1])[:, : x.shape[-1] // 2].astype(dtype)
    return [spread(ops.convert_to_tensor(basis[i::2]), x) for i in (0, 1)]


def masked_dct_basis(real, dtype):
    """Matrix of the DCT-II over the real tokens of each sample.

    Args:
        real: Boolean tensor of shape (..., N), true at real tokens, wherever they are.
        dtype: Name of the dtype of the result.

    Returns:
        Tensor of shape (..., N, N): with L real tokens, row k < L is the k-th cosine of
        length L over those tokens, and zero at the others; the other rows are zero.
    """
    count = ops.cast(real, "int32")
    place = ops.cumsum(count, axis=-1) - 1
    length = ops.sum(count, axis=-1, keepdims=True)[..., None]
    frequency = ops.cumsum(ops.ones_like(count), axis=-1) - 1
    frequency, place = frequency[..., :, None], place[..., None, :]
    basis = _cosines(frequency, place, ops.maximum(length, 1), dtype)
    used = ops.logical_and(frequency < length, real[..., None, :])
    return ops.where(used, basis, ops.zeros_like(basis))


@lru_cache(maxsize=64)
def constant_basis(length):
    """Matrix of the DCT-II of a known length: a float64 array, not to be changed."""
    frequency, place = np.arange(length)[:, None], np.arange(length)[None, :]
    angle = (2 * place + 1) * frequency % (4 * length) * (np.pi / (2 * length))
    basis = np.sqrt(2 / length) * np.cos(angle)
    basis[:1] /= np.sqrt(2)
    return basis


def _cosines(frequency, place, length, dtype):
    """The same from int32 tensors; the angle is reduced exactly, before rounding."""
    turn = ops.mod((2 * place + 1) * frequency, 4 * length)
    size = ops.cast(length, dtype)
    cosine = ops.cos(ops.cast(turn, dtype) * (np.pi / 2) / size)
    weight = ops.where(frequency > 0, ops.sqrt(2 / size), ops.sqrt(1 / size))
    return weight * cosine
