"""Optimizer, schedule and the timed call of `fit`."""

import sys
import time

import keras

from .data_parallel import check_last_batch

# Biases, LayerNorm's scale and shift, tables of learned positions.
_WITHOUT_DECAY = ("bias", "gamma", "beta", "embeddings")
_WARMUP_FRACTION = 0.1


def adamw(learning_rate, weight_decay, num_steps, **kwargs):
    """AdamW with linear warm-up over a tenth of the steps, then cosine decay to 0.

    Biases, LayerNorm's scale and shift and learned positions do not decay.

    Args:
        learning_rate: Highest learning rate.
        weight_decay: Decoupled weight decay.
        num_steps: Number of steps of the whole training.
        **kwargs: Further arguments of `keras.optimizers.AdamW`.

    Returns:
        A `keras.optimizers.AdamW`.
    """
    warmup = max(1, round(_WARMUP_FRACTION * num_steps))
    schedule = keras.optimizers.schedules.CosineDecay(
        initial_learning_rate=0.0,
        decay_steps=max(1, num_steps - warmup),
        warmup_target=learning_rate,
        warmup_steps=warmup,
    )
    optimizer = keras.optimizers.AdamW(schedule, weight_decay=weight_decay, **kwargs)
    optimizer.exclude_from_weight_decay(var_names=list(_WITHOUT_DECAY))
    return optimizer


def fit(model, train, validation, epochs, callbacks=(), verbose=None):
    """Train a compiled model and time its epochs.

    Args:
        model: Compiled `keras.Model`.
        train: Batches with an `epoch` that fixes order and augmentation.
        validation: Batches to validate on after each epoch; `None` does not.
        epochs: Number of epochs.
        callbacks: Further Keras callbacks.
        verbose: As in `keras.Model.fit`; `None` draws a bar on a terminal, and prints
            a line for each epoch elsewhere.

    Returns:
        `(history, seconds)`: the metrics as lists over epochs, and the wall-clock
        seconds of each epoch, validation included. The first holds the compilation.

    Raises:
        ValueError: If the last validation batch cannot be shared out among devices.
    """
    check_last_batch(validation, "validation examples")
    clock = _EpochClock(train)
    if verbose is None:
        verbose = 1 if sys.stdout.isatty() else 2
    history = model.fit(
        train,
        validation_data=validation,
        epochs=epochs,
        callbacks=[clock, *callbacks],
        verbose=verbose,
    )
    return history.history, clock.seconds


class _EpochClock(keras.callbacks.Callback):
    """Tells the training batches which epoch it is, and measures how long it took."""

    def __init__(self, train):
        super().__init__()
        self.seconds = []
        self._train = train

    def on_epoch_begin(self, epoch, logs=None):
        self._train.epoch = epoch
        self._start = time.perf_counter()

    def on_epoch_end(self, epoch, logs=None):
        self.seconds.append(time.perf_counter() - self._start)
