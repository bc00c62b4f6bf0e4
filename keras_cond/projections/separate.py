"""Attention layers with a projection each for queries, keys and values."""

import keras

from keras_cond.projections.layout import input_layout, output_layout
from keras_cond.projections.projection import Projection
from keras_cond.projections.unreadable import UnreadableError

# Attribute names of query, key, value and the possible ones of the output.
NAMES = (
    ("_query_dense", "_key_dense", "_value_dense", ("_output_dense",)),
    ("query_dense", "key_dense", "value_dense", ("output_dense",)),
    ("query_projector", "key_projector", "value_projector", ("output_projector",)),
    ("query_proj", "key_proj", "value_proj", ("out_proj", "output_proj")),
    ("q_proj", "k_proj", "v_proj", ("o_proj", "out_proj")),
    ("q_dense", "k_dense", "v_dense", ("o_dense",)),
    ("q", "k", "v", ("proj", "o")),
)
QUERY_HEADS = ("num_heads", "num_query_heads", "num_attention_heads", "heads")
KEY_HEADS = ("num_key_value_heads", "num_kv_heads")


def read_separate(layer):
    """Returns the projections of a layer, found by the names of its attributes.

    Args:
        layer: Keras layer.

    Returns:
        Tuple of query, key, value and output `Projection`, the last one maybe None; or
        None if the layer has no such attributes.

    Raises:
        UnreadableError: If it has, but they cannot be read without guessing.
    """
    for query, key, value, outputs in NAMES:
        if _holds(layer, query) and _holds(layer, key):
            return _read(layer, query, key, value, outputs)
    return None


def _read(layer, query, key, value, outputs):
    heads = count(layer, QUERY_HEADS)
    key_heads = count(layer, KEY_HEADS) or heads
    projections = [
        _projection(layer, query, input_layout, heads),
        _projection(layer, key, input_layout, key_heads),
        _projection(layer, value, input_layout, key_heads),
    ]
    _check_heads(*projections)
    return (*projections, output_projection(layer, outputs, projections))


def count(layer, names):
    """Returns the first of the attributes that is a positive int, or None."""
    for name in names:
        number = getattr(layer, name, None)
        if isinstance(number, int) and number > 0:
            return number
    return None


def output_projection(layer, names, projections):
    """Returns the output projection, or None if it is not one matrix a head.

    Args:
        layer: Keras layer.
        names: Tuple of possible attribute names.
        projections: Query, key and value `Projection`.
    """
    heads, width = projections[0].shape[0], projections[2].shape[2]
    for name in names:
        if not isinstance(getattr(layer, name, None), keras.Layer):
            continue
        try:
            output = _projection(layer, name, output_layout, heads)
        except UnreadableError:
            return None
        return output if output.shape[:2] == (heads, width) else None
    return None


def check_dense(dense, name):
    """Raises UnreadableError unless `dense` is a built projection in floating point."""
    if dense is None:
        raise UnreadableError(f"it has no `{name}`")
    if not isinstance(dense, (keras.layers.Dense, keras.layers.EinsumDense)):
        raise UnreadableError(f"`{name}` is a {type(dense).__name__}")
    if not dense.built:
        raise UnreadableError(f"`{name}` is not built: call the model on data first")
    if dense.quantization_mode is not None:
        raise UnreadableError(f"`{name}` is quantized to {dense.quantization_mode}")


def _holds(layer, name):
    return isinstance(getattr(layer, name, None), keras.Layer)


def _projection(layer, name, layout, num_heads):
    dense = getattr(layer, name, None)
    check_dense(dense, name)
    return Projection(dense, layout(dense, num_heads))


def _check_heads(query, key, value):
    if key.shape[0] != value.shape[0] or query.shape[0] % key.shape[0]:
        raise UnreadableError(
            f"{query.shape[0]} query, {key.shape[0]} key and {value.shape[0]} value "
            "heads do not fit together"
        )
    if query.shape[2] != key.shape[2]:
        raise UnreadableError(
            f"query heads are {query.shape[2]} wide and key heads {key.shape[2]}"
        )
