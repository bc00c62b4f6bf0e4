"""Conditioned attention for Keras 3, on TensorFlow, JAX and PyTorch."""

from keras_cond import initializers, layers, ops
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
    "ConditionedEmbedding",
    "DCTBasis",
    "DCTTokenGraying",
    "RectangularIdentity",
    "SVDTokenGraying",
    "SemiOrthogonalQK",
    "SpectralAttention",
    "SpectralGroupedQueryAttention",
    "TokenConditioning",
    "initializers",
    "layers",
    "ops",
]
