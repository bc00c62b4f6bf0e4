import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keras import ops

from keras_cond.ops import limit_condition, polar
from tests import oracles
from tests.autodiff import (
    compiled,
    dtype_of,
    float64,
    gradient,
    to_numpy,
    weighted_sum,
)
from tests.matrices import coinciding_inputs, matrices, with_kappa, with_rank

SHAPES = ((5, 12), (12, 5), (7, 7))
# What float32 reaches, relative to the limit.
TOLERANCE = {1.01: 1e-3, 3.0: 1e-3, 100.0: 1e-3, 1e3: 1e-3, 1e4: 1e-2}
LIMITS = st.sampled_from(sorted(TOLERANCE))


def kappa(x):
    values = oracles.singular_values(x)
    return values[0] / values[-1]


def lifted(x, limit):
    """The result by an SVD in float64."""
    u, s, vt = np.linalg.svd(np.asarray(x, "float64"), full_matrices=False)
    return (u * np.maximum(s, s[0] / limit)) @ vt


def limited(x, limit, dtype="float32"):
    return to_numpy(limit_condition(np.asarray(x, dtype), limit))


@given(matrices(max_kappa=1e6, shapes=SHAPES, full_rank=False), LIMITS)
def test_kappa_keeps_the_limit_whatever_the_rank(matrix, limit):
    result = limited(matrix.value, limit)
    if matrix.rank == 0:
        np.testing.assert_array_equal(result, 0)
    else:
        assert kappa(result) <= limit * (1 + TOLERANCE[limit])
        # The largest singular value stays, and lifting moves none further than needed.
        largest = oracles.singular_values(matrix.value)[0]
        np.testing.assert_allclose(oracles.singular_values(result)[0], largest, 1e-5)
        change = oracles.singular_values(result - matrix.value)[0]
        assert change <= largest / limit * (1 + TOLERANCE[limit])


@given(matrices(max_kappa=1e3, shapes=SHAPES), LIMITS)
def test_a_matrix_of_full_rank_is_lifted_as_by_an_svd(matrix, limit):
    result = limited(matrix.value, limit)
    expected = lifted(matrix.value, limit)
    # A direction is known to rounding over its singular value.
    np.testing.assert_allclose(result, expected, atol=1e-3 / limit, rtol=0)


@given(matrices(max_kappa=1e3, shapes=SHAPES), LIMITS)
def test_a_matrix_within_the_limit_is_unchanged_bit_for_bit(matrix, limit):
    x = matrix.value.astype("float32")
    if kappa(x) <= limit:
        np.testing.assert_array_equal(limited(x, limit), x)


@pytest.mark.parametrize("name", sorted(coinciding_inputs()))
def test_degenerate_matrices_keep_the_limit(name):
    x = coinciding_inputs()[name]
    result = limited(x, 3.0)
    if name == "all zero":
        np.testing.assert_array_equal(result, 0)
    else:
        assert kappa(result) <= 3.003


@pytest.mark.parametrize("size", [64, 160])
@pytest.mark.parametrize("rank", [1, 32, 63])
def test_large_matrices_of_low_rank_are_completed(size, rank):
    """Fewer steps than these chains need would show here, and rounding that grows."""
    x = np.stack([with_rank((64, size), rank, k, seed=1) for k in (1.0, 1e2, 1e4)])
    for limit in (10.0, 1e3):
        assert max(map(kappa, limited(x, limit))) <= limit * (1 + 1e-3)


@pytest.mark.parametrize("floor", [1e-4, 1e-5, 1e-6])
def test_long_chains_do_not_amplify_rounding(floor):
    """The polar factor that this rests on, at floors below its default."""
    # Singular values that come to the upper end of an interval are rare: many seeds.
    x = np.stack([with_rank((64, 64), 32, 1e2, seed) for seed in range(40)])
    values = np.linalg.svd(to_numpy(polar(x.astype("float32"), floor=floor)))[1]
    assert np.all(values <= 1 + 1e-5)
    np.testing.assert_allclose(values[:, :32], 1, atol=1e-5)


@pytest.mark.parametrize("scale", [1e-12, 1e12])
def test_the_unit_does_not_matter(scale):
    x = with_kappa((5, 12), 1e3, seed=2)
    expected = limited(x, 10.0)
    np.testing.assert_allclose(limited(scale * x, 10.0) / scale, expected, atol=1e-5)


def test_a_matrix_with_a_nan_leaves_the_others_alone():
    x = np.stack([with_kappa((5, 12), 1e3, seed) for seed in range(3)])
    expected = limited(x, 10.0)
    x[1, 2, 3], x[2, 0, 0] = np.nan, np.inf
    result = limited(x, 10.0)
    np.testing.assert_array_equal(result[0], expected[0])
    np.testing.assert_array_equal(result[1:], x[1:].astype("float32"))


def test_compiled_it_is_the_same():
    x = with_rank((12, 5), 3, 1e2, seed=3).astype("float32")
    function = compiled(lambda x: limit_condition(x, 10.0))
    result = to_numpy(function(ops.convert_to_tensor(x)))
    # What fills a null direction depends on rounding, a little.
    np.testing.assert_allclose(result, limited(x, 10.0), atol=3e-4)
    assert kappa(result) <= 10.01


def test_float64_stays_and_is_more_exact():
    x = with_kappa((7, 7), 1e5, seed=4)
    with float64():
        result = limit_condition(x, 1e4)
        assert dtype_of(result) == "float64"
        result = to_numpy(result)
    np.testing.assert_allclose(result, lifted(x, 1e4), atol=1e-8)
    assert kappa(result) <= 1e4 * (1 + 1e-5)


@pytest.mark.parametrize(("dtype", "limit"), [("bfloat16", 20.0), ("float16", 200.0)])
def test_half_precision_stays_and_costs_its_rounding(dtype, limit):
    x = ops.cast(with_kappa((5, 12), 1e3, seed=5).astype("float32"), dtype)
    result = limit_condition(x, limit)
    assert dtype_of(result) == dtype
    assert kappa(to_numpy(result)) <= 1.2 * limit


def test_the_derivative_is_that_of_the_identity():
    x = with_kappa((7, 7), 1e3, seed=6).astype("float32")
    weight = np.random.default_rng(0).normal(size=(7, 7))
    result = gradient(lambda x: weighted_sum(weight, limit_condition(x, 10.0)), x)
    np.testing.assert_allclose(result, weight, rtol=1e-6)


def test_an_empty_matrix_is_returned():
    assert tuple(limit_condition(np.zeros((2, 0, 3), "float32"), 10.0).shape) == (
        2,
        0,
        3,
    )


@pytest.mark.parametrize("limit", [1, 0.5, -2.0, 1.1e4, float("inf"), "10", True, None])
def test_a_limit_outside_its_range_is_refused(limit):
    with pytest.raises(ValueError, match=r"`limit` .*Received: limit="):
        limit_condition(np.eye(3), limit)


def test_other_tensors_are_refused():
    with pytest.raises(ValueError, match="tensor of floats"):
        limit_condition(np.eye(3, dtype="int32"), 10.0)
    with pytest.raises(ValueError, match="rank 2 or more"):
        limit_condition(np.ones(3, "float32"), 10.0)
    with pytest.raises(ValueError, match="rows and columns must be known"):
        limit_condition(keras.KerasTensor((None, 4)), 10.0)
