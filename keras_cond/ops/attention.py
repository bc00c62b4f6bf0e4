"""Scaled dot-product attention with its probabilities, and their entropy."""

from math import sqrt

import keras
from keras import ops

from keras_cond.ops.validation import float_tensor


def attention(q, k, v, mask=None):
    """Attention of one head: A = P v with P = softmax(q kᵀ / √d).

    Args:
        q: Float tensor of shape (..., N, d), projected queries.
        k: Float tensor of shape (..., S, d), projected keys.
        v: Float tensor of shape (..., S, d_v), projected values.
        mask: None, or booleans that broadcast to (..., N, S), true where a query may
            attend. A query that may attend nowhere has zero probabilities and output.

    Returns:
        Tuple `(A, P)` of shapes (..., N, d_v), in the unit of `v`, and (..., N, S),
        dimensionless, rows summing to 1. Computed in float32, or in float64 for
        float64, and returned so.

    Raises:
        ValueError: If a tensor holds integers or has fewer than two dimensions, or the
            widths of `q` and `k` or the lengths of `k` and `v` differ.

    Example:

    >>> q = np.eye(3, 2)
    >>> output, probabilities = keras_cond.ops.attention(q, q, q)
    >>> probabilities.shape
    (3, 3)

    Reference: A. Vaswani et al., "Attention Is All You Need", 2017, equation 1.
    """
    q, k, v = (float_tensor(x)[0] for x in (q, k, v))
    if q.shape[-1] != k.shape[-1] or k.shape[-2] != v.shape[-2]:
        raise ValueError(
            "Queries and keys need one width, keys and values one length. Received: "
            f"q of shape {tuple(q.shape)}, k of shape {tuple(k.shape)}, v of shape "
            f"{tuple(v.shape)}. Expected (..., N, d), (..., S, d) and (..., S, d_v)."
        )
    scores = q @ ops.swapaxes(k, -1, -2) / sqrt(q.shape[-1])
    if mask is not None and not isinstance(mask, keras.KerasTensor):
        mask = ops.convert_to_tensor(mask)
    probabilities = masked_softmax(scores, mask, ops)
    return probabilities @ v, probabilities


def masked_softmax(scores, mask, xp):
    """Softmax over the last axis, zero where the mask is false.

    Args:
        scores: Array of shape (..., N, S).
        mask: None, or an array that broadcasts to it, true (or nonzero) where allowed.
        xp: `keras.ops` or `numpy`, to compute with.
    """
    if mask is None:
        weights = xp.exp(scores - xp.max(scores, axis=-1, keepdims=True))
        return weights / xp.sum(weights, axis=-1, keepdims=True)
    allowed = xp.logical_and(mask, xp.ones_like(scores, dtype="bool"))
    lowest = xp.min(scores, axis=-1, keepdims=True)
    largest = xp.max(xp.where(allowed, scores, lowest), axis=-1, keepdims=True)
    # Scores that are not allowed may be far above the largest allowed one.
    shifted = xp.where(allowed, scores - largest, xp.zeros_like(scores))
    weights = xp.where(allowed, xp.exp(shifted), xp.zeros_like(scores))
    total = xp.sum(weights, axis=-1, keepdims=True)
    return weights / xp.where(total > 0, total, xp.ones_like(total))


def attention_entropy(probabilities):
    """Entropy of each row of attention, −Σ_j P_ij log P_ij, with 0 log 0 = 0.

    Args:
        probabilities: Float tensor of shape (..., N, S), rows summing to 1.

    Returns:
        Tensor of shape (..., N), in nats: 0 for a one-hot row, log S for a uniform one.

    Raises:
        ValueError: If `probabilities` holds integers or has fewer than two dimensions.

    Example:

    >>> keras_cond.ops.attention_entropy(np.array([[0.5, 0.5], [1.0, 0.0]]))  # log 2, 0

    Reference: S. Zhai et al., "Stabilizing Transformer Training by Preventing Attention
    Entropy Collapse", 2023, section 3.
    """
    p, _ = float_tensor(probabilities)
    positive = p > 0
    logarithm = ops.log(ops.where(positive, p, ops.ones_like(p)))
    return -ops.sum(p * logarithm, axis=-1)
