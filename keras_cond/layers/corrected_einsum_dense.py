"""A projection that acts with a corrected kernel and stores the raw one."""

import keras
from keras import ops

from keras_cond.layers.corrected_together import polar_kernels, shared_kernel

CORRECTIONS = ("identity", "polar")
HALF = ("float16", "bfloat16")


@keras.saving.register_keras_serializable(package="keras_cond")
class CorrectedEinsumDense(keras.layers.EinsumDense):
    """Projects with W + C where `kernel` is W, of shape (D, heads, d).

    The attention layers turn their query, key and value projections into this class
    once they are built (`correct`). The kernel itself is never overridden: optimizers,
    weight decay, constraints, LoRA, saving and loading all see W, and the correction is
    part of the call alone, so nothing can add it twice.

    Args:
        equation: As in `EinsumDense`.
        output_shape: As in `EinsumDense`.
        correction: `"identity"` or `"polar"`.
        correction_scale: float, λ of the identity.
        per_head: bool, whether C is computed for each head's D × d matrix or for the
            D × (heads · d) one.
        **kwargs: Those of `EinsumDense`.
    """

    def __init__(
        self,
        equation,
        output_shape,
        correction="identity",
        correction_scale=10.0,
        per_head=True,
        **kwargs,
    ):
        super().__init__(equation, output_shape, **kwargs)
        self._set(correction, correction_scale, per_head)

    def get_config(self):
        return {
            **super().get_config(),
            "correction": self.correction,
            "correction_scale": self.correction_scale,
            "per_head": self.per_head,
        }

    def _set(self, correction, scale, per_head):
        self.correction = correction
        self.correction_scale = scale
        self.per_head = per_head
        # The polar factor is computed from the full-precision kernel.
        self.autocast = correction == "identity"

    @classmethod
    def correct(cls, dense, correction, scale, per_head):
        """Turns a built `EinsumDense` into this class, in place.

        Args:
            dense: The projection, with a kernel of shape (D, heads, d).
            correction: As in the class.
            scale: float, λ of the identity.
            per_head: As in the class.
        """
        dense.__class__ = cls
        dense._set(correction, scale, per_head)

    def uncorrect(self):
        """Turns the projection back into a plain `EinsumDense`, in place."""
        self.autocast = True
        self.__class__ = keras.layers.EinsumDense

    def call(self, inputs, training=None):
        if self.correction == "identity" and self.compute_dtype in HALF:
            # W + λI in half precision would round W away.
            return super().call(inputs, training=training) + self._shift(inputs)
        kernel = shared_kernel(self)
        if kernel is None:
            kernel = self.corrected_kernel()
        kernel = ops.cast(kernel, self.compute_dtype)
        outputs = ops.einsum(self.equation, inputs, kernel)
        if self.bias is not None:
            outputs = outputs + ops.cast(self.bias, self.compute_dtype)
        return outputs

    def quantized_call(self, *args, **kwargs):
        """Adds the identity's part to the quantized product: it keeps acting."""
        if self.correction == "polar":
            raise ValueError(
                "The polar correction needs the kernel in floating point. Received: "
                f"dtype={self.dtype_policy.name!r} for the projection {self.path!r}. "
                "Add the correction to the kernels of a float layer first, then "
                "quantize it; or use `correction='identity'`."
            )
        return super().quantized_call(*args, **kwargs) + self._shift(args[0])

    def corrected_kernel(self):
        """Returns W + C, of the shape of the kernel."""
        if self.correction == "polar":
            return polar_kernels([self])[0]
        kernel = self._raw_kernel()
        size, heads, width = kernel.shape
        columns = width if self.per_head else heads * width
        added = self.correction_scale * ops.eye(size, columns, dtype=kernel.dtype)
        return kernel + ops.reshape(added, (size, -1, width))

    def matrices(self):
        """Returns what is corrected each by itself, of shape (count, D, columns)."""
        kernel = self._raw_kernel()
        if self.per_head:
            return ops.transpose(kernel, (1, 0, 2))
        return ops.reshape(kernel, (1, kernel.shape[0], -1))

    def kernel_of(self, matrices):
        """The inverse of `matrices`."""
        if self.per_head:
            return ops.transpose(matrices, (1, 0, 2))
        return ops.reshape(matrices, self._kernel.shape)

    def _raw_kernel(self):
        kernel = ops.convert_to_tensor(self._kernel)
        if self.lora_enabled:
            # `kernel` adds this too, but rounds it to the compute dtype.
            factor = self.lora_alpha / self.lora_rank
            update = factor * ops.matmul(self.lora_kernel_a, self.lora_kernel_b)
            kernel = kernel + ops.cast(update, kernel.dtype)
        return kernel

    def _shift(self, inputs):
        """Returns λ x · I without a product: the coordinates that I selects.

        Args:
            inputs: Tensor of shape (..., D).

        Returns:
            Tensor of shape (..., heads, d), or (..., 1, d) where all heads are alike.
        """
        heads, width = self.partial_output_shape[-2:]
        count = width if self.per_head else heads * width
        selected = inputs[..., :count]
        missing = count - selected.shape[-1]
        if missing:
            rank = len(selected.shape)
            selected = ops.pad(selected, [[0, 0]] * (rank - 1) + [[0, missing]])
        if self.per_head:
            selected = ops.expand_dims(selected, -2)
        else:
            selected = ops.reshape(selected, (*ops.shape(selected)[:-1], heads, width))
        return self.correction_scale * selected
