"""LoRA on corrected projections: the adapters train, the correction is added once.

That it starts unchanged and is merged into a `.keras` file is among the laws of the
layers.
"""

import keras
import numpy as np
import pytest

import keras_cond
from tests.autodiff import to_numpy
from tests.layers.attention_laws import query_projection
from tests.routes.models import WIDTH

LAYERS = {
    "SpectralAttention": {"num_heads": 2, "key_dim": 3},
    "SpectralGroupedQueryAttention": {
        "head_dim": 3,
        "num_query_heads": 4,
        "num_key_value_heads": 2,
    },
}


def build(name, correction):
    inputs = keras.Input((5, WIDTH))
    layer = getattr(keras_cond, name)(
        **LAYERS[name], correction=correction, correction_scale=2.0, name="attention"
    )
    return keras.Model(inputs, layer(inputs, inputs))


@pytest.mark.parametrize(
    "name, correction",
    [("SpectralAttention", "polar"), ("SpectralGroupedQueryAttention", "identity")],
)
def test_adapters_train_alone_and_merge_into_a_weights_file(name, correction, tmp_path):
    model = build(name, correction)
    layer = model.get_layer("attention")
    projections = [p for p in layer._flatten_layers() if p.name in ("query", "value")]
    for dense in projections:
        dense.enable_lora(2)
    assert query_projection(layer) in projections
    raw = [to_numpy(dense._kernel) for dense in projections]
    rng = np.random.default_rng(0)
    x = rng.standard_normal((4, 5, WIDTH)).astype("float32")
    y = rng.standard_normal((4, 5, WIDTH)).astype("float32")
    model.compile(keras.optimizers.Adam(0.05), "mse")
    losses = model.fit(x, y, batch_size=4, epochs=4, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    for dense, before in zip(projections, raw, strict=True):
        np.testing.assert_array_equal(to_numpy(dense._kernel), before)
        assert np.abs(to_numpy(dense.lora_kernel_b)).max() > 1e-3
    expected = to_numpy(model(x))

    model.save_weights(tmp_path / "w.weights.h5")
    fresh = build(name, correction)
    fresh.load_weights(tmp_path / "w.weights.h5")
    np.testing.assert_allclose(to_numpy(fresh(x)), expected, atol=1e-4)
    # What the file holds is the merged kernel without the correction.
    stored = query_projection(fresh.get_layer("attention"))
    assert not stored.lora_enabled
    merged = to_numpy(query_projection(layer).kernel)
    np.testing.assert_allclose(to_numpy(stored.kernel), merged, atol=1e-6)
