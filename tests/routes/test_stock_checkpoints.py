"""Weights of a stock model into a conditioned one, and back."""

import keras
import numpy as np
import pytest

import keras_cond
from tests.autodiff import to_numpy
from tests.routes.models import WIDTH

SCALE = 2.0


def two_blocks(first, second):
    """Two attention layers, each of the stock class or of ours."""
    x = inputs = keras.Input((5, WIDTH))
    for is_ours in (first, second):
        layer = (
            keras_cond.SpectralAttention(2, 3, correction_scale=SCALE)
            if is_ours
            else keras.layers.MultiHeadAttention(2, 3)
        )
        x = keras.layers.Add()([x, layer(x, x)])
    model = keras.Model(inputs, x)
    # Biases start at zero: different everywhere, so that no mix-up goes unseen.
    rng = np.random.default_rng(first + 2 * second)
    model.set_weights([rng.standard_normal(w.shape) for w in model.get_weights()])
    return model


def batch():
    return np.random.default_rng(9).standard_normal((2, 5, WIDTH)).astype("float32")


def same_weights(one, other):
    return all(
        np.array_equal(a, b)
        for a, b in zip(one.get_weights(), other.get_weights(), strict=True)
    )


@pytest.mark.parametrize("first, second", [(True, True), (True, False), (False, True)])
def test_the_route_is_get_weights_and_set_weights(first, second, tmp_path):
    stock, path = two_blocks(False, False), tmp_path / "stock.weights.h5"
    stock.save_weights(path)
    loaded = two_blocks(False, False)
    loaded.load_weights(path)
    ours = two_blocks(first, second)
    ours.set_weights(loaded.get_weights())
    assert same_weights(ours, stock)
    back = two_blocks(False, False)
    back.set_weights(ours.get_weights())
    np.testing.assert_array_equal(to_numpy(back(batch())), to_numpy(stock(batch())))
    assert np.abs(to_numpy(ours(batch())) - to_numpy(stock(batch()))).max() > 0.1


@pytest.mark.parametrize("first, second", [(True, True), (True, False), (False, True)])
def test_a_stock_file_does_not_load_and_the_model_is_not_mixed_up(
    first, second, tmp_path
):
    two_blocks(False, False).save_weights(tmp_path / "stock.weights.h5")
    ours = two_blocks(first, second)
    with pytest.raises(ValueError):
        ours.load_weights(tmp_path / "stock.weights.h5")


def test_skip_mismatch_may_shift_blocks_so_the_documented_route_avoids_it(tmp_path):
    # Keras numbers the layers of a file by class. Should this fail, Keras has changed
    # for the better: say so in docs/routes.md.
    stock = two_blocks(False, False)
    stock.save_weights(tmp_path / "stock.weights.h5")
    ours = two_blocks(True, False)
    ours.load_weights(tmp_path / "stock.weights.h5", skip_mismatch=True)
    size = len(stock.get_weights()) // 2
    for got, first in zip(
        ours.get_weights()[size:], stock.get_weights()[:size], strict=True
    ):
        np.testing.assert_array_equal(got, first)
