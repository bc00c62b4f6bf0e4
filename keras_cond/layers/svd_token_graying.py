"""SVD token graying as a layer."""

import keras

from keras_cond.backends import exportable
from keras_cond.layers.token_graying import TokenGraying
from keras_cond.ops import svd_graying
from keras_cond.ops.validation import check_method


@keras.saving.register_keras_serializable(package="keras_cond")
class SVDTokenGraying(TokenGraying):
    """Flattens the spectrum of tokens by a power of their singular values.

    X → U (S/σ_max)^ε Vᵀ for each sample, as `keras_cond.ops.svd_graying`. The paper
    puts it on the raw patches, before the patch embedding. A token's value depends on
    all tokens of its sample, so it does not belong in a causal model.

    Args:
        epsilon: float in (0, 1], the exponent; the paper uses 0.95. It is held in the
            non-trainable scalar weight `epsilon`, which a callback may assign.
        rescale: bool. If True, σ_max is multiplied back, and ε = 1 is the identity. The
            default is the paper's: the largest singular value becomes 1, which shrinks
            usual tokens to the order of one percent.
        method: `"newton_schulz"` (default, matrix products) or `"svd"`.
        floor: float in (0, 1), a fraction of σ_max below which the power is a line.
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
    >>> y = keras_cond.SVDTokenGraying(epsilon=0.5)(x)
    >>> keras_cond.ops.condition_number(y)  # the square root of that of x

    Reference: "Always Skip Attention", ICCV 2025, arXiv:2505.01996, SVD token graying.
    """

    def __init__(
        self,
        epsilon=0.95,
        rescale=False,
        method="newton_schulz",
        floor=1e-3,
        **kwargs,
    ):
        super().__init__(epsilon=epsilon, rescale=rescale, floor=floor, **kwargs)
        check_method(method)
        self.method = method

    def transform(self, tokens, mask):
        with exportable(self.method, tokens):
            return svd_graying(
                tokens,
                self.epsilon,
                mask=mask,
                rescale=self.rescale,
                method=self.method,
                floor=self.floor,
            )

    def get_config(self):
        return {**super().get_config(), "method": self.method}
