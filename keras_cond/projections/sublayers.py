"""The layers directly inside a layer."""

import keras


def sublayers(layer):
    """Returns the layers directly inside `layer`, in the order of the model.

    Keras lists those of a model publicly and those of other layers only in `_layers`:
    this is the one place that reads it.
    """
    public = layer.layers if isinstance(layer, keras.Model) else []
    return [*public, *layer._layers]
