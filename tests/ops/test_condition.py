"""Laws of X + s_max polar(X): bound, symmetry, gradients, padding, scale."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keras import ops

from keras_cond.ops import condition
from tests import matrices, oracles
from tests.autodiff import compiled, dtype_of, float64, gradient, to_numpy, weighted_sum

METHODS = ("newton_schulz", "svd")
EPS = np.finfo(np.float32).eps
SHAPES = ((5, 12), (20, 5), (7, 7))

every_method = pytest.mark.parametrize("method", METHODS)


def tensor(x, dtype="float32"):
    return ops.convert_to_tensor(np.asarray(x, dtype))


def conditioned(x, **kwargs):
    return to_numpy(condition(tensor(x), **kwargs)).astype(np.float64)


def kappa(x):
    values = oracles.singular_values(x)
    return values[0] / values[-1]


# -- the bound -------------------------------------------------------------------


@every_method
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("prescribed", [1.0, 2.0, 30.0, 1e3])
def test_correction_bounds_the_condition_number_by_two(method, shape, prescribed):
    x = matrices.with_kappa(shape, prescribed, seed=5)
    got = kappa(conditioned(x, method=method))
    assert got <= (2.02 if method == "newton_schulz" else 2 + 1e-4)
    # The exact value as well: a correction that is too large also meets the bound.
    expected = oracles.kappa_after_conditioning(x)
    np.testing.assert_allclose(got, expected, rtol=2e-3)


@every_method
@given(matrix=matrices.matrices(max_kappa=900.0))
def test_correction_is_sigma_max_times_the_polar_factor(method, matrix):
    got = conditioned(matrix.value, method=method)
    # eps kappa of the polar factor, and 1e-3 of an estimated s_max.
    tolerance = 1e-5 + 20 * EPS * matrix.kappa
    tolerance += 1.1e-3 if method == "newton_schulz" else 0
    np.testing.assert_allclose(got, oracles.condition(matrix.value), atol=tolerance)


@every_method
@given(matrix=matrices.matrices(max_kappa=1e6))
def test_correction_never_raises_the_condition_number(method, matrix):
    before = kappa(matrix.value)
    got = kappa(conditioned(matrix.value, method=method))
    # s_min of a float32 matrix carries noise of a few eps: 1e6 reads as 1e6 +- 50 %.
    assert got <= before * (1 + 1e-3 + 20 * EPS * before)


@every_method
def test_largest_singular_value_doubles(method):
    x = matrices.with_singular_values((5, 12), [7.0, 3.0, 1.0, 0.5, 0.1])
    got = oracles.singular_values(conditioned(x, method=method))
    np.testing.assert_allclose(got, [14.0, 10.0, 8.0, 7.5, 7.1], rtol=1e-4)


@given(matrix=matrices.matrices(max_kappa=1e6, full_rank=False))
def test_both_methods_agree_whatever_the_spectrum(matrix):
    by_svd = conditioned(matrix.value, method="svd")
    by_products = conditioned(matrix.value, method="newton_schulz")
    # eps of noise in null directions times the slope 5/floor; 1e-3 of s_max.
    np.testing.assert_allclose(by_products, by_svd, atol=3e-3)


def test_newton_schulz_is_the_default():
    x = matrices.with_kappa((5, 12), 1e5)
    np.testing.assert_array_equal(
        conditioned(x), conditioned(x, method="newton_schulz")
    )


def test_a_higher_floor_leaves_weak_directions_alone():
    x = matrices.with_singular_values((4, 6), [1.0, 0.5, 1e-2, 1e-2])
    low = oracles.singular_values(conditioned(x, method="svd", floor=1e-3))
    high = oracles.singular_values(conditioned(x, method="svd", floor=0.3))
    np.testing.assert_allclose(low, [2.0, 1.5, 1.01, 1.01], atol=1e-3)
    assert (high[2:] < 0.3).all()


# -- symmetry --------------------------------------------------------------------


@every_method
@given(matrix=matrices.matrices(max_kappa=100.0), seed=st.integers(0, 99))
def test_rotations_commute(method, matrix, seed):
    n, d = matrix.value.shape
    q, r = matrices.orthonormal(n, n, seed), matrices.orthonormal(d, d, seed + 7)
    got = conditioned(q @ matrix.value @ r, method=method)
    expected = q @ conditioned(matrix.value, method=method) @ r
    # Two power iterations from different starts may differ by 1e-3.
    tolerance = 1e-4 + (2e-3 if method == "newton_schulz" else 0)
    np.testing.assert_allclose(got, expected, atol=tolerance)


@every_method
@pytest.mark.parametrize("scale", [1e-12, -1e-12, 1e-3, -1.0, 1e6, 1e12, -1e12])
def test_scale_commutes(method, scale):
    x = matrices.with_kappa((5, 12), 20.0)
    got = conditioned(scale * x, method=method) / scale
    np.testing.assert_allclose(got, oracles.condition(x), atol=1e-4)


@every_method
@given(matrix=matrices.matrices(max_kappa=100.0, full_rank=False))
def test_null_directions_stay_null(method, matrix):
    got = conditioned(matrix.value, method=method)
    rank = matrix.rank
    u, _, vt = np.linalg.svd(matrix.value)
    # Noise of eps times the slope 5/floor of the correction.
    np.testing.assert_allclose(got @ vt[rank:].T, 0.0, atol=2e-3)
    np.testing.assert_allclose(u[:, rank:].T @ got, 0.0, atol=2e-3)
    if rank > 1:
        # ... while the others are lifted: not the identity.
        values = oracles.singular_values(got)[:rank]
        np.testing.assert_allclose(values, matrix.singular_values[:rank] + 1, atol=3e-3)


@every_method
@pytest.mark.parametrize("shape", SHAPES)
def test_equal_rows_stay_equal(method, shape):
    x = np.random.default_rng(0).standard_normal(shape)
    x[4] = x[2]
    got = conditioned(x, method=method)
    largest = oracles.singular_values(x)[0]
    # By products the two rows meet the same numbers, and only the order of sums may
    # differ. An SVD leaves eps of noise, which the slope 5/floor amplifies.
    tolerance = 1e-5 if method == "newton_schulz" else 1e-3
    np.testing.assert_allclose(got[4] / largest, got[2] / largest, atol=tolerance)
    expected = oracles.condition(x, rank=min(shape[0] - 1, shape[1]))
    np.testing.assert_allclose(got / largest, expected / largest, atol=2e-3)


@every_method
def test_zero_stays_zero(method):
    got = conditioned(np.zeros((3, 5, 12)), method=method)
    np.testing.assert_array_equal(got, 0.0)


@every_method
@pytest.mark.parametrize("shape", SHAPES)
def test_permuting_tokens_permutes_the_result(method, shape):
    x = matrices.with_kappa(shape, 15.0)
    order = np.random.default_rng(1).permutation(shape[0])
    np.testing.assert_allclose(
        conditioned(x[order], method=method),
        conditioned(x, method=method)[order],
        atol=1e-4,
    )


# -- gradients -------------------------------------------------------------------


@every_method
@pytest.mark.parametrize("name", matrices.coinciding_inputs())
def test_gradient_is_finite_where_singular_values_coincide(method, name):
    x = matrices.coinciding_inputs()[name].astype("float32")
    weight = np.random.default_rng(0).standard_normal(x.shape).astype("float32")

    def loss(t):
        return ops.sum(ops.tanh(ops.multiply(weight, condition(t, method=method))))

    assert np.isfinite(to_numpy(loss(tensor(x))))
    got = gradient(loss, x)
    assert np.isfinite(got).all()
    assert np.linalg.norm(got) > 0.1


@every_method
def test_gradient_is_finite_when_applied_twice(method):
    x = np.eye(5, 12, dtype="float32")

    def twice(t):
        return ops.sum(condition(condition(t, method=method), method=method)[0, :2])

    got = gradient(twice, x)
    assert np.isfinite(got).all() and np.linalg.norm(got) > 0.1


@every_method
def test_gradient_is_bounded_by_the_floor(method):
    # A plain SVD reaches 1e7 here; the floor bounds the derivative near 5/floor.
    x = np.random.default_rng(2).standard_normal((10, 16)).astype("float32")
    x[7] = x[3]
    weight = np.random.default_rng(0).standard_normal(x.shape).astype("float32")
    weight /= np.linalg.norm(weight)
    got = gradient(lambda t: weighted_sum(weight, condition(t, method=method)), x)
    largest = oracles.singular_values(x)[0]
    assert np.isfinite(got).all()
    assert np.linalg.norm(got) <= 2 * 5 / 1e-3 * largest / oracles.singular_values(x)[8]


@every_method
@pytest.mark.parametrize("shape", [(3, 5), (5, 3), (4, 4)])
def test_gradient_agrees_with_finite_differences_of_the_oracle(method, shape):
    rng = np.random.default_rng(11)
    # Well separated, so the power iteration has converged to far below 1e-5.
    spectrum = np.array([4.0, 1.5, 0.7, 0.4])[: min(shape)]
    x = matrices.with_singular_values(shape, spectrum, seed=2)
    weight = rng.standard_normal(shape)
    with float64():
        got = gradient(lambda t: weighted_sum(weight, condition(t, method=method)), x)
    for _ in range(4):
        direction = rng.standard_normal(shape)
        expected = oracles.directional_derivative(
            lambda t: np.sum(weight * oracles.condition(t)), x, direction
        )
        # The scalar function is 1 to 1e-6, its slope 0 to about 1e-4.
        np.testing.assert_allclose(
            np.sum(got * direction), expected, rtol=1e-3, atol=1e-4
        )


@every_method
def test_gradient_below_the_floor_agrees_with_finite_differences(method):
    # Where no formula of the papers applies, the function is its own oracle.
    rng = np.random.default_rng(5)
    x = matrices.with_singular_values((4, 6), [4.0, 1.0, 0.4, 5e-4], seed=3)
    weight, direction = rng.standard_normal((2, 4, 6))

    def loss(t):
        return weighted_sum(weight, condition(t, method=method, floor=1e-2))

    with float64():
        got = np.sum(gradient(loss, x) * direction)
        expected = oracles.directional_derivative(
            lambda t: float(to_numpy(loss(tensor(t, "float64")))), x, direction
        )
    np.testing.assert_allclose(got, expected, rtol=1e-3)


@every_method
def test_stop_gradient_has_the_identitys_gradient_and_the_same_value(method):
    x = matrices.with_kappa((5, 12), 20.0).astype("float32")
    weight = np.random.default_rng(0).standard_normal(x.shape).astype("float32")

    def loss(t, stop):
        return weighted_sum(weight, condition(t, method=method, stop_gradient=stop))

    np.testing.assert_array_equal(gradient(lambda t: loss(t, True), x), weight)
    assert np.abs(gradient(lambda t: loss(t, False), x) - weight).max() > 0.1
    np.testing.assert_array_equal(
        conditioned(x, method=method, stop_gradient=True),
        conditioned(x, method=method, stop_gradient=False),
    )


# -- padding and batch mates -----------------------------------------------------


@every_method
@pytest.mark.parametrize("shape", SHAPES)
def test_padding_changes_nothing(method, shape):
    tokens = matrices.with_kappa(shape, 10.0, seed=8).astype("float32")
    alone = conditioned(tokens, method=method)
    np.testing.assert_allclose(alone, oracles.condition(tokens), atol=1e-4)
    for padding in (1, 7):
        patterns = matrices.padding_patterns(shape[0], padding)
        masks = np.stack(list(patterns.values()))
        padded = np.stack([matrices.pad(tokens, mask, fill=37.0) for mask in masks])
        together = conditioned(padded, mask=ops.convert_to_tensor(masks), method=method)
        for name, mask, before, got in zip(
            patterns, masks, padded, together, strict=True
        ):
            np.testing.assert_allclose(got[mask], alone, atol=1e-5, err_msg=name)
            np.testing.assert_array_equal(got[~mask], before[~mask], err_msg=name)


@every_method
def test_batch_mates_and_their_padding_change_nothing(method):
    long = matrices.with_kappa((12, 5), 10.0, 1) * 1e4
    short = matrices.with_kappa((7, 5), 10.0, 2)
    mask = np.array([[True] * 12, [True] * 7 + [False] * 5, [False] * 12])
    batch = np.stack([long, matrices.pad(short, mask[1], 0.0), np.zeros_like(long)])
    got = conditioned(batch, mask=ops.convert_to_tensor(mask), method=method)
    np.testing.assert_allclose(got[1, :7], conditioned(short, method=method), atol=1e-5)
    np.testing.assert_allclose(got[0] / 1e4, oracles.condition(long / 1e4), atol=1e-4)
    np.testing.assert_array_equal(got[2], 0.0)


@every_method
@pytest.mark.parametrize("fill", [0.0, 5.0])
def test_a_row_of_padding_alone_is_finite_and_unchanged(method, fill):
    x = np.full((5, 12), fill, "float32")
    weight = np.random.default_rng(0).standard_normal(x.shape).astype("float32")
    mask = ops.zeros((5,), dtype="bool")
    np.testing.assert_array_equal(conditioned(x, mask=mask, method=method), x)
    got = gradient(
        lambda t: weighted_sum(weight, condition(t, mask=mask, method=method)), x
    )
    np.testing.assert_allclose(got, weight, atol=1e-6)


@every_method
def test_masked_rows_send_and_receive_no_gradient_of_the_correction(method):
    x = matrices.with_kappa((7, 7), 10.0).astype("float32")
    mask = np.array([True, True, False, True, True, False, True])
    weight = np.random.default_rng(0).standard_normal(x.shape).astype("float32")
    got = gradient(
        lambda t: weighted_sum(
            weight, condition(t, mask=ops.convert_to_tensor(mask), method=method)
        ),
        x,
    )
    np.testing.assert_allclose(got[~mask], weight[~mask], atol=1e-6)
    alone = gradient(
        lambda t: weighted_sum(weight[mask], condition(t, method=method)), x[mask]
    )
    np.testing.assert_allclose(got[mask], alone, atol=1e-3)


@every_method
def test_nan_stays_in_its_own_sample(method):
    x = np.stack([matrices.with_kappa((5, 12), k, k) for k in (2, 9, 40)])
    alone = conditioned(x, method=method)
    x[1, 0, 0] = np.nan
    got = conditioned(x, method=method)
    assert np.isnan(got[1]).any()
    np.testing.assert_allclose(got[[0, 2]], alone[[0, 2]], atol=1e-5)


@every_method
def test_infinity_stays_in_its_own_sample(method):
    x = np.stack([matrices.with_kappa((5, 12), k, k) for k in (2, 9, 40)])
    alone = conditioned(x, method=method)
    x[2, 1, 1] = np.inf
    got = conditioned(x, method=method)
    assert not np.isfinite(got[2]).all()
    np.testing.assert_allclose(got[:2], alone[:2], atol=1e-5)


# -- shapes and precision --------------------------------------------------------


@every_method
@pytest.mark.parametrize("shape", [(1, 1), (1, 6), (6, 1)])
def test_a_single_direction_doubles(method, shape):
    x = np.random.default_rng(0).standard_normal(shape)
    np.testing.assert_allclose(conditioned(x, method=method), 2 * x, rtol=1e-4)


@every_method
@pytest.mark.parametrize("shape", [(0, 5, 12), (2, 0, 5, 12)])
def test_an_empty_batch_stays_empty(method, shape):
    assert conditioned(np.zeros(shape), method=method).shape == shape


@every_method
def test_leading_dimensions_are_a_batch(method):
    x = np.stack([matrices.with_kappa((5, 12), 4.0 + i, i) for i in range(3)])
    flat = conditioned(x, method=method)
    nested = conditioned(x.reshape(3, 1, 5, 12), method=method)
    np.testing.assert_allclose(nested.reshape(flat.shape), flat, atol=1e-5)
    np.testing.assert_allclose(
        flat, np.stack([oracles.condition(s) for s in x]), atol=1e-4
    )


@every_method
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_in_half_precision_out(method, dtype):
    x = ops.cast(tensor(matrices.with_kappa((5, 12), 10.0)), dtype)
    got = condition(x, method=method)
    assert dtype_of(got) == dtype
    expected = oracles.condition(to_numpy(ops.cast(x, "float32")))
    # Computed in float32 and rounded once: 8e-3 is bfloat16's half step below 2.
    np.testing.assert_allclose(to_numpy(got), expected, atol=8e-3)


@every_method
@pytest.mark.parametrize("scale", [1e-3, 1e3])
def test_float16_neither_overflows_nor_underflows(method, scale):
    x = ops.cast(tensor(scale * matrices.with_kappa((5, 12), 10.0)), "float16")
    expected = oracles.condition(to_numpy(ops.cast(x, "float32")))
    got = to_numpy(condition(x, method=method))
    np.testing.assert_allclose(got / scale, expected / scale, atol=3e-3)


@every_method
def test_compiled_equals_eager(method):
    x = tensor(matrices.with_kappa((5, 12), 30.0))
    got = compiled(lambda t: condition(t, method=method))(x)
    np.testing.assert_allclose(
        to_numpy(got), to_numpy(condition(x, method=method)), atol=1e-4
    )


# -- bad input -------------------------------------------------------------------


@pytest.mark.parametrize("floor", [0.0, 1.0, -1e-3, float("nan")])
def test_floor_outside_zero_to_one_is_refused(floor):
    with pytest.raises(ValueError, match=r"(?s)floor.*" + str(floor)):
        condition(tensor(np.eye(3)), floor=floor)


def test_unknown_method_is_refused_and_the_known_ones_are_named():
    with pytest.raises(ValueError, match="method") as error:
        condition(tensor(np.eye(3)), method="eigh")
    for word in ("eigh", *METHODS):
        assert word in str(error.value)


def test_integers_and_vectors_are_refused():
    with pytest.raises(ValueError, match=r"(?s)float.*int32"):
        condition(ops.ones((3, 4), dtype="int32"))
    with pytest.raises(ValueError, match=r"(?s)\(4,\)"):
        condition(ops.ones((4,)))


@pytest.mark.parametrize("shape", [(3,), (2, 4), (3, 5), (5, 1), (2, 5, 12)])
def test_a_mask_of_the_wrong_shape_is_refused(shape):
    with pytest.raises(ValueError, match=r"(?s)mask") as error:
        condition(ops.ones((2, 5, 12)), mask=ops.ones(shape, dtype="bool"))
    assert str(tuple(shape)) in str(error.value)
    assert "(2, 5" in str(error.value)
