"""Callbacks that watch the conditioning of a model while it trains."""

from keras_cond.callbacks.condition_monitor import ConditionMonitor

__all__ = ["ConditionMonitor"]
