"""Rebuilding the graph of a Functional or Sequential model on the same layers."""

import functools

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

    inputs = _inputs_like(model)
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
    """Returns whether a layer is a model that is its graph and nothing else."""
    if isinstance(layer, keras.Sequential):
        return layer.built and type(layer).call is keras.Sequential.call
    # Functional models, and only they, know their operations.
    if not isinstance(layer, keras.Model) or not hasattr(layer, "operations"):
        return False
    return type(layer).call is _functional_call()


@functools.cache
def _functional_call():
    """The `call` of Functional models, whose class Keras does not export."""
    inputs = keras.Input((1,))
    return type(keras.Model(inputs, inputs)).call


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


def _inputs_like(model):
    """New inputs in the structure of the model's."""
    optional = {
        layer.name
        for layer in model.layers
        if isinstance(layer, keras.layers.InputLayer) and layer.optional
    }
    return keras.tree.map_structure(
        lambda tensor: keras.Input(
            batch_shape=tensor.shape,
            dtype=tensor.dtype,
            name=tensor.name,
            optional=tensor.name in optional,
        ),
        input_of(model),
    )
