"""Penalties on badly conditioned kernels."""

from keras_cond.regularizers.condition_number import ConditionNumber

__all__ = ["ConditionNumber"]
