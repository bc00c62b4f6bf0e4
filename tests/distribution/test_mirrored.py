"""TensorFlow's MirroredStrategy trains what one device does."""

import numpy as np
import pytest

from tests.autodiff import BACKEND
from tests.distribution.models import run

pytestmark = pytest.mark.skipif(BACKEND != "tensorflow", reason="it is TensorFlow's")

# Gradients of the two halves of a batch are added in another order.
TOLERANCE = 1e-4


def test_mirrored_models_train_as_on_one_device():
    found = run("tests.distribution.mirrored")
    assert found["devices"] == 2
    for name in ("encoder", "vision"):
        result = found[name]
        assert result["copies"] == 2
        assert result["weights"] <= TOLERANCE
        alone, _ = result["logs"]["loss"]
        assert alone[1] < alone[0]
        for key, (expected, got) in result["logs"].items():
            np.testing.assert_allclose(got, expected, rtol=1e-3, err_msg=key)
    assert "kappa_tokens_median" in found["vision"]["logs"]
