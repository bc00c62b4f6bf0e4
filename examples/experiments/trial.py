"""One run: a model trained, measured and judged."""

import math
import time

import keras
from common.runs import environment
from common.training import fit

import keras_cond

from .changes import build_model
from .measure import measure
from .tasks import load_task


def train(experiment, run):
    """Make one run.

    Args:
        experiment: A `declaration.Experiment`.
        run: A `plan.Run` with a learning rate.

    Returns:
        Dict for a line: `experiment`, `arm`, `purpose`, `configuration`, `seed`,
        `learning_rate`, `environment`; `curves`, metric -> values of the epochs;
        `measurements`, name -> values before training and after each epoch;
        `validation` and `test`, metric -> value at the end; `diverged`, whether a loss
        was not finite; `seconds` of the processor.
    """
    start = time.process_time()
    # Keras holds on to the models of earlier runs.
    keras.utils.clear_session()
    configuration = run.configuration
    task = load_task(configuration)
    model = build_model(task.build, configuration["changes"], run.seed)
    task.compile(model)
    watch = _Watch(task.probes)
    history, _ = fit(
        model,
        task.train,
        task.validation,
        configuration["training"]["epochs"],
        [watch, keras.callbacks.TerminateOnNaN()],
        verbose=0,
    )
    curves = {name: [float(v) for v in values] for name, values in history.items()}
    test = model.evaluate(task.test, verbose=0, return_dict=True)
    judged = {name: float(value) for name, value in test.items()}
    diverged = not all(
        map(math.isfinite, [*curves["loss"], *curves["val_loss"], judged["loss"]])
    )
    if not diverged:
        judged.update(task.finish(model))
    return {
        "experiment": experiment.name,
        "arm": run.arm.name,
        "purpose": run.purpose,
        "seed": run.seed,
        "learning_rate": run.learning_rate,
        "configuration": configuration,
        "environment": {**environment(), "keras_cond": keras_cond.__version__},
        "facts": task.facts,
        "curves": curves,
        "measurements": watch.measurements,
        "validation": {
            name.removeprefix("val_"): values[-1]
            for name, values in curves.items()
            if name.startswith("val_")
        },
        "test": judged,
        "diverged": diverged,
        "seconds": round(time.process_time() - start, 2),
    }


class _Watch(keras.callbacks.Callback):
    """Measures κ and entropy before training and after each epoch."""

    def __init__(self, probes):
        super().__init__()
        self.measurements = {}
        self._probes = probes

    def on_train_begin(self, logs=None):
        self._measure()

    def on_epoch_end(self, epoch, logs=None):
        if all(map(math.isfinite, logs.values())):
            self._measure()

    def _measure(self):
        for name, value in measure(self.model, self._probes).items():
            self.measurements.setdefault(name, []).append(round_to(value, 5))


def round_to(value, digits):
    """Round to so many significant digits, infinities and NaN to themselves."""
    if not math.isfinite(value) or value == 0:
        return value
    return round(value, digits - 1 - math.floor(math.log10(abs(value))))
