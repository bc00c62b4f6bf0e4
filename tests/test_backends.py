"""What the backends have in common."""

import numpy as np
import pytest
from keras import ops

from keras_cond.backends import accumulate, add_product, own_gradient
from tests.autodiff import gradient, to_numpy


@pytest.mark.parametrize("leading", [(), (3,), (2, 3), (2, 1, 3)])
@pytest.mark.parametrize("shared", [False, True])
def test_added_product(leading, shared):
    rng = np.random.default_rng(0)
    a = rng.normal(size=(*leading, 4, 5)).astype("float32")
    b = rng.normal(size=(*leading, 5, 2)).astype("float32")
    addend = rng.normal(size=(4, 2) if shared else (*leading, 4, 2)).astype("float32")
    sum_of = add_product(*map(ops.convert_to_tensor, (addend, a, b)), scale=-0.3)
    expected = -0.3 * addend.astype("float64") + a.astype("float64") @ b
    assert to_numpy(sum_of) == pytest.approx(expected, rel=1e-5, abs=1e-5)
    if not shared:
        sum_of = accumulate(*map(ops.convert_to_tensor, (addend.copy(), a, b)))
        expected = addend.astype("float64") + a.astype("float64") @ b
        assert to_numpy(sum_of) == pytest.approx(expected, rel=1e-5, abs=1e-5)


def test_the_gradient_of_a_lookup_reaches_a_function_with_its_own():
    """On TensorFlow it is sparse."""
    double = own_gradient(lambda x: (2 * x, lambda given: 2 * given[..., :, :]))
    x = np.ones((5, 2), "float32")
    rows = np.array([1, 3, 3])
    got = gradient(lambda x: ops.sum(ops.take(double(x), rows, axis=0)), x)
    expected = 2.0 * np.bincount(rows, minlength=5)[:, None] * np.ones((5, 2))
    np.testing.assert_array_equal(got, expected)
