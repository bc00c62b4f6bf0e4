"""Initializers of attention kernels."""

from keras_cond.initializers.dct_basis import DCTBasis
from keras_cond.initializers.rectangular_identity import RectangularIdentity
from keras_cond.initializers.semi_orthogonal_qk import SemiOrthogonalQK

__all__ = ["DCTBasis", "RectangularIdentity", "SemiOrthogonalQK"]
