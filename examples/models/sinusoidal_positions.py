"""Sinusoidal positions with a learned scale, counted over real tokens."""

import keras
import numpy as np
from keras import ops

BASE = 10_000.0


@keras.saving.register_keras_serializable(package="keras_cond_examples")
class ScaledSinusoidalPositions(keras.layers.Layer):
    """Adds s · (sin p f_0, cos p f_0, sin p f_1, ...) to the token at position p.

    f_i = 10000^(-2i/D), and the learned scalar s starts at 1/√D
    (https://arxiv.org/abs/2212.14034). The position is the number of real tokens before
    a token, so that padding on either side moves none.

    Call arguments:
        x: Float tokens `(batch, N, D)`, D even.
        mask: Boolean tensor `(batch, N)`, true at real tokens.

    Returns:
        Tokens of the same shape and dtype; the angles are computed in float32.
    """

    def build(self, x_shape):
        width = x_shape[-1]
        if width % 2:
            raise ValueError(
                f"tokens: got a width of {width}, expected an even number for pairs of "
                "sine and cosine."
            )
        self.scale = self.add_weight(
            name="scale",
            shape=(),
            initializer=keras.initializers.Constant(width**-0.5),
            autocast=False,
        )

    def call(self, x, mask):
        half = x.shape[-1] // 2
        frequencies = ops.convert_to_tensor(
            BASE ** (-np.arange(half) / half), "float32"
        )
        # Padding before the first real token shares its position.
        places = ops.maximum(ops.cumsum(ops.cast(mask, "float32"), axis=1) - 1, 0)
        angles = ops.expand_dims(places, -1) * frequencies  # (batch, N, D / 2)
        waves = ops.stack([ops.sin(angles), ops.cos(angles)], axis=-1)
        waves = ops.reshape(waves, ops.shape(x))
        return x + ops.cast(self.scale * waves, x.dtype)

    def compute_output_spec(self, x, mask):
        return keras.KerasTensor(x.shape, dtype=x.dtype)
