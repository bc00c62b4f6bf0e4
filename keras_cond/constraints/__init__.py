"""Constraints that keep kernels well conditioned during training."""

from keras_cond.constraints.max_condition_number import MaxConditionNumber

__all__ = ["MaxConditionNumber"]
