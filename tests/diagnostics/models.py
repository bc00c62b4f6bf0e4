"""Small attention models for the tests of instruments."""

import keras
import numpy as np

TOKENS, WIDTH, HEADS, HEAD_DIM = 6, 8, 2, 4


def attention_model(num_layers=2, attention=None, mask=False, dropout=0.0, **kwargs):
    """A residual stack of attention layers over tokens (6, 8), with a dense head."""
    inputs = keras.Input((TOKENS, WIDTH))
    x = keras.layers.Masking(-1.0)(inputs) if mask else inputs
    for index in range(num_layers):
        make = attention or keras.layers.MultiHeadAttention
        layer = make(
            **(kwargs or {"num_heads": HEADS, "key_dim": HEAD_DIM}),
            dropout=dropout,
            name=f"attention_{index}",
        )
        x = keras.layers.Add()([x, layer(x, x)])
    outputs = keras.layers.Dense(1)(keras.layers.Flatten()(x))
    return keras.Model(inputs, outputs, name="small")


def batch(samples=3, seed=0):
    """Random tokens."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(samples, TOKENS, WIDTH)).astype("float32")


def set_kernel(dense, kernel):
    """Assigns the kernel of a projection from heads × D × d matrices."""
    dense.kernel.assign(np.moveaxis(np.asarray(kernel, "float32"), 0, 1))


def head_kernel(dense):
    """The stored kernel as float64 (heads, D, d)."""
    kernel = np.asarray(keras.ops.convert_to_numpy(dense.kernel), "float64")
    return np.moveaxis(kernel, 1, 0)


@keras.saving.register_keras_serializable(package="keras_cond_tests")
class Scaled(keras.layers.Layer):
    """Self-attention of one's own: no attention scores, a scale to choose."""

    def __init__(self, scale=None, softmax_layer=False, **kwargs):
        super().__init__(**kwargs)
        self.num_heads = HEADS
        self.scale = HEAD_DIM**-0.5 if scale is None else scale
        shape = (None, HEADS, HEAD_DIM)
        self.query_dense = keras.layers.EinsumDense("btd,dhk->bthk", shape)
        self.key_dense = keras.layers.EinsumDense("btd,dhk->bthk", shape)
        self.value_dense = keras.layers.EinsumDense("btd,dhk->bthk", shape)
        self.output_dense = keras.layers.EinsumDense("bthk,hkd->btd", (None, WIDTH))
        if softmax_layer:
            self._softmax = keras.layers.Softmax()

    def build(self, input_shape):
        for dense in (self.query_dense, self.key_dense, self.value_dense):
            dense.build(input_shape)
        self.output_dense.build((*input_shape[:-1], HEADS, HEAD_DIM))

    def call(self, x):
        q, k = self.query_dense(x), self.key_dense(x)
        scores = keras.ops.einsum("bthk,bshk->bhts", q, k) * self.scale
        softmax = getattr(self, "_softmax", keras.ops.softmax)
        heads = keras.ops.einsum(
            "bhts,bshk->bthk", softmax(scores), self.value_dense(x)
        )
        return self.output_dense(heads)

    def compute_output_shape(self, input_shape):
        return input_shape
