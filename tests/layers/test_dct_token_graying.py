"""`DCTTokenGraying`: its contract and its formula."""

from typing import ClassVar

import numpy as np
import scipy.fft

from keras_cond.layers import DCTTokenGraying
from tests import oracles
from tests.autodiff import to_numpy
from tests.layer_contract import LayerContract
from tests.layers.graying_laws import GrayingLaws


class TestContract(LayerContract):
    layer_class = DCTTokenGraying
    # A floor that keeps the slope of the power, and with it every rounding, small.
    arguments: ClassVar[dict] = {"epsilon": 0.6, "rescale": True, "floor": 1e-2}


class TestLaws(GrayingLaws):
    layer_class = DCTTokenGraying
    oracle = staticmethod(oracles.dct_graying)
    tolerance = 1e-4


def test_the_transform_has_the_real_length_of_each_sample():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 7, 6)).astype("float32")
    mask = np.array([[1] * 7, [1] * 4 + [0] * 3], bool)
    got = to_numpy(DCTTokenGraying(epsilon=0.5)(x, mask=mask))
    largest = np.abs(scipy.fft.dctn(x[1, :4], norm="ortho")).max()
    coefficients = scipy.fft.dctn(got[1, :4].astype("float64"), norm="ortho")
    expected = np.sqrt(np.abs(scipy.fft.dctn(x[1, :4], norm="ortho")) / largest)
    np.testing.assert_allclose(np.abs(coefficients), expected, atol=1e-4)
