"""Singular values, condition number and spectral norm against SciPy."""

import numpy as np
import pytest
from hypothesis import given
from keras import ops

from keras_cond.ops import condition_number, singular_values, spectral_norm
from tests import matrices, oracles
from tests.autodiff import compiled, float64, gradient, to_numpy

EPS = np.finfo(np.float32).eps


def tensor(x, dtype="float32"):
    return ops.convert_to_tensor(np.asarray(x, dtype))


@given(matrices.matrices(full_rank=False))
def test_singular_values_are_scipys(matrix):
    got = to_numpy(singular_values(tensor(matrix.value)))
    # Weyl: rounding moves each singular value by a few eps of the largest.
    np.testing.assert_allclose(got, matrix.singular_values, atol=20 * EPS, rtol=0)


@given(matrices.matrices(max_kappa=1e4))
def test_condition_number_is_the_prescribed_one(matrix):
    got = to_numpy(condition_number(tensor(matrix.value)))
    # s_min carries an absolute error of a few eps, so kappa one of eps kappa.
    tolerance = 1e-5 + 20 * EPS * matrix.kappa
    np.testing.assert_allclose(got, matrix.kappa, rtol=tolerance)


@given(matrices.matrices(max_kappa=1e6, shapes=matrices.SHAPES[:2]))
def test_condition_number_resolves_a_million_in_float64(matrix):
    with float64():
        got = condition_number(tensor(matrix.value, "float64"))
        np.testing.assert_allclose(to_numpy(got), matrix.kappa, rtol=1e-8)


@pytest.mark.parametrize("shape", [(5, 12), (12, 5), (7, 7)])
@pytest.mark.parametrize("kind", ["repeated", "zero row", "low rank", "zero"])
def test_condition_number_of_a_singular_matrix_is_infinite(shape, kind):
    x = matrices.with_kappa(shape, 3.0)
    x = x if shape[0] <= shape[1] else x.T
    if kind == "repeated":
        x[3] = x[1]
    elif kind == "zero row":
        x[2] = 0
    elif kind == "low rank":
        x = matrices.with_rank(x.shape, 2)
    else:
        x = np.zeros_like(x)
    x = x if x.shape == shape else x.T
    got = to_numpy(condition_number(tensor(x)))
    assert np.isposinf(got), f"{kind} matrix of shape {shape} got kappa {got}"


def test_condition_number_threshold_is_max_size_times_eps():
    # Values at 4x and at a quarter of max(N, D) eps s_max, on a diagonal matrix
    # whose singular values an SVD returns to the last bit or two.
    threshold = 12 * EPS
    for factor, singular in ((4.0, False), (0.25, True)):
        x = np.zeros((5, 12))
        np.fill_diagonal(x, [1.0, 0.5, 0.25, 0.125, factor * threshold])
        got = float(to_numpy(condition_number(tensor(x))))
        assert np.isinf(got) == singular
        if not singular:
            np.testing.assert_allclose(got, 1 / (factor * threshold), rtol=0.2)


def test_tolerance_gives_the_kappa_of_what_lies_above_it():
    x = matrices.with_singular_values((4, 6), [8.0, 4.0, 0.02, 0.0])
    for tolerance, expected in ((0.6, 1.0), (0.1, 2.0), (1e-3, 400.0)):
        got = to_numpy(condition_number(tensor(x), tolerance=tolerance))
        assert oracles.condition_number(x, tolerance) == pytest.approx(expected)
        np.testing.assert_allclose(got, expected, rtol=1e-3)
    assert np.isposinf(to_numpy(condition_number(tensor(x))))


@pytest.mark.parametrize("scale", [1e-12, 1e-6, -1.0, 1e6, 1e12])
def test_condition_number_does_not_depend_on_scale(scale):
    x = matrices.with_kappa((5, 12), 50.0)
    got = to_numpy(condition_number(tensor(scale * x)))
    np.testing.assert_allclose(got, 50.0, rtol=1e-3)


@pytest.mark.parametrize("function", [condition_number, spectral_norm])
def test_nan_stays_in_its_own_sample(function):
    x = np.stack([matrices.with_kappa((5, 12), 4.0, seed) for seed in range(3)])
    x[1, 2, 3] = np.nan
    got = to_numpy(function(tensor(x)))
    assert np.isnan(got[1])
    alone = to_numpy(function(tensor(x[[0, 2]])))
    np.testing.assert_allclose(got[[0, 2]], alone, rtol=1e-6)


def test_nan_stays_in_its_own_row_of_singular_values():
    x = np.stack([matrices.with_kappa((5, 12), 4.0, seed) for seed in range(3)])
    x[0, 0, 0] = np.nan
    got = to_numpy(singular_values(tensor(x)))
    assert np.isnan(got[0]).all()
    np.testing.assert_allclose(
        got[1:], np.stack([matrices.log_spaced(5, 4.0)] * 2), atol=20 * EPS
    )


@given(matrices.matrices(full_rank=False))
def test_spectral_norm_is_the_largest_singular_value(matrix):
    got = to_numpy(spectral_norm(tensor(matrix.value)))
    # An estimate by power iteration may fall short by 1e-3; it may never exceed.
    expected = matrix.singular_values[0]
    assert expected * (1 - 1e-3) - 1e-30 <= got <= expected * (1 + 1e-5)


@pytest.mark.parametrize("scale", [0.0, 1e-12, 1e12])
def test_spectral_norm_scales_with_its_input(scale):
    x = matrices.with_singular_values((5, 12), [3.0, 1.0, 0.5])
    got = to_numpy(spectral_norm(tensor(scale * x)))
    np.testing.assert_allclose(got, scale * 3.0, rtol=1e-5)


def test_spectral_norm_has_the_gradient_of_the_largest_singular_value():
    x = matrices.with_singular_values((4, 6), [3.0, 1.0, 0.5, 0.2])
    u, _, vt = np.linalg.svd(x)
    with float64():
        got = gradient(spectral_norm, x)
    # d s_max / dX = u v^T; the top value is well separated, so 1e-4 is generous.
    np.testing.assert_allclose(got, np.outer(u[:, 0], vt[0]), atol=1e-4)


@pytest.mark.parametrize("function", [singular_values, condition_number, spectral_norm])
def test_leading_dimensions_are_a_batch(function):
    x = np.stack([matrices.with_kappa((5, 12), 4.0 + i, i) for i in range(6)])
    flat = to_numpy(function(tensor(x)))
    nested = to_numpy(function(tensor(x.reshape(2, 3, 5, 12))))
    np.testing.assert_allclose(nested.reshape(flat.shape), flat, rtol=1e-5)
    assert len(np.unique(np.round(flat.reshape(6, -1)[:, -1], 4))) >= (
        1 if function is spectral_norm else 6
    )


@pytest.mark.parametrize("function", [condition_number, spectral_norm])
def test_compiled_equals_eager(function):
    x = tensor(np.stack([matrices.with_kappa((5, 12), k) for k in (2.0, 30.0)]))
    np.testing.assert_allclose(
        to_numpy(compiled(function)(x)), to_numpy(function(x)), rtol=1e-4
    )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_is_computed_in_float32(dtype):
    x = ops.cast(tensor(matrices.with_kappa((5, 12), 20.0)), dtype)
    rounded = to_numpy(ops.cast(x, "float32"))
    got = to_numpy(condition_number(x))
    # The result may be rounded once to the input dtype, no worse.
    np.testing.assert_allclose(got, oracles.condition_number(rounded), rtol=1e-2)


@pytest.mark.parametrize("function", [singular_values, condition_number, spectral_norm])
def test_bad_tensors_are_refused(function):
    with pytest.raises(ValueError, match=r"(?s)float.*int32"):
        function(ops.ones((3, 4), dtype="int32"))
    with pytest.raises(ValueError, match=r"(?s)rank.*\(4,\)|(?s:\(4,\).*rank)"):
        function(ops.ones((4,)))


@pytest.mark.parametrize("tolerance", [-0.1, 1.0, 2.0, float("nan")])
def test_tolerance_outside_zero_to_one_is_refused(tolerance):
    with pytest.raises(ValueError, match=r"(?s)tolerance.*" + str(tolerance)):
        condition_number(tensor(np.eye(3)), tolerance=tolerance)
