import csv
import json
import sys

import keras
import numpy as np
import pytest

from keras_cond.callbacks import ConditionMonitor
from keras_cond.diagnostics import inspect
from tests.autodiff import to_numpy
from tests.diagnostics.models import attention_model, batch

X = batch(24, seed=1)
Y = X.sum(axis=(1, 2), keepdims=True)[:, 0] / 10
NAMES = {
    *(
        f"kappa_{kind}_{role}_{statistic}"
        for kind in ("head", "joint")
        for role in ("query", "key", "value")
        for statistic in ("median", "max")
    ),
    "condition_seconds",
}


class Spy(keras.callbacks.Callback):
    """Keeps the logs it is given at the end of every epoch."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def on_epoch_end(self, epoch, logs=None):
        self.seen.append(dict(logs))


class Stop(keras.callbacks.Callback):
    """Stops after a number of batches."""

    def __init__(self, after):
        super().__init__()
        self.after = after

    def on_train_batch_end(self, batch, logs=None):
        if batch + 1 == self.after:
            self.model.stop_training = True


@pytest.fixture(scope="module")
def compiled():
    """One model for all tests, traced once, and its weights at the start."""
    keras.utils.set_random_seed(0)
    model = attention_model(1)
    model.compile(keras.optimizers.SGD(0.05), "mse", metrics=["mae"])
    model.train_on_batch(X[:4], Y[:4])
    return model, model.get_weights()


def fit(compiled, callbacks, epochs=2, **kwargs):
    """Fits from the same start, six batches an epoch."""
    model, weights = compiled
    model.set_weights(weights)
    history = model.fit(
        X,
        Y,
        batch_size=4,
        epochs=epochs,
        shuffle=False,
        verbose=0,
        callbacks=callbacks,
        **kwargs,
    )
    return history.history


@pytest.mark.parametrize("order", ["first", "last"])
@pytest.mark.parametrize("validated", [False, True])
def test_every_callback_sees_the_numbers_whatever_the_order(
    compiled, order, validated, tmp_path
):
    spy, monitor = Spy(), ConditionMonitor()
    name = "kappa_joint_query_max"
    logger = keras.callbacks.CSVLogger(tmp_path / "log.csv")
    # Stops after the second epoch, if it sees a number that does not grow.
    stopper = keras.callbacks.EarlyStopping(
        name, mode="max", min_delta=1e12, patience=1
    )
    others = [spy, logger, stopper]
    callbacks = [monitor, *others] if order == "first" else [*others, monitor]
    validation = {"validation_data": (X[:4], Y[:4])} if validated else {}
    history = fit(compiled, callbacks, epochs=4, **validation)
    assert NAMES < set(history)
    assert len(history["loss"]) == 2
    assert history[name] == monitor.history[name]
    assert [logs[name] for logs in spy.seen] == history[name]
    with open(tmp_path / "log.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [float(row[name]) for row in rows] == history[name]
    assert set(spy.seen[0]) == set(history)


def test_a_single_callback_without_a_list_works(compiled):
    # Keras then runs `on_train_batch_end` in another thread on some backends.
    monitor = ConditionMonitor(every=2)
    history = fit(compiled, monitor)
    assert NAMES < set(history)
    assert monitor.history["batch"] == [2, 4, 6, 8, 10, 12]


def test_the_history_is_json_of_python_floats(compiled):
    history = fit(compiled, [ConditionMonitor(inputs=X[:2])])
    assert all(type(v) is float for name in NAMES for v in history[name])
    assert json.loads(json.dumps(history)) == history
    assert {"kappa_tokens_max", "kappa_attention_median", "entropy_min"} < set(history)


def test_numbers_at_a_batch_are_those_after_stopping_there(compiled):
    monitor = ConditionMonitor(every=4, inputs=X[:2])
    fit(compiled, [monitor], epochs=1)
    assert monitor.history["batch"] == [4, 6]
    fit(compiled, [Stop(4)], epochs=1)
    report = inspect(compiled[0], X[:2])
    layer = report.layers[0]
    for role in ("query", "key", "value"):
        spectrum = getattr(layer, role)
        logged = monitor.history[f"kappa_joint_{role}_max"][0]
        np.testing.assert_allclose(logged, spectrum.joint, rtol=1e-6)
        logged = monitor.history[f"kappa_head_{role}_max"][0]
        np.testing.assert_allclose(logged, max(spectrum.per_head), rtol=1e-6)
    logged = monitor.history["kappa_output_max"][0]
    np.testing.assert_allclose(logged, max(layer.output), rtol=1e-6)
    # The weights did move, so that another batch would have other numbers.
    first, last = monitor.history["kappa_joint_query_max"]
    assert abs(first - last) > 1e-4 * first


def test_training_is_the_same_with_and_without_the_monitor(compiled):
    model, _ = compiled
    plain = fit(compiled, [])
    expected = [np.array(to_numpy(w)) for w in model.weights]
    watched = fit(compiled, [ConditionMonitor(every=1, inputs=X[:2])])
    assert watched["loss"] == plain["loss"]
    for weight, value in zip(model.weights, expected, strict=True):
        np.testing.assert_array_equal(to_numpy(weight), value)
    assert "get_metrics_result" not in vars(model)
    assert set(model.evaluate(X, Y, verbose=0, return_dict=True)) == {"loss", "mae"}


def test_every_n_batches_counts_across_epochs(compiled):
    monitor = ConditionMonitor(every=5)
    fit(compiled, [monitor], epochs=3)
    assert monitor.history["batch"] == [5, 6, 10, 12, 15, 18]
    assert monitor.history["epoch"] == [0, 0, 1, 1, 2, 2]
    assert len(monitor.history["kappa_head_key_max"]) == 6


def test_a_second_fit_starts_a_new_history(compiled):
    monitor = ConditionMonitor()
    fit(compiled, [monitor])
    fit(compiled, [monitor])
    assert monitor.history["batch"] == [6, 12]


def test_seconds_are_what_the_measurements_took(compiled):
    monitor = ConditionMonitor(every=3)
    history = fit(compiled, [monitor])
    assert 0 < monitor.seconds
    np.testing.assert_allclose(sum(history["condition_seconds"]), monitor.seconds)


def test_only_what_was_asked_for_is_logged(compiled):
    history = fit(compiled, [ConditionMonitor(inputs=X[:2], quantities=("entropy",))])
    assert {n for n in history if n.startswith(("kappa", "entropy"))} == {
        "entropy_median",
        "entropy_min",
    }


def test_an_unknown_attention_matrix_is_logged_as_nan():
    from tests.diagnostics.models import Scaled

    inputs = keras.Input(X.shape[1:])
    model = keras.Model(inputs, Scaled(scale=0.3)(inputs))
    model.compile("sgd", "mse", run_eagerly=True)
    monitor = ConditionMonitor(inputs=X[:2], quantities=("attention", "output"))
    history = model.fit(X[:4], X[:4], callbacks=[monitor], verbose=0).history
    assert np.isnan(history["kappa_attention_max"][0])
    assert np.isfinite(history["kappa_output_max"][0])


def test_scalars_are_written_for_tensorboard(compiled, tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    monitor = ConditionMonitor(every=4, log_dir=tmp_path)
    fit(compiled, [monitor], epochs=1)
    (file,) = tmp_path.iterdir()
    values = {}
    for event in EventFileLoader(str(file)).Load():
        for value in event.summary.value:
            key = (value.tag, event.step)
            values[key] = value.tensor.float_val[0]
    name = "kappa_joint_key_max"
    for step, expected in zip((4, 6), monitor.history[name], strict=True):
        np.testing.assert_allclose(values[name, step], expected, rtol=1e-6)
        layer = values[f"{name}/attention_0", step]
        np.testing.assert_allclose(layer, expected, rtol=1e-6)


def test_missing_tensorboard_is_named(compiled, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "tensorboard.summary", None)
    with pytest.raises(ImportError, match="pip install tensorboard"):
        fit(compiled, [ConditionMonitor(log_dir=tmp_path)])


def test_the_plot_is_drawn(compiled, tmp_path):
    monitor = ConditionMonitor(every=3, inputs=X[:2])
    with pytest.raises(ValueError, match="after `fit`"):
        monitor.plot(tmp_path / "curves.png")
    fit(compiled, [monitor])
    monitor.plot(tmp_path / "curves.png")
    assert (tmp_path / "curves.png").stat().st_size > 10_000


def test_a_model_without_attention_is_an_error():
    inputs = keras.Input((3,))
    model = keras.Model(inputs, keras.layers.Dense(1)(inputs))
    model.compile("sgd", "mse", run_eagerly=True)
    with pytest.raises(ValueError, match="no attention layer"):
        model.fit(
            np.ones((2, 3)), np.ones((2, 1)), callbacks=[ConditionMonitor()], verbose=0
        )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"every": 0}, "a number of batches from 1"),
        ({"every": "batch"}, "Expected 'epoch'"),
        ({"every": True}, "Expected 'epoch'"),
        ({"quantities": ("kappa",)}, "Unknown `quantities`"),
        ({"quantities": ()}, "Unknown `quantities`"),
        ({"quantities": ("tokens",)}, "Pass a batch as `inputs`"),
    ],
)
def test_wrong_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        ConditionMonitor(**arguments)
