"""Attention and its entropy against NumPy and SciPy."""

import numpy as np
import pytest
import scipy.special
import scipy.stats

import keras_cond
from tests.autodiff import float64, to_numpy

RNG = np.random.default_rng(0)
Q, K, V = (RNG.normal(size=shape) for shape in ((2, 5, 3), (2, 7, 3), (2, 7, 4)))


def reference(q, k, v, mask):
    scores = np.where(mask, q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1]), -np.inf)
    probabilities = scipy.special.softmax(scores, axis=-1)
    return probabilities @ v, probabilities


@pytest.mark.parametrize("masked", [False, True])
def test_attention_equals_the_formula(masked):
    mask = np.tri(5, 7, k=2, dtype=bool) if masked else np.ones((5, 7), bool)
    with float64():
        output, probabilities = keras_cond.ops.attention(
            Q, K, V, mask=mask if masked else None
        )
    expected, weights = reference(Q, K, V, mask)
    np.testing.assert_allclose(to_numpy(probabilities), weights, atol=1e-12)
    np.testing.assert_allclose(to_numpy(output), expected, atol=1e-12)


def test_a_large_forbidden_score_does_not_matter():
    q, k = np.array([[1e4]]), np.array([[1e4], [0.0], [-1.0]])
    mask = np.array([[False, True, True]])
    _, probabilities = keras_cond.ops.attention(q, k, k, mask=mask)
    np.testing.assert_allclose(to_numpy(probabilities), [[0, 1, 0]], atol=1e-6)


def test_a_row_that_may_attend_nowhere_is_zero():
    mask = np.ones((5, 7), bool)
    mask[2] = False
    output, probabilities = keras_cond.ops.attention(Q, K, V, mask=mask)
    assert np.all(to_numpy(probabilities)[:, 2] == 0)
    assert np.all(to_numpy(output)[:, 2] == 0)
    np.testing.assert_allclose(to_numpy(probabilities)[:, 3].sum(-1), 1, rtol=1e-6)


def test_shapes_that_do_not_fit_raise():
    with pytest.raises(ValueError, match=r"Expected \(\.\.\., N, d\)"):
        keras_cond.ops.attention(Q, V, V)


def test_entropy_is_that_of_scipy_and_zero_for_one_hot_rows():
    _, p = reference(Q, K, V, True)
    p[0, 0] = np.eye(7)[3]
    np.testing.assert_allclose(
        to_numpy(keras_cond.ops.attention_entropy(p)),
        scipy.stats.entropy(p, axis=-1),
        atol=1e-6,
    )
    assert to_numpy(keras_cond.ops.attention_entropy(p))[0, 0] == 0
