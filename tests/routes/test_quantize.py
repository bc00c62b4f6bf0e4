"""A quantized model keeps the correction or refuses; see the laws of the layers too."""

import warnings

import keras
import numpy as np
import pytest

import keras_cond
from tests.autodiff import to_numpy
from tests.layers.attention_laws import query_projection
from tests.routes.models import MODELS, WIDTH, encoder, example


def quantized(model):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Keras names the layers left in float.
        model.quantize("int8")
    return model


@pytest.mark.parametrize("name", MODELS)
def test_a_whole_model_keeps_its_outputs(name):
    model = MODELS[name]()
    x = example(model)
    before = to_numpy(model(x))
    quantized(model)
    assert model.get_layer("readout").quantization_mode == "int8"
    after = to_numpy(model(x))
    # int8 leaves a few percent.
    scale = np.abs(before).max()
    np.testing.assert_allclose(after / scale, before / scale, atol=0.1)


def test_a_file_of_a_quantized_model_is_refused_with_the_stock_layer_too(tmp_path):
    # Keras' attention does not write which of its projections are quantized.
    for layer in (
        keras.layers.MultiHeadAttention(2, 3),
        keras_cond.SpectralAttention(2, 3),
    ):
        inputs = keras.Input((5, WIDTH))
        model = quantized(keras.Model(inputs, layer(inputs, inputs)))
        model.save(tmp_path / "m.keras")
        with pytest.raises(ValueError, match="could not be loaded"):
            keras.models.load_model(tmp_path / "m.keras")


def test_after_quantizing_the_size_of_the_correction_still_matters():
    outputs = []
    for scale in (0.0, 10.0):
        keras.utils.set_random_seed(1)
        model = quantized(encoder(correction_scale=scale))
        outputs.append(to_numpy(model(example(model))))
    off, on = outputs
    assert np.abs(on - off).max() > 0.5 * np.abs(on).max()


@pytest.mark.parametrize("how", ["by force", "by dtype"])
def test_a_quantized_projection_adds_the_identity_and_refuses_the_polar(how):
    x = np.random.default_rng(0).standard_normal((2, 5, WIDTH)).astype("float32")
    for correction in ("identity", "polar"):
        plain = keras.layers.MultiHeadAttention(2, 3)
        layer = keras_cond.SpectralAttention(
            2,
            3,
            correction=correction,
            correction_scale=10.0,
            dtype="int8_from_float32" if how == "by dtype" else None,
        )
        plain.build(x.shape, x.shape)
        layer.build(x.shape, x.shape)
        dense = query_projection(layer)
        if how == "by force":
            dense.quantize("int8", type_check=False)
        assert dense.quantization_mode == "int8"
        if correction == "polar":
            with pytest.raises(ValueError, match="floating point"):
                dense(x)
            continue
        shift = 10.0 * x[:, :, None, :3]
        # The product itself is of order 1.
        assert np.abs(to_numpy(dense(x)) - shift).max() < 5.0 < np.abs(shift).max()
