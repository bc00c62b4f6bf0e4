"""Functions of tensors: spectra, polar factors, graying, DCT, random matrices."""

from keras_cond.ops.condition import condition
from keras_cond.ops.dct import dct, idct
from keras_cond.ops.dct_graying import dct_graying
from keras_cond.ops.polar import polar
from keras_cond.ops.semi_orthogonal import semi_orthogonal
from keras_cond.ops.spectrum import condition_number, singular_values, spectral_norm
from keras_cond.ops.svd_graying import svd_graying

__all__ = [
    "condition",
    "condition_number",
    "dct",
    "dct_graying",
    "idct",
    "polar",
    "semi_orthogonal",
    "singular_values",
    "spectral_norm",
    "svd_graying",
]
