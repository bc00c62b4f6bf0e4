"""Every layer in a subclassed `Model` and in a `Layer` of the user, saved and loaded.

Alone, and in a fresh process, they are in `tests/layers/test_saved_alone.py`.
"""

import keras
import numpy as np

import keras_cond
from tests.autodiff import to_numpy
from tests.routes.models import VOCABULARY, WIDTH

PACKAGE = "keras_cond_tests"


@keras.saving.register_keras_serializable(package=PACKAGE)
class Tokens(keras.layers.Layer):
    """Embeds and conditions; its layers are built when it is called."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.sequence = keras_cond.ConditionedEmbedding(VOCABULARY, WIDTH)
        self.table = keras_cond.ConditionedEmbedding(
            VOCABULARY, WIDTH, condition="table"
        )
        self.dct = keras_cond.DCTTokenGraying(epsilon=0.7, rescale=True)
        self.svd = keras_cond.SVDTokenGraying(epsilon=0.7, rescale=True)
        self.conditioning = keras_cond.TokenConditioning()

    def build(self, ids_shape):
        self.sequence.build(ids_shape)
        self.table.build(ids_shape)
        self.dct.build((*ids_shape, WIDTH))
        self.svd.build((*ids_shape, WIDTH))

    def call(self, ids):
        x = self.dct(self.sequence(ids)) + self.svd(self.table(ids))
        return self.conditioning(x)


@keras.saving.register_keras_serializable(package=PACKAGE)
class Encoder(keras.Model):
    """A subclassed model without a config of its own."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.tokens = Tokens()
        self.attention = keras_cond.SpectralAttention(2, 3, correction="polar")
        self.grouped = keras_cond.SpectralGroupedQueryAttention(3, 4, 2)

    def build(self, ids_shape):
        shape = (*ids_shape, WIDTH)
        self.tokens.build(ids_shape)
        self.attention.build(shape, shape)
        self.grouped.build(shape, shape)

    def call(self, ids):
        x = self.tokens(ids)
        x = x + self.attention(x, x)
        return x + self.grouped(x, x)


def test_files_of_a_subclassed_model_hold_every_correction_once(tmp_path):
    ids = np.random.default_rng(0).integers(0, VOCABULARY, (2, 5)).astype("int32")
    model = Encoder()
    expected = to_numpy(model(ids))
    paths = [v.path for v in model.variables]
    assert len(set(paths)) == len(paths)
    for _ in range(2):  # A correction added by saving or loading would add up.
        model.save(tmp_path / "m.keras")
        model = keras.models.load_model(tmp_path / "m.keras")
        model.save_weights(tmp_path / "m.weights.h5")
        model = Encoder()
        model(ids)
        assert np.abs(to_numpy(model(ids)) - expected).max() > 1e-3
        model.load_weights(tmp_path / "m.weights.h5")
        np.testing.assert_allclose(to_numpy(model(ids)), expected, atol=1e-4)
