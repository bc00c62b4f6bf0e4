import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_cond.ops import kaporin_penalty
from tests import oracles
from tests.autodiff import compiled, dtype_of, float64, gradient, to_numpy
from tests.matrices import coinciding_inputs, matrices, orthonormal, with_kappa

SHAPES = ((5, 12), (12, 5), (7, 7))


def arithmetic_over_geometric(x, floor):
    """log of the arithmetic over the geometric mean of (s/s_max)² + floor²."""
    s = oracles.singular_values(x)
    values = (s / s[0]) ** 2 + floor**2
    return np.log(values.mean()) - np.log(values).mean()


def penalty(x, floor=1e-2):
    return to_numpy(kaporin_penalty(np.asarray(x, "float32"), floor))


@given(
    matrices(max_kappa=1e6, shapes=SHAPES, full_rank=False),
    st.sampled_from((2e-3, 1e-2, 0.1)),
)
def test_it_is_the_logarithm_of_arithmetic_over_geometric_mean(matrix, floor):
    expected = 0.0
    if matrix.rank:
        expected = arithmetic_over_geometric(matrix.value, floor)
    # The floor's square is known to rounding over itself.
    got = penalty(matrix.value, floor)
    np.testing.assert_allclose(got, expected, rtol=1e-3, atol=2e-6)


@given(matrices(max_kappa=1e4, shapes=SHAPES))
def test_it_bounds_kappa_from_both_sides(matrix):
    values = oracles.singular_values(matrix.value)
    squares = (values / values[0]) ** 2 + 1e-2**2
    kappa = np.sqrt(squares[0] / squares[-1])
    got, r = penalty(matrix.value), len(values)
    assert got <= 2 * np.log(kappa) + 1e-4
    assert got >= 2 / r * np.log((kappa + 1 / kappa) / 2) - 1e-4


@pytest.mark.parametrize("shape", SHAPES)
def test_it_is_zero_where_all_singular_values_are_equal(shape):
    x = 3 * orthonormal(max(shape), min(shape), 1)
    x = x if shape[0] >= shape[1] else x.T
    np.testing.assert_allclose(penalty(x), 0, atol=1e-6)
    slope = gradient(kaporin_penalty, x.astype("float32"))
    np.testing.assert_allclose(slope, 0, atol=1e-5)


@pytest.mark.parametrize("scale", [1e-12, 1e12])
def test_the_unit_does_not_matter(scale):
    x = with_kappa((5, 12), 20.0, seed=2)
    np.testing.assert_allclose(penalty(scale * x), penalty(x), rtol=1e-4)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_gradient_agrees_with_finite_differences(shape):
    x = with_kappa(shape, 30.0, seed=3)
    direction = np.random.default_rng(0).normal(size=shape)
    expected = oracles.directional_derivative(
        lambda x: arithmetic_over_geometric(x, 1e-2), x, direction
    )
    got = np.sum(gradient(kaporin_penalty, x.astype("float32")) * direction)
    np.testing.assert_allclose(got, expected, rtol=1e-3)


@pytest.mark.parametrize("name", sorted(coinciding_inputs()))
def test_the_gradient_is_finite_and_bounded_at_degenerate_matrices(name):
    x = coinciding_inputs()[name].astype("float32")
    largest = oracles.singular_values(x)[0] or 1.0
    slope = gradient(kaporin_penalty, x)
    assert np.all(np.isfinite(slope))
    assert oracles.singular_values(slope)[0] * largest <= 3 / 1e-2
    if name == "all zero":
        np.testing.assert_array_equal(slope, 0)


def test_a_step_against_the_gradient_evens_the_spectrum():
    x = with_kappa((7, 7), 30.0, seed=4).astype("float32")
    slope = gradient(kaporin_penalty, x)
    step = x - 0.01 * slope / np.linalg.norm(slope)
    assert oracles.condition_number(step) < oracles.condition_number(x)


def test_a_matrix_with_a_nan_gives_nan_and_leaves_the_others_alone():
    x = np.stack([with_kappa((5, 12), 20.0, seed) for seed in range(3)])
    expected = penalty(x)
    x[1, 2, 3], x[2, 0, 0] = np.nan, np.inf
    got = penalty(x)
    np.testing.assert_allclose(got[0], expected[0], rtol=1e-6)
    assert np.all(np.isnan(got[1:]))


def test_compiled_it_is_the_same():
    x = with_kappa((5, 12), 20.0, seed=5).astype("float32")
    got = to_numpy(compiled(kaporin_penalty)(x))
    np.testing.assert_allclose(got, penalty(x), rtol=1e-4)


def test_precision_is_float32_at_least():
    x = with_kappa((7, 7), 20.0, seed=6)
    assert dtype_of(kaporin_penalty(x.astype("float16"))) == "float32"
    with float64():
        got = kaporin_penalty(x)
        assert dtype_of(got) == "float64"
        got = float(to_numpy(got))
    np.testing.assert_allclose(got, arithmetic_over_geometric(x, 1e-2), rtol=1e-6)


def test_empty_matrices_have_no_penalty():
    got = to_numpy(kaporin_penalty(np.zeros((2, 0, 3), "float32")))
    np.testing.assert_array_equal(got, np.zeros(2))


@pytest.mark.parametrize("floor", [0.0, 1.0, -1e-2, "a", 1e-3])
def test_a_floor_outside_its_range_is_refused(floor):
    with pytest.raises(ValueError, match=r"`floor` is .*Received: floor="):
        kaporin_penalty(np.eye(3), floor)


def test_other_tensors_are_refused():
    with pytest.raises(ValueError, match="tensor of floats"):
        kaporin_penalty(np.eye(3, dtype="int32"))
    with pytest.raises(ValueError, match="rank 2 or more"):
        kaporin_penalty(np.ones(3, "float32"))
