"""Layers of this package turned into those of Keras."""

import keras

from keras_cond.layers import (
    ConditionedEmbedding,
    ConditionedReversibleEmbedding,
    SpectralAttention,
    SpectralGroupedQueryAttention,
)
from keras_cond.layers.corrected_einsum_dense import CorrectedEinsumDense
from keras_cond.ops import condition
from keras_cond.projections.sublayers import all_layers, sublayers
from keras_cond.surgery.conditioned_lookup import ConditionedLookup
from keras_cond.surgery.graph import is_graph

PACKAGE = "keras_cond"
STOCK = {
    SpectralAttention: keras.layers.MultiHeadAttention,
    SpectralGroupedQueryAttention: keras.layers.GroupQueryAttention,
    ConditionedEmbedding: keras.layers.Embedding,
    ConditionedReversibleEmbedding: keras.layers.ReversibleEmbedding,
}


def fold_layer(layer, model, notes):
    """Turns a layer of this package into the stock one it is derived from, in place.

    Args:
        layer: The layer.
        model: The model that it is in.
        notes: List of str, to which what was dropped is added.
    """
    _drop_parts_of_ours(layer, notes)
    if type(layer) not in STOCK:  # A subclass may correct in ways of its own.
        return
    if isinstance(layer, ConditionedEmbedding):
        if layer.condition != "table" or has_raw_head(layer) or is_held(layer, model):
            return
        weight_of(layer, "embeddings").assign(
            condition(layer.embeddings, method=layer.method, floor=layer.floor)
        )
    else:
        parts = [p for p in sublayers(layer) if isinstance(p, CorrectedEinsumDense)]
        if any(part.quantization_mode is not None for part in parts):
            return
        for part in parts:
            weight_of(part, "kernel").assign(part.corrected_kernel())
            part.uncorrect()
    _become(layer, STOCK[type(layer)])


def has_raw_head(layer):
    """Whether a layer is our own embedding whose reverse takes the raw table."""
    return type(layer) is ConditionedReversibleEmbedding and layer.head_table == "raw"


def is_held(layer, model):
    """Whether a layer that is no graph holds another: it may use the raw table."""
    return any(
        part is layer
        for owner in all_layers(model)
        if not is_graph(owner) and not isinstance(owner, ConditionedLookup)
        for part in sublayers(owner)
    )


def weight_of(layer, name):
    """Returns the variable of a layer that has a name."""
    return next(weight for weight in layer.weights if weight.name == name)


def _become(layer, stock):
    """Makes a built layer one of the stock class that it is derived from."""
    layer.__class__ = stock
    # What an instance remembers of the signature of its class's `call`.
    for name, value in vars(stock.from_config(layer.get_config())).items():
        if "call_" in name:
            setattr(layer, name, value)


def _drop_parts_of_ours(layer, notes):
    """Puts stock parts in place of initializers, constraints and regularizers."""
    for name, value in list(vars(layer).items()):
        if not type(value).__module__.startswith(f"{PACKAGE}."):
            continue
        if isinstance(value, keras.initializers.Initializer):
            setattr(layer, name, keras.initializers.GlorotUniform())
        elif isinstance(
            value, keras.constraints.Constraint | keras.regularizers.Regularizer
        ):
            kind = (
                "constraint"
                if isinstance(value, keras.constraints.Constraint)
                else "regularizer"
            )
            setattr(layer, name, None)
            for weight in layer.weights:
                if getattr(weight, kind, None) is value:
                    setattr(weight, kind, None)
            notes.append(
                f"The {kind} {type(value).__name__} of {layer.name!r} was dropped."
            )
