"""Conditioned attention for Keras 3, on TensorFlow, JAX and PyTorch."""

from keras_cond import (
    callbacks,
    constraints,
    diagnostics,
    initializers,
    layers,
    ops,
    projections,
    regularizers,
    surgery,
)
from keras_cond.callbacks import ConditioningSchedule, ConditionMonitor
from keras_cond.constraints import MaxConditionNumber
from keras_cond.initializers import DCTBasis, RectangularIdentity, SemiOrthogonalQK
from keras_cond.layers import (
    ConditionedEmbedding,
    ConditionedReversibleEmbedding,
    DCTTokenGraying,
    SpectralAttention,
    SpectralGroupedQueryAttention,
    SVDTokenGraying,
    TokenConditioning,
)
from keras_cond.regularizers import ConditionNumber
from keras_cond.surgery import apply, fold, initialize, weights_from

__version__ = "0.1.0"

__all__ = [
    "ConditionMonitor",
    "ConditionNumber",
    "ConditionedEmbedding",
    "ConditionedReversibleEmbedding",
    "ConditioningSchedule",
    "DCTBasis",
    "DCTTokenGraying",
    "MaxConditionNumber",
    "RectangularIdentity",
    "SVDTokenGraying",
    "SemiOrthogonalQK",
    "SpectralAttention",
    "SpectralGroupedQueryAttention",
    "TokenConditioning",
    "apply",
    "callbacks",
    "constraints",
    "diagnostics",
    "fold",
    "initialize",
    "initializers",
    "layers",
    "ops",
    "projections",
    "regularizers",
    "surgery",
    "weights_from",
]
