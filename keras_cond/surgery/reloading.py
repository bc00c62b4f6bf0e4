"""Whether a model can be made again from its own configuration."""

import keras

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


def reloads(model):
    """Returns whether every layer can be made from its own configuration."""
    return not dict(_broken(model))


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
