"""Layers that condition tokens or projections."""

from keras_cond.layers.conditioned_embedding import ConditionedEmbedding
from keras_cond.layers.conditioned_reversible_embedding import (
    ConditionedReversibleEmbedding,
)
from keras_cond.layers.dct_token_graying import DCTTokenGraying
from keras_cond.layers.spectral_attention import SpectralAttention
from keras_cond.layers.spectral_grouped_query_attention import (
    SpectralGroupedQueryAttention,
)
from keras_cond.layers.svd_token_graying import SVDTokenGraying
from keras_cond.layers.token_conditioning import TokenConditioning

__all__ = [
    "ConditionedEmbedding",
    "ConditionedReversibleEmbedding",
    "DCTTokenGraying",
    "SVDTokenGraying",
    "SpectralAttention",
    "SpectralGroupedQueryAttention",
    "TokenConditioning",
]
