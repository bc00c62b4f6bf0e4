"""Whether a model can be made again from its own configuration."""

import pathlib
import tempfile

import keras
import numpy as np
from keras import ops

from keras_cond.projections.sublayers import all_layers
from keras_cond.surgery.graph import is_graph


def refuse_unless_it_reloads(model):
    """Raises ValueError naming the classes whose configuration makes no such layer.

    Args:
        model: A Functional or Sequential model, or a subclass of one.
    """
    broken = dict(_broken(model))
    if broken:
        raise ValueError(
            f"A model made from {model.name!r} could not be loaded from a file, "
            "because these classes cannot be made from their own configuration: "
            + "; ".join(f"{name} ({reason})" for name, reason in broken.items())
            + ". Condition the backbone itself, which is made as a whole, and call it "
            "in your model: `keras.Model(inputs, head(keras_cond.apply(backbone, ...)"
            "(inputs)))`."
        )


def reloaded(model):
    """Returns a copy of a model, made by saving and loading it, not compiled.

    Raises:
        ValueError: If the copy has other weights, as where a layer holds another one
            that Keras makes a second time. Whatever a class in it raises.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "model.keras")
        model.save(path)
        copy = keras.saving.load_model(path, compile=False, safe_mode=False)
    # Keras merges LoRA when it saves.
    merged = any(getattr(layer, "lora_enabled", False) for layer in all_layers(model))
    pairs = [
        map(ops.convert_to_numpy, p)
        for p in zip(model.weights, copy.weights, strict=False)
    ]
    same = len(model.weights) == len(copy.weights) and all(
        np.array_equal(*pair, equal_nan=True) for pair in pairs
    )
    if not merged and not same:
        raise ValueError("its file is loaded with other weights")
    return copy


def reloads(model):
    """Returns whether a file of the model loads, with all weights."""
    try:
        reloaded(model)
    except Exception:  # Whatever a class in it raises.
        return False
    return True


def _broken(layer):
    try:
        config = layer.get_config()
    except Exception as error:  # Whatever a foreign class raises.
        yield type(layer).__name__, _short(error)
        return
    if is_graph(layer):
        # A model whose configuration lists its layers is made from theirs; KerasHub's
        # backbones are made from their own arguments.
        if "layers" in config:
            for inner in layer.layers:
                yield from _broken(inner)
        return
    if isinstance(layer, keras.Model):
        return
    try:
        type(layer).from_config(config)
    except Exception as error:  # As above.
        yield type(layer).__name__, _short(error)


def _short(error):
    return f"{type(error).__name__}: {str(error).splitlines()[0][:120]}"
