"""Runnable scripts, reference models and helpers built on keras_cond."""
