"""Which input of a model marks the real ones among the tokens of a layer."""

import keras

from keras_cond.surgery.graph import is_graph, layers_of

NAME = "padding_mask"


def find_mask(model, target, path):
    """Returns the name of the input that is the mask of a layer's tokens, or None.

    KerasHub's models take `padding_mask`, or one with a prefix, as in
    `encoder_padding_mask` beside `encoder_token_ids`. It is the mask of tokens made
    from ids of that prefix, and of no others.

    Args:
        model: A model that `is_graph`, with `target` in it or in a model inside it.
        target: The layer whose output are the tokens.
        path: str, what a message calls the layer.

    Raises:
        ValueError: If there are masks and it cannot be told which one it is.
    """
    parts = [model, *(layer for _, layer, _ in layers_of(model))]
    for part in parts:
        if is_graph(part) and any(layer is target for layer in part.layers):
            break
    inputs = keras.tree.flatten(part.inputs)
    masks = {t.name: t for t in inputs if t.name.endswith(NAME)}
    used = [t for t in inputs if t.name not in masks and _depends(target, t, inputs)]
    matches = [
        name
        for name, mask in masks.items()
        if any(_are_its_ids(tensor, mask) for tensor in used)
    ]
    if len(matches) == 1:
        return matches[0]
    ids = [t.name for t in used if not keras.backend.is_float_dtype(t.dtype)]
    if masks and ids:
        raise ValueError(
            f"The padding among the tokens of {path!r} cannot be told. Received: a "
            f"model with the masks {sorted(masks)}, for tokens made from {ids}. Pass "
            "`mask`: the name of the input that marks the real tokens, or False."
        )
    return None


def _depends(target, tensor, inputs):
    """Whether the output of a layer cannot be computed without one of the inputs."""
    output = keras.tree.flatten(target.output)[0]
    try:
        keras.Model([other for other in inputs if other is not tensor], output)
    except ValueError:
        return True
    return False


def _are_its_ids(tensor, mask):
    prefix = mask.name.removesuffix(NAME)
    whole = not keras.backend.is_float_dtype(tensor.dtype)
    return (
        whole
        and len(tensor.shape) == len(mask.shape)
        and tensor.shape[1:] == mask.shape[1:]
        and tensor.name.startswith(prefix)
    )
