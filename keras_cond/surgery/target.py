"""The layer of a model whose tokens are conditioned."""

import keras
import numpy as np
from keras import ops

from keras_cond.surgery.conditioned_lookup import ConditionedLookup
from keras_cond.surgery.graph import layers_of


def find_target(model, after):
    """Finds the layer that is named, or the token or patch embedding.

    Args:
        model: A model that `is_graph`.
        after: str, the name or path of a layer, or None.

    Returns:
        Tuple of its place among `layers_of` the model, its path, and the layer.

    Raises:
        ValueError: If there is no such layer, or more than one.
    """
    layers = [(i, path, x) for i, (path, x, _) in enumerate(layers_of(model))]
    if after is not None:
        found = [entry for entry in layers if after in (entry[1], entry[2].name)]
        found = [entry for entry in found if entry[1] == after] or found
        if len({id(entry[2]) for entry in found}) == 1:
            return found[0]
        problem = "no layer" if not found else f"{len(found)} layers"
        raise ValueError(
            "`after` is the name or path of a layer of the model. Received: "
            f"after={after!r}, which names {problem}. Expected one of: "
            + ", ".join(entry[1] for entry in layers)
            + "."
        )
    for matches in (_is_token_embedding, _is_embedding, _is_patch_embedding):
        found = {id(entry[2]): entry for entry in reversed(layers) if matches(entry[2])}
        if len(found) == 1:
            return next(iter(found.values()))
        if found:
            break
    raise ValueError(
        "The model has no layer that is clearly its token or patch embedding. "
        "Received: after=None. Expected `after` to name one of: "
        + ", ".join(entry[1] for entry in layers)
        + "."
    )


def check_tokens(layer, path):
    """Raises ValueError unless a layer returns tokens."""
    shape = getattr(layer.output, "shape", ())
    if len(shape) < 3:
        got = f"shape {tuple(shape)}" if shape else type(layer.output).__name__
        raise ValueError(
            "Tokens are of shape (batch, ..., tokens, channels). Received: the layer "
            f"{path!r}, which returns {got}. Expected `after` to name another one."
        )


def check_embedding(layer, path):
    """Raises ValueError unless a layer looks rows of a float table up, and no more."""
    if not isinstance(layer, keras.layers.Embedding):
        raise ValueError(
            "`tokens='table'` conditions the table of an embedding. Received: "
            f"after={path!r}, a {type(layer).__name__}. Expected the name of a "
            "`keras.layers.Embedding`."
        )
    if layer.quantization_mode is not None:
        raise ValueError(
            "A table is conditioned in floating point. Received: the embedding "
            f"{path!r} quantized to {layer.quantization_mode!r}. Condition the model "
            "before you quantize it."
        )
    ids = np.arange(min(8, layer.input_dim))[None]
    rows = ops.convert_to_numpy(layer(ids))
    table = ops.cast(ops.take(layer.embeddings, ids, axis=0), rows.dtype)
    if not np.array_equal(rows, ops.convert_to_numpy(table)):
        raise ValueError(
            "A lookup in the conditioned table takes the place of the embedding. "
            f"Received: {path!r}, a {type(layer).__name__} that does more than look "
            "rows up. Expected a plain embedding; condition this one yourself."
        )


def _is_embedding(layer):
    # Another than of positions, segments or token types.
    others = ("position", "segment", "type")
    return isinstance(layer, keras.layers.Embedding | ConditionedLookup) and not any(
        other in layer.name for other in others
    )


def _is_token_embedding(layer):
    return _is_embedding(layer) and "token" in layer.name


def _is_patch_embedding(layer):
    return "patch" in layer.name and "embed" in layer.name
