import keras
import numpy as np
import pytest

import keras_cond
from keras_cond.callbacks import ConditioningSchedule
from tests.autodiff import to_numpy
from tests.diagnostics.models import HEAD_DIM, HEADS, TOKENS, WIDTH, batch

X = batch(8, seed=1)
Y = X.sum(axis=(1, 2), keepdims=True)[:, 0] / 10


class Block(keras.layers.Layer):
    """Layers inside a layer: graying, then attention."""

    def __init__(self, attention, **kwargs):
        super().__init__(**kwargs)
        self.graying = keras_cond.DCTTokenGraying(rescale=True)
        self.attention = attention

    def build(self, input_shape):
        self.graying.build(input_shape)
        self.attention.build(input_shape, input_shape)

    def call(self, x):
        x = self.graying(x)
        return x + self.attention(x, x)


def make_model(scale=1.0, learning_rate=0.0, grouped=False, **kwargs):
    """A model that does not learn unless told to: its loss shows what it computes."""
    keras.utils.set_random_seed(0)
    if grouped:
        attention = keras_cond.SpectralGroupedQueryAttention(
            HEAD_DIM, HEADS, 1, correction_scale=scale, **kwargs
        )
    else:
        attention = keras_cond.SpectralAttention(
            HEADS, HEAD_DIM, correction_scale=scale, **kwargs
        )
    inputs = keras.Input((TOKENS, WIDTH))
    x = Block(attention, name="block")(inputs)
    outputs = keras.layers.Dense(1)(keras.layers.Flatten()(x))
    model = keras.Model(inputs, outputs, name="small")
    model.compile(keras.optimizers.SGD(learning_rate), "mse")
    return model


def expected_loss(model, scale, epsilon=0.95, **kwargs):
    """The loss of a new model built with these values and the same weights."""
    fresh = make_model(scale, **kwargs)
    fresh.set_weights(model.get_weights())
    fresh.get_layer("block").graying.epsilon.assign(epsilon)
    return float(np.mean((to_numpy(fresh(X)) - Y) ** 2))


def fit(model, schedule, epochs=3, **kwargs):
    return model.fit(
        X, Y, batch_size=8, epochs=epochs, verbose=0, callbacks=[schedule], **kwargs
    ).history


def test_each_epoch_computes_with_its_own_values():
    """Nothing compiled before a change is used after it."""
    model = make_model(1.0)
    # Compiled with the first value: each of the three could go stale.
    model.predict(X, verbose=0)
    model.evaluate(X, Y, verbose=0)
    model.train_on_batch(X, Y)
    scales, exponents = [1.0, 0.0, 2.0, 2.0], [0.95, 0.95, 0.95, 0.3]
    schedule = ConditioningSchedule(
        epsilon=exponents.__getitem__, correction_scale=scales.__getitem__
    )
    history = fit(model, schedule, epochs=4, validation_data=(X, Y))
    expected = [expected_loss(model, *v) for v in zip(scales, exponents, strict=True)]
    np.testing.assert_allclose(history["loss"], expected, rtol=1e-4)
    np.testing.assert_allclose(history["val_loss"], expected, rtol=1e-4)
    assert len({round(value, 3) for value in expected}) == 4
    assert history["correction_scale"] == scales
    assert history["epsilon"] == exponents
    predicted = np.mean((model.predict(X, verbose=0) - Y) ** 2)
    np.testing.assert_allclose(predicted, expected[-1], rtol=1e-4)


def test_training_goes_on_across_a_change():
    model = make_model(1.0, learning_rate=0.01)
    before = model.get_weights()
    schedule = ConditioningSchedule(correction_scale=lambda epoch: 1.0 - (epoch > 0))
    history = fit(model, schedule, epochs=2)
    assert np.all(np.isfinite(history["loss"]))
    assert int(to_numpy(model.optimizer.iterations)) == 2
    assert any(np.any(a != b) for a, b in zip(before, model.get_weights(), strict=True))


def test_a_scale_that_does_not_change_compiles_nothing_again(monkeypatch):
    model = make_model(1.0)
    forced, make = [], model.make_train_function
    monkeypatch.setattr(
        model,
        "make_train_function",
        lambda force=False: (forced.append(force), make(force=force))[1],
    )
    scale = ConditioningSchedule(lambda epoch: 0.5, lambda epoch: 1.0 + (epoch > 1))
    fit(model, scale, epochs=4)
    assert forced.count(True) == 1


@pytest.mark.parametrize(
    "kwargs",
    [{}, {"grouped": True}, {"correction": "polar", "per_head": False}],
    ids=["identity", "grouped", "polar"],
)
def test_a_scale_set_on_a_built_layer_equals_one_it_is_built_with(kwargs):
    model, layer_scale = make_model(0.0, **kwargs), (0.0, 0.7, 0.3, 0.0)
    attention = model.get_layer("block").attention
    for scale in layer_scale:
        attention.correction_scale = scale
        assert attention.get_config()["correction_scale"] == scale
        fresh = make_model(scale, **kwargs)
        fresh.set_weights(model.get_weights())
        np.testing.assert_array_equal(to_numpy(model(X)), to_numpy(fresh(X)))


def test_a_scale_set_to_zero_equals_the_parent():
    layer = keras_cond.SpectralAttention(HEADS, HEAD_DIM, correction_scale=3.0)
    parent = keras.layers.MultiHeadAttention(HEADS, HEAD_DIM)
    layer(X, X), parent(X, X)
    layer.correction_scale = 0
    parent.set_weights(layer.get_weights())
    np.testing.assert_array_equal(to_numpy(layer(X, X)), to_numpy(parent(X, X)))
    assert type(layer.query_dense) is type(parent.query_dense)
    assert layer.query_dense.autocast == parent.query_dense.autocast


def test_a_scale_set_before_the_layer_is_built_counts():
    layer = keras_cond.SpectralAttention(HEADS, HEAD_DIM, correction_scale=0.0)
    layer.correction_scale = 2.0
    layer(X, X)
    assert layer.query_dense.correction_scale == 2.0


@pytest.mark.parametrize("value", [-1.0, float("nan"), "1", True])
def test_a_wrong_scale_is_refused_and_the_old_one_stays(value):
    layer = keras_cond.SpectralAttention(HEADS, HEAD_DIM, correction_scale=2.0)
    with pytest.raises(ValueError, match="correction_scale"):
        layer.correction_scale = value
    assert layer.correction_scale == 2.0


def test_the_last_values_are_saved(tmp_path):
    inputs = keras.Input((TOKENS, WIDTH))
    x = keras_cond.DCTTokenGraying()(inputs)
    x = keras_cond.SpectralAttention(HEADS, HEAD_DIM, correction_scale=0)(x, x)
    model = keras.Model(inputs, x)
    model.compile(keras.optimizers.SGD(0.0), "mse")
    schedule = ConditioningSchedule(lambda epoch: 0.5, lambda epoch: 0.25)
    model.fit(X, X, epochs=1, callbacks=[schedule], verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.layers[2].correction_scale == 0.25
    assert float(to_numpy(loaded.layers[1].epsilon)) == 0.5
    np.testing.assert_allclose(to_numpy(loaded(X)), to_numpy(model(X)), rtol=1e-5)


def test_nothing_to_schedule_is_refused():
    with pytest.raises(ValueError, match="nothing to schedule"):
        ConditioningSchedule()


@pytest.mark.parametrize("name", ["epsilon", "correction_scale"])
def test_a_number_in_place_of_a_function_is_refused(name):
    with pytest.raises(ValueError, match=f"`{name}` is a function of the epoch"):
        ConditioningSchedule(**{name: 0.5})


@pytest.mark.parametrize("name", ["epsilon", "correction_scale"])
def test_a_model_without_a_layer_to_act_on_is_refused(name):
    model = keras.Sequential([keras.Input((WIDTH,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    schedule = ConditioningSchedule(**{name: lambda epoch: 0.5})
    with pytest.raises(ValueError, match=f"`{name}` has no layer to act on"):
        model.fit(X[:, 0], Y, callbacks=[schedule], verbose=0)


@pytest.mark.parametrize(
    ("name", "value"),
    [("epsilon", 0.0), ("epsilon", "a"), ("correction_scale", -1.0)],
)
def test_a_function_that_returns_a_wrong_value_is_refused(name, value):
    model = make_model()
    good = {"epsilon": lambda epoch: 0.5, "correction_scale": lambda epoch: 0.5}
    schedule = ConditioningSchedule(**{**good, name: lambda epoch: value})
    with pytest.raises(ValueError, match=name):
        fit(model, schedule)
    block = model.get_layer("block")
    assert block.attention.correction_scale == 1.0
    assert float(to_numpy(block.graying.epsilon)) == np.float32(0.95)
