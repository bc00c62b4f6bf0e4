"""Training and inference steps of a model on fixed data."""

import keras
from benchmarks.backends import compile_options
from benchmarks.cases import FAMILIES, PRESETS
from keras import ops

LEARNING_RATE = 1e-4
WEIGHT_DECAY = 0.05


def steps_of(model, case, mode):
    """Compile a model; returns its training step and its inference step.

    Each is a function without arguments that runs one step, on one batch that is held
    in the backend's own tensors, and returns when the step is done: `train_on_batch`
    returns the loss as a number, `predict_on_batch` the outputs as an array.

    Args:
        model: A model that is not compiled.
        case: A `Case`.
        mode: `"jit"`, `"graph"` or `"eager"`.
    """
    model.compile(
        optimizer=keras.optimizers.AdamW(LEARNING_RATE, weight_decay=WEIGHT_DECAY),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        **compile_options(mode),
    )
    preset = PRESETS[case.preset]
    inputs, targets = keras.tree.map_structure(
        ops.convert_to_tensor, FAMILIES[preset.family].batch(preset, case.batch_size)
    )

    def train():
        return float(model.train_on_batch(inputs, targets))

    def infer():
        return model.predict_on_batch(inputs)

    return train, infer
