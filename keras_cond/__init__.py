"""Conditioned attention for Keras 3, on TensorFlow, JAX and PyTorch."""

from keras_cond import callbacks, diagnostics, initializers, layers, ops, projections
from keras_cond.callbacks import ConditionMonitor
from keras_cond.initializers import DCTBasis, RectangularIdentity, SemiOrthogonalQK
from keras_cond.layers import (
    ConditionedEmbedding,
    DCTTokenGraying,
    SpectralAttention,
    SpectralGroupedQueryAttention,
    SVDTokenGraying,
    TokenConditioning,
)

__version__ = "0.1.0"

__all__ = [
    "ConditionMonitor",
    "ConditionedEmbedding",
    "DCTBasis",
    "DCTTokenGraying",
    "RectangularIdentity",
    "SVDTokenGraying",
    "SemiOrthogonalQK",
    "SpectralAttention",
    "SpectralGroupedQueryAttention",
    "TokenConditioning",
    "callbacks",
    "diagnostics",
    "initializers",
    "layers",
    "ops",
    "projections",
]
