"""Effective and stable rank of known spectra."""

import numpy as np
import pytest
import scipy.stats

import keras_cond
from tests.autodiff import to_numpy
from tests.matrices import with_singular_values

VALUES = [4.0, 2.0, 1.0, 0.5]


def test_effective_rank_is_the_exponential_of_the_entropy():
    x = with_singular_values((4, 6), VALUES)
    expected = np.exp(scipy.stats.entropy(VALUES))
    result = to_numpy(keras_cond.ops.effective_rank(x))
    np.testing.assert_allclose(result, expected, rtol=1e-5)


def test_stable_rank_is_the_energy_over_the_largest():
    x = with_singular_values((6, 4), VALUES)
    expected = np.sum(np.square(VALUES)) / VALUES[0] ** 2
    result = to_numpy(keras_cond.ops.stable_rank(x))
    np.testing.assert_allclose(result, expected, rtol=1e-5)


@pytest.mark.parametrize("rank", ["effective_rank", "stable_rank"])
def test_ranks_of_equal_values_rank_one_zero_and_nan(rank):
    x = np.stack(
        [np.eye(3), np.ones((3, 3)), np.zeros((3, 3)), np.full((3, 3), np.nan)]
    )
    result = to_numpy(getattr(keras_cond.ops, rank)(x.astype("float32")))
    # Rounding leaves 1e-7 in the other values of the matrix of rank one.
    np.testing.assert_allclose(result, [3, 1, 0, np.nan], atol=1e-4)
