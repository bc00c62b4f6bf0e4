"""The same function with stock layers only."""

import warnings

import keras
from keras import ops

from keras_cond.layers.corrected_einsum_dense import CorrectedEinsumDense
from keras_cond.projections.find import frames_outside
from keras_cond.projections.sublayers import all_layers
from keras_cond.surgery.conditioned_lookup import ConditionedLookup
from keras_cond.surgery.conditioned_model import ConditionedModel, layer_at
from keras_cond.surgery.graph import is_graph, layers_of, rebuild
from keras_cond.surgery.reloading import reloaded, reloads
from keras_cond.surgery.stock import (
    PACKAGE,
    fold_layer,
    has_raw_head,
    is_held,
    weight_of,
)


def fold(model):
    """Returns a copy of a model that computes the same with stock layers only.

    - Corrections of `SpectralAttention` and `SpectralGroupedQueryAttention` are added
      into the kernels, W ← W + C, and the layers become Keras' own.
    - `ConditionedEmbedding(condition="table")` becomes an `Embedding` with the
      conditioned table, and a model made by `apply(..., tokens="table")` becomes one of
      the class it was made from. With a tied output projection it becomes a plain model
      whose embedding is not tied: the conditioned table for the tokens, the raw one for
      the output. So does one with a `ConditionedReversibleEmbedding`, which stays tied
      where its head multiplies by the conditioned table too.
    - LoRA updates are merged into their kernels, as by saving.
    - Initializers of this package, which have done their work, become Keras' default.

    A file saved from the result loads where `keras_cond` is not installed, and it is
    quantized and exported as any Keras model. Outputs are equal to rounding.

    Args:
        model: A built Keras model that can be saved. It does not change.

    Returns:
        A new model; compiled as the given one, with a new optimizer, if that was.

    Raises:
        ValueError: If the model is not a built Keras model or cannot be copied.

    Warns:
        UserWarning: Once, naming what is left of this package: what depends on the
            sequence (`TokenConditioning`, per-sequence embeddings, grayings);
            subclasses of its layers; a tied table in a model whose layers do not load
            one by one; a `ConditionedEmbedding` that a layer or model of your own
            holds, which may use the raw table as well. It also names constraints and
            regularizers of this package, which are dropped, and says if the result is
            not compiled.

    Example:

    >>> inputs = keras.Input((5, 8))
    >>> layer = keras_cond.SpectralAttention(num_heads=2, key_dim=4)
    >>> model = keras_cond.fold(keras.Model(inputs, layer(inputs, inputs)))
    >>> type(model.layers[-1]).__name__
    'MultiHeadAttention'

    Reference: docs/your_own_model.md.
    """
    if not isinstance(model, keras.Model) or not model.built:
        raise ValueError(
            "`fold` takes a built Keras model. Received: "
            f"{type(model).__name__}. Call the model on a batch first; put a single "
            "layer into a `keras.Model`."
        )
    folded, notes = _copy(model), []
    folded = _stock(folded, notes)
    left = [f"{layer.name!r} ({type(layer).__name__})" for layer in _ours(folded)]
    if left:
        notes.append(
            "Not folded into stock layers: " + "; ".join(left) + ". The file of such a "
            "model needs keras_cond to load."
        )
    notes += _compiled_as(folded, model)
    if notes:
        warnings.warn(" ".join(notes), UserWarning, stacklevel=frames_outside())
    return folded


def _compiled_as(folded, model):
    """Compiles a model as another; returns what is to be said if that fails."""
    if not model.compiled:
        return []
    try:
        folded.compile_from_config(model.get_compile_config())
    except Exception as error:  # Whatever a loss of the user raises.
        return [
            f"The result is not compiled: {type(error).__name__}: "
            f"{str(error).splitlines()[0]} Compile it to train or evaluate it."
        ]
    return []


def _copy(model):
    try:
        return reloaded(model)
    except Exception as error:  # Whatever a class of the user raises.
        if any(getattr(x, "quantization_mode", None) for x in all_layers(model)):
            raise ValueError(
                "`fold` copies the model as saving and loading would. Received: "
                f"{model.name!r}, which is quantized, and whose file Keras does not "
                "load. Fold the float model, then quantize the result."
            ) from error
        raise ValueError(
            "`fold` copies the model as saving and loading would. Received: "
            f"{model.name!r}, which cannot be copied: {type(error).__name__}: {error}. "
            "Give every class of your own a complete `get_config`, and register it "
            "with `keras.saving.register_keras_serializable`."
        ) from error


def _stock(model, notes):
    """Folds a model that nobody else holds; returns it, or another in its place."""
    if isinstance(model, ConditionedModel):
        model = _unwrapped(model, notes)
    elif is_graph(model) and any(
        isinstance(layer, (ConditionedModel, ConditionedLookup)) or has_raw_head(layer)
        for _, layer, _ in layers_of(model)
    ):
        model = _regrown(model, notes)
    for layer in all_layers(model):
        fold_layer(layer, model, notes)
    return model


def _unwrapped(model, notes):
    """The model that a `ConditionedModel` was made from, folded, or it around that."""
    base = _stock(model.base_model(), notes)
    lookup = model.lookup
    if lookup is None:
        tokens = model.copy_of_tokens()
        folded = ConditionedModel(base, tokens, model.after, model.mask, model.name)
        tokens.set_weights(model.tokens.get_weights())
        return folded
    if not lookup.tied and not is_held(lookup.embedding, model):
        weight_of(layer_at(base, model.after), "embeddings").assign(lookup.table())
        return base
    if isinstance(lookup.embedding, keras.layers.ReversibleEmbedding):
        untied = _exchanged(
            model, {id(lookup): _untied(lookup.embedding, lookup.table())}
        )
        if reloads(untied):
            return untied
    return ConditionedModel(base, None, model.after, name=model.name)


def _untied(embedding, table):
    """An embedding with another table than the raw one, which its reverse keeps."""
    kind, config = type(embedding), embedding.get_config()
    if has_raw_head(embedding):
        kind = keras.layers.ReversibleEmbedding
        config = kind.get_config(embedding)
    stock = kind.from_config({**config, "tie_weights": False})
    stock.build()
    stock.embeddings.assign(table)
    stock.reverse_embeddings.assign(ops.transpose(embedding.embeddings))
    return stock


def _regrown(model, notes):
    """The model with others in place of the conditioned models and lookups inside."""
    others = {}
    for _, layer, _ in layers_of(model):
        if isinstance(layer, ConditionedModel):
            others[id(layer)] = _stock(layer, notes)
        elif has_raw_head(layer) and not is_held(layer, model):
            others[id(layer)] = _untied(layer, layer.conditioned_table())
        elif isinstance(layer, ConditionedLookup) and not (
            layer.tied or is_held(layer.embedding, model)
        ):
            weight_of(layer.embedding, "embeddings").assign(layer.table())
            others[id(layer)] = layer.embedding
    return _exchanged(model, others)


def _exchanged(model, others):
    """Rebuilds a model with other layers, by the id of those that they replace."""

    def swap(layer):
        if id(layer) in others:
            return others[id(layer)]
        if is_graph(layer) and any(id(x) in others for _, x, _ in layers_of(layer)):
            others[id(layer)] = _exchanged(layer, others)
            return others[id(layer)]
        return layer

    return keras.Model(*rebuild(model, swap), name=model.name)


def _ours(model):
    return [
        layer
        for layer in all_layers(model)
        if any(
            kind.__module__.startswith(f"{PACKAGE}.") for kind in type(layer).__mro__
        )
        and not isinstance(layer, CorrectedEinsumDense)
    ]
