"""Vision transformer in plain Keras, with a `conditioning` argument.

An image becomes N = (H/p)(W/p) patches of p*p*C numbers, each patch a token of
`width` numbers, and pre-LayerNorm blocks work on the tokens:

    x = x + attention(norm(x))
    x = x + mlp(norm(x))

There is no class token: the head reads the mean of the normalized tokens. Kernels
start from a truncated normal of standard deviation 0.02, the patch embedding from
LeCun's normal (https://arxiv.org/abs/2010.11929). `conditioning` changes one thing at a
time and leaves the rest as it is.
"""

import dataclasses
import random

import keras

import keras_cond

CONDITIONINGS = (
    "baseline",
    "conditioned_tokens",
    "spectral_attention",
    "conditioned_init",
    "dct_graying",
    "svd_graying",
)


@dataclasses.dataclass(frozen=True)
class Size:
    """Dimensions of a vision transformer.

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


PRESETS = {
    "smoke": Size(width=16, num_layers=1, num_heads=2, mlp_ratio=1),
    "mini": Size(width=64, num_layers=4, num_heads=4, mlp_ratio=2),
    "ti": Size(width=192, num_layers=12, num_heads=3, mlp_ratio=4),
    "s": Size(width=384, num_layers=12, num_heads=6, mlp_ratio=4),
    "b": Size(width=768, num_layers=12, num_heads=12, mlp_ratio=4),
}

# Side of an image -> side of a patch, in pixels.
PATCH_SIZES = {8: 2, 28: 7, 32: 4, 64: 8, 224: 16}


def build_vit(
    image_shape,
    num_classes,
    preset="mini",
    conditioning="baseline",
    attention_skip=True,
    mlp_skip=True,
    patch_size=None,
):
    """Build a vision transformer that maps images to logits.

    Args:
        image_shape: `(height, width, channels)` in pixels.
        num_classes: Number of logits.
        preset: `"ti"`, `"s"`, `"b"` (ViT-Ti, S, B), `"mini"` for small images, or
            `"smoke"` to try things out.
        conditioning: One of `CONDITIONINGS`:
            `"baseline"` changes nothing;
            `"conditioned_tokens"` puts `TokenConditioning` on the patch
            embeddings, before the positions are added
            (https://arxiv.org/abs/2505.12789, Figure 1);
            `"spectral_attention"` replaces `MultiHeadAttention` by
            `SpectralAttention`, whose default adds 10 times the identity to the
            query, key and value kernels (https://arxiv.org/abs/2603.07162,
            Definition 3.6);
            `"conditioned_init"` starts query and key from semi-orthogonal and
            value from identity matrices (ICLR 2026, Algorithm 1);
            `"dct_graying"` and `"svd_graying"` flatten the spectrum of the raw
            patches before they are embedded (https://arxiv.org/abs/2505.01996).
        attention_skip: Whether a block adds its input to the attention's output.
        mlp_skip: Whether a block adds its input to the MLP's output.
        patch_size: Side of a patch in pixels, a divisor of height and width; `None`
            takes it from `PATCH_SIZES` by the height.

    Returns:
        A functional `keras.Model`: float images `(batch, *image_shape)` with
        values 0 to 255 in, float32 logits `(batch, num_classes)` out. Every layer
        has a name of its own, the same in every model (`block_0_attention`, ...).

    Raises:
        ValueError: If the preset or the conditioning is unknown, or the patches
            do not tile the image.

    Example:

        model = build_vit((28, 28, 1), num_classes=10, conditioning="svd_graying")
    """
    if preset not in PRESETS:
        raise ValueError(f"preset: got {preset!r}, expected one of {sorted(PRESETS)}.")
    if conditioning not in CONDITIONINGS:
        raise ValueError(
            f"conditioning: got {conditioning!r}, expected one of {CONDITIONINGS}."
        )
    size = PRESETS[preset]
    # However many seeds the attention layers draw, the other layers get the same.
    seeds = random.Random(random.getrandbits(32))

    images = keras.Input(image_shape, name="images")
    x = keras.layers.Rescaling(1 / 127.5, offset=-1.0, name="rescaling")(images)
    x = _split_patches(x, image_shape, patch_size)
    if conditioning == "dct_graying":
        x = keras_cond.layers.DCTTokenGraying(name="patch_graying")(x)
    if conditioning == "svd_graying":
        x = keras_cond.layers.SVDTokenGraying(name="patch_graying")(x)

    x = keras.layers.Dense(
        size.width, kernel_initializer="lecun_normal", name="patch_embedding"
    )(x)
    if conditioning == "conditioned_tokens":
        x = keras_cond.layers.TokenConditioning(name="token_conditioning")(x)
    x = _add_positions(x)

    for index in range(size.num_layers):
        block = f"block_{index}"
        y = _norm(f"{block}_attention_norm")(x)
        y = _attention(size, conditioning, f"{block}_attention")(y, y)
        x = _add(f"{block}_attention_skip", x, y) if attention_skip else y
        y = _norm(f"{block}_mlp_norm")(x)
        y = _dense(size.width * size.mlp_ratio, f"{block}_mlp_in", seeds, "gelu")(y)
        y = _dense(size.width, f"{block}_mlp_out", seeds)(y)
        x = _add(f"{block}_mlp_skip", x, y) if mlp_skip else y

    x = _norm("head_norm")(x)
    x = keras.layers.GlobalAveragePooling1D(name="head_pooling")(x)
    logits = _dense(num_classes, "head", seeds, dtype="float32")(x)
    return keras.Model(images, logits, name=f"vit_{preset}_{conditioning}")


def _split_patches(x, image_shape, patch_size):
    """Images `(batch, H, W, C)` to raw patches `(batch, N, p*p*C)`."""
    height, width, channels = image_shape
    p = patch_size or PATCH_SIZES.get(height)
    if p is None or height % p or width % p:
        raise ValueError(
            f"patch_size: got {patch_size} for images of shape {tuple(image_shape)}, "
            f"expected a divisor of {height} and {width}, or None for images of height "
            f"{', '.join(map(str, PATCH_SIZES))}. Pass a divisor."
        )
    rows, columns = height // p, width // p
    x = keras.layers.Reshape((rows, p, columns, p * channels), name="patch_rows")(x)
    x = keras.layers.Permute((1, 3, 2, 4), name="patch_grid")(x)
    return keras.layers.Reshape((rows * columns, p * p * channels), name="patches")(x)


def _add_positions(x):
    """Adds a learned vector to each token, by stock layers: x + table of positions."""
    tokens, width = x.shape[1:]
    # One sequence of 0, 1, ..., N - 1; it is broadcast over the batch.
    ones = keras.ops.ones_like(x[:1, :, 0], dtype="int32")
    positions = keras.layers.Embedding(
        tokens,
        width,
        embeddings_initializer=_truncated_normal(),
        name="positions",
    )(keras.ops.cumsum(ones, axis=1) - 1)
    return _add("position_embedding", x, positions)


def _attention(size, conditioning, name):
    """The attention layer of one block."""
    arguments = {
        "num_heads": size.num_heads,
        "key_dim": size.width // size.num_heads,
        "kernel_initializer": _truncated_normal(),
        "name": name,
    }
    if conditioning == "spectral_attention":
        return keras_cond.layers.SpectralAttention(**arguments)
    if conditioning == "conditioned_init":
        return keras_cond.layers.SpectralAttention(
            **arguments,
            correction_scale=0.0,
            query_initializer=keras_cond.initializers.SemiOrthogonalQK(),
            key_initializer=keras_cond.initializers.SemiOrthogonalQK(),
            value_initializer=keras_cond.initializers.RectangularIdentity(),
        )
    return keras.layers.MultiHeadAttention(**arguments)


def _truncated_normal(seed=None):
    return keras.initializers.TruncatedNormal(stddev=0.02, seed=seed)


def _dense(units, name, seeds, activation=None, dtype=None):
    return keras.layers.Dense(
        units,
        activation,
        kernel_initializer=_truncated_normal(seeds.getrandbits(31)),
        name=name,
        dtype=dtype,
    )


def _norm(name):
    return keras.layers.LayerNormalization(epsilon=1e-6, name=name)


def _add(name, x, y):
    return keras.layers.Add(name=name)([x, y])
