"""Gradients, compiled calls and float64 on the backend under test.

The only file of the suite, with `conftest.py`, that knows the backends by name.
"""

import contextlib

import keras
import numpy as np
from keras import ops

BACKEND = keras.backend.backend()


def to_numpy(tensor):
    """A NumPy array of any tensor, with or without a gradient; bfloat16 as float32."""
    if keras.backend.standardize_dtype(tensor.dtype) == "bfloat16":
        tensor = ops.cast(tensor, "float32")
    return np.array(ops.convert_to_numpy(tensor))


def dtype_of(tensor):
    """The dtype of a tensor by its Keras name, as "float16"."""
    return keras.backend.standardize_dtype(tensor.dtype)


def weighted_sum(weight, tensor):
    """A scalar that depends on every entry of `tensor` with its own weight."""
    return ops.sum(ops.multiply(ops.convert_to_tensor(weight, tensor.dtype), tensor))


@contextlib.contextmanager
def float64():
    """Makes float64 tensors possible: a switch on JAX, always on elsewhere."""
    if BACKEND == "jax":
        import jax

        with jax.enable_x64(True):
            yield
    else:
        yield


def gradient(function, x):
    """The gradient of the scalar `function` of one tensor, as a NumPy array."""
    x = np.asarray(x)
    if BACKEND == "tensorflow":
        import tensorflow as tf

        x = tf.convert_to_tensor(x)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = function(x)
        result = tape.gradient(y, x)
        return np.zeros(x.shape) if result is None else to_numpy(result)
    if BACKEND == "jax":
        import jax

        return np.array(jax.grad(function)(jax.numpy.asarray(x)))
    import torch

    x = torch.tensor(x, requires_grad=True)
    (result,) = torch.autograd.grad(function(x), x, allow_unused=True)
    return np.zeros(tuple(x.shape)) if result is None else to_numpy(result)


def weight_gradients(layer, loss):
    """The gradients of `loss()` in the trainable weights of a built layer or model.

    `loss` is a function without arguments that calls the layer.
    """
    variables = layer.trainable_variables
    if BACKEND == "tensorflow":
        import tensorflow as tf

        with tf.GradientTape() as tape:
            value = loss()
        return [
            to_numpy(tf.convert_to_tensor(g))
            for g in tape.gradient(value, [v.value for v in variables])
        ]
    if BACKEND == "jax":
        import jax

        def stateless(values):
            with keras.StatelessScope(zip(variables, values, strict=True)):
                return loss()

        return [
            np.asarray(g, np.float32)
            # One compiled program is quicker than compiling each operation.
            for g in jax.jit(jax.grad(stateless))([v.value for v in variables])
        ]
    import torch

    grads = torch.autograd.grad(loss(), [v.value for v in variables])
    return [to_numpy(g) for g in grads]


def compiled(function):
    """`function` compiled by XLA where the backend has it, else as it is."""
    if BACKEND == "tensorflow":
        import tensorflow as tf

        return tf.function(function, jit_compile=True)
    if BACKEND == "jax":
        import jax

        return jax.jit(function)
    return function
