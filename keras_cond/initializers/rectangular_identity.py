"""Rectangular identity initialization of value kernels."""

import keras
from keras import ops

from keras_cond import kernel_layout as layout
from keras_cond.ops.validation import boolean, finite_number


@keras.saving.register_keras_serializable(package="keras_cond")
class RectangularIdentity(keras.initializers.Initializer):
    """Makes a kernel the identity matrix, as far as its shape allows.

    (I_{D×d})_ij = gain if i = j, else 0. Per head, every head of a (D, heads, d) kernel
    is I_{D×d} and reads the first d of the D coordinates, so the heads together have
    rank d. Jointly, the D × (heads · d) matrix is the identity, and head h reads its
    own slice of coordinates. The paper's notation reads per head; its code is unknown.

    What it does to each projection when passed as `kernel_initializer`:

    - query, key and value of `MultiHeadAttention` and `GroupedQueryAttention`, of shape
      (D, heads, d): as above.
    - the output projection (heads, d, D): per head I_{d×D}, jointly I_{(heads·d)×D}.
      It is recognized by `num_heads`; without it by heads · d = D and heads ≤ d, and
      is else taken for a (D, heads, d) kernel.
    - `Dense` and `EinsumDense` of rank 2, (D, E): I_{D×E}, or per head, given
      `num_heads`, one I_{D×E/num_heads} beside the other.

    Args:
        gain: float, the entries on the diagonal, dimensionless. The paper uses 1.
        per_head: bool, one identity a head (the default) or one for all.
        num_heads: int or None. Tells layouts apart where the shape alone does not.

    Raises:
        ValueError: If an argument is not as above, or a kernel is neither of rank 2 nor
            3, or has no axis of `num_heads` heads.

    Example:

    >>> initializer = keras_cond.RectangularIdentity(per_head=False)
    >>> keras.ops.reshape(initializer((4, 2, 2)), (4, 4))  # the identity

    Reference: "Conditioned Initialization for Attention", ICLR 2026, algorithm 1.
    """

    def __init__(self, gain=1.0, per_head=True, num_heads=None):
        self.gain = finite_number(gain, "gain")
        self.per_head = boolean(per_head, "per_head")
        self.num_heads = layout.head_count(num_heads)

    def __call__(self, shape, dtype=None):
        dtype = dtype or keras.config.floatx()
        axis = layout.head_axis(shape, self.num_heads, self)
        if not self.per_head:
            identity = ops.eye(*layout.joint_shape(shape, axis), dtype=dtype)
            return self.gain * ops.reshape(identity, shape)
        heads, rows, columns = layout.matrix_shape(shape, self.num_heads, axis)
        identity = ops.eye(rows, columns, dtype=dtype)
        matrices = ops.tile(identity[None], (heads, 1, 1))
        return self.gain * layout.per_head(matrices, shape, self.num_heads, axis)

    def get_config(self):
        return {
            "gain": self.gain,
            "per_head": self.per_head,
            "num_heads": self.num_heads,
        }
