"""Conditioning a model that exists."""

from keras_cond.layers import TokenConditioning
from keras_cond.layers.corrected_einsum_dense import CORRECTIONS
from keras_cond.layers.token_layer import TokenLayer
from keras_cond.ops.validation import boolean, finite_number
from keras_cond.surgery.causality import is_causal
from keras_cond.surgery.changes import warn_about_equal_paths
from keras_cond.surgery.conditioned_model import ConditionedModel
from keras_cond.surgery.correct import correct_projections
from keras_cond.surgery.graph import is_graph, layers_of
from keras_cond.surgery.padding import find_mask
from keras_cond.surgery.reloading import refuse_unless_it_reloads
from keras_cond.surgery.target import check_embedding, check_tokens, find_target


def apply(
    model,
    tokens=None,
    after=None,
    correction=None,
    correction_scale=10.0,
    per_head=True,
    include_frozen=False,
    causal=None,
    mask=None,
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
            `SVDTokenGraying` or `DCTTokenGraying` with the options you want.
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
            changes tokens and looks which others change. It cannot see a causal mask
            that is an input of the model: pass True for one.
        mask: None, or the name of the input that marks real tokens; False for none.
            None finds it in models that name it as KerasHub does: `padding_mask` beside
            ids, with the same prefix as the ids. A mask that Keras carries, as from
            `mask_zero`, counts in any case.

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
        return _with_tokens(model, tokens, after, causal, mask)
    if correction not in CORRECTIONS:
        raise ValueError(
            f"Unknown `correction`. Received: correction={correction!r}. Expected one "
            f"of {CORRECTIONS}."
        )
    if not after is causal is mask is None:
        raise ValueError(
            "`after`, `causal` and `mask` belong to `tokens`. Received: "
            f"correction={correction!r}, after={after!r}, causal={causal!r}, "
            f"mask={mask!r}."
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


def _with_tokens(model, tokens, after, causal, mask):
    if not is_graph(model):
        raise ValueError(
            "Tokens are conditioned in the graph of a model. Received: "
            f"{type(model).__name__}, which is not built, or has a `call` of its own."
            " Put a `keras_cond.layers` layer into its `call` yourself."
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
    index, path, target = find_target(model, after)
    if layer is None:
        check_embedding(target, path)
        mask = None
    else:
        check_tokens(target, path)
        _refuse_causal(model, target, path, causal)
        mask = _mask(model, target, path, mask)
    refuse_unless_it_reloads(model)
    warn_about_equal_paths(model)
    return ConditionedModel(model, layer, index, mask)


def _refuse_causal(model, target, path, causal):
    found = is_causal(model, target) if causal is None else causal
    if found:
        raise ValueError(
            f"A correction computed over a sequence, at {path!r}, would tell tokens of "
            "a causal model about later ones. Received: a model whose tokens "
            + ("must not see them (causal=True)." if causal else "do not see them.")
            + " Use `tokens='table'`; or pass `causal=False` if it does not matter, as "
            "for a classifier that is given whole sequences."
        )
    if found is None:
        raise ValueError(
            "A correction computed over a sequence is not for causal models. Received: "
            f"a model in which no token acts on another after {path!r}, so that it "
            "cannot be told whether this is one (attention may be saturated). Pass "
            "`causal=False` if it is not."
        )


def _mask(model, target, path, mask):
    if mask is None:
        return find_mask(model, target, path)
    if mask is False:
        return None
    names = {tensor.name for tensor in model.inputs}
    for _, part, _ in layers_of(model):
        names |= {tensor.name for tensor in part.inputs} if is_graph(part) else set()
    if mask not in names:
        raise ValueError(
            "`mask` is the name of an input that marks real tokens. Received: "
            f"mask={mask!r}. Expected one of {sorted(names)}, None or False."
        )
    return mask
