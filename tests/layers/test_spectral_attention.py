"""`SpectralAttention`: a `MultiHeadAttention` with corrected projections."""

import warnings
from typing import ClassVar

import keras
import numpy as np
import pytest

from keras_cond.initializers import SemiOrthogonalQK
from keras_cond.layers import SpectralAttention
from tests import oracles
from tests.autodiff import BACKEND, to_numpy
from tests.layers.attention_laws import (
    CORRECTIONS,
    WIDTH,
    AttentionContract,
    SpectralAttentionLaws,
    tokens,
)


class TestContractWithIdentity(AttentionContract):
    layer_class = SpectralAttention
    arguments: ClassVar[dict] = {
        "num_heads": 2,
        "key_dim": 4,
        "value_dim": 4,
        "correction_scale": 0.5,
        "per_head": False,
        "query_initializer": SemiOrthogonalQK(gain=0.5, seed=3),
    }


class TestContractWithPolar(AttentionContract):
    layer_class = SpectralAttention
    arguments: ClassVar[dict] = {"num_heads": 2, "key_dim": 3, "correction": "polar"}


class TestLaws(SpectralAttentionLaws):
    layer_class = SpectralAttention
    stock_class = keras.layers.MultiHeadAttention
    sizes: ClassVar[dict] = {"num_heads": 2, "key_dim": 4}


@pytest.mark.parametrize("correction", CORRECTIONS)
@pytest.mark.parametrize("per_head", [True, False])
@pytest.mark.parametrize(
    "sizes",
    [
        {"num_heads": 3, "key_dim": 2},  # heads x d below D
        {"num_heads": 2, "key_dim": 12},  # d above D
        {"num_heads": 1, "key_dim": 8},
        # Keras' fused attention refuses value_dim != key_dim on JAX, in the stock layer
        # as well; dropout (inactive here) takes the other path.
        {"num_heads": 4, "key_dim": 4, "value_dim": 3, "dropout": 0.1},
    ],
)
def test_odd_sizes_equal_numpy_with_the_correction_added(correction, per_head, sizes):
    x = tokens(2, 5, WIDTH)
    layer = SpectralAttention(
        **sizes, correction=correction, per_head=per_head, correction_scale=1.5
    )
    layer.build(x.shape, x.shape)
    weights = layer.get_weights()

    def correct(kernel):
        if correction == "identity":
            return oracles.identity_correction(kernel, 1.5, per_head)
        return oracles.polar_correction(kernel, per_head)

    shifted = oracles.correct_attention_weights(weights, correct)
    expected = [oracles.attention(s, s, shifted) for s in x]
    np.testing.assert_allclose(to_numpy(layer(x, x)), expected, atol=1e-3)


@pytest.mark.parametrize("correction", CORRECTIONS)
@pytest.mark.parametrize("axes", [None, (1,), (2,)])
def test_rank_four_and_attention_axes_equal_the_stock_layer(correction, axes):
    x = tokens(2, 3, 5, WIDTH)
    laws = TestLaws()
    off, twin, weights, _ = laws.pair(
        x, correction=correction, correction_scale=0, attention_axes=axes
    )
    np.testing.assert_array_equal(to_numpy(off(x, x)), to_numpy(twin(x, x)))
    layer, twin, weights, _ = laws.pair(
        x, correction=correction, correction_scale=1.5, attention_axes=axes
    )
    twin.set_weights(laws.shifted(weights, correction, True, 1.5))
    np.testing.assert_allclose(
        to_numpy(layer(x, x)), to_numpy(twin(x, x)), rtol=1e-4, atol=1e-3
    )


def test_output_shape_is_the_parents():
    x = tokens(2, 5, WIDTH)
    laws = TestLaws()
    layer, twin, *_ = laws.pair(x, output_shape=7, correction_scale=0)
    np.testing.assert_array_equal(to_numpy(layer(x, x)), to_numpy(twin(x, x)))
    assert layer.compute_output_shape(x.shape, x.shape) == (2, 5, 7)


def test_semi_orthogonal_heads_survive_the_route_through_the_layer():
    layer = SpectralAttention(
        num_heads=2,
        key_dim=4,
        correction_scale=0,
        kernel_initializer=SemiOrthogonalQK(gain=2.0, seed=5),
    )
    layer.build((None, 5, WIDTH), (None, 5, WIDTH))
    kernels = layer.get_weights()
    for kernel in (kernels[0], kernels[2], kernels[4]):
        for head in oracles.head_matrices(kernel):
            np.testing.assert_allclose(oracles.singular_values(head), 2.0, atol=1e-5)
    assert np.abs(kernels[0] - kernels[2]).max() > 0.1


@pytest.mark.skipif(BACKEND != "torch", reason="the contract covers the others")
def test_fit_with_jit_compile_on_torch_compiles_or_falls_back_with_one_warning():
    # Through the C++ compiler, as a user would: a minute, hence one small model.
    import torch

    torch._dynamo.reset()
    inputs = keras.Input((5, WIDTH))
    layer = SpectralAttention(2, 4, correction="polar", per_head=False)
    model = keras.Model(inputs, layer(inputs, inputs))
    x, y = tokens(4, 5, WIDTH), tokens(4, 5, WIDTH, seed=1)
    start = model.get_weights()
    losses = {}
    for jit in (False, True):
        model.set_weights(start)
        model.compile(keras.optimizers.SGD(0.005), "mse", jit_compile=jit)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            history = model.fit(x, y, batch_size=4, epochs=3, verbose=0)
        losses[jit] = history.history["loss"]
        assert sum("fall" in str(w.message).lower() for w in caught) <= 1
    assert losses[True][-1] < losses[True][0]
    np.testing.assert_allclose(losses[True], losses[False], rtol=1e-3)
