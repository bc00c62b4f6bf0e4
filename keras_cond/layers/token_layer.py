"""What the layers that transform tokens share."""

import keras
from keras import ops


class TokenLayer(keras.layers.Layer):
    """Base of layers that map tokens (batch, ..., N, D) to tokens of the same shape.

    A subclass defines `transform(tokens, mask)`. Tokens arrive in the precision they
    have, and what comes back is cast to the compute dtype. The mask, of shape
    (batch, ..., N), is that of the inputs or the argument `mask`, and is passed on.
    """

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True
        # Inputs are not rounded to the compute dtype before the transform.
        self.autocast = False

    def call(self, inputs, mask=None):
        self._check(inputs)
        return ops.cast(self.transform(inputs, mask), self.compute_dtype)

    def compute_output_shape(self, input_shape):
        return input_shape

    def compute_output_spec(self, inputs, mask=None):
        self._check(inputs)
        return keras.KerasTensor(inputs.shape, dtype=self.compute_dtype)

    def _check(self, inputs):
        dtype = keras.backend.standardize_dtype(inputs.dtype)
        if len(inputs.shape) < 3 or not keras.backend.is_float_dtype(dtype):
            raise ValueError(
                f"`{type(self).__name__}` takes float tokens of shape (batch, ..., "
                f"tokens, channels). Received: shape={tuple(inputs.shape)}, "
                f"dtype={dtype}. Embed token ids first; add the missing axis of a "
                "single sequence with `keras.ops.expand_dims(x, 0)`."
            )
