"""The methods of conditioning that each family of models offers."""

import dataclasses
from collections.abc import Callable

from benchmarks import floors


def no_products(preset, batch_size, training):
    """Nothing but sums."""
    return []


@dataclasses.dataclass(frozen=True)
class Method:
    """One way to condition a model.

    Attributes:
        title: What the table calls it.
        conditioning: The argument of the model's builder.
        options: Options of our layers that differ from what the builder chooses.
        folded: Whether `keras_cond.fold` is applied; the result has stock layers.
        in_table: Whether the table of the documentation has it.
        batch_factor: The batch size is that of the preset times this: the polar factor
            of a kernel costs the same whatever the batch.
        products: Function `(preset, batch_size, training)` that lists the matrix
            products that conditioning adds to a step.
    """

    title: str
    conditioning: str
    options: dict = dataclasses.field(default_factory=dict)
    folded: bool = False
    in_table: bool = False
    batch_factor: int = 1
    products: Callable = no_products


def _tokens(preset, batch_size, training):
    shape = (batch_size, preset.num_tokens, preset.dimensions.width)
    return floors.polar_products(*shape, gradient=training)


def _tokens_without_gradient(preset, batch_size, training):
    return _tokens(preset, batch_size, training=False)


def _tokens_by_svd(preset, batch_size, training):
    shape = (batch_size, preset.num_tokens, preset.dimensions.width)
    return floors.svd_products(*shape)


def _table(preset, batch_size, training):
    shape = (1, preset.num_outputs, preset.dimensions.width)
    return floors.polar_products(*shape, gradient=training)


def _table_without_gradient(preset, batch_size, training):
    return _table(preset, batch_size, training=False)


def _table_by_svd(preset, batch_size, training):
    return floors.svd_products(1, preset.num_outputs, preset.dimensions.width)


def _kernels_of_heads(preset, batch_size, training):
    size = preset.dimensions
    shape = (3 * size.num_layers * size.num_heads, size.width)
    head_width = size.width // size.num_heads
    return floors.polar_products(*shape, head_width, gradient=training)


def _joint_kernels(preset, batch_size, training):
    size = preset.dimensions
    shape = (3 * size.num_layers, size.width, size.width)
    return floors.polar_products(*shape, gradient=training)


def _patches(count):
    """Raw patches are data: their graying has no gradient."""

    def products(preset, batch_size, training):
        return count(batch_size, preset.num_tokens, preset.patch_numbers)

    return products


def _gray_tokens(count):
    """Tokens come from a table that is trained: their graying has a gradient."""

    def products(preset, batch_size, training):
        shape = (batch_size, preset.num_tokens, preset.dimensions.width)
        return count(*shape, gradient=training)

    return products


STOCK = {"stock": Method("the stock model itself: noise", "baseline", in_table=True)}
ATTENTION = {
    "spectral_identity": Method(
        "SpectralAttention, identity", "spectral_attention", in_table=True
    ),
    "spectral_polar": Method(
        "SpectralAttention, polar",
        "spectral_attention",
        {"correction": "polar"},
        in_table=True,
        batch_factor=4,
        products=_kernels_of_heads,
    ),
    "spectral_polar_joint": Method(
        "SpectralAttention, polar, all heads together",
        "spectral_attention",
        {"correction": "polar", "per_head": False},
        batch_factor=4,
        products=_joint_kernels,
    ),
    "conditioned_init": Method("conditioned initialization", "conditioned_init"),
}
FOLDED = {
    "folded": Method(
        "SpectralAttention, folded", "spectral_attention", folded=True, in_table=True
    )
}

VIT = {
    **STOCK,
    "conditioned_tokens": Method(
        "conditioned tokens, with gradient",
        "conditioned_tokens",
        in_table=True,
        products=_tokens,
    ),
    "conditioned_tokens_stop_gradient": Method(
        "conditioned tokens, stop_gradient",
        "conditioned_tokens",
        {"stop_gradient": True},
        in_table=True,
        products=_tokens_without_gradient,
    ),
    "conditioned_tokens_svd": Method(
        "conditioned tokens, by SVD",
        "conditioned_tokens",
        {"method": "svd"},
        products=_tokens_by_svd,
    ),
    "conditioned_tokens_svd_stop_gradient": Method(
        "conditioned tokens, by SVD, stop_gradient",
        "conditioned_tokens",
        {"method": "svd", "stop_gradient": True},
        products=_tokens_by_svd,
    ),
    **ATTENTION,
    "dct_graying": Method(
        "DCT graying, raw patches",
        "dct_graying",
        in_table=True,
        products=_patches(floors.dct_products),
    ),
    "svd_graying": Method(
        "SVD graying by products, raw patches",
        "svd_graying",
        in_table=True,
        products=_patches(floors.graying_products),
    ),
    "svd_graying_svd": Method(
        "SVD graying by SVD, raw patches",
        "svd_graying",
        {"method": "svd"},
        products=_patches(floors.svd_products),
    ),
    **FOLDED,
}

TABLE = Method(
    'condition="table"', "conditioned_embedding", in_table=True, products=_table
)
OTHERS = {
    name: dataclasses.replace(method, in_table=False)
    for name, method in (ATTENTION | FOLDED).items()
}

GPT = {
    **STOCK,
    "conditioned_table": TABLE,
    "conditioned_table_stop_gradient": Method(
        'condition="table", stop_gradient',
        "conditioned_embedding",
        {"stop_gradient": True},
        products=_table_without_gradient,
    ),
    "conditioned_table_svd": Method(
        'condition="table", by SVD',
        "conditioned_embedding",
        {"method": "svd"},
        products=_table_by_svd,
    ),
    **OTHERS,
}

BERT = {
    **STOCK,
    "conditioned_sequence": Method(
        'condition="sequence"',
        "conditioned_embedding",
        in_table=True,
        products=_tokens,
    ),
    "conditioned_sequence_stop_gradient": Method(
        'condition="sequence", stop_gradient',
        "conditioned_embedding",
        {"stop_gradient": True},
        products=_tokens_without_gradient,
    ),
    "conditioned_sequence_svd": Method(
        'condition="sequence", by SVD',
        "conditioned_embedding",
        {"method": "svd"},
        products=_tokens_by_svd,
    ),
    "conditioned_table": dataclasses.replace(TABLE, conditioning="conditioned_table"),
    **OTHERS,
    "dct_graying": Method(
        "DCT graying, tokens",
        "dct_graying",
        products=_gray_tokens(floors.dct_products),
    ),
    "svd_graying": Method(
        "SVD graying by products, tokens",
        "svd_graying",
        products=_gray_tokens(floors.graying_products),
    ),
}
