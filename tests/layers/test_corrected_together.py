"""Polar kernels of one attention layer, corrected in one go."""

import keras
import numpy as np
import pytest

from keras_cond.layers import SpectralAttention, SpectralGroupedQueryAttention
from keras_cond.layers import corrected_together as module
from tests.autodiff import BACKEND, to_numpy, weight_gradients, weighted_sum

MAKERS = {
    "heads": lambda: SpectralAttention(2, 3, correction="polar"),
    "joint": lambda: SpectralAttention(2, 3, correction="polar", per_head=False),
    "grouped": lambda: SpectralGroupedQueryAttention(4, 4, 2, correction="polar"),
}


def tokens(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype("float32")


@pytest.fixture
def count_corrections(monkeypatch):
    calls = []

    def condition(matrices):
        calls.append(tuple(matrices.shape))
        return original(matrices)

    original = module.condition
    monkeypatch.setattr(module, "condition", condition)
    return calls


def test_kernels_of_one_shape_are_corrected_in_one_go(count_corrections):
    layer, x = MAKERS["heads"](), tokens(2, 5, 8)
    layer.build(x.shape, x.shape)
    layer(x, x)
    assert count_corrections == [(6, 8, 3)]
    del count_corrections[:]
    other = MAKERS["heads"]()
    other.build(x.shape, (2, 4, 7))
    other(x, tokens(2, 4, 7))
    assert count_corrections == [(2, 8, 3), (4, 7, 3)]


@pytest.mark.parametrize("maker", MAKERS)
def test_together_equals_each_by_itself(maker, monkeypatch):
    keras.utils.set_random_seed(0)
    layer, x = MAKERS[maker](), tokens(2, 5, 8)
    layer.build(x.shape, x.shape)

    def loss():
        return weighted_sum(tokens(2, 5, 8), layer(x, x))

    together, gradients = to_numpy(layer(x, x)), weight_gradients(layer, loss)
    layer.trainable_variables[0].assign(layer.trainable_variables[0] * 2)
    assert not np.allclose(to_numpy(layer(x, x)), together, atol=1e-4)
    layer.trainable_variables[0].assign(layer.trainable_variables[0] / 2)
    name = "keras_cond.layers.spectral_correction.can_be_corrected_together"
    monkeypatch.setattr(name, lambda layers: False)
    np.testing.assert_allclose(to_numpy(layer(x, x)), together, atol=1e-5)
    # A batch and its matrices one by one, whose products round differently: gradients
    # by 2e-5 of the largest on TensorFlow and an AMD EPYC.
    rounding = 5e-5 * max(np.abs(gradient).max() for gradient in gradients)
    for one, both in zip(weight_gradients(layer, loss), gradients, strict=True):
        np.testing.assert_allclose(one, both, atol=rounding)


def test_a_projection_called_alone_afterwards_sees_its_new_kernel():
    layer, x = MAKERS["heads"](), tokens(2, 5, 8)
    layer.build(x.shape, x.shape)
    layer(x, x)
    query = layer.query_dense
    query.kernel.assign(query.kernel * 2)
    alone = to_numpy(query(x))
    expected = np.einsum("abc,cde->abde", x, to_numpy(query.corrected_kernel()))
    np.testing.assert_allclose(alone, expected + to_numpy(query.bias), atol=1e-4)


@pytest.mark.skipif(BACKEND == "tensorflow", reason="The stock layer fails there too.")
def test_a_rematerialized_layer_trains():
    with keras.RematScope(mode="full"):
        inputs = keras.Input((5, 8))
        outputs = MAKERS["heads"]()(inputs, inputs)
    model = keras.Model(inputs, outputs)
    model.compile("sgd", "mse")
    before = model.get_weights()
    model.fit(tokens(4, 5, 8), tokens(4, 5, 8), verbose=0)
    assert any(
        not np.array_equal(old, new)
        for old, new in zip(before, model.get_weights(), strict=True)
    )
