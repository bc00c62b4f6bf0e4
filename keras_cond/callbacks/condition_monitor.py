"""Condition numbers during training."""

import threading
import time

import keras

from keras_cond.backends import known_values
from keras_cond.callbacks.scalar_writer import scalar_writer
from keras_cond.callbacks.scalars import (
    INPUTS,
    QUANTITIES,
    WEIGHTS,
    layer_values,
    report_scalars,
    summarize,
)
from keras_cond.diagnostics import inspect, plot_history


class ConditionMonitor(keras.callbacks.Callback):
    """Measures condition numbers inside `fit`, on every backend.

    At the end of each epoch the numbers are in the logs as Python floats. `History`,
    `CSVLogger`, `TensorBoard`, `EarlyStopping` and the progress bar see them wherever
    they stand in the list of callbacks. The names are

    - `kappa_head_query_median`, `…_max`: κ of the heads' query matrices, over layers
      and heads; the same for `key` and `value`;
    - `kappa_joint_query_median`, `…_max`: κ of the joint matrices, over layers;
    - `kappa_tokens_median`, `…_max`: κ of the tokens that enter the attention layers,
      over layers and samples; the same for `attention` (the attention matrices) and
      `output` (of the layers);
    - `entropy_median`, `…_min`: the mean entropy of a row of attention, in nats;
    - `condition_seconds`: what the monitor itself took in this epoch.

    The measurement is that of `keras_cond.diagnostics.inspect`. `fit` is otherwise what
    it would be without: no weight, optimizer or seed state changes, nothing is traced
    again. A model with a `train_step` of its own that returns other logs than the
    model's metrics needs the monitor first in the list.

    Args:
        every: `"epoch"` (default), or an int n ≥ 1: after every n batches as well.
        inputs: None, or one batch of what the model is called with. Small is enough,
            and cheap.
        quantities: Which of `"query"`, `"key"`, `"value"`, `"tokens"`, `"attention"`,
            `"output"`, `"entropy"` to log. None (default): the first three, and with
            inputs all.
        log_dir: None, or a folder to write TensorBoard scalars into, one for each
            measurement, over all layers and for each layer (`name/path of the layer`);
            the step is the number of batches.

    Attributes:
        history: dict, after `fit`: `"batch"` (the number of batches seen), `"epoch"`
            and each name above, as lists with one entry for each measurement.
        report: The last `keras_cond.diagnostics.Report`.
        seconds: float, the time all measurements took.

    Raises:
        ValueError: If an argument is not as above, a quantity needs inputs, or the
            model has no attention layer that can be read.
        ImportError: If `log_dir` is given and nothing is installed to write with.

    Example:

    >>> inputs = keras.Input((5, 8))
    >>> layer = keras.layers.MultiHeadAttention(num_heads=2, key_dim=4)
    >>> model = keras.Model(inputs, layer(inputs, inputs))
    >>> model.compile("sgd", "mse")
    >>> monitor = keras_cond.callbacks.ConditionMonitor(every=10)
    >>> x = np.random.default_rng(0).normal(size=(40, 5, 8))
    >>> history = model.fit(x, x, batch_size=1, callbacks=[monitor], verbose=0)
    >>> monitor.history["batch"]
    [10, 20, 30, 40]
    """

    def __init__(self, every="epoch", inputs=None, quantities=None, log_dir=None):
        super().__init__()
        if every != "epoch" and (
            isinstance(every, bool) or not isinstance(every, int) or every < 1
        ):
            raise ValueError(
                f"Unknown `every`. Received: every={every!r}. Expected 'epoch', or a "
                "number of batches from 1."
            )
        if quantities is None:
            quantities = WEIGHTS if inputs is None else QUANTITIES
        if isinstance(quantities, str):
            quantities = (quantities,)
        unknown = [q for q in quantities if q not in QUANTITIES]
        if unknown or not quantities:
            raise ValueError(
                f"Unknown `quantities`. Received: quantities={tuple(quantities)}. "
                f"Expected some of {QUANTITIES}."
            )
        needing = [q for q in quantities if q in INPUTS]
        if needing and inputs is None:
            raise ValueError(
                f"Some quantities are those on inputs. Received: quantities={needing} "
                "with inputs=None. Pass a batch as `inputs`, or leave them out."
            )
        self.every = every
        self.inputs = inputs if needing else None
        self.quantities = tuple(quantities)
        self.log_dir = log_dir
        self._reset()

    def plot(self, path):
        """Draws the history over batches into a file.

        Args:
            path: The file; its ending says the format.

        Raises:
            ValueError: If nothing has been measured yet.
            ImportError: If matplotlib is missing.
        """
        plot_history(self.history, path)

    def _reset(self):
        self.history = {"batch": [], "epoch": []}
        self.report = None
        self.seconds = 0.0
        self._epoch_seconds = 0.0
        self._epoch = 0
        self._batches = self._before_epoch = 0
        self._ended = []
        self._scalars = {}

    # -- hooks of `fit` --------------------------------------------------------

    def on_train_begin(self, logs=None):
        self._reset()
        self._main_thread = threading.get_ident()
        # Unlike `self.model`, this costs nothing in the middle of an epoch on JAX.
        self._trained = self.model
        self._writer = None if self.log_dir is None else scalar_writer(self.log_dir)

    def on_epoch_begin(self, epoch, logs=None):
        self._epoch = epoch
        self._before_epoch = self._batches
        self._ended = [self._batches]
        self._epoch_seconds = 0.0

    def on_train_batch_begin(self, batch, logs=None):
        # The batches before this one are done. Unlike `on_train_batch_end`, this runs
        # in the thread of `fit` whatever the backend, and before the weights move on.
        self._withdraw()
        self._batches = self._before_epoch + batch
        last = self.history["batch"][-1] if self.history["batch"] else 0
        if self.every != "epoch" and batch:
            if self._batches // self.every > last // self.every:
                self._measure()

    def on_train_batch_end(self, batch, logs=None):
        # In threads of their own, batches may end late and out of order.
        self._ended.append(self._before_epoch + batch + 1)
        steps = self.params.get("steps")
        same_thread = threading.get_ident() == self._main_thread
        if same_thread and (steps is None or batch + 1 >= steps):
            self._offer()

    def on_test_begin(self, logs=None):
        self._withdraw()

    def on_epoch_end(self, epoch, logs=None):
        self._withdraw()
        scalars = self._epoch_logs()
        if logs is not None:
            logs.update(scalars)
        if self._writer is not None:
            self._writer.flush()

    def on_train_end(self, logs=None):
        self._withdraw()
        if self._writer is not None:
            self._writer.close()

    # -- measuring -------------------------------------------------------------

    def _measure(self):
        start = time.perf_counter()
        # The JAX trainer keeps the weights to itself during an epoch; asking a callback
        # for its `model` brings them back.
        model = self.model
        self.report = inspect(model, self.inputs)
        if not self.report.layers:
            raise ValueError(
                "There is nothing to monitor. Received: the model "
                f"{model.name!r}, in which no attention layer with readable "
                "query, key and value kernels was found. Expected one at least."
            )
        self._scalars = report_scalars(self.report, self.quantities)
        self.history["batch"].append(self._batches)
        self.history["epoch"].append(self._epoch)
        for name, value in self._scalars.items():
            self.history.setdefault(name, []).append(value)
        self._write()
        seconds = time.perf_counter() - start
        self.seconds += seconds
        self._epoch_seconds += seconds

    def _epoch_logs(self):
        """The numbers at the end of this epoch, measured once."""
        self._batches = max(self._ended)
        if self._batches not in self.history["batch"][-1:]:
            self._measure()
        return {**self._scalars, "condition_seconds": self._epoch_seconds}

    def _write(self):
        if self._writer is None:
            return
        scalars = dict(self._scalars)
        for layer in self.report.layers:
            for quantity in self.quantities:
                numbers = summarize(layer_values(layer, quantity))
                for name, value in numbers.items():
                    scalars[f"{name}/{layer.path}"] = value
        for name, value in scalars.items():
            self._writer.add_scalar(name, value, self._batches)

    # -- logs for the callbacks that come first ----------------------------------

    # `fit` asks `Model.get_metrics_result` for the logs of an epoch right after its
    # last batch, and makes one flat dict of what is nested in them for all callbacks.
    # So the numbers go in there. The method is replaced on the model for that one call;
    # while a step is traced it is never in place.

    def _offer(self):
        model, original = self._trained, self._trained.get_metrics_result

        def get_metrics_result():
            self._withdraw()
            metrics = original()
            name = next(iter(metrics), None)
            if name is None or known_values(metrics[name]) is None:
                return metrics
            return {**metrics, name: {name: metrics[name], **self._epoch_logs()}}

        if "get_metrics_result" not in vars(model):
            model.get_metrics_result = get_metrics_result
            self._offered = model

    def _withdraw(self):
        model, self._offered = getattr(self, "_offered", None), None
        if model is not None:
            del model.get_metrics_result
