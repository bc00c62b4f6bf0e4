"""Token graying: fractional powers of singular values and of DCT coefficients."""

import keras
import numpy as np
import pytest
import scipy.fft
from hypothesis import given
from hypothesis import strategies as st
from keras import ops

from keras_cond.ops import dct_graying, svd_graying
from tests import matrices, oracles
from tests.autodiff import compiled, dtype_of, float64, gradient, to_numpy, weighted_sum

METHODS = ("newton_schulz", "svd")
EPSILONS = (0.05, 0.5, 0.95, 1.0)
# Every way to gray, as one function of (x, epsilon, **kwargs).
GRAYINGS = {
    "dct": dct_graying,
    "svd": lambda x, e, **kw: svd_graying(x, e, method="svd", **kw),
    "newton_schulz": lambda x, e, **kw: svd_graying(x, e, method="newton_schulz", **kw),
}
every_graying = pytest.mark.parametrize("graying", GRAYINGS)


def tensor(x, dtype="float32"):
    return ops.convert_to_tensor(np.asarray(x, dtype))


def grayed(graying, x, epsilon, **kwargs):
    return to_numpy(GRAYINGS[graying](tensor(x), epsilon, **kwargs)).astype("float64")


def expected(graying, x, epsilon, **kwargs):
    oracle = oracles.dct_graying if graying == "dct" else oracles.svd_graying
    return oracle(x, epsilon, **kwargs)


# -- the formula -----------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@given(
    matrix=matrices.matrices(max_kappa=500.0),
    epsilon=st.sampled_from(EPSILONS),
    rescale=st.booleans(),
)
def test_svd_graying_raises_singular_values_to_epsilon(
    method, matrix, epsilon, rescale
):
    got = grayed(method, 3.0 * matrix.value, epsilon, rescale=rescale)
    want = oracles.svd_graying(3.0 * matrix.value, epsilon, rescale)
    # By products: 3e-3 of the largest singular value, 1 (or 3 rescaled); by SVD:
    # eps kappa of the directions.
    tolerance = 3e-3 if method == "newton_schulz" else 1e-5 + 3e-6 * matrix.kappa
    np.testing.assert_allclose(got, want, atol=tolerance * (3 if rescale else 1))


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_svd_graying_is_linear_below_the_floor(epsilon):
    floor = 1e-2
    spectrum = np.array([1.0, 0.3, 0.5 * floor, 1e-2 * floor])
    x = matrices.with_singular_values((4, 6), 5.0 * spectrum, seed=1)
    with float64():
        got = svd_graying(tensor(x, "float64"), epsilon, method="svd", floor=floor)
    got = oracles.singular_values(to_numpy(got))
    want = spectrum * np.maximum(spectrum, floor) ** (epsilon - 1)
    np.testing.assert_allclose(got, np.sort(want)[::-1], rtol=1e-6)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_svd_graying_by_products_stays_bounded_below_the_floor(epsilon):
    floor = 1e-2
    spectrum = np.array([1.0, 0.3, 0.5 * floor, 1e-2 * floor])
    x = matrices.with_singular_values((4, 6), spectrum, seed=1)
    got = oracles.singular_values(grayed("newton_schulz", x, epsilon, floor=floor))
    np.testing.assert_allclose(got[:2], spectrum[:2] ** epsilon, atol=3e-3)
    # Below the floor the curve ends at 0 and stays under its value at the floor.
    assert (got[2:] <= floor**epsilon + 3e-3).all()
    assert got[3] < 0.2 * floor**epsilon


@given(
    matrix=matrices.matrices(max_kappa=500.0),
    epsilon=st.sampled_from(EPSILONS),
    rescale=st.booleans(),
)
def test_dct_graying_raises_coefficients_to_epsilon(matrix, epsilon, rescale):
    # A floor far below every coefficient leaves the paper's formula.
    x = 3.0 * matrix.value
    got = grayed("dct", x, epsilon, rescale=rescale, floor=1e-12)
    want = oracles.dct_graying(x, epsilon, rescale)
    coefficients = np.abs(scipy.fft.dctn(x, norm="ortho"))
    smallest = coefficients.min() / coefficients.max()
    # float32 coefficients carry noise of about 1e-6 of the largest, which the slope
    # epsilon |y|^(epsilon - 1) of the power amplifies.
    noise = min(1e-6 * smallest ** (epsilon - 1), (smallest + 1e-6) ** epsilon)
    tolerance = 2e-5 + 2 * noise * x.size**0.5
    np.testing.assert_allclose(
        got, want, atol=tolerance * (coefficients.max() if rescale else 1)
    )


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_dct_graying_is_linear_below_the_floor(epsilon):
    floor = 1e-2
    y = np.random.default_rng(0).uniform(0.2, 0.9, (4, 6))
    y[1, 2], y[0, 0], y[3, 3] = 0.5 * floor, -1.0, -1e-2 * floor
    x = 5.0 * scipy.fft.idctn(y, norm="ortho")
    with float64():
        got = to_numpy(dct_graying(tensor(x, "float64"), epsilon, floor=floor))
    want = y * np.maximum(np.abs(y), floor) ** (epsilon - 1)
    np.testing.assert_allclose(scipy.fft.dctn(got, norm="ortho"), want, atol=1e-10)


@every_graying
def test_epsilon_one_with_rescale_is_the_identity(graying):
    x = 7.0 * np.stack([matrices.with_kappa((5, 12), k, k) for k in (3, 50, 10**5)])
    got = grayed(graying, x, 1.0, rescale=True)
    np.testing.assert_allclose(got, x, atol=1e-4)


@every_graying
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_without_rescale_the_largest_value_is_one(graying, epsilon):
    x = 7.0 * matrices.with_kappa((5, 12), 20.0)
    got = grayed(graying, x, epsilon)
    if graying == "dct":
        largest = np.abs(scipy.fft.dctn(got, norm="ortho")).max()
    else:
        largest = oracles.singular_values(got)[0]
    tolerance = 3e-3 if graying == "newton_schulz" else 1e-5
    assert largest == pytest.approx(1.0, abs=tolerance)


@every_graying
def test_rescale_multiplies_the_maximum_back(graying):
    x = 7.0 * matrices.with_kappa((5, 12), 20.0)
    largest = np.abs(scipy.fft.dctn(x, norm="ortho")).max() if graying == "dct" else 7.0
    np.testing.assert_allclose(
        grayed(graying, x, 0.5, rescale=True),
        largest * grayed(graying, x, 0.5),
        atol=largest * 3e-3,
    )


@every_graying
def test_smaller_epsilon_flattens_the_spectrum_it_acts_on(graying):
    x = matrices.with_kappa((5, 12), 300.0)
    # What the DCT flattens are its coefficients.
    kappas = []
    for epsilon in (1.0, 0.7, 0.4):
        got = grayed(graying, x, epsilon)
        if graying == "dct":
            got = np.abs(scipy.fft.dctn(got, norm="ortho"))
            kappas.append(got.max() / got.min())
        else:
            kappas.append(oracles.condition_number(got))
    assert kappas[0] > 1.3 * kappas[1] > 1.3**2 * kappas[2]


@every_graying
@pytest.mark.parametrize("scale", [1e-12, 1e-3, 1e6, 1e12])
def test_scale_drops_out(graying, scale):
    x = matrices.with_kappa((5, 12), 20.0)
    got = grayed(graying, scale * x, 0.5)
    np.testing.assert_allclose(got, grayed(graying, x, 0.5), atol=1e-4)
    np.testing.assert_allclose(
        grayed(graying, -x, 0.5), -grayed(graying, x, 0.5), atol=1e-4
    )


@every_graying
def test_epsilon_may_be_a_tensor_or_a_variable(graying):
    x = matrices.with_kappa((5, 12), 20.0)
    want = grayed(graying, x, 0.5)
    np.testing.assert_allclose(
        grayed(graying, x, ops.convert_to_tensor(0.5, "float32")), want, atol=1e-5
    )
    epsilon = keras.Variable(0.9, dtype="float32", trainable=False)
    epsilon.assign(0.5)
    np.testing.assert_allclose(grayed(graying, x, epsilon), want, atol=1e-5)


# -- gradients -------------------------------------------------------------------


@every_graying
@pytest.mark.parametrize("epsilon", [0.05, 0.5, 1.0])
@pytest.mark.parametrize(
    "name", [*matrices.coinciding_inputs(), "constant", "one token", "denormal"]
)
def test_values_and_gradients_are_finite(graying, epsilon, name):
    inputs = matrices.coinciding_inputs()
    # Shapes are kept equal where the case allows, for JAX compiles each anew.
    inputs["constant"] = np.full((5, 12), 0.7)
    inputs["denormal"] = inputs["repeated token"] * 1e-40
    inputs["one token"] = inputs["repeated token"][:1]
    x = inputs[name].astype("float32")
    weight = np.random.default_rng(0).standard_normal(x.shape).astype("float32")
    assert np.isfinite(grayed(graying, x, epsilon)).all()
    got = gradient(
        lambda t: weighted_sum(weight, GRAYINGS[graying](t, epsilon, rescale=True)), x
    )
    assert np.isfinite(got).all()
    if name not in ("all zero", "denormal"):
        assert np.linalg.norm(got) > 1e-3


@every_graying
def test_gradient_agrees_with_finite_differences_of_the_oracle(graying):
    rng = np.random.default_rng(4)
    x = matrices.with_singular_values((4, 6), [4.0, 1.5, 0.7, 0.4], seed=2)
    weight, direction = rng.standard_normal((2, 4, 6))
    with float64():
        got = gradient(
            lambda t: weighted_sum(
                weight, GRAYINGS[graying](t, 0.5, floor=1e-4, rescale=True)
            ),
            x,
        )
    want = oracles.directional_derivative(
        lambda t: np.sum(weight * expected(graying, t, 0.5, rescale=True)), x, direction
    )
    # By products the function itself is an approximation to 3e-3.
    tolerance = 2e-2 if graying == "newton_schulz" else 1e-4
    np.testing.assert_allclose(np.sum(got * direction), want, rtol=tolerance)


# -- padding and batch mates -----------------------------------------------------


@every_graying
@pytest.mark.parametrize("shape", [(5, 12), (12, 5), (7, 7)])
def test_padding_changes_nothing(graying, shape):
    tokens = matrices.with_kappa(shape, 10.0, seed=8).astype("float32")
    alone = grayed(graying, tokens, 0.5)
    patterns = matrices.padding_patterns(shape[0])
    masks = np.stack(list(patterns.values()))
    padded = np.stack([matrices.pad(tokens, mask, fill=37.0) for mask in masks])
    together = grayed(graying, padded, 0.5, mask=ops.convert_to_tensor(masks))
    for name, mask, before, got in zip(patterns, masks, padded, together, strict=True):
        # The slope of the power near the floor is about 15 here.
        np.testing.assert_allclose(got[mask], alone, atol=2e-5, err_msg=name)
        np.testing.assert_array_equal(got[~mask], before[~mask], err_msg=name)


@every_graying
def test_batch_mates_and_their_padding_change_nothing(graying):
    long = matrices.with_kappa((12, 5), 10.0, 1) * 1e4
    short = matrices.with_kappa((7, 5), 10.0, 2)
    mask = np.array([[True] * 12, [True] * 7 + [False] * 5, [False] * 12])
    blank = np.full_like(long, 2.0)
    batch = np.stack([long, matrices.pad(short, mask[1], 9.0), blank])
    got = grayed(graying, batch, 0.5, mask=ops.convert_to_tensor(mask))
    np.testing.assert_allclose(got[1, :7], grayed(graying, short, 0.5), atol=2e-5)
    np.testing.assert_allclose(got[0], grayed(graying, long, 0.5), atol=2e-5)
    np.testing.assert_array_equal(got[2], blank)


@every_graying
def test_nan_stays_in_its_own_sample(graying):
    x = np.stack([matrices.with_kappa((5, 12), k, k) for k in (2, 9, 40)])
    alone = grayed(graying, x, 0.5)
    x[1, 0, 0] = np.nan
    got = grayed(graying, x, 0.5)
    assert np.isnan(got[1]).any()
    np.testing.assert_allclose(got[[0, 2]], alone[[0, 2]], atol=1e-5)


@every_graying
def test_a_row_of_padding_alone_has_the_identitys_gradient(graying):
    x = np.full((5, 12), 2.0, "float32")
    weight = np.random.default_rng(0).standard_normal(x.shape).astype("float32")
    mask = ops.zeros((5,), dtype="bool")
    got = gradient(
        lambda t: weighted_sum(weight, GRAYINGS[graying](t, 0.5, mask=mask)), x
    )
    np.testing.assert_allclose(got, weight, atol=1e-6)


# -- shapes and precision --------------------------------------------------------


@every_graying
@pytest.mark.parametrize("shape", [(1, 1), (1, 6), (6, 1)])
def test_length_one_is_no_special_case(graying, shape):
    x = np.random.default_rng(0).standard_normal(shape)
    got = grayed(graying, x, 0.5, floor=1e-6)
    tolerance = 3e-3 if graying == "newton_schulz" else 1e-4
    np.testing.assert_allclose(got, expected(graying, x, 0.5), atol=tolerance)


@every_graying
def test_an_empty_batch_stays_empty(graying):
    assert grayed(graying, np.zeros((0, 5, 12)), 0.5).shape == (0, 5, 12)


@every_graying
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_in_half_precision_out(graying, dtype):
    x = ops.cast(tensor(matrices.with_kappa((5, 12), 10.0)), dtype)
    got = GRAYINGS[graying](x, 0.5)
    assert dtype_of(got) == dtype
    reference = GRAYINGS[graying](ops.cast(x, "float32"), 0.5)
    # Computed in float32 and rounded once: 4e-3 is bfloat16's half step below 1.
    np.testing.assert_allclose(to_numpy(got), to_numpy(reference), atol=4e-3)


@every_graying
def test_compiled_equals_eager(graying):
    x = tensor(matrices.with_kappa((5, 12), 30.0))
    got = compiled(lambda t: GRAYINGS[graying](t, 0.5))(x)
    np.testing.assert_allclose(
        to_numpy(got), to_numpy(GRAYINGS[graying](x, 0.5)), atol=1e-4
    )


def test_newton_schulz_is_the_default():
    x = matrices.with_kappa((5, 12), 300.0)
    np.testing.assert_array_equal(
        to_numpy(svd_graying(tensor(x), 0.5)), grayed("newton_schulz", x, 0.5)
    )


# -- bad input -------------------------------------------------------------------


@every_graying
@pytest.mark.parametrize("epsilon", [0.0, -0.5, 1.01, float("nan")])
def test_epsilon_outside_zero_to_one_is_refused(graying, epsilon):
    with pytest.raises(ValueError, match=r"(?s)epsilon.*" + str(epsilon)):
        grayed(graying, np.eye(3), epsilon)


@every_graying
@pytest.mark.parametrize("floor", [0.0, 1.0, -1e-3, float("nan")])
def test_floor_outside_zero_to_one_is_refused(graying, floor):
    with pytest.raises(ValueError, match=r"(?s)floor.*" + str(floor)):
        grayed(graying, np.eye(3), 0.5, floor=floor)


@every_graying
def test_integers_and_vectors_are_refused(graying):
    with pytest.raises(ValueError, match=r"(?s)float.*int32"):
        GRAYINGS[graying](ops.ones((3, 4), dtype="int32"), 0.5)
    with pytest.raises(ValueError, match=r"(?s)\(4,\)"):
        GRAYINGS[graying](ops.ones((4,)), 0.5)


@every_graying
@pytest.mark.parametrize("shape", [(3,), (2, 4), (5, 1), (2, 5, 12)])
def test_a_mask_of_the_wrong_shape_is_refused(graying, shape):
    mask = ops.ones(shape, dtype="bool")
    with pytest.raises(ValueError, match=r"(?s)mask") as error:
        GRAYINGS[graying](ops.ones((2, 5, 12)), 0.5, mask=mask)
    assert str(tuple(shape)) in str(error.value)


def test_unknown_method_is_refused_and_the_known_ones_are_named():
    with pytest.raises(ValueError, match="method") as error:
        svd_graying(tensor(np.eye(3)), 0.5, method="dct")
    for word in ("dct", *METHODS):
        assert word in str(error.value)
