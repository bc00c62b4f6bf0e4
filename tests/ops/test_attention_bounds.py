"""The papers' bounds are never below the true values, where their assumptions hold."""

import numpy as np
import pytest
import scipy.special
from hypothesis import given, settings
from hypothesis import strategies as st

import keras_cond
from tests.autodiff import float64, to_numpy
from tests.matrices import with_kappa

KAPPAS = st.floats(1.0, 30.0)
SEEDS = st.integers(0, 1000)


@settings(max_examples=8)  # Each shape is compiled anew on JAX.
@given(size=st.integers(2, 5), extra=st.integers(0, 4), kappa=KAPPAS, seed=SEEDS)
def test_linear_attention_is_conditioned_no_worse_than_its_bound(
    size, extra, kappa, seed
):
    x = with_kappa((size + extra, size), kappa, seed)
    wq, wk, wv = (with_kappa((size, size), kappa, seed + i) for i in (1, 2, 3))
    with float64():
        bound = to_numpy(keras_cond.ops.linear_attention_bound(x, wq, wk, wv))
    assert np.linalg.cond(x @ wq @ wk.T @ x.T @ x @ wv) <= bound * (1 + 1e-8)


@settings(max_examples=8)  # Each shape is compiled anew on JAX.
@given(size=st.integers(2, 5), extra=st.integers(0, 4), kappa=KAPPAS, seed=SEEDS)
def test_softmax_attention_is_conditioned_no_worse_than_its_bound(
    size, extra, kappa, seed
):
    x = with_kappa((size + extra, size), kappa, seed)
    wv = with_kappa((size, max(1, size - 1)), kappa, seed + 1)
    p = scipy.special.softmax(2 * x @ x.T, axis=-1)
    with float64():
        bound = to_numpy(keras_cond.ops.softmax_attention_bound(p, x, wv))
    assert np.linalg.cond(p @ x @ wv) <= bound * (1 + 1e-8)


def softmax_derivative(p):
    return scipy.linalg.block_diag(*(np.diag(row) - np.outer(row, row) for row in p))


def test_jacobian_bound_is_infinite_as_the_softmax_derivative_is_singular():
    x = with_kappa((4, 4), 3.0)
    p = scipy.special.softmax(x @ x.T, axis=-1)
    with float64():
        bound = keras_cond.ops.attention_jacobian_bound(x, p, x, x, x)
    assert to_numpy(bound) == np.inf


def test_jacobian_bound_with_a_tolerance_is_the_formula_of_the_theorem():
    x = with_kappa((4, 4), 3.0)
    wq, wk, wv = (with_kappa((4, 3), kappa, 1) for kappa in (2.0, 4.0, 5.0))
    p = scipy.special.softmax(x @ x.T, axis=-1)
    with float64():
        bound = keras_cond.ops.attention_jacobian_bound(
            x, p, wq, wk, wv, tolerance=1e-9
        )
    values = np.linalg.svd(softmax_derivative(p), compute_uv=False)
    kappa = values[0] / values[values > 1e-9 * values[0]].min()
    expected = 3.0**3 * kappa * 5.0 * (2.0 + 4.0) + 3.0 * np.linalg.cond(p)
    np.testing.assert_allclose(to_numpy(bound), expected, rtol=1e-8)


def test_bounds_take_batches():
    x = np.stack([np.eye(3), np.diag([1.0, 1.0, 2.0])])
    bound = keras_cond.ops.linear_attention_bound(x, np.eye(3), np.eye(3), np.eye(3))
    np.testing.assert_allclose(to_numpy(bound), [1, 8], rtol=1e-5)


def test_integers_raise():
    with pytest.raises(ValueError, match="tensor of floats"):
        keras_cond.ops.softmax_attention_bound(np.eye(2), np.eye(2, dtype=int), 1.0)
