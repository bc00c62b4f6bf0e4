"""Exponents of grayings and factors of spectral corrections that change with epochs."""

import keras

from keras_cond.layers.spectral_correction import SpectralCorrection, correction_factor
from keras_cond.layers.token_graying import TokenGraying
from keras_cond.ops.validation import check_epsilon
from keras_cond.projections.sublayers import all_layers


class ConditioningSchedule(keras.callbacks.Callback):
    """Sets ε of token grayings and λ of spectral attention at the start of each epoch.

    Like `keras.callbacks.LearningRateScheduler`: each argument is a function of the
    epoch. It acts on all layers of the model of its kind, however deep: ε on
    `SVDTokenGraying` and `DCTTokenGraying`, λ (`correction_scale`) on
    `SpectralAttention` and `SpectralGroupedQueryAttention`. At the end of each epoch
    `epsilon` and `correction_scale` are in the logs, so `History` and the callbacks
    that come later in the list see them.

    ε is a weight of the layer: changing it costs nothing. λ is a number inside the
    compiled step: every change of it compiles the step again, for training and for
    evaluation. Change it rarely, by a step function. The polar correction is on or off
    (0) and does not depend on λ otherwise.

    The model keeps the last values, in its configuration too.

    Args:
        epsilon: None, or a function epoch → number in (0, 1]; epochs count from 0.
        correction_scale: None, or a function epoch → finite number ≥ 0.

    Raises:
        ValueError: If neither is given, one is not a function, it returns another
            value, or the model has no layer that it could act on.

    Example:

    >>> inputs = keras.Input((5, 8))
    >>> x = keras_cond.DCTTokenGraying()(inputs)
    >>> x = keras_cond.SpectralAttention(num_heads=2, key_dim=4)(x, x)
    >>> model = keras.Model(inputs, x)
    >>> model.compile("sgd", "mse")
    >>> schedule = keras_cond.callbacks.ConditioningSchedule(
    ...     epsilon=lambda epoch: min(1.0, 0.5 + 0.25 * epoch),
    ...     correction_scale=lambda epoch: 1.0 if epoch < 2 else 0.0,
    ... )
    >>> x = np.random.default_rng(0).normal(size=(4, 5, 8))
    >>> history = model.fit(x, x, epochs=3, callbacks=[schedule], verbose=0).history
    >>> history["epsilon"], history["correction_scale"]
    ([0.5, 0.75, 1.0], [1.0, 1.0, 0.0])
    """

    def __init__(self, epsilon=None, correction_scale=None):
        super().__init__()
        given = {"epsilon": epsilon, "correction_scale": correction_scale}
        self._schedules = {k: v for k, v in given.items() if v is not None}
        if not self._schedules:
            raise ValueError(
                "There is nothing to schedule. Received: epsilon=None and "
                "correction_scale=None. Expected a function epoch → value for one of "
                "them at least."
            )
        for name, schedule in self._schedules.items():
            if not callable(schedule):
                raise ValueError(
                    f"`{name}` is a function of the epoch. Received: "
                    f"{name}={schedule!r}. Expected for example "
                    f"`lambda epoch: {schedule!r}`."
                )
        self._values = {}

    def on_train_begin(self, logs=None):
        layers = all_layers(self.model)
        kind = {"epsilon": TokenGraying, "correction_scale": SpectralCorrection}
        self._targets = {
            name: [layer for layer in layers if isinstance(layer, kind[name])]
            for name in self._schedules
        }
        expected = {
            "epsilon": "`SVDTokenGraying` or `DCTTokenGraying`",
            "correction_scale": "`SpectralAttention` or "
            "`SpectralGroupedQueryAttention`",
        }
        for name in self._schedules:
            if not self._targets[name]:
                raise ValueError(
                    f"`{name}` has no layer to act on. Received: the model "
                    f"{self.model.name!r} without such a layer. Expected a model with "
                    f"{expected[name]}; or leave `{name}` out."
                )

    def on_epoch_begin(self, epoch, logs=None):
        # Both are checked before one is set.
        values = {name: f(epoch) for name, f in self._schedules.items()}
        if "epsilon" in values:
            check_epsilon(values["epsilon"])
        if "correction_scale" in values:
            correction_factor(values["correction_scale"])
        self._values = {name: float(value) for name, value in values.items()}
        if "epsilon" in values:
            for layer in self._targets["epsilon"]:
                layer.epsilon.assign(self._values["epsilon"])
        if "correction_scale" in values:
            self._scale(self._values["correction_scale"])

    def on_epoch_end(self, epoch, logs=None):
        if logs is not None:
            logs.update(self._values)

    def _scale(self, value):
        layers = self._targets["correction_scale"]
        changed = [layer for layer in layers if layer.correction_scale != value]
        for layer in changed:
            layer.correction_scale = value
        if changed:
            model = self.model
            model.make_train_function(force=True)
            # Made again when they are needed.
            model.test_function = model.predict_function = None
