"""DCT token graying as a layer."""

import keras

from keras_cond.layers.token_graying import TokenGraying
from keras_cond.ops import dct_graying


@keras.saving.register_keras_serializable(package="keras_cond")
class DCTTokenGraying(TokenGraying):
    """Flattens the spectrum of tokens by a power of their DCT coefficients.

    X → D_Nᵀ [sign(X̂) (|X̂|/max|X̂|)^ε] D_D with X̂ = D_N X D_Dᵀ, for each sample, as
    `keras_cond.ops.dct_graying`. The paper puts it on the raw patches, before the patch
    embedding. The coefficient of a token depends on all tokens of its sample, so it
    does not belong in a causal model.

    Args:
        epsilon: float in (0, 1], the exponent; the paper uses 0.95. It is held in the
            non-trainable scalar weight `epsilon`, which a callback may assign.
        rescale: bool. If True, the largest coefficient is multiplied back, and ε = 1 is
            the identity. The default is the paper's: the largest becomes 1, which
            shrinks usual tokens to the order of one percent.
        floor: float in (0, 1), a fraction of the largest coefficient below which the
            power is a line.
        **kwargs: Those of `keras.layers.Layer`.

    Call arguments:
        inputs: Float tensor of shape (batch, ..., tokens, channels), of any unit.
        mask: Optional, of shape (batch, ..., tokens), true at real tokens; taken from
            the inputs if they carry one. Other tokens take no part and do not change.

    Returns:
        Tensor of the shape of the inputs, in the layer's compute dtype; computed in
        float32 or wider.

    Raises:
        ValueError: If an argument is not as above, or the inputs are not float tokens.

    Example:

    >>> x = np.random.default_rng(0).normal(size=(2, 5, 8)).astype("float32")
    >>> keras_cond.DCTTokenGraying(epsilon=1.0, rescale=True)(x) - x  # 0

    Reference: "Always Skip Attention", ICCV 2025, arXiv:2505.01996, DCT token graying.
    """

    def transform(self, tokens, mask):
        return dct_graying(
            tokens, self.epsilon, mask=mask, rescale=self.rescale, floor=self.floor
        )
