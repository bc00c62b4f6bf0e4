"""Where a stock layer keeps its kernels, and how to read one head's matrix."""

import keras
import numpy as np


def attention_kernels(initializer, heads=3, size=4, width=12):
    """Kernels by role of a stock `MultiHeadAttention` built with `initializer`."""
    layer = keras.layers.MultiHeadAttention(heads, size, kernel_initializer=initializer)
    layer.build((None, 5, width), (None, 5, width))
    kernels = [w for w in layer.get_weights() if w.ndim == 3]
    return dict(zip(("query", "key", "value", "output"), kernels, strict=True))


def input_heads(kernel):
    """The D x d matrices of a kernel (D, heads, d)."""
    return list(np.moveaxis(np.asarray(kernel, "float64"), 1, 0))


def output_heads(kernel):
    """The d x D matrices of a kernel (heads, d, D)."""
    return list(np.asarray(kernel, "float64"))
