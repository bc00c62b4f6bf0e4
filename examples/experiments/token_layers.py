"""Layers on tokens that only the experiments need."""

import keras_cond


class PartialTokenConditioning(keras_cond.TokenConditioning):
    """X + αC in place of X + C: κ is at most (1 + α)/α, and scale nearly that of X.

    Args:
        correction_scale: α, a positive float.
        **kwargs: Those of `keras_cond.TokenConditioning`.
    """

    def __init__(self, correction_scale, **kwargs):
        super().__init__(**kwargs)
        self.correction_scale = correction_scale

    def transform(self, tokens, mask):
        correction = super().transform(tokens, mask) - tokens
        return tokens + self.correction_scale * correction

    def get_config(self):
        return {**super().get_config(), "correction_scale": self.correction_scale}


class UnitTokenConditioning(keras_cond.TokenConditioning):
    """(X + C)/2 in place of X + C: the same κ, and σ_max of X."""

    def transform(self, tokens, mask):
        return super().transform(tokens, mask) / 2
