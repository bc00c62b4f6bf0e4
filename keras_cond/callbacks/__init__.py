"""Callbacks that watch or change the conditioning of a model while it trains."""

from keras_cond.callbacks.condition_monitor import ConditionMonitor
from keras_cond.callbacks.conditioning_schedule import ConditioningSchedule

__all__ = ["ConditionMonitor", "ConditioningSchedule"]
