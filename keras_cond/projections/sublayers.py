"""The layers inside a layer."""


def sublayers(layer):
    """Returns the layers directly inside `layer`, in the order of the model.

    Keras lists those of a model publicly, as `layers`, but those of other layers only
    in `_layers`, which both have: this is the one place that reads it.
    """
    return list(layer._layers)


def all_layers(layer):
    """Returns `layer` and every layer inside it, at any depth, each once."""
    found, queue = {}, [layer]
    while queue:
        layer = queue.pop()
        if id(layer) not in found:
            found[id(layer)] = layer
            queue.extend(reversed(sublayers(layer)))
    return list(found.values())
