"""BERT in plain Keras, of the shape of Crammed BERT, with a `conditioning` argument.

Tokens are looked up in a table of V rows, sinusoidal positions of a learned scale are
added, the sum is normalized, and the pre-LayerNorm blocks of `blocks.py` work on it,
without biases and with gated MLPs (https://arxiv.org/abs/2212.14034). After a last
norm, the masked-token head multiplies by the token table again. Kernels and the table
start from a normal of standard deviation 0.02 at Crammed BERT's width of 768, and of
0.02 sqrt(768 / width) at others: so the tokens are as large beside their positions, and
what a block adds beside the tokens, in every preset. `conditioning` changes one thing
at a time and leaves the rest as it is.

Id 0 is padding. No token depends on it, however much there is and wherever it stands:
the mask is made from the ids and handed to each layer that mixes tokens.
"""

import inspect
import random

import keras
from keras import ops

import keras_cond

from .blocks import (
    ATTENTION,
    Conditioning,
    Form,
    Size,
    add_block,
    dense,
    norm,
    size_of,
    token_embedding,
)
from .sinusoidal_positions import ScaledSinusoidalPositions

PADDING_ID = 0

CONDITIONINGS = (
    "baseline",
    "conditioned_embedding",
    "spectral_attention",
    "conditioned_init",
    "dct_graying",
    "svd_graying",
)
CONDITIONS = ("sequence", "table")
# What those that act on embedded tokens put there.
_TOKENS = {
    "conditioned_embedding": lambda: keras_cond.TokenConditioning(
        name="token_conditioning"
    ),
    "dct_graying": lambda: keras_cond.DCTTokenGraying(name="token_graying"),
    "svd_graying": lambda: keras_cond.SVDTokenGraying(name="token_graying"),
}

PRESETS = {
    "smoke": Size(width=16, num_layers=1, num_heads=2, mlp_ratio=2),
    "mini": Size(width=128, num_layers=2, num_heads=4, mlp_ratio=4),
    "crammed": Size(width=768, num_layers=16, num_heads=12, mlp_ratio=4),
}


def build_bert(
    vocabulary_size, preset="mini", conditioning="baseline", condition="sequence"
):
    """Build a BERT that maps token ids to the logits of the tokens at some places.

    Args:
        vocabulary_size: Number of token ids, padding among them.
        preset: `"crammed"` (120 M parameters with 32,768 ids), `"mini"` for minutes on
            a CPU, `"smoke"` to try things out, or a `blocks.Size`.
        conditioning: A `blocks.Conditioning`, or one of `CONDITIONINGS`:
            `"baseline"` changes nothing;
            `"conditioned_embedding"` conditions the tokens as they leave the embedding,
            before the positions are added (https://arxiv.org/abs/2505.12789);
            `"spectral_attention"` and `"conditioned_init"` are as in `vit.build_vit`;
            `"dct_graying"` and `"svd_graying"` flatten the spectrum of the embedded
            tokens, before the positions are added (https://arxiv.org/abs/2505.01996,
            with tokens in place of patches).
        condition: What `"conditioned_embedding"` conditions: the tokens of each
            `"sequence"` (default, the paper's) or the `"table"` that all are looked up
            in. The head multiplies by the raw table in either case.

    Returns:
        A functional `keras.Model`. In: a dict of int32 `ids` `(batch, tokens)` and
        int32 `places` `(batch, n)`, indices of the tokens to predict. Out: float32
        logits `(batch, n, vocabulary_size)`. Every layer has a name of its own, the
        same in every model (`block_0_attention`, ...).

    Raises:
        ValueError: If an argument is not as above.

    Example:

        model = build_bert(2048, conditioning="conditioned_embedding")
        logits = model({"ids": ids, "places": places})
    """
    _check(vocabulary_size, condition)
    size, preset = size_of(preset, PRESETS)
    conditioning = _as_conditioning(conditioning, condition)
    form = _form(size.width)
    # However many seeds the attention layers draw, the other layers get the same.
    seeds = random.Random(random.getrandbits(32))

    ids = keras.Input((None,), dtype="int32", name="ids")
    places = keras.Input((None,), dtype="int32", name="places")
    mask = _real(ids)
    # Padding attends to padding, so that every token has something to attend to.
    attention_mask = ops.equal(ops.expand_dims(mask, 2), ops.expand_dims(mask, 1))

    embedding = token_embedding(
        vocabulary_size,
        size.width,
        seeds,
        "raw" if conditioning.table else None,
        form.initializer,
    )
    x = embedding(ids)
    if conditioning.tokens:
        x = _condition(conditioning.tokens(), x, mask)
    x = ScaledSinusoidalPositions(name="positions")(x, mask)
    x = norm("embedding_norm", form)(x)
    for index in range(size.num_layers):
        x = add_block(
            x,
            index,
            size,
            conditioning,
            seeds,
            form,
            attention_mask=attention_mask,
        )
    x = norm("head_norm", form)(x)
    x = ops.take_along_axis(x, ops.expand_dims(places, 2), axis=1)
    logits = ops.cast(embedding(x, reverse=True), "float32")
    return keras.Model(
        {"ids": ids, "places": places},
        logits,
        name=f"bert_{preset}_{conditioning.name}",
    )


def build_classifier(bert, num_outputs):
    """Build a classifier of texts on the layers, and so the weights, of a BERT.

    It reads the mean of the real tokens after the last norm (there is no class token):
    of one text, or of two with a separator between them.

    Args:
        bert: A model of `build_bert`, trained or not. Training the classifier trains
            its layers.
        num_outputs: Number of logits, or 1 for a regression.

    Returns:
        A functional `keras.Model`: int32 ids `(batch, tokens)` in, float32 outputs
        `(batch, num_outputs)` out.

    Raises:
        ValueError: If `num_outputs` is not at least 1.
    """
    if num_outputs < 1:
        raise ValueError(f"num_outputs: got {num_outputs}, expected at least 1.")
    ids = bert.input["ids"]
    tokens = ops.cast(bert.get_layer("head_norm").output, "float32")
    real = ops.expand_dims(ops.cast(_real(ids), "float32"), 2)
    mean = ops.sum(real * tokens, axis=1) / ops.maximum(ops.sum(real, axis=1), 1.0)
    seeds = random.Random(random.getrandbits(32))
    outputs = dense(num_outputs, "classifier", seeds, dtype="float32")(mean)
    return keras.Model(ids, outputs, name=f"{bert.name}_classifier")


def _form(width):
    """No biases, gated MLPs, and kernels of a size that suits the width."""

    def normal(seed=None):
        stddev = 0.02 * (768 / width) ** 0.5
        return keras.initializers.RandomNormal(stddev=stddev, seed=seed)

    return Form(use_bias=False, gated=True, epsilon=1e-12, initializer=normal)


def _real(ids):
    """True at tokens that are not padding."""
    return ops.not_equal(ids, PADDING_ID)


def _condition(layer, x, mask):
    """What a layer makes of the real tokens, which it may mix."""
    if "mask" not in inspect.signature(layer.call).parameters:
        return layer(x)
    # The sum drops the mask that the layer passes on. Only some of the later layers
    # would take it up, and theirs leaves padding nothing to attend to.
    return layer(x, mask=mask) + 0


def _as_conditioning(conditioning, condition):
    """The `Conditioning` of one of `CONDITIONINGS`, or the `Conditioning` itself."""
    if isinstance(conditioning, Conditioning):
        return conditioning
    if conditioning not in CONDITIONINGS:
        raise ValueError(
            f"conditioning: got {conditioning!r}, expected one of "
            f"{', '.join(CONDITIONINGS)}."
        )
    in_table = conditioning == "conditioned_embedding" and condition == "table"
    return Conditioning(
        conditioning,
        tokens=None if in_table else _TOKENS.get(conditioning),
        table=in_table,
        attention=ATTENTION.get(conditioning),
    )


def _check(vocabulary_size, condition):
    if vocabulary_size < 2:
        raise ValueError(
            f"vocabulary_size: got {vocabulary_size}, expected at least 2: padding and "
            "a token."
        )
    if condition not in CONDITIONS:
        raise ValueError(
            f"condition: got {condition!r}, expected one of {', '.join(CONDITIONS)}."
        )
