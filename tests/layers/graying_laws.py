"""Laws that both token-graying layers obey."""

from typing import ClassVar

import keras
import numpy as np
import pytest
from keras import ops

from tests.autodiff import to_numpy


def tokens(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


class GrayingLaws:
    """`layer_class` with `arguments` computes `oracle` within `tolerance`."""

    layer_class = None
    arguments: ClassVar[dict] = {}
    oracle = None
    tolerance = None

    def layer(self, **arguments):
        return self.layer_class(**{**self.arguments, **arguments})

    @pytest.mark.parametrize("rescale", [False, True])
    @pytest.mark.parametrize("epsilon", [0.5, 1.0])
    def test_it_grays_each_sample(self, epsilon, rescale):
        x = tokens(3, 5, 6)
        got = to_numpy(self.layer(epsilon=epsilon, rescale=rescale)(x))
        expected = np.stack([self.oracle(s, epsilon, rescale) for s in x])
        scale = np.abs(expected).max() if rescale else 1.0
        np.testing.assert_allclose(got / scale, expected / scale, atol=self.tolerance)

    def test_the_default_is_the_papers(self):
        x = tokens(1, 5, 6)
        expected = self.oracle(x[0], 0.95, False)
        np.testing.assert_allclose(
            to_numpy(self.layer()(x))[0], expected, atol=self.tolerance
        )

    def test_epsilon_one_with_rescale_is_the_identity(self):
        x = tokens(3, 5, 6)
        got = to_numpy(self.layer(epsilon=1.0, rescale=True)(x))
        np.testing.assert_allclose(got, x, atol=1e-5)

    def test_it_takes_tokens_of_rank_four(self):
        x = tokens(2, 3, 5, 6)
        got = to_numpy(self.layer(epsilon=0.5)(x))
        expected = [[self.oracle(s, 0.5, False) for s in frames] for frames in x]
        np.testing.assert_allclose(got, expected, atol=self.tolerance)

    def test_a_mask_leaves_padding_unchanged(self):
        x = tokens(2, 7, 6)
        mask = np.array([[1] * 5 + [0] * 2, [0, 1, 0, 1, 1, 1, 1]], bool)
        got = to_numpy(self.layer(epsilon=0.5)(x, mask=ops.convert_to_tensor(mask)))
        for sample, real, result in zip(x, mask, got, strict=True):
            np.testing.assert_allclose(
                result[real],
                self.oracle(sample[real], 0.5, False),
                atol=self.tolerance,
            )
            np.testing.assert_array_equal(result[~real], sample[~real])

    def test_a_callback_may_move_epsilon_during_fit(self):
        layer = self.layer(epsilon=1.0, rescale=True)
        inputs = keras.Input((5, 6))
        model = keras.Model(inputs, layer(inputs))
        x = tokens(2, 5, 6)
        model.compile("sgd", "mse")
        np.testing.assert_allclose(model.predict(x, verbose=0), x, atol=1e-5)
        assert [w is layer.epsilon for w in layer.non_trainable_weights] == [True]
        assert layer.trainable_weights == []

        class Schedule(keras.callbacks.Callback):
            def on_epoch_begin(self, epoch, logs=None):
                layer.epsilon.assign(1.0 - 0.25 * epoch)

        history = model.fit(x, x, epochs=3, verbose=0, callbacks=[Schedule()])
        losses = history.history["loss"]
        # The loss measures how far graying moved the tokens: more at each step, also
        # inside a compiled step.
        assert losses[0] < 1e-8 and 1e-4 < 2 * losses[1] < losses[2]
        assert float(ops.convert_to_numpy(layer.epsilon.value)) == 0.5
        expected = np.stack([self.oracle(s, 0.5, True) for s in x])
        scale = np.abs(expected).max()
        np.testing.assert_allclose(
            model.predict(x, verbose=0) / scale, expected / scale, atol=self.tolerance
        )

    def test_a_moved_epsilon_is_saved(self, tmp_path):
        layer = self.layer(epsilon=0.9, rescale=True)
        inputs = keras.Input((5, 6))
        model = keras.Model(inputs, layer(inputs))
        layer.epsilon.assign(0.5)
        x = tokens(2, 5, 6)
        expected = to_numpy(model(x))
        model.save(tmp_path / "m.keras")
        loaded = keras.models.load_model(tmp_path / "m.keras")
        np.testing.assert_allclose(to_numpy(loaded(x)), expected, atol=1e-5)

    @pytest.mark.parametrize("epsilon", [0.0, -0.5, 1.01, float("nan")])
    def test_epsilon_outside_zero_to_one_is_refused(self, epsilon):
        with pytest.raises(ValueError, match=r"(?s)epsilon.*" + str(epsilon)):
            self.layer(epsilon=epsilon)

    @pytest.mark.parametrize("floor", [0.0, 1.0, -1.0, float("nan")])
    def test_floor_outside_zero_to_one_is_refused(self, floor):
        with pytest.raises(ValueError, match=r"(?s)floor.*" + str(floor)):
            self.layer(floor=floor)

    def test_a_matrix_without_batch_is_refused(self):
        with pytest.raises(ValueError, match=r"\(5, 6\)"):
            self.layer()(tokens(5, 6))

    def test_integer_tokens_are_refused(self):
        with pytest.raises(ValueError, match=r"(?s)float.*int32"):
            self.layer()(ops.ones((2, 5, 6), dtype="int32"))

    @pytest.mark.parametrize("shape", [(2, 4), (2, 5, 6)])
    def test_a_mask_of_the_wrong_shape_is_refused(self, shape):
        with pytest.raises(ValueError, match=r"(?s)mask") as error:
            self.layer()(tokens(2, 5, 6), mask=ops.ones(shape, dtype="bool"))
        assert str(shape) in str(error.value)
