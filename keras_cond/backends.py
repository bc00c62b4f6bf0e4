"""The one place that asks which backend runs."""

import contextlib

import keras
import numpy as np
from keras import ops

NO_SVD = (
    "`method='svd'` cannot be exported: {reason}. Build the layer with "
    "`method='newton_schulz'` (the default), which takes matrix products alone, and "
    "give it the same weights."
)


def on_torch():
    """Returns whether the backend is PyTorch."""
    return keras.backend.backend() == "torch"


def recorded_by_torch():
    """Returns whether PyTorch records a graph for later, rather than computes now."""
    if not on_torch():
        return False
    import torch

    return torch.compiler.is_compiling() or torch.jit.is_tracing()


def add_product(addend, a, b, scale=1.0):
    """Returns scale · addend + a b.

    XLA makes one loop of it. PyTorch would run three operations, where the sum costs as
    much as a product of two hundred rows; its own operation starts the product from the
    addend.

    Args:
        addend: Tensor that broadcasts to the product.
        a: Tensor of shape (..., n, k).
        b: Tensor of shape (..., k, m), with the same leading axes.
        scale: Python float.

    Returns:
        Tensor of shape (..., n, m).
    """
    if not on_torch() or a.ndim > 3:
        return scale * addend + a @ b
    import torch

    function = torch.addmm if a.ndim == 2 else torch.baddbmm
    return function(addend, a, b, beta=scale)


def accumulate(total, a, b):
    """Returns total + a b, on PyTorch in the memory of `total`, which is then spent.

    `add_product` would copy the addend, which takes a third of the time of a product of
    two hundred rows.

    Args:
        total: Tensor of shape (..., n, m) that nothing else uses.
        a: Tensor of shape (..., n, k).
        b: Tensor of shape (..., k, m), with the same leading axes.
    """
    if not on_torch() or a.ndim > 3:
        return total + a @ b
    return total.addmm_(a, b) if a.ndim == 2 else total.baddbmm_(a, b)


def spread(matrix, x):
    """Returns a matrix that can be multiplied with each of those in `x`.

    TensorFlow's products on CPUs write outside of their result where they spread a
    matrix over two or more leading axes of which one has size 1.

    Args:
        matrix: Tensor of shape (n, k).
        x: Tensor of shape (..., N, D).

    Returns:
        The matrix; on TensorFlow with the leading axes of `x` where there are several.
    """
    if keras.backend.backend() != "tensorflow" or len(x.shape) < 4:
        return matrix
    return matrix + ops.zeros_like(x[..., :1, :1])


def known_values(x):
    """Returns a tensor as a NumPy array, or None while a graph is being traced."""
    if on_torch():
        # Reading a value would cut the graph in two, or stop an export.
        import torch

        if torch.compiler.is_compiling() or x.is_meta:
            return None
    try:
        return np.asarray(ops.convert_to_numpy(x))
    except Exception:  # Each backend raises its own error for a traced tensor.
        return None


def exportable(method, inputs):
    """Refuses an SVD where an export that would be of no use traces the call.

    Neither Keras nor TensorFlow says that a call is traced for an export to ONNX. On
    TensorFlow the converter names the operations that it lacks, so the name says what
    to do.

    Args:
        method: `"newton_schulz"` or `"svd"`.
        inputs: The inputs of the layer, with the batch in front.

    Returns:
        The context in which to compute.

    Raises:
        ValueError: On PyTorch in an export to ONNX, and on JAX in one with a batch of
            any size, if the method is `"svd"`.
    """
    if method != "svd":
        return contextlib.nullcontext()
    if on_torch():
        import torch

        if torch.onnx.is_in_onnx_export():
            raise ValueError(NO_SVD.format(reason="ONNX has no SVD"))
    # What Keras names the batch for an exporter of JAX; in its own tracing of shapes
    # the unknown sizes have another name.
    elif any("batch" in str(size) for size in inputs.shape):
        raise ValueError(NO_SVD.format(reason="JAX's SVD cannot be served without JAX"))
    elif keras.backend.backend() == "tensorflow":
        return keras.name_scope("ONNX_has_no_SVD_use_method_newton_schulz")
    return contextlib.nullcontext()


def own_gradient(function):
    """`keras.ops.custom_gradient` for functions of one tensor.

    Args:
        function: Takes a tensor and returns its value, one tensor, and a function that
            takes the gradient of the value to that of the argument.

    Returns:
        A function of a tensor. Where nothing can be differentiated (NumPy, OpenVINO,
        PyTorch without gradients or in an export to ONNX, which knows no functions but
        its own), it is the plain value.
    """

    def value(x):
        return function(x)[0]

    if keras.backend.backend() not in ("tensorflow", "jax", "torch"):
        return value

    def value_and_gradient(x):
        result, gradient = function(x)

        def keras_gradient(*arguments, upstream=None):
            # PyTorch gives the gradient by name, the others as the only argument.
            given = arguments[0] if upstream is None else upstream
            if keras.backend.backend() == "tensorflow":
                import tensorflow as tf

                given = tf.convert_to_tensor(given)  # That of a lookup is sparse.
            return gradient(given)

        return result, keras_gradient

    differentiable = ops.custom_gradient(value_and_gradient)
    if not on_torch():
        return differentiable

    import torch

    def called(x):
        plain = torch.onnx.is_in_onnx_export() or not torch.is_grad_enabled()
        return value(x) if plain else differentiable(x)

    return called
