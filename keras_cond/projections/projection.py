"""One projection of an attention layer, as one matrix a head."""

import numpy as np
from keras import ops

from keras_cond.layers.corrected_einsum_dense import CorrectedEinsumDense


class Projection:
    """Reads and writes a kernel as matrices, whatever its layout.

    A query, key or value projection maps tokens x of shape (..., D) to
    x @ matrices[h] + bias[h] for each head h, with matrices of shape (heads, D, d) and
    a bias of shape (heads, d). An output projection maps the heads' outputs a to
    Σ_h a_h @ matrices[h] + bias, with matrices of shape (heads, d, D) and a bias of
    shape (D,).

    Made by `find_attention`. Nothing is copied before it is read, so a projection
    follows the training of its layer.

    Args:
        dense: The `Dense` or `EinsumDense` layer that holds the kernel.
        layout: `Layout`, how its kernel is read.

    Example:

    >>> layer = keras.layers.MultiHeadAttention(num_heads=2, key_dim=3)
    >>> layer.build((None, 5, 8), (None, 5, 8))
    >>> query = keras_cond.projections.find_attention(layer)[0].query
    >>> query.read().shape
    (2, 8, 3)
    >>> query.write(2 * query.read())
    """

    def __init__(self, dense, layout):
        self.dense = dense
        self.layout = layout

    @property
    def shape(self):
        """The shape of the matrices: (heads, D, d), or (heads, d, D) for outputs."""
        return self.layout.shape

    @property
    def variable(self):
        """The Keras variable of the kernel; the parts of a fused kernel share it."""
        self._check_float()
        return next(w for w in self.dense.weights if w.name == "kernel")

    def read(self):
        """Returns the stored kernel as matrices.

        Returns:
            NumPy array of the shape of the projection: float64 if the kernel is, else
            float32. It is a copy.

        Raises:
            ValueError: If the kernel has been quantized.
        """
        return self.layout.matrices(_numpy(self.variable)).copy()

    def effective(self):
        """Returns the matrices that act: with their correction and LoRA.

        Returns:
            NumPy array as that of `read`.

        Raises:
            ValueError: If the kernel has been quantized.
        """
        self._check_float()
        if isinstance(self.dense, CorrectedEinsumDense):
            kernel = self.dense.corrected_kernel()
        else:
            kernel = self.dense.kernel
        return self.layout.matrices(_numpy(kernel)).copy()

    def write(self, matrices):
        """Assigns the stored kernel; other parts of a fused kernel keep their values.

        Args:
            matrices: Array of the shape of the projection.

        Raises:
            ValueError: If the shape is another, a number is not finite in the dtype of
                the kernel, or the kernel has been quantized.
        """
        self.variable.assign(self.checked(matrices))

    def checked(self, matrices):
        """Returns the whole kernel as `write` would assign it; raises as `write`."""
        matrices = np.asarray(ops.convert_to_numpy(matrices))
        if matrices.shape != self.shape:
            raise ValueError(
                f"`matrices` holds one matrix a head. Received: shape={matrices.shape} "
                f"for the projection {self.dense.path!r}. Expected: {self.shape}, the "
                "shape that `read()` returns."
            )
        variable = self.variable
        kernel = _numpy(variable)
        self.layout.matrices(kernel)[...] = matrices
        stored = ops.convert_to_numpy(ops.cast(kernel, variable.dtype))
        bad = np.size(stored) - np.isfinite(stored.astype("float64")).sum()
        if bad:
            raise ValueError(
                f"`matrices` must be finite. Received: {bad} values that are NaN or "
                f"infinite in {variable.dtype}, for the projection "
                f"{self.dense.path!r}. Check how they were computed; nothing was "
                "written."
            )
        return kernel

    def bias(self):
        """Returns the bias as NumPy (heads, d), or (D,) for outputs; None if none."""
        if self.dense.bias is None:
            return None
        return self.layout.bias(_numpy(self.dense.bias)).copy()

    def __repr__(self):
        return f"<Projection {self.dense.path!r} of shape {self.shape}>"

    def _check_float(self):
        mode = self.dense.quantization_mode
        if mode is not None:
            raise ValueError(
                f"The projection {self.dense.path!r} is quantized. Received: "
                f"quantization_mode={mode!r}. Expected a kernel in floating point: "
                "read or write it before you quantize the model."
            )


def _numpy(kernel):
    """Returns a contiguous NumPy copy in float32, or float64 where it is that."""
    array = np.asarray(ops.convert_to_numpy(ops.convert_to_tensor(kernel)))
    dtype = "float64" if array.dtype == np.float64 else "float32"
    return np.array(array, dtype=dtype, order="C")
