"""Semi-orthogonal initialization of query and key kernels, head by head."""

import keras
from keras import ops

from keras_cond import kernel_layout as layout
from keras_cond.initializers.seeds import draw_seed, seed_or_none
from keras_cond.ops.semi_orthogonal import semi_orthogonal
from keras_cond.ops.validation import finite_number


@keras.saving.register_keras_serializable(package="keras_cond")
class SemiOrthogonalQK(keras.initializers.Initializer):
    """Makes the kernel of each head semi-orthogonal: its singular values are `gain`.

    For a query or key kernel, head i gets W_i = gain · U Vᵀ of a Gaussian D × d matrix
    U S Vᵀ, independently of the other heads. `keras.initializers.Orthogonal` flattens
    (D, heads, d) to (D · heads, d) instead, and its heads are not orthogonal.

    What it does to each projection when passed as `kernel_initializer`:

    - query, key and value of `MultiHeadAttention` and `GroupedQueryAttention`, of shape
      (D, heads, d): semi-orthogonal D × d matrices, independent.
    - the output projection (heads, d, D): semi-orthogonal d × D matrices. With
      `num_heads` they are independent; without it, if heads · d ≤ D, they are also
      orthogonal to each other (so that either reading of the shape holds), and if
      heads · d > D the kernel is taken for a (D, heads, d) one: pass `num_heads`.
    - `Dense` and `EinsumDense` of rank 2, (D, E): one semi-orthogonal matrix, or with
      `num_heads` an independent one for each block of E / num_heads columns.

    The stock attention layers clone their initializer with its seed for every
    projection, so a *seeded* one there gives W_Q = W_K = W_V. Give each projection its
    own, as `keras_cond.layers.SpectralAttention` does, or leave the seed out.

    Args:
        gain: float, the singular values, dimensionless. The paper uses 1, the default.
        num_heads: int or None. Tells layouts apart where the shape alone does not.
        seed: int, `keras.random.SeedGenerator` or None. With an int, every call gives
            the same values.

    Raises:
        ValueError: If an argument is not as above, or a kernel is neither of rank 2 nor
            3, or has no axis of `num_heads` heads.

    Example:

    >>> layer = keras.layers.MultiHeadAttention(
    ...     num_heads=2, key_dim=4, kernel_initializer=keras_cond.SemiOrthogonalQK()
    ... )
    >>> layer.build((None, 5, 8), (None, 5, 8))
    >>> kernel = keras.ops.transpose(layer.query_dense.kernel, (1, 0, 2))
    >>> keras_cond.ops.condition_number(kernel)  # 1, 1

    Reference: "Conditioned Initialization for Attention", ICLR 2026, algorithm 1.
    """

    def __init__(self, gain=1.0, num_heads=None, seed=None):
        self.gain = finite_number(gain, "gain")
        self.num_heads = layout.head_count(num_heads)
        self.seed = seed_or_none(seed)
        self._draw_seed = draw_seed(self.seed)

    def __call__(self, shape, dtype=None):
        axis = layout.head_axis(shape, self.num_heads, self)
        if self.num_heads is None and len(shape) == 3:
            rows, columns = layout.joint_shape(shape, axis=0)
            if rows <= columns:
                # Orthonormal rows make the heads semi-orthogonal in either layout.
                both = semi_orthogonal((rows, columns), self._draw_seed, dtype)
                return self.gain * ops.reshape(both, shape)
        matrices = semi_orthogonal(
            layout.matrix_shape(shape, self.num_heads, axis), self._draw_seed, dtype
        )
        return self.gain * layout.per_head(matrices, shape, self.num_heads, axis)

    def get_config(self):
        return {
            "gain": self.gain,
            "num_heads": self.num_heads,
            "seed": keras.saving.serialize_keras_object(self.seed),
        }
