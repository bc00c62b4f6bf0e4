"""A penalty on the spread of a kernel's singular values."""

import keras
from keras import ops

from keras_cond import kernel_layout as layout
from keras_cond.ops import kaporin_penalty
from keras_cond.ops.validation import boolean, finite_number, penalty_floor


@keras.saving.register_keras_serializable(package="keras_cond")
class ConditionNumber(keras.regularizers.Regularizer):
    """Adds weight · mean over heads of β, the logarithm of Kaporin's condition number.

    β = log(tr(G)/r) − (1/r) log det G for the Gram matrix G of a kernel on its smaller
    side, r × r, divided by σ_max², plus floor² · I. It is 0 where all singular values
    are equal and grows with their spread: β ≤ 2 log κ, and κ + 1/κ ≤ 2 exp(r β/2) for κ
    below 1/floor (see `keras_cond.ops.kaporin_penalty`). It does not depend on the
    scale of the kernel, so it does not decay weights, and has a finite gradient
    everywhere. A direction that the kernel lacks altogether feels none:
    `keras_cond.MaxConditionNumber` can restore it.

    Kernels are read as matrices as by `keras_cond.MaxConditionNumber`. A usual random
    square matrix has β ≈ 1, a tall one less. Computed in float32 or wider.

    Args:
        weight: float ≥ 0, the factor of β in the loss, dimensionless. There is no
            default: the right one depends on the loss and on the number of kernels
            (a loss of about 1 and 36 kernels: try 1e-3 first).
        per_head: bool, the mean over the heads' matrices (the default), or β of the
            joint one.
        num_heads: int or None. Tells layouts apart where the shape alone does not.
        floor: float in [2e-3, 1), a fraction of σ_max: singular values below it count
            as about equal. The default, 1e-2, tells κ up to 100 apart.

    Raises:
        ValueError: If an argument is not as above, or a kernel is neither of rank 2 nor
            3, or has no axis of `num_heads` heads.

    Example:

    >>> layer = keras.layers.MultiHeadAttention(
    ...     num_heads=2,
    ...     key_dim=4,
    ...     kernel_regularizer=keras_cond.ConditionNumber(1e-3, per_head=False),
    ... )
    >>> keras_cond.ConditionNumber(1.0)(np.diag([1.0, 0.5]))  # log(1.25) = 0.22

    Reference: I. Kaporin, "New convergence results and preconditioning strategies for
    the conjugate gradient method", 1994.
    """

    def __init__(self, weight, per_head=True, num_heads=None, floor=1e-2):
        weight = finite_number(weight, "weight")
        if weight < 0:
            raise ValueError(
                "`weight` is the factor of the penalty in the loss. Received: "
                f"weight={weight}. Expected 0 or more, for example 1e-3."
            )
        self.weight = weight
        self.per_head = boolean(per_head, "per_head")
        self.num_heads = layout.head_count(num_heads)
        self.floor = penalty_floor(floor)

    def __call__(self, x):
        x = ops.convert_to_tensor(x)
        axis = layout.head_axis(x.shape, self.num_heads, self)
        if self.per_head:
            matrices = layout.matrices(x, self.num_heads, axis)
        else:
            matrices = layout.joint(x, axis)
        return self.weight * ops.mean(kaporin_penalty(matrices, self.floor))

    def get_config(self):
        return {
            "weight": self.weight,
            "per_head": self.per_head,
            "num_heads": self.num_heads,
            "floor": self.floor,
        }
