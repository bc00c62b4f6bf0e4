"""GPT-2 in plain Keras, with a `conditioning` argument.

Tokens are looked up in a table of V rows, learned positions are added, and the
pre-LayerNorm blocks of `blocks.py` work on them with a causal mask. The head multiplies
by the token table again (a tied head). Kernels that write into the stream of tokens
start smaller by sqrt(2 num_layers), the others and the tables from a truncated normal
of standard deviation 0.02. `conditioning` changes one thing at a time and leaves the
rest as it is.
"""

import random

import keras
from keras import ops

from .blocks import (
    ATTENTION,
    Conditioning,
    Size,
    add_block,
    add_positions,
    drop,
    norm,
    size_of,
    token_embedding,
)
from .rotary_attention import RotaryAttention

CONDITIONINGS = (
    "baseline",
    "conditioned_embedding",
    "spectral_attention",
    "conditioned_init",
)
# What the head of "conditioned_embedding" may multiply by.
HEAD_TABLES = ("raw", "conditioned")
# What the other models offer and a causal one must not: it would read later tokens.
SEQUENCE_CONDITIONINGS = ("conditioned_tokens", "dct_graying", "svd_graying")

PRESETS = {
    "smoke": Size(width=16, num_layers=1, num_heads=2, mlp_ratio=1),
    "mini": Size(width=128, num_layers=2, num_heads=4, mlp_ratio=4),
    "gpt2": Size(width=768, num_layers=12, num_heads=12, mlp_ratio=4),
}


def build_gpt(
    vocabulary_size,
    context,
    preset="mini",
    conditioning="baseline",
    head_table="raw",
    rotary=False,
    dropout=0.0,
):
    """Build a GPT that maps token ids to the logits of each next token.

    Args:
        vocabulary_size: Number of token ids.
        context: Largest number of tokens it can read.
        preset: `"gpt2"` (124 M parameters with 50,257 ids and a context of 1024),
            `"mini"` for minutes on a CPU, `"smoke"` to try things out, or a
            `blocks.Size`.
        conditioning: A `blocks.Conditioning`, whose layers must not mix tokens, or one
            of `CONDITIONINGS`:
            `"baseline"` changes nothing;
            `"conditioned_embedding"` looks tokens up in the conditioned table
            (https://arxiv.org/abs/2505.12789, with the table in place of the sequence,
            which would show a token the later ones);
            `"spectral_attention"` replaces `MultiHeadAttention` by
            `SpectralAttention`, whose default adds 10 times the identity to the
            query, key and value kernels (https://arxiv.org/abs/2603.07162,
            Definition 3.6);
            `"conditioned_init"` starts query and key from semi-orthogonal and
            value from identity matrices (ICLR 2026, Algorithm 1).
        head_table: With `"conditioned_embedding"`, the table that the head multiplies
            by: `"raw"` (default) or `"conditioned"`; see
            `keras_cond.ConditionedReversibleEmbedding` for the reason.
        rotary: Whether queries and keys are rotated by their positions
            (https://arxiv.org/abs/2104.09864) in place of learned positions.
        dropout: Rate of dropout, in [0, 1): of tokens, attention weights and branches.

    Returns:
        A functional `keras.Model`: int32 ids `(batch, tokens)`, at most `context`
        tokens, in; float32 logits `(batch, tokens, vocabulary_size)` out. Every layer
        has a name of its own, the same in every model (`block_0_attention`, ...).

    Raises:
        ValueError: If an argument is not as above, among them every conditioning that
            reads a whole sequence.

    Example:

        model = build_gpt(2048, context=64, conditioning="conditioned_embedding")
    """
    _check(vocabulary_size, context, conditioning, head_table, dropout)
    size, preset = size_of(preset, PRESETS)
    if not isinstance(conditioning, Conditioning):
        conditioning = Conditioning(
            conditioning,
            table=conditioning == "conditioned_embedding",
            attention=ATTENTION.get(conditioning),
        )
    # However many seeds the attention layers draw, the other layers get the same.
    seeds = random.Random(random.getrandbits(32))

    ids = keras.Input((None,), dtype="int32", name="ids")
    embedding = token_embedding(
        vocabulary_size,
        size.width,
        seeds,
        head_table if conditioning.table else None,
    )
    x = embedding(ids)
    if conditioning.tokens:
        x = conditioning.tokens()(x)
    if not rotary:
        x = add_positions(x, context)
    x = drop(x, dropout, "embedding_dropout")
    for index in range(size.num_layers):
        x = add_block(
            x,
            index,
            size,
            conditioning,
            seeds,
            attention_class=RotaryAttention if rotary else None,
            causal=True,
            dropout=dropout,
        )
    logits = embedding(norm("head_norm")(x), reverse=True)
    logits = ops.cast(logits, "float32")  # They are; a symbolic tensor does not say so.
    model = keras.Model(ids, logits, name=f"gpt_{preset}_{conditioning.name}")
    _shrink_kernels_into_the_stream(model, size.num_layers)
    return model


def _check(vocabulary_size, context, conditioning, head_table, dropout):
    for name, value in (("vocabulary_size", vocabulary_size), ("context", context)):
        if value < 1:
            raise ValueError(f"{name}: got {value}, expected a whole number from 1.")
    if conditioning in SEQUENCE_CONDITIONINGS:
        raise ValueError(
            f"conditioning: got {conditioning!r}, which acts on a whole sequence and "
            "would show a token the later ones. Expected one of "
            f"{CONDITIONINGS}; 'conditioned_embedding' conditions the table instead."
        )
    known = isinstance(conditioning, Conditioning) or conditioning in CONDITIONINGS
    if not known:
        raise ValueError(
            f"conditioning: got {conditioning!r}, expected one of {CONDITIONINGS}."
        )
    if head_table not in HEAD_TABLES:
        raise ValueError(
            f"head_table: got {head_table!r}, expected one of {HEAD_TABLES}."
        )
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout: got {dropout}, expected a rate in [0, 1).")


def _shrink_kernels_into_the_stream(model, num_layers):
    """GPT-2's start: every block adds to the tokens, so each adds less."""
    for index in range(num_layers):
        attention = model.get_layer(f"block_{index}_attention")
        mlp = model.get_layer(f"block_{index}_mlp_out")
        for kernel in (attention.output_dense.kernel, mlp.kernel):
            kernel.assign(kernel / (2 * num_layers) ** 0.5)
