"""The layers directly inside a layer."""


def sublayers(layer):
    """Returns the layers directly inside `layer`, in the order of the model.

    Keras lists those of a model publicly, as `layers`, but those of other layers only
    in `_layers`, which both have: this is the one place that reads it.
    """
    return list(layer._layers)
