"""A limit on the condition number of a kernel, kept after every step."""

import keras
from keras import ops

from keras_cond import kernel_layout as layout
from keras_cond.ops import limit_condition
from keras_cond.ops.validation import boolean, check_limit


@keras.saving.register_keras_serializable(package="keras_cond")
class MaxConditionNumber(keras.constraints.Constraint):
    """Keeps κ of a kernel below a limit: singular values s_i ← max(s_i, σ_max/limit).

    The optimizer applies it after every step. Large singular values and the singular
    vectors stay; small ones are lifted, and directions that the kernel does not have
    (repeated columns, `RectangularIdentity` read jointly) are filled in. It works by
    matrix products alone (see `keras_cond.ops.limit_condition`), in float32 or wider
    whatever the dtype of the kernel. A kernel within the limit is not touched.

    Afterwards κ ≤ limit · (1 + 1e-3) for a limit up to 1e3, 1e-2 for up to 1e4. Kernels
    stored in half precision are rounded once more: bfloat16 cannot keep a limit much
    above 100, float16 above 1000 (mixed policies store float32). Initial values are
    constrained from the first step on.

    What it does to each projection when passed as `kernel_constraint`:

    - query, key and value of `MultiHeadAttention` and `GroupQueryAttention`, of shape
      (D, heads, d): per head, each head's D × d matrix is limited; jointly, the
      D × (heads · d) matrix. The joint one is where large κ is found, and costs more.
    - the output projection (heads, d, D): per head, each d × D matrix; jointly, the
      (heads · d) × D matrix. It is recognized by `num_heads`; without it by
      heads · d = D and heads ≤ d, and is else taken for a (D, heads, d) kernel.
    - `Dense` and `EinsumDense` of rank 2: the kernel, or per head, given `num_heads`,
      each block of columns.

    In `SpectralAttention` it limits the stored W, not W + C.

    Args:
        limit: float in (1, 1e4], dimensionless.
        per_head: bool, one limit a head (the default) or one for all together.
        num_heads: int or None. Tells layouts apart where the shape alone does not.

    Raises:
        ValueError: If an argument is not as above, or a kernel is neither of rank 2 nor
            3, or has no axis of `num_heads` heads.

    Example:

    >>> layer = keras.layers.MultiHeadAttention(
    ...     num_heads=2,
    ...     key_dim=4,
    ...     kernel_constraint=keras_cond.MaxConditionNumber(10, per_head=False),
    ... )
    >>> kernel = np.diag([1.0, 0.5, 0.01, 0.0])
    >>> keras_cond.MaxConditionNumber(10)(kernel)  # diag(1, 0.5, 0.1, 0.1)

    Reference: N. Higham, "Functions of Matrices", chapter 8.
    """

    def __init__(self, limit, per_head=True, num_heads=None):
        self.limit = check_limit(limit)
        self.per_head = boolean(per_head, "per_head")
        self.num_heads = layout.head_count(num_heads)

    def __call__(self, w):
        w = ops.convert_to_tensor(w)
        shape = tuple(w.shape)
        axis = layout.head_axis(shape, self.num_heads, self)
        if not self.per_head:
            joint = limit_condition(layout.joint(w, axis), self.limit)
            return ops.reshape(joint, shape)
        matrices = layout.matrices(w, self.num_heads, axis)
        matrices = limit_condition(matrices, self.limit)
        return layout.per_head(matrices, shape, self.num_heads, axis)

    def get_config(self):
        return {
            "limit": self.limit,
            "per_head": self.per_head,
            "num_heads": self.num_heads,
        }
