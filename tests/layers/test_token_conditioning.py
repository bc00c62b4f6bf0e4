"""`TokenConditioning`: its contract and its formula."""

from typing import ClassVar

import keras
import numpy as np
import pytest
from keras import ops

from keras_cond.layers import TokenConditioning
from tests import matrices, oracles
from tests.autodiff import gradient, to_numpy, weighted_sum
from tests.layer_contract import LayerContract

METHODS = ("newton_schulz", "svd")


def tokens(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


class TestContract(LayerContract):
    layer_class = TokenConditioning
    arguments: ClassVar[dict] = {"method": "svd", "floor": 1e-2, "stop_gradient": True}


class TestContractOfTheDefaults(LayerContract):
    layer_class = TokenConditioning


@pytest.mark.parametrize("method", METHODS)
def test_it_conditions_each_sample(method):
    x = tokens(3, 5, 6)
    got = to_numpy(TokenConditioning(method=method)(x))
    np.testing.assert_allclose(got, [oracles.condition(s) for s in x], atol=1e-4)
    for before, after in zip(x, got, strict=True):
        assert oracles.condition_number(after) <= 2.02
        assert oracles.condition_number(before) > 2.02


def test_it_takes_tokens_of_rank_four():
    x = tokens(2, 3, 5, 6)
    got = to_numpy(TokenConditioning()(x))
    expected = [[oracles.condition(s) for s in frames] for frames in x]
    np.testing.assert_allclose(got, expected, atol=1e-4)


def test_an_explicit_mask_acts_like_the_one_that_travels_with_the_tensor():
    x = tokens(2, 7, 6)
    x[0, 5:] = -1.0
    x[1, :2] = -1.0
    mask = ~(x == -1.0).all(-1)
    layer = TokenConditioning()
    expected = np.stack(
        [oracles.condition(*pair) for pair in zip(x, mask, strict=True)]
    )
    explicit = to_numpy(layer(x, mask=ops.convert_to_tensor(mask)))
    carried = to_numpy(layer(keras.layers.Masking(-1.0)(x)))
    np.testing.assert_allclose(explicit, expected, atol=1e-4)
    np.testing.assert_allclose(carried[mask], expected[mask], atol=1e-4)


def test_floor_and_method_reach_the_function():
    x = matrices.with_singular_values((5, 6), [1.0, 0.5, 0.2, 1e-2, 1e-2])[None]
    lifted = oracles.singular_values(to_numpy(TokenConditioning(floor=1e-3)(x))[0])
    left = oracles.singular_values(to_numpy(TokenConditioning(floor=0.3)(x))[0])
    assert lifted[-1] > 0.9 and left[-1] < 0.3


def test_stop_gradient_gives_the_identitys_gradient():
    x, weight = tokens(1, 5, 6), tokens(1, 5, 6, seed=1)
    for stop in (True, False):
        layer = TokenConditioning(stop_gradient=stop)
        got = gradient(lambda t, layer=layer: weighted_sum(weight, layer(t)), x)
        assert np.array_equal(got, weight) == stop


def test_twice_the_layer_trains_on_orthonormal_rows():
    inputs = keras.Input((5, 6))
    x = keras.layers.Dense(6, kernel_initializer="identity")(inputs)
    x = TokenConditioning()(TokenConditioning()(x))
    model = keras.Model(inputs, keras.layers.Dense(1)(x))
    model.compile("sgd", "mse")
    rows = np.eye(5, 6, dtype="float32")[None]
    assert np.isfinite(model.train_on_batch(rows, np.ones((1, 5, 1))))
    assert all(np.isfinite(w).all() for w in model.get_weights())


def test_it_has_no_weights():
    layer = TokenConditioning()
    layer(tokens(1, 5, 6))
    assert layer.weights == []


@pytest.mark.parametrize("floor", [0.0, 1.0, -1.0, float("nan")])
def test_floor_outside_zero_to_one_is_refused(floor):
    with pytest.raises(ValueError, match=r"(?s)floor.*" + str(floor)):
        TokenConditioning(floor=floor)


def test_unknown_method_is_refused_and_the_known_ones_are_named():
    with pytest.raises(ValueError, match="method") as error:
        TokenConditioning(method="eigh")
    for word in ("eigh", *METHODS):
        assert word in str(error.value)


def test_a_matrix_without_batch_is_refused():
    with pytest.raises(ValueError, match=r"\(5, 6\)"):
        TokenConditioning()(tokens(5, 6))


def test_integer_tokens_are_refused():
    with pytest.raises(ValueError, match=r"(?s)float.*int32"):
        TokenConditioning()(ops.ones((2, 5, 6), dtype="int32"))


@pytest.mark.parametrize("shape", [(2, 4), (2, 5, 6), (5,)])
def test_a_mask_of_the_wrong_shape_is_refused(shape):
    with pytest.raises(ValueError, match=r"(?s)mask") as error:
        TokenConditioning()(tokens(2, 5, 6), mask=ops.ones(shape, dtype="bool"))
    assert str(shape) in str(error.value)
