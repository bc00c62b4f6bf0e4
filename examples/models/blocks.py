"""Pre-LayerNorm blocks and the layers in them, as every reference model uses them.

    x = x + attention(norm(x))
    x = x + mlp(norm(x))

Kernels and tables start from a truncated normal of standard deviation 0.02, unless the
`Form` of a model says otherwise.
"""

import dataclasses
from collections.abc import Callable

import keras

import keras_cond


@dataclasses.dataclass(frozen=True)
class Size:
    """Dimensions of a transformer.

    Attributes:
        width: Numbers in a token.
        num_layers: Number of blocks.
        num_heads: Attention heads of a block; divides `width`.
        mlp_ratio: Hidden width of the MLP divided by `width`.
    """

    width: int
    num_layers: int
    num_heads: int
    mlp_ratio: int


def truncated_normal(seed=None):
    """Initializer of kernels and tables."""
    return keras.initializers.TruncatedNormal(stddev=0.02, seed=seed)


@dataclasses.dataclass(frozen=True)
class Form:
    """What the layers of a block are like.

    Attributes:
        use_bias: Whether attention and MLP have biases.
        gated: Whether the MLP is W_out(gelu(W_gate x) * W_in x), each of the first two
            kernels half as wide as the one kernel of W_out gelu(W_in x).
        epsilon: What layer normalization adds to a variance.
        initializer: Function of a seed that returns the initializer of the kernels.
    """

    use_bias: bool = True
    gated: bool = False
    epsilon: float = 1e-6
    initializer: Callable = truncated_normal


PLAIN = Form()


@dataclasses.dataclass(frozen=True)
class Conditioning:
    """What conditioning puts where; without arguments, nothing.

    Attributes:
        name: Part of the model's name.
        patches: Function without arguments that returns a layer for the raw patches
            of an image.
        tokens: The same for embedded tokens, before the positions are added.
        table: Whether tokens are looked up in the conditioned table.
        attention: Function without arguments that returns what `SpectralAttention` is
            given besides the stock arguments; `None` leaves the attention plain.
    """

    name: str = "baseline"
    patches: Callable | None = None
    tokens: Callable | None = None
    table: bool = False
    attention: Callable | None = None


def _conditioned_init():
    """Semi-orthogonal queries and keys, identities as values, no correction."""
    return {
        "correction_scale": 0.0,
        "query_initializer": keras_cond.initializers.SemiOrthogonalQK(),
        "key_initializer": keras_cond.initializers.SemiOrthogonalQK(),
        "value_initializer": keras_cond.initializers.RectangularIdentity(),
    }


# What the conditionings with a name do to the attention.
ATTENTION = {"spectral_attention": dict, "conditioned_init": _conditioned_init}


def size_of(preset, presets):
    """Return the `Size` of a preset's name, or the `Size` itself.

    Args:
        preset: A name, or a `Size`.
        presets: Name -> `Size`.

    Returns:
        `(size, name)`.

    Raises:
        ValueError: If the name is unknown.
    """
    if isinstance(preset, Size):
        return preset, f"{preset.num_layers}x{preset.width}"
    if preset not in presets:
        raise ValueError(
            f"preset: got {preset!r}, expected one of {', '.join(presets)}."
        )
    return presets[preset], preset


def add_block(
    x,
    index,
    size,
    conditioning,
    seeds,
    form=PLAIN,
    attention_class=None,
    attention_mask=None,
    causal=False,
    attention_skip=True,
    mlp_skip=True,
    dropout=0.0,
):
    """Put one block on top of tokens.

    Args:
        x: Tokens `(batch, N, width)`.
        index: Number of the block, in the names of its layers (`block_0_attention`).
        size: A `Size`.
        conditioning: A `Conditioning`, of which `attention` acts here.
        seeds: `random.Random` that seeds the kernels of the MLP.
        form: A `Form`.
        attention_class: Class derived from `SpectralAttention` that attends; `None`
            takes Keras' own layer, or `SpectralAttention` where the conditioning
            needs it.
        attention_mask: Boolean tensor `(batch, N, N)`, true where a token (a row) may
            attend to another; `None` forbids nothing.
        causal: Whether a token attends to itself and earlier ones alone.
        attention_skip: Whether the block adds its input to the attention's output.
        mlp_skip: Whether the block adds its input to the MLP's output.
        dropout: Rate at which attention weights and outputs of the branches drop out.

    Returns:
        Tokens `(batch, N, width)`.
    """
    block = f"block_{index}"
    y = norm(f"{block}_attention_norm", form)(x)
    attend = _attention(
        size, conditioning, attention_class, dropout, form, f"{block}_attention"
    )
    y = attend(y, y, attention_mask=attention_mask, use_causal_mask=causal)
    y = drop(y, dropout, f"{block}_attention_dropout")
    x = add(f"{block}_attention_skip", x, y) if attention_skip else y
    y = norm(f"{block}_mlp_norm", form)(x)
    y = _mlp(y, size, seeds, form, f"{block}_mlp")
    y = drop(y, dropout, f"{block}_mlp_dropout")
    return add(f"{block}_mlp_skip", x, y) if mlp_skip else y


def token_embedding(
    vocabulary_size, width, seeds, head_table=None, initializer=truncated_normal
):
    """The layer that maps ids to tokens and, in reverse, tokens to float32 logits.

    Args:
        vocabulary_size: Number of token ids.
        width: Numbers in a token.
        seeds: `random.Random` that seeds the table.
        head_table: `None` for the plain table; else tokens are looked up in the
            conditioned one, and this is what the head multiplies by, `"raw"` or
            `"conditioned"`.
        initializer: Function of a seed that returns the table's initializer.

    Returns:
        A layer. Symbolic logits do not say that they are float32: cast them.
    """
    arguments = {
        "embeddings_initializer": initializer(seeds.getrandbits(31)),
        "reverse_dtype": "float32",
        "name": "token_embedding",
    }
    if head_table is None:
        return keras.layers.ReversibleEmbedding(vocabulary_size, width, **arguments)
    return keras_cond.ConditionedReversibleEmbedding(
        vocabulary_size, width, head_table, **arguments
    )


def add_positions(x, num_positions):
    """Add a learned vector to each token, by stock layers: x + table of positions.

    Args:
        x: Tokens `(batch, N, width)`; N may be open.
        num_positions: Rows of the table, at least N.

    Returns:
        Tokens of the same shape.
    """
    # One sequence of 0, 1, ..., N - 1; it is broadcast over the batch.
    ones = keras.ops.ones_like(x[:1, :, 0], dtype="int32")
    positions = keras.layers.Embedding(
        num_positions,
        x.shape[-1],
        embeddings_initializer=truncated_normal(),
        name="positions",
    )(keras.ops.cumsum(ones, axis=1) - 1)
    return add("position_embedding", x, positions)


def dense(units, name, seeds, activation=None, dtype=None, form=PLAIN):
    """Dense layer whose kernel is seeded by the next of `seeds`."""
    return keras.layers.Dense(
        units,
        activation,
        use_bias=form.use_bias,
        kernel_initializer=form.initializer(seeds.getrandbits(31)),
        name=name,
        dtype=dtype,
    )


def norm(name, form=PLAIN):
    """Layer normalization over the channels of a token."""
    return keras.layers.LayerNormalization(epsilon=form.epsilon, name=name)


def add(name, x, y):
    """Sum of two tensors, by a layer with a name."""
    return keras.layers.Add(name=name)([x, y])


def drop(x, rate, name):
    """Dropout; a rate of 0 adds no layer."""
    return keras.layers.Dropout(rate, name=name)(x) if rate else x


def _mlp(x, size, seeds, form, name):
    """What the MLP of one block makes of tokens."""
    hidden = size.width * size.mlp_ratio
    if form.gated:
        gate = dense(hidden // 2, f"{name}_gate", seeds, "gelu", form=form)(x)
        x = dense(hidden // 2, f"{name}_in", seeds, form=form)(x)
        x = keras.layers.Multiply(name=f"{name}_gated")([gate, x])
    else:
        x = dense(hidden, f"{name}_in", seeds, "gelu", form=form)(x)
    return dense(size.width, f"{name}_out", seeds, form=form)(x)


def _attention(size, conditioning, attention_class, dropout, form, name):
    """The attention layer of one block."""
    arguments = {
        "num_heads": size.num_heads,
        "key_dim": size.width // size.num_heads,
        "use_bias": form.use_bias,
        "kernel_initializer": form.initializer(),
        "dropout": dropout,
        "name": name,
    }
    extra = conditioning.attention and conditioning.attention()
    if extra is None and attention_class is None:
        return keras.layers.MultiHeadAttention(**arguments)
    spectral = attention_class or keras_cond.layers.SpectralAttention
    return spectral(
        **arguments, **({"correction_scale": 0.0} if extra is None else extra)
    )
