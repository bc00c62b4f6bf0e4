"""The same function with stock layers only."""

import pathlib
import tempfile
import warnings

import keras
from keras import ops

from keras_cond.layers import (
    ConditionedEmbedding,
    SpectralAttention,
    SpectralGroupedQueryAttention,
)
from keras_cond.layers.corrected_einsum_dense import CorrectedEinsumDense
from keras_cond.ops import condition
from keras_cond.projections.find import frames_outside
from keras_cond.projections.sublayers import all_layers, sublayers
from keras_cond.surgery.conditioned_lookup import ConditionedLookup
from keras_cond.surgery.conditioned_model import ConditionedModel, layer_at
from keras_cond.surgery.graph import is_graph, layers_of, rebuild
from keras_cond.surgery.reloading import reloads

PACKAGE = "keras_cond"
STOCK = {
    SpectralAttention: keras.layers.MultiHeadAttention,
    SpectralGroupedQueryAttention: keras.layers.GroupQueryAttention,
    ConditionedEmbedding: keras.layers.Embedding,
}


def fold(model):
    """Returns a copy of a model that computes the same with stock layers only.

    - Corrections of `SpectralAttention` and `SpectralGroupedQueryAttention` are added
      into the kernels, W ← W + C, and the layers become Keras' own.
    - `ConditionedEmbedding(condition="table")` becomes an `Embedding` with the
      conditioned table, and a model made by `apply(..., tokens="table")` becomes one of
      the class it was made from.
      With a tied output projection it becomes a plain model whose embedding is not
      tied: the conditioned table for the tokens, the raw one for the output.
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
            sequence (`TokenConditioning`, per-sequence embeddings, grayings) cannot be
            folded; nor can a tied table in a model whose layers do not load one by one;
            constraints and regularizers of this package are dropped.

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
    if model.compiled:
        folded.compile_from_config(model.get_compile_config())
    notes += [f"{layer.name!r} ({type(layer).__name__})" for layer in _ours(folded)]
    if notes:
        warnings.warn(
            "Not folded into stock layers: " + "; ".join(notes) + ". The file of such "
            "a model needs keras_cond to load.",
            UserWarning,
            stacklevel=frames_outside(),
        )
    return folded


def _copy(model):
    try:
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "model.keras")
            model.save(path)
            copy = keras.saving.load_model(path, compile=False, safe_mode=False)
    except Exception as error:  # Whatever a class of the user raises.
        raise ValueError(
            "`fold` copies the model as saving and loading would. Received: "
            f"{model.name!r}, which cannot be copied: {type(error).__name__}: {error}. "
            "Give every class of your own a complete `get_config`, and register it "
            "with `keras.saving.register_keras_serializable`."
        ) from error
    return copy


def _stock(model, notes):
    """Folds a model that nobody else holds; returns it, or another in its place."""
    if isinstance(model, ConditionedModel):
        model = _unwrapped(model, notes)
    elif is_graph(model) and any(
        isinstance(layer, (ConditionedModel, ConditionedLookup))
        for _, layer, _ in layers_of(model)
    ):
        model = _regrown(model, notes)
    for layer in all_layers(model):
        _fold_layer(layer, notes)
    return model


def _unwrapped(model, notes):
    """The model that a `ConditionedModel` was made from, folded, or it around that."""
    base = _stock(model.base_model(), notes)
    lookup = model.lookup
    if lookup is None:
        tokens = model.copy_of_tokens()
        folded = ConditionedModel(base, tokens, model.after, model.name)
        tokens.set_weights(model.tokens.get_weights())
        return folded
    if not lookup.tied:
        _weight(layer_at(base, model.after), "embeddings").assign(lookup.table())
        return base
    if isinstance(lookup.embedding, keras.layers.ReversibleEmbedding):
        untied = _exchanged(model, {id(lookup): _untied(lookup)})
        if reloads(untied):
            return untied
    return ConditionedModel(base, None, model.after, model.name)


def _untied(lookup):
    """An embedding with the conditioned table, and the raw one for its reverse."""
    embedding = lookup.embedding
    stock = type(embedding).from_config(
        {**embedding.get_config(), "tie_weights": False}
    )
    stock.build()
    stock.embeddings.assign(lookup.table())
    stock.reverse_embeddings.assign(ops.transpose(embedding.embeddings))
    return stock


def _regrown(model, notes):
    """The model with others in place of the conditioned models and lookups inside."""
    others = {}
    for _, layer, _ in layers_of(model):
        if isinstance(layer, ConditionedModel):
            others[id(layer)] = _stock(layer, notes)
        elif isinstance(layer, ConditionedLookup) and not layer.tied:
            _weight(layer.embedding, "embeddings").assign(layer.table())
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


def _fold_layer(layer, notes):
    """Turns a layer of this package into the stock one it is derived from, in place."""
    _drop_parts_of_ours(layer, notes)
    if isinstance(layer, CorrectedEinsumDense):
        if layer.quantization_mode is not None:
            return
        _weight(layer, "kernel").assign(layer.corrected_kernel())
        layer.uncorrect()
        return
    if type(layer) not in STOCK:
        return
    if isinstance(layer, ConditionedEmbedding):
        if layer.condition != "table":
            return
        _weight(layer, "embeddings").assign(
            condition(layer.embeddings, method=layer.method, floor=layer.floor)
        )
    elif any(
        isinstance(part, CorrectedEinsumDense) and part.quantization_mode is not None
        for part in sublayers(layer)
    ):
        return
    _become(layer, STOCK[type(layer)])


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
            notes.append(f"the {kind} {type(value).__name__} of {layer.name!r}")


def _ours(model):
    return [
        layer
        for layer in all_layers(model)
        if type(layer).__module__.startswith(f"{PACKAGE}.")
    ]


def _weight(layer, name):
    return next(weight for weight in layer.weights if weight.name == name)
