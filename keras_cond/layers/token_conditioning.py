"""Conditioned tokens as a layer."""

import keras

from keras_cond.backends import exportable
from keras_cond.layers.token_layer import TokenLayer
from keras_cond.ops import condition
from keras_cond.ops.validation import boolean, check_floor, check_method


@keras.saving.register_keras_serializable(package="keras_cond")
class TokenConditioning(TokenLayer):
    """Adds to the tokens of each sample what bounds their condition number by 2.

    X → X + σ_max(X) · polar(X), as `keras_cond.ops.condition`. It has no weights. In a
    vision transformer it belongs after the patch embedding, before the positions are
    added and before the first block; the later blocks get nothing.

    The correction of a token depends on all tokens of its sample. In a causal model
    each would know later ones: use `ConditionedEmbedding(condition="table")` there.

    Args:
        method: `"newton_schulz"` (default, matrix products) or `"svd"`.
        floor: float in (0, 1), a fraction of σ_max below which a direction is not
            lifted in full; 1e-3 is what float32 carries.
        stop_gradient: bool. If True, the correction counts as constant in the backward
            pass. The default is the exact gradient; the paper does not say.
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
    >>> y = keras_cond.TokenConditioning()(x)
    >>> keras_cond.ops.condition_number(y)  # at most 2

    Reference: "Conditioned Embedded Tokens", ICCV 2025, arXiv:2505.12789, theorem 4.4.
    """

    def __init__(
        self, method="newton_schulz", floor=1e-3, stop_gradient=False, **kwargs
    ):
        super().__init__(**kwargs)
        check_method(method)
        check_floor(floor)
        self.method = method
        self.floor = float(floor)
        self.stop_gradient = boolean(stop_gradient, "stop_gradient")

    def transform(self, tokens, mask):
        with exportable(self.method, tokens):
            return condition(
                tokens,
                mask=mask,
                method=self.method,
                floor=self.floor,
                stop_gradient=self.stop_gradient,
            )

    def get_config(self):
        return {
            **super().get_config(),
            "method": self.method,
            "floor": self.floor,
            "stop_gradient": self.stop_gradient,
        }
