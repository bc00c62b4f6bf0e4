"""Rebuilding the graph of a Functional or Sequential model on the same layers."""

import keras


def rebuild(model, swap, after_call=None):
    """Calls the layers of a model again, on new inputs, with some exchanged.

    Args:
        model: A Functional model, a subclass of one such as KerasHub's backbones, or a
            Sequential one.
        swap: Function layer → layer to call in its place, itself or another. Models
            inside the model are passed to it too.
        after_call: None, or a function (layer, kwargs, output, inputs) → output, which
            may add a layer. `layer` is the one swapped in, and `inputs` are the new
            inputs of the model by name.

    Returns:
        Tuple `(inputs, outputs)` of the new graph, in the structure of the model's.
    """
    cache = {}

    def swap_once(layer):
        if id(layer) not in cache:
            cache[id(layer)] = swap(layer)
        return cache[id(layer)]

    inputs = keras.tree.map_structure(_like, input_of(model))
    by_name = {tensor.name: tensor for tensor in keras.tree.flatten(inputs)}

    def call(layer, *args, **kwargs):
        output = layer(*args, **kwargs)
        return (
            output if after_call is None else after_call(layer, kwargs, output, by_name)
        )

    if isinstance(model, keras.Sequential):
        x = inputs
        for layer in model.layers:
            x = call(swap_once(layer), x)
        return inputs, x
    clone = keras.models.clone_model(
        model, input_tensors=inputs, clone_function=swap_once, call_function=call
    )
    return inputs, clone.output


def input_of(model):
    """Returns the input tensors of a model in its structure."""
    return model.inputs[0] if isinstance(model, keras.Sequential) else model.input


def is_graph(layer):
    """Returns whether a layer is a model with a graph that can be rebuilt."""
    if isinstance(layer, keras.Sequential):
        return layer.built
    # Functional models, and only they, know their operations.
    return isinstance(layer, keras.Model) and hasattr(layer, "operations")


def layers_of(model, prefix=""):
    """Yields (path, layer, model that holds it), into models inside models.

    Inputs are left out: a rebuilt graph has its own.
    """
    for layer in model.layers:
        if isinstance(layer, keras.layers.InputLayer):
            continue
        path = f"{prefix}{layer.name}"
        yield path, layer, model
        if is_graph(layer):
            yield from layers_of(layer, f"{path}/")


def _like(tensor):
    return keras.Input(batch_shape=tensor.shape, dtype=tensor.dtype, name=tensor.name)
