"""Conditioning of models that exist, and back to stock layers."""

from keras_cond.surgery.apply import apply
from keras_cond.surgery.fold import fold
from keras_cond.surgery.initialize import initialize
from keras_cond.surgery.weights_from import weights_from

__all__ = ["apply", "fold", "initialize", "weights_from"]
