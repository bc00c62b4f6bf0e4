"""What a found attention layer must satisfy, whatever its layout."""

import numpy as np
from keras import ops

from tests.autodiff import to_numpy


def randomize(attention, seed=0):
    """Gives every kernel and bias of an attention layer random values."""
    rng = np.random.default_rng(seed)
    for projection in projections(attention):
        projection.write(rng.normal(size=projection.shape) / 2)
        bias = projection.dense.bias
        if bias is not None:
            bias.assign(rng.normal(size=bias.shape) / 2)


def projections(attention):
    """Returns the projections of an attention layer that it has."""
    four = (attention.query, attention.key, attention.value, attention.output)
    return [projection for projection in four if projection is not None]


def tokens(width, shape=(2, 5), seed=1):
    return np.random.default_rng(seed).normal(size=(*shape, width)).astype("float32")


def by_hand(attention, queries, keys=None, scale=None):
    """Computes softmax(q kᵀ · scale) v for each head and sums the outputs.

    Args:
        attention: What `find_attention` found.
        queries: NumPy array of shape (batch, tokens, D).
        keys: The same for keys and values; `queries` if None.
        scale: float; 1 / √d if None.
    """
    keys = queries if keys is None else keys
    q, k, v = (
        np.einsum("btm,hmd->bhtd", x, projection.effective())
        + (0 if projection.bias() is None else projection.bias()[:, None])
        for x, projection in [
            (queries, attention.query),
            (keys, attention.key),
            (keys, attention.value),
        ]
    )
    group = attention.num_heads // attention.num_key_value_heads
    k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
    scores = np.einsum("bhqd,bhkd->bhqk", q, k)
    scores *= attention.head_dim**-0.5 if scale is None else scale
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    heads = np.einsum("bhqk,bhkd->bhqd", weights, v)
    bias = attention.output.bias()
    outputs = np.einsum("bhqd,hdm->bqm", heads, attention.output.effective())
    return outputs if bias is None else outputs + bias


def assert_each_computes_the_product(attention):
    """Each layer that holds a kernel of its own computes x @ matrices + bias."""
    for projection in (attention.query, attention.key, attention.value):
        x = tokens(projection.shape[1])
        expected = np.einsum("btm,hmd->bthd", x, projection.read())
        assert_computes(projection, x, expected)
    if attention.output is not None:
        heads, width, _ = attention.output.shape
        x = tokens(heads * width).reshape(2, 5, heads, width)
        expected = np.einsum("bthd,hdm->btm", x, attention.output.read())
        if len(attention.output.dense.kernel.shape) == 2:
            x = x.reshape(2, 5, heads * width)
        assert_computes(attention.output, x, expected)


def assert_computes(projection, x, expected):
    if projection.bias() is not None:
        expected = expected + projection.bias()
    got = to_numpy(projection.dense(ops.convert_to_tensor(x)))
    np.testing.assert_allclose(
        got.reshape(expected.shape), expected, rtol=1e-5, atol=1e-5
    )
