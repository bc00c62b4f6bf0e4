"""Query, key, value and output projections of any attention layer."""

from keras_cond.projections.attention import Attention
from keras_cond.projections.find import find_attention
from keras_cond.projections.projection import Projection

__all__ = ["Attention", "Projection", "find_attention"]
