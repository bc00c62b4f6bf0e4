"""Initialization by the basis of the discrete cosine transform."""

import keras
from keras import ops

from keras_cond import kernel_layout as layout
from keras_cond.ops.dct import constant_basis
from keras_cond.ops.validation import finite_number


@keras.saving.register_keras_serializable(package="keras_cond")
class DCTBasis(keras.initializers.Initializer):
    """Makes a kernel the orthonormal DCT-II basis: x · W is the DCT of x.

    For a D × E matrix with E ≤ D, column k is gain · c_k cos(π (2n + 1) k / 2D), so
    that x · W are the first E coefficients of the DCT-II of x. With E > D it is the
    transpose of the E × D matrix. All its singular values are `gain`. The heads of an
    attention kernel are taken side by side: head h gets its own slice of frequencies.

    What it does to each projection when passed as `kernel_initializer`:

    - query, key and value of `MultiHeadAttention` and `GroupedQueryAttention`, of shape
      (D, heads, d): the D × (heads · d) matrix is the basis. All three are equal: the
      paper initializes one or two of them so.
    - the output projection (heads, d, D): the (heads · d) × D matrix is. It is
      recognized by `num_heads`; without it by heads · d = D and heads ≤ d, and is else
      taken for a (D, heads, d) kernel.
    - `Dense` and `EinsumDense` of rank 2: the kernel is the basis.

    Args:
        gain: float, the singular values, dimensionless. The paper uses 1.
        num_heads: int or None. Tells layouts apart where the shape alone does not.

    Raises:
        ValueError: If an argument is not as above, or a kernel is neither of rank 2 nor
            3, or has no axis of `num_heads` heads.

    Example:

    >>> layer = keras.layers.Dense(8, kernel_initializer=keras_cond.DCTBasis())
    >>> x = np.random.default_rng(0).normal(size=(2, 8)).astype("float32")
    >>> layer(x) - keras_cond.ops.dct(x)  # 0

    Reference: "DCT decorrelated attention", arXiv:2405.13901.
    """

    def __init__(self, gain=1.0, num_heads=None):
        self.gain = finite_number(gain, "gain")
        self.num_heads = layout.head_count(num_heads)

    def __call__(self, shape, dtype=None):
        dtype = dtype or keras.config.floatx()
        axis = layout.head_axis(shape, self.num_heads, self)
        rows, columns = layout.joint_shape(shape, axis)
        basis = constant_basis(max(rows, columns))[: min(rows, columns)]
        kernel = self.gain * (basis.T if rows >= columns else basis)
        return ops.convert_to_tensor(kernel.reshape(shape), dtype=dtype)

    def get_config(self):
        return {"gain": self.gain, "num_heads": self.num_heads}
