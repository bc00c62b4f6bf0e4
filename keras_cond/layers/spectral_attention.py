"""Multi-head attention with spectrally conditioned projections."""

import keras

from keras_cond.initializers.seeds import for_next_use
from keras_cond.layers.spectral_correction import SpectralCorrection


@keras.saving.register_keras_serializable(package="keras_cond")
class SpectralAttention(SpectralCorrection, keras.layers.MultiHeadAttention):
    """`keras.layers.MultiHeadAttention` with conditioned query, key and value kernels.

    Attention(X) = softmax(X (W_Q + C_Q) (W_K + C_K)ᵀ Xᵀ / √d) X (W_V + C_V), where

    - `correction="identity"`: C = λ I, the rectangular identity, fixed;
    - `correction="polar"`: C = σ_max(W) · polar(W), recomputed at every call, so that
      κ(W + C) ≤ 2 all through training (see `keras_cond.ops.condition`).

    The layer *is* a `MultiHeadAttention`: it takes every argument, mask and option of
    its parent and returns the same. Its weights are the raw W, with the names and the
    order of the parent's: `spectral.set_weights(stock.get_weights())` and the reverse
    move weights between them, and decay, constraints, LoRA and files never see C.

    Good to know about the identity:

    - λ = 10 is the paper's default. Without weight decay, W + λI trains exactly like an
      ordinary kernel that starts at W₀ + λI; with decoupled decay it is that, decaying
      toward λI.
    - With layer-normalized random tokens λ ≥ 2 makes the softmax one-hot at the start.
      In a small ViT on 10,000 images of Fashion-MNIST λ = 10 cost 14.4 ± 2.8 points of
      accuracy (mean and 95 % interval of 5 seeds; λ = 2: 1.7 ± 2.6, of 3). In a small
      GPT it lowered the loss, and so did a start at W₀ + 10 I without the correction.
    - What conditions without that harm is `correction="polar", per_head=False`: in the
      same ViT 1.6 ± 1.3 points above the plain model and 1.4 ± 0.6 above one whose
      kernels start at the same norms, with κ ≤ 2 throughout (docs/evidence.md).
    - Each head's D × d matrix is well conditioned already at the usual initialization
      (κ of 2 to 4); it is the D × (heads · d) matrix that has κ of 1e2 to 1e3.

    Args:
        num_heads: int, as in the parent.
        key_dim: int, as in the parent.
        *args: The parent's further positional arguments.
        correction: `"identity"` (default, costs next to nothing) or `"polar"`.
        correction_scale: float ≥ 0, λ of the identity, in the unit of the kernel. The
            size of the polar correction is σ_max(W) whatever the scale, except that 0
            switches either correction off: then the layer equals its parent bit for
            bit.
        per_head: bool. If True (default, the paper's notation), C is made for each
            head's D × d matrix, and with the identity each head reads the first d
            coordinates. If False, C is made for the D × (heads · d) matrix, and head h
            reads its own slice.
        query_initializer: Initializer of the query kernel; `kernel_initializer` if
            None. A seeded initializer gives each projection, and each layer that the
            same instance is passed to, different values; in the parent all are equal.
        key_initializer: The same for the key kernel.
        value_initializer: The same for the value kernel.
        output_initializer: The same for the output kernel.
        **kwargs: The parent's keyword arguments.

    Call arguments: Those of the parent. Inputs of shape (batch, ..., tokens, channels).

    Returns:
        The parent's outputs, in the layer's compute dtype. The polar factor is computed
        from the stored kernels, in float32 or wider.

    Raises:
        ValueError: If an argument is not as above, or a projection with the polar
            correction has been quantized.

    Example:

    >>> layer = keras_cond.SpectralAttention(
    ...     num_heads=2, key_dim=4, correction="polar", per_head=False
    ... )
    >>> x = np.random.default_rng(0).normal(size=(1, 5, 8)).astype("float32")
    >>> layer(x, x).shape
    (1, 5, 8)

    Reference: "Spectral Conditioning of Attention", NeurIPS 2025, arXiv:2603.07162,
    definition 3.6 and theorems 3.5 and 3.8.
    """

    def __init__(
        self,
        num_heads,
        key_dim,
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
        super().__init__(num_heads, key_dim, *args, **kwargs)
        self._kernel_initializer = for_next_use(self._kernel_initializer)
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
