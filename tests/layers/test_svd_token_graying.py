"""`SVDTokenGraying`: its contract and its formula."""

from typing import ClassVar

import numpy as np
import pytest

from keras_cond.layers import SVDTokenGraying
from tests import oracles
from tests.autodiff import to_numpy
from tests.layer_contract import LayerContract
from tests.layers.graying_laws import GrayingLaws


class TestContract(LayerContract):
    layer_class = SVDTokenGraying
    arguments: ClassVar[dict] = {
        "epsilon": 0.6,
        "rescale": True,
        "method": "svd",
        "floor": 1e-2,
    }


class TestContractOfTheDefaultMethod(LayerContract):
    layer_class = SVDTokenGraying
    arguments: ClassVar[dict] = {"epsilon": 0.6, "rescale": True}


class TestLaws(GrayingLaws):
    layer_class = SVDTokenGraying
    oracle = staticmethod(oracles.svd_graying)
    # By matrix products the power is met to 3e-3 of the largest singular value.
    tolerance = 3e-3


class TestLawsBySVD(GrayingLaws):
    layer_class = SVDTokenGraying
    arguments: ClassVar[dict] = {"method": "svd"}
    oracle = staticmethod(oracles.svd_graying)
    tolerance = 1e-4


def test_epsilon_is_the_power_of_the_condition_number():
    x = np.random.default_rng(0).standard_normal((1, 5, 6)).astype("float32")
    before = oracles.condition_number(x[0])
    got = oracles.condition_number(
        to_numpy(SVDTokenGraying(epsilon=0.5, method="svd")(x))[0]
    )
    assert got == pytest.approx(before**0.5, rel=1e-3)


def test_unknown_method_is_refused_and_the_known_ones_are_named():
    with pytest.raises(ValueError, match="method") as error:
        SVDTokenGraying(method="eigh")
    for word in ("eigh", "newton_schulz", "svd"):
        assert word in str(error.value)
