"""What is compared: presets (a stock model and its data) and methods of conditioning.

To add a family of models: a function `build(preset, conditioning)`, one in batches.py,
a dictionary in methods.py, and entries in `FAMILIES` and `PRESETS`.
"""

import dataclasses
import math
from collections.abc import Callable

import keras
from benchmarks.batches import image_batch, masked_batch, text_batch
from benchmarks.methods import BERT, GPT, VIT
from common.arguments import parse_list
from models import bert, gpt, vit

import keras_cond


@dataclasses.dataclass(frozen=True)
class Preset:
    """A stock model and its data.

    Attributes:
        family: Key of `FAMILIES`.
        size: Key of the family's own presets.
        batch_size: Examples in a step.
        num_tokens: N, tokens of one example.
        num_outputs: Classes, or ids of the vocabulary.
        image_shape: `(height, width, channels)`; `None` for text.
    """

    family: str
    size: str
    batch_size: int
    num_tokens: int
    num_outputs: int
    image_shape: tuple | None = None

    @property
    def dimensions(self):
        """The model's `Size`."""
        return FAMILIES[self.family].sizes[self.size]

    @property
    def patch_numbers(self):
        """Numbers of one raw patch."""
        return math.prod(self.image_shape) // self.num_tokens


def build_vit(preset, conditioning):
    """The vision transformer of a preset, not compiled."""
    return vit.build_vit(
        preset.image_shape, preset.num_outputs, preset.size, conditioning
    )


def build_gpt(preset, conditioning):
    """The GPT of a preset, not compiled."""
    return gpt.build_gpt(
        preset.num_outputs, preset.num_tokens, preset.size, conditioning
    )


def build_bert(preset, conditioning):
    """The BERT of a preset; `"conditioned_table"` conditions its table."""
    if conditioning == "conditioned_table":
        arguments = ("conditioned_embedding", "table")
    else:
        arguments = (conditioning, "sequence")
    return bert.build_bert(preset.num_outputs, preset.size, *arguments)


@dataclasses.dataclass(frozen=True)
class Family:
    """How the models of one kind are built and fed.

    Attributes:
        build: Function `(preset, conditioning)` that returns a model.
        batch: Function `(preset, batch_size)` that returns inputs and targets.
        sizes: Name -> `Size`.
        methods: Name -> `Method`, in the order of the table.
    """

    build: Callable
    batch: Callable
    sizes: dict
    methods: dict


FAMILIES = {
    "vit": Family(build_vit, image_batch, vit.PRESETS, VIT),
    "gpt": Family(build_gpt, text_batch, gpt.PRESETS, GPT),
    "bert": Family(build_bert, masked_batch, bert.PRESETS, BERT),
}

PHOTOGRAPH = (224, 224, 3)
PRESETS = {
    "vit-smoke": Preset("vit", "smoke", 2, 16, 10, (8, 8, 1)),
    "vit-mini": Preset("vit", "mini", 32, 64, 10, (32, 32, 3)),
    "vit-ti": Preset("vit", "ti", 8, 196, 1000, PHOTOGRAPH),
    "vit-s": Preset("vit", "s", 8, 196, 1000, PHOTOGRAPH),
    "vit-b": Preset("vit", "b", 8, 196, 1000, PHOTOGRAPH),
    "gpt-smoke": Preset("gpt", "smoke", 2, 8, 32),
    "gpt-mini": Preset("gpt", "mini", 32, 64, 2048),
    "gpt-gpt2": Preset("gpt", "gpt2", 8, 1024, 50257),
    "bert-smoke": Preset("bert", "smoke", 2, 8, 32),
    "bert-mini": Preset("bert", "mini", 32, 64, 2048),
    "bert-crammed": Preset("bert", "crammed", 16, 128, 32768),
}


@dataclasses.dataclass(frozen=True)
class Case:
    """One method on one preset at one batch size."""

    preset: str
    method: str
    batch_size: int

    @property
    def name(self):
        """`"vit-ti/dct_graying"`."""
        return f"{self.preset}/{self.method}"


def select_cases(presets, names, batch_size=None):
    """Cases of the command line.

    Args:
        presets: Comma-separated keys of `PRESETS`.
        names: `"table"` (the rows of the table in the documentation), `"all"`, or
            comma-separated names of methods, each of one of the presets.
        batch_size: `None` for that of the preset and method.

    Returns:
        List of `Case`; those of equal preset and batch size follow each other.

    Raises:
        ValueError: If a name is unknown.
    """
    presets = parse_list("--preset", presets, PRESETS)
    offered = {name: FAMILIES[PRESETS[name].family].methods for name in presets}
    if names not in ("table", "all"):
        known = {name: None for methods in offered.values() for name in methods}
        wanted = parse_list("--cases", names, known)
        offered = {
            preset: {name: methods[name] for name in wanted if name in methods}
            for preset, methods in offered.items()
        }
    cases = [
        Case(
            preset,
            name,
            batch_size or PRESETS[preset].batch_size * method.batch_factor,
        )
        for preset, methods in offered.items()
        for name, method in methods.items()
        if names != "table" or method.in_table
    ]
    return sorted(cases, key=lambda c: (presets.index(c.preset), c.batch_size))


def build_stock(preset_name, seed=0):
    """The stock model of a preset, not compiled."""
    preset = PRESETS[preset_name]
    keras.utils.set_random_seed(seed)
    return FAMILIES[preset.family].build(preset, "baseline")


def build_ours(case, stock):
    """The conditioned model of a case with the weights of the stock one.

    Args:
        case: A `Case`.
        stock: The model of `build_stock`.

    Returns:
        A model, not compiled.
    """
    preset = PRESETS[case.preset]
    family = FAMILIES[preset.family]
    method = family.methods[case.method]
    model = family.build(preset, method.conditioning)
    if method.options:
        model = with_options(model, method.options)
    for layer in stock.layers:
        if layer.weights:
            model.get_layer(layer.name).set_weights(layer.get_weights())
    return keras_cond.fold(model) if method.folded else model


def with_options(model, options):
    """A copy of a model whose layers have other options, where they have them.

    Args:
        model: A functional model.
        options: Key of a layer's configuration -> value.

    Returns:
        A model with new weights.

    Raises:
        ValueError: If no layer has one of the options.
    """
    found = set()

    def copy(layer):
        config = layer.get_config()
        changes = {key: value for key, value in options.items() if key in config}
        found.update(changes)
        return type(layer).from_config({**config, **changes})

    result = keras.models.clone_model(model, clone_function=copy)
    if found != set(options):
        raise ValueError(
            f"options: got {sorted(options)}, but the layers of {model.name!r} have "
            f"only {sorted(found)} of them."
        )
    return result


def products_of(case, training):
    """Matrix products that conditioning adds to one step of a case."""
    preset = PRESETS[case.preset]
    method = FAMILIES[preset.family].methods[case.method]
    return method.products(preset, case.batch_size, training)
