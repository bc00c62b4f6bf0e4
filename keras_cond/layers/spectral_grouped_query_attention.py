"""Grouped-query attention with spectrally conditioned projections."""

import keras

from keras_cond.initializers.seeds import for_next_use
from keras_cond.layers.spectral_correction import SpectralCorrection


@keras.saving.register_keras_serializable(package="keras_cond")
class SpectralGroupedQueryAttention(
    SpectralCorrection, keras.layers.GroupQueryAttention
):
    """`keras.layers.GroupQueryAttention` with conditioned query, key and value kernels.

    What `SpectralAttention` is to `MultiHeadAttention`, whose documentation holds here:
    W + C in place of W, with C = λ I or C = σ_max(W) · polar(W). Query kernels have the
    shape (D, query heads, d), key and value kernels (D, key/value heads, d), and each
    is corrected in its own shape.

    Args:
        head_dim: int, as in the parent.
        num_query_heads: int, as in the parent.
        num_key_value_heads: int, as in the parent.
        *args: The parent's further positional arguments.
        correction: `"identity"` (default) or `"polar"`.
        correction_scale: float ≥ 0, λ of the identity; the paper's default is 10. 0
            switches either correction off.
        per_head: bool, one C a head (default), or one for all heads of a projection.
        query_initializer: Initializer of the query kernel; `kernel_initializer` if
            None.
        key_initializer: The same for the key kernel.
        value_initializer: The same for the value kernel.
        output_initializer: The same for the output kernel.
        **kwargs: The parent's keyword arguments.

    Call arguments: Those of the parent. Inputs of shape (batch, tokens, channels).

    Returns:
        The parent's outputs, in the layer's compute dtype.

    Raises:
        ValueError: If an argument is not as above, or a projection with the polar
            correction has been quantized.

    Example:

    >>> layer = keras_cond.SpectralGroupedQueryAttention(
    ...     head_dim=4, num_query_heads=4, num_key_value_heads=2, correction="polar"
    ... )
    >>> x = np.random.default_rng(0).normal(size=(1, 5, 8)).astype("float32")
    >>> layer(x, x).shape
    (1, 5, 8)

    Reference: "Spectral Conditioning of Attention", NeurIPS 2025, arXiv:2603.07162,
    definition 3.6; grouped queries are not in the paper.
    """

    def __init__(
        self,
        head_dim,
        num_query_heads,
        num_key_value_heads,
        *args,
        correction="identity",
        correction_scale=10.0,
        per_head=True,
        query_initializer=None,
        key_initializer=None,
        value_initializer=None,
        output_initializer=None,
        **kwargs,
    ):
        super().__init__(
            head_dim, num_query_heads, num_key_value_heads, *args, **kwargs
        )
        self.kernel_initializer = for_next_use(self.kernel_initializer)
        self._set_correction(
            correction,
            correction_scale,
            per_head,
            {
                "query": query_initializer,
                "key": key_initializer,
                "value": value_initializer,
                "output": output_initializer,
            },
        )
