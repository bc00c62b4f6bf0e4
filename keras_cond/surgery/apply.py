"""Conditioning a model that exists."""

import keras
import numpy as np
from keras import ops

from keras_cond.layers import TokenConditioning
from keras_cond.layers.corrected_einsum_dense import CORRECTIONS
from keras_cond.layers.token_layer import TokenLayer
from keras_cond.ops.validation import boolean, finite_number
from keras_cond.surgery.causality import is_causal
from keras_cond.surgery.changes import warn_about_equal_paths
from keras_cond.surgery.conditioned_model import ConditionedModel
from keras_cond.surgery.correct import correct_projections
from keras_cond.surgery.graph import is_graph, layers_of
from keras_cond.surgery.reloading import refuse_unless_it_reloads


def apply(
    model,
    tokens=None,
    after=None,
    correction=None,
    correction_scale=10.0,
    per_head=True,
    include_frozen=False,
    causal=None,
):
    """Conditions the attention of a model in place, or its tokens in a new model.

    There are two kinds of call, one at a time.

    **Attention, in place** (`correction=...`): C is added into the query, key and value
    kernels, W ← W + C, and κ before and after is printed. C = λI (`"identity"`) or
    σ_max(W) · polar(W) (`"polar"`), of the weights as they are now. The model keeps its
    class, files, export and what was compiled; `model` itself comes back. λI conditions
    a small random kernel; added to trained weights it can make κ far worse, and it
    always changes what the model computes: read what is printed.

    **Tokens, in a new model** (`tokens=...`): the output of one layer is conditioned or
    grayed, or the table of an embedding. The new model shares the layers and weights of
    the old one, which computes what it did. It is of a class of this package, so
    attributes of the old class are missing; it trains, saves, loads (with `keras_cond`
    imported) and exports. `keras_cond.fold` turns a conditioned table into a plain one.

    Args:
        model: A built Keras model. For `tokens`, a Functional or Sequential one or a
            backbone or task of KerasHub.
        tokens: `"sequence"` (`TokenConditioning()`), `"table"` (the V × D table of the
            embedding `after`; a token depends on its own id alone, and a tied output
            goes on multiplying by the raw table), or a layer: `TokenConditioning`,
            `SVDTokenGraying` or `DCTTokenGraying` with the options you want. An input
            of the model named `padding_mask`, as in KerasHub, is the mask.
        after: str, the name of the layer whose output is conditioned, or its path
            ("backbone/token_embedding") if it is inside a model inside the model. None
            finds the token embedding or the patch embedding.
        correction: `"identity"` or `"polar"`.
        correction_scale: float > 0, λ of the identity; 10 is the paper's default.
        per_head: bool, whether C is made for each head's D × d matrix (the default) or
            for the D × (heads · d) one.
        include_frozen: bool. If False, kernels that are not trainable stay.
        causal: None, or bool: whether tokens of the model must not see later ones. A
            sequence's correction would tell them, so it is refused. None tries: it
            changes a token and looks whether earlier ones change.

    Returns:
        `model`, corrected, or the new model, which is not compiled.

    Raises:
        ValueError: If an argument is not as above; if nothing can be corrected, or has
            been already; if there is no such layer or the model has no graph; if tokens
            of a causal model would see later ones; or if the new model could not be
            loaded from a file, because a class in it cannot be made from its own
            configuration.

    Warns:
        UserWarning: Once, naming every attention layer that was left alone; and on
            PyTorch if weights have equal paths, which Keras cannot train.

    Example:

    >>> ids = keras.Input((6,), dtype="int32")
    >>> x = keras.layers.Embedding(20, 8, name="embedding")(ids)
    >>> x = keras.layers.MultiHeadAttention(num_heads=2, key_dim=4)(x, x)
    >>> model = keras.Model(ids, x)
    >>> new = keras_cond.apply(model, tokens="sequence", after="embedding")
    >>> model = keras_cond.apply(model, correction="identity", correction_scale=0.5)

    References: "Spectral Conditioning of Attention", NeurIPS 2025, arXiv:2603.07162,
    definition 3.6; "Conditioned Embedded Tokens", ICCV 2025, arXiv:2505.12789, theorem
    4.4; "Always Skip Attention", ICCV 2025, arXiv:2505.01996.
    """
    if (tokens is None) == (correction is None):
        raise ValueError(
            "`apply` does one of two things. Received: "
            f"tokens={tokens!r}, correction={correction!r}. Expected exactly one of "
            "them: `correction` changes attention in place, `tokens` makes a new model."
        )
    if correction is None:
        return _with_tokens(model, tokens, after, causal)
    if correction not in CORRECTIONS:
        raise ValueError(
            f"Unknown `correction`. Received: correction={correction!r}. Expected one "
            f"of {CORRECTIONS}."
        )
    if after is not None or causal is not None:
        raise ValueError(
            "`after` and `causal` belong to `tokens`. Received: "
            f"correction={correction!r}, after={after!r}, causal={causal!r}."
        )
    scale = finite_number(correction_scale, "correction_scale")
    if scale <= 0:
        raise ValueError(
            "`correction_scale` is the factor λ of the identity. Received: "
            f"correction_scale={scale}. Expected more than 0."
        )
    correct_projections(
        model,
        correction,
        scale,
        boolean(per_head, "per_head"),
        boolean(include_frozen, "include_frozen"),
    )
    return model


def _with_tokens(model, tokens, after, causal):
    if not is_graph(model):
        raise ValueError(
            "Tokens are conditioned in the graph of a model. Received: "
            f"{type(model).__name__}, which has none"
            + (" yet: build it first." if isinstance(model, keras.Sequential) else ".")
            + " Put a `keras_cond.layers` layer into its `call` yourself."
        )
    if isinstance(tokens, str) and tokens in ("sequence", "table"):
        layer = TokenConditioning() if tokens == "sequence" else None
    elif isinstance(tokens, TokenLayer):
        layer = tokens
    else:
        raise ValueError(
            "`tokens` says how they are conditioned. Received: "
            f"tokens={tokens!r}. Expected 'sequence', 'table', or a "
            "`TokenConditioning`, `SVDTokenGraying` or `DCTTokenGraying` layer."
        )
    index, path, target, holder = _find(model, after)
    if layer is None:
        _check_embedding(target, path)
    else:
        _refuse_causal(holder, target, path, causal)
    refuse_unless_it_reloads(model)
    warn_about_equal_paths(model)
    return ConditionedModel(model, layer, index)


def _refuse_causal(model, target, path, causal):
    found = is_causal(model, target) if causal is None else causal
    if found:
        raise ValueError(
            f"A correction computed over a sequence, at {path!r}, would tell tokens of "
            "a causal model about later ones. Received: a model whose tokens "
            + ("must not see them (causal=True)." if causal else "do not see them.")
            + " Use `tokens='table'`."
        )
    if found is None:
        raise ValueError(
            "A correction computed over a sequence is not for causal models. Received: "
            f"a model in which no token acts on another after {path!r}, so that it "
            "cannot be told whether this is one (attention may be saturated). Pass "
            "`causal=False` if it is not."
        )


def _find(model, after):
    """Returns index, path, layer and holder of the layer named, or of the embedding."""
    layers = [(index, *entry) for index, entry in enumerate(layers_of(model))]
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
    raise ValueError(
        "The model has no layer that is clearly its token or patch embedding. "
        "Received: after=None. Expected `after` to name one of: "
        + ", ".join(entry[1] for entry in layers)
        + "."
    )


def _is_embedding(layer):
    return isinstance(layer, keras.layers.Embedding)


def _is_token_embedding(layer):
    return _is_embedding(layer) and "token" in layer.name


def _is_patch_embedding(layer):
    return "patch" in layer.name and "embed" in layer.name


def _check_embedding(layer, path):
    if not _is_embedding(layer):
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
