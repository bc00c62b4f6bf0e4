"""Self-attention whose queries and keys are rotated by their positions."""

import keras
import numpy as np
from keras import ops

import keras_cond

BASE = 10_000.0


@keras.saving.register_keras_serializable(package="keras_cond_examples")
class RotaryAttention(keras_cond.layers.SpectralAttention):
    """`SpectralAttention` with rotary positions.

    The two halves of a query or key of d numbers are the coordinates of d/2 points;
    point i of the token at position p turns by p / 10000^(2i/d), so that the product of
    a query and a key depends on the distance of their tokens alone
    (https://arxiv.org/abs/2104.09864). With `correction_scale=0` this is rotary
    attention and nothing else.
    """

    def __init__(self, num_heads, key_dim, *args, **kwargs):
        if key_dim % 2:
            raise ValueError(
                f"key_dim: got {key_dim}, expected an even number for rotary positions."
            )
        super().__init__(num_heads, key_dim, *args, **kwargs)

    def _compute_attention(self, query, key, value, *args, **kwargs):
        query, key = rotate(query), rotate(key)
        return super()._compute_attention(query, key, value, *args, **kwargs)


def rotate(x, start=0):
    """Turn queries or keys by their positions.

    Args:
        x: Tensor `(batch, tokens, heads, d)`, d even.
        start: Position of the first token.

    Returns:
        Tensor of the same shape and dtype; the angles are computed in float32.
    """
    half = x.shape[-1] // 2
    frequencies = ops.convert_to_tensor(BASE ** (-np.arange(half) / half), "float32")
    # 0, 1, ..., T - 1, also where T is open.
    places = ops.cumsum(ops.ones_like(x[0, :, 0, 0], dtype="float32")) - 1 + start
    angles = ops.expand_dims(places, 1) * frequencies  # (tokens, d / 2)
    cos, sin = (ops.expand_dims(f(angles), 1) for f in (ops.cos, ops.sin))
    first, second = ops.split(ops.cast(x, "float32"), 2, axis=-1)
    turned = ops.concatenate(
        [first * cos - second * sin, first * sin + second * cos], axis=-1
    )
    return ops.cast(turned, x.dtype)
