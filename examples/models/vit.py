"""Vision transformer in plain Keras, with a `conditioning` argument.

An image becomes N = (H/p)(W/p) patches of p*p*C numbers, each patch a token of
`width` numbers, and the pre-LayerNorm blocks of `blocks.py` work on the tokens.
There is no class token: the head reads the mean of the normalized tokens. Kernels
start from a truncated normal of standard deviation 0.02, the patch embedding from
LeCun's normal (https://arxiv.org/abs/2010.11929). `conditioning` changes one thing at a
time and leaves the rest as it is.
"""

import random

import keras

import keras_cond

from .blocks import (
    ATTENTION,
    Conditioning,
    Size,
    add_block,
    add_positions,
    dense,
    norm,
    size_of,
)

CONDITIONINGS = (
    "baseline",
    "conditioned_tokens",
    "spectral_attention",
    "conditioned_init",
    "dct_graying",
    "svd_graying",
)

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
        preset: `"ti"`, `"s"`, `"b"` (ViT-Ti, S, B), `"mini"` for small images,
            `"smoke"` to try things out, or a `blocks.Size`.
        conditioning: A `blocks.Conditioning`, or one of `CONDITIONINGS`:
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
    size, preset = size_of(preset, PRESETS)
    conditioning = _as_conditioning(conditioning)
    # However many seeds the attention layers draw, the other layers get the same.
    seeds = random.Random(random.getrandbits(32))

    images = keras.Input(image_shape, name="images")
    x = keras.layers.Rescaling(1 / 127.5, offset=-1.0, name="rescaling")(images)
    x = _split_patches(x, image_shape, patch_size)
    if conditioning.patches:
        x = conditioning.patches()(x)
    x = keras.layers.Dense(
        size.width, kernel_initializer="lecun_normal", name="patch_embedding"
    )(x)
    if conditioning.tokens:
        x = conditioning.tokens()(x)
    x = add_positions(x, x.shape[1])

    for index in range(size.num_layers):
        x = add_block(
            x,
            index,
            size,
            conditioning,
            seeds,
            attention_skip=attention_skip,
            mlp_skip=mlp_skip,
        )

    x = norm("head_norm")(x)
    x = keras.layers.GlobalAveragePooling1D(name="head_pooling")(x)
    logits = dense(num_classes, "head", seeds, dtype="float32")(x)
    return keras.Model(images, logits, name=f"vit_{preset}_{conditioning.name}")


def _as_conditioning(conditioning):
    """The `Conditioning` of one of `CONDITIONINGS`, or the `Conditioning` itself."""
    if isinstance(conditioning, Conditioning):
        return conditioning
    if conditioning not in CONDITIONINGS:
        raise ValueError(
            f"conditioning: got {conditioning!r}, expected one of {CONDITIONINGS}."
        )
    return Conditioning(
        conditioning,
        patches={
            "dct_graying": lambda: keras_cond.DCTTokenGraying(name="patch_graying"),
            "svd_graying": lambda: keras_cond.SVDTokenGraying(name="patch_graying"),
        }.get(conditioning),
        tokens={
            "conditioned_tokens": lambda: keras_cond.TokenConditioning(
                name="token_conditioning"
            ),
        }.get(conditioning),
        attention=ATTENTION.get(conditioning),
    )


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
