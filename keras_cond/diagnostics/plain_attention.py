"""The attention softmax(X W_Q (X W_K)ᵀ / √d), and whether a layer computes just that.

Positions in the scores, soft caps, other scales and additive masks all make a layer
differ from it, and no list of layers could name them all. So the formula is compared
with what the layer returned, and used only where it accounts for it.
"""

import numpy as np

from keras_cond.ops.attention import masked_softmax

# Part of the difference from uniform attention that may be left unexplained.
UNEXPLAINED = 1e-2
# Attention nearer to uniform than this (relative) cannot be told from it in float32.
NOISE = 1e-5


def plain_probabilities(attention, tokens, allowed, output):
    """Attention probabilities by the formula, where they reproduce a layer's output.

    Args:
        attention: An attention of `find_attention`.
        tokens: Array of shape (B, N, D).
        allowed: Booleans of shape (B, N, N).
        output: Array of shape (B, N, D_out), what the layer returned.

    Returns:
        Array of shape (B, heads, N, N), or None where the formula does not account for
        the output.
    """
    if attention.output is None:
        return None
    weights = attention.output.effective()
    bias = attention.output.bias()
    groups = attention.num_heads // attention.num_key_value_heads
    q, k, v = (
        _project(projection, tokens, repeats)
        for projection, repeats in (
            (attention.query, 1),
            (attention.key, groups),
            (attention.value, groups),
        )
    )
    if v.shape[-1] != weights.shape[1] or output.shape[-1] != weights.shape[2]:
        return None

    def merge(heads):
        merged = np.einsum("bhnd,hdo->bno", heads, weights)
        return merged if bias is None else merged + bias

    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    probabilities = masked_softmax(scores, allowed[:, None], np)
    uniform = masked_softmax(np.zeros_like(scores), allowed[:, None], np)
    expected, flat = merge(probabilities @ v), merge(uniform @ v)
    real = allowed.any(axis=-1)
    if not _accounts(output[real], expected[real], flat[real]):
        return None
    return probabilities


def same_scores(probabilities, other):
    """Whether two attention matrices have the same scores, not just similar rows.

    Rows near uniform are near each other whatever the scores, so the logarithms are
    compared, relative to their own size.

    Args:
        probabilities: Array of shape (N, N).
        other: Array of shape (N, N).
    """
    both = (probabilities > 1e-6) & (other > 1e-6)
    if (np.maximum(probabilities, other)[~both] > 1e-4).any():
        return False
    scores = [_centred_logarithm(p, both) for p in (probabilities, other)]
    return _accounts(*scores, np.zeros_like(scores[0]))


def _centred_logarithm(p, where):
    logarithm = np.log(np.where(where, p, 1.0))
    count = np.maximum(where.sum(axis=-1, keepdims=True), 1)
    mean = logarithm.sum(axis=-1, keepdims=True) / count
    return np.where(where, logarithm - mean, 0.0)


def _accounts(actual, expected, trivial):
    """Whether `expected` accounts for what sets `actual` apart from the trivial."""
    apart = np.linalg.norm(expected - trivial)
    if not apart > NOISE * np.linalg.norm(actual):
        return False
    return bool(np.linalg.norm(actual - expected) <= UNEXPLAINED * apart)


def _project(projection, tokens, repeats):
    """Returns x W + b of every head, of shape (B, heads, N, d)."""
    heads = np.einsum("bnc,hcd->bhnd", tokens, projection.effective())
    bias = projection.bias()
    if bias is not None:
        heads = heads + bias[:, None, :]
    return np.repeat(heads, repeats, axis=1).astype("float32")
