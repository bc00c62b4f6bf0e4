"""Functions of tensors: spectra, polar factors, graying, DCT, random matrices."""

from keras_cond.ops.attention import attention, attention_entropy
from keras_cond.ops.attention_bounds import (
    attention_jacobian_bound,
    linear_attention_bound,
    softmax_attention_bound,
)
from keras_cond.ops.attention_jacobian import attention_jacobian_gram
from keras_cond.ops.attention_jacobian_condition import attention_jacobian_condition
from keras_cond.ops.condition import condition
from keras_cond.ops.dct import dct, idct
from keras_cond.ops.dct_graying import dct_graying
from keras_cond.ops.kaporin_penalty import kaporin_penalty
from keras_cond.ops.limit_condition import limit_condition
from keras_cond.ops.polar import polar
from keras_cond.ops.semi_orthogonal import semi_orthogonal
from keras_cond.ops.spectrum import (
    condition_number,
    effective_rank,
    singular_values,
    spectral_norm,
    stable_rank,
)
from keras_cond.ops.svd_graying import svd_graying

__all__ = [
    "attention",
    "attention_entropy",
    "attention_jacobian_bound",
    "attention_jacobian_condition",
    "attention_jacobian_gram",
    "condition",
    "condition_number",
    "dct",
    "dct_graying",
    "effective_rank",
    "idct",
    "kaporin_penalty",
    "limit_condition",
    "linear_attention_bound",
    "polar",
    "semi_orthogonal",
    "singular_values",
    "softmax_attention_bound",
    "spectral_norm",
    "stable_rank",
    "svd_graying",
]
