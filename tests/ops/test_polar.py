"""The polar factor with a floor: one odd function of the singular values."""

import numpy as np
import pytest
from hypothesis import given
from keras import ops

from keras_cond.ops import polar
from tests import matrices, oracles
from tests.autodiff import compiled, dtype_of, float64, gradient, to_numpy, weighted_sum

METHODS = ("newton_schulz", "svd")
EPS = np.finfo(np.float32).eps


def tensor(x, dtype="float32"):
    return ops.convert_to_tensor(np.asarray(x, dtype))


@pytest.mark.parametrize("method", METHODS)
@given(matrix=matrices.matrices(max_kappa=900.0))
def test_above_the_floor_it_is_the_polar_factor(method, matrix):
    got = to_numpy(polar(tensor(matrix.value), method=method))
    # A perturbation eps of X turns its polar factor by up to eps kappa.
    tolerance = 1e-5 + 20 * EPS * matrix.kappa
    np.testing.assert_allclose(got, oracles.polar(matrix.value), atol=tolerance)


@pytest.mark.parametrize("method", METHODS)
@given(matrix=matrices.matrices(max_kappa=100.0, full_rank=False))
def test_null_directions_stay_null(method, matrix):
    got = to_numpy(polar(tensor(matrix.value), method=method))
    expected = oracles.polar(matrix.value, rank=matrix.rank)
    # Rounding noise (about eps) in null directions is amplified by up to 5/floor.
    np.testing.assert_allclose(got, expected, atol=2e-3)


@pytest.mark.parametrize("method", METHODS)
def test_null_directions_stay_null_to_rounding_in_float64(method):
    x = matrices.with_rank((6, 9), 3)
    with float64():
        got = to_numpy(polar(tensor(x, "float64"), method=method))
    np.testing.assert_allclose(got, oracles.polar(x, rank=3), atol=1e-6)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("floor", [1e-2, 1e-3])
def test_one_above_the_floor_and_proportional_below(method, floor):
    above = np.array([1.0, 0.3, 10 * floor, 1.05 * floor])
    below = floor * np.array([0.5, 2e-2, 1e-2, 1e-4])
    spectrum = np.concatenate([above, below])
    u = matrices.orthonormal(10, 8, 1)
    v = matrices.orthonormal(8, 8, 2)
    x = (u * spectrum) @ v.T
    with float64():
        got = to_numpy(polar(tensor(x, "float64"), method=method, floor=floor))
    # In the basis of X the result is diagonal: one scalar function of each value.
    diagonal = u.T @ got @ v
    np.testing.assert_allclose(
        diagonal, np.diag(np.diag(diagonal)), atol=1e-6, err_msg="not diagonal"
    )
    p = np.diag(diagonal)
    np.testing.assert_allclose(p[:4], 1.0, atol=2e-6)
    assert (p[4:] > 0).all() and (p[4:] <= 1 + 1e-6).all()
    assert (p[5:] <= 6 * below[1:] / floor).all(), "slope at 0 above 5/floor"
    assert (p[5:] >= 0.5 * below[1:] / floor).all(), "not lifted in proportion"
    # Linear near zero: a 100 times smaller value comes out 100 times smaller.
    np.testing.assert_allclose(p[6] / p[7], 100.0, rtol=1e-2)


@given(matrix=matrices.matrices(max_kappa=1e6, full_rank=False))
def test_both_methods_agree_below_the_floor_too(matrix):
    by_svd = to_numpy(polar(tensor(matrix.value), method="svd"))
    by_products = to_numpy(polar(tensor(matrix.value), method="newton_schulz"))
    # eps of noise times the slope 5/floor, for a few roundings.
    np.testing.assert_allclose(by_products, by_svd, atol=2e-3)


@given(
    matrix=matrices.matrices(max_kappa=1e6, full_rank=False, shapes=matrices.SHAPES[:2])
)
def test_both_methods_agree_to_rounding_in_float64(matrix):
    with float64():
        x = tensor(matrix.value, "float64")
        by_svd = to_numpy(polar(x, method="svd"))
        by_products = to_numpy(polar(x, method="newton_schulz"))
    np.testing.assert_allclose(by_products, by_svd, atol=1e-6)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("scale", [1e-12, -1e-6, -1.0, 1e6, 1e12])
def test_scale_drops_out_and_sign_stays(method, scale):
    x = matrices.with_kappa((5, 12), 20.0)
    got = to_numpy(polar(tensor(scale * x), method=method))
    np.testing.assert_allclose(got, np.sign(scale) * oracles.polar(x), atol=1e-4)


@pytest.mark.parametrize("method", METHODS)
def test_transposing_commutes(method):
    x = matrices.with_kappa((5, 12), 30.0)
    got = to_numpy(polar(tensor(x.T), method=method))
    np.testing.assert_allclose(
        got, to_numpy(polar(tensor(x), method=method)).T, atol=1e-4
    )


@pytest.mark.parametrize("method", METHODS)
def test_polar_of_zero_is_zero(method):
    got = to_numpy(polar(ops.zeros((3, 5, 12)), method=method))
    np.testing.assert_array_equal(got, np.zeros((3, 5, 12)))


@pytest.mark.parametrize("method", METHODS)
def test_samples_do_not_see_each_other(method):
    x = np.stack([matrices.with_kappa((5, 12), k, k) for k in (2, 9, 40)])
    x[1] *= 1e6
    alone = np.stack([to_numpy(polar(tensor(s), method=method)) for s in x])
    together = to_numpy(polar(tensor(x), method=method))
    np.testing.assert_allclose(together, alone, atol=1e-5)
    x[1, 0, 0] = np.nan
    got = to_numpy(polar(tensor(x[:, None]), method=method))[:, 0]
    assert np.isnan(got[1]).any()
    np.testing.assert_allclose(got[[0, 2]], alone[[0, 2]], atol=1e-5)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("shape", [(50_000, 4), (4, 50_000)])
def test_memory_grows_with_one_side_only(method, shape):
    # A square matrix of the long side would need 10 GB.
    rng = np.random.default_rng(0)
    x = rng.standard_normal(shape)
    got = to_numpy(polar(tensor(x), method=method)).astype(np.float64)
    gram = got.T @ got if shape[0] > shape[1] else got @ got.T
    np.testing.assert_allclose(gram, np.eye(4), atol=1e-3)


@pytest.mark.parametrize("method", METHODS)
def test_tall_inputs_have_a_gradient(method):
    x = matrices.with_kappa((12, 5), 3.0).astype("float32")
    weight = np.random.default_rng(0).standard_normal(x.shape).astype("float32")
    got = gradient(lambda t: weighted_sum(weight, polar(t, method=method)), x)
    # Scale invariance: the gradient is orthogonal to the input.
    assert np.isfinite(got).all() and np.linalg.norm(got) > 0.1
    assert abs(np.sum(got * x)) < 1e-3 * np.linalg.norm(got)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_in_half_precision_out(method, dtype):
    x = ops.cast(tensor(matrices.with_kappa((5, 12), 10.0)), dtype)
    got = polar(x, method=method)
    assert dtype_of(got) == dtype
    expected = oracles.polar(to_numpy(ops.cast(x, "float32")))
    # Computed in float32 and rounded once: 4e-3 is bfloat16's half step below 1.
    np.testing.assert_allclose(to_numpy(got), expected, atol=4e-3)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("scale", [1e-3, 1e3])
def test_float16_neither_overflows_nor_underflows(method, scale):
    x = ops.cast(tensor(scale * matrices.with_kappa((5, 12), 10.0)), "float16")
    expected = oracles.polar(to_numpy(ops.cast(x, "float32")))
    got = to_numpy(polar(x, method=method))
    np.testing.assert_allclose(got, expected, atol=2e-3)


@pytest.mark.parametrize("method", METHODS)
def test_compiled_equals_eager(method):
    x = tensor(matrices.with_kappa((5, 12), 30.0))

    def factor(t):
        return polar(t, method=method)

    got = to_numpy(compiled(factor)(x))
    np.testing.assert_allclose(got, to_numpy(factor(x)), atol=1e-4)


@pytest.mark.parametrize("floor", [0.0, 1.0, -1e-3, float("nan")])
def test_floor_outside_zero_to_one_is_refused(floor):
    with pytest.raises(ValueError, match=r"(?s)floor.*" + str(floor)):
        polar(tensor(np.eye(3)), floor=floor)


def test_unknown_method_is_refused_and_the_known_ones_are_named():
    with pytest.raises(ValueError, match=r"(?s)method.*") as error:
        polar(tensor(np.eye(3)), method="muon")
    for word in ("muon", *METHODS):
        assert word in str(error.value)


def test_integers_and_vectors_are_refused():
    with pytest.raises(ValueError, match=r"(?s)float.*int32"):
        polar(ops.ones((3, 4), dtype="int32"))
    with pytest.raises(ValueError, match=r"(?s)\(4,\)"):
        polar(ops.ones((4,)))
