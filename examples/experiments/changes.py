"""What an arm changes in a model, and that it changes nothing else."""

import keras
from models.blocks import Conditioning

import keras_cond

from .starts import STARTS
from .token_layers import PartialTokenConditioning, UnitTokenConditioning

# What may stand on patches or tokens.
LAYERS = {
    "DCTTokenGraying": keras_cond.DCTTokenGraying,
    "SVDTokenGraying": keras_cond.SVDTokenGraying,
    "TokenConditioning": keras_cond.TokenConditioning,
    "PartialTokenConditioning": PartialTokenConditioning,
    "UnitTokenConditioning": UnitTokenConditioning,
    "Rescaling": keras.layers.Rescaling,
}


def build_model(build, changes, seed):
    """Build the model of an arm.

    Its weights are those of the model without changes: the live layers have none of
    their own, and what starts from other values is written last.

    Args:
        build: Function of a `Conditioning` that returns a model.
        changes: Dict with some of `declaration.CHANGES`:
            `patches`, `tokens`: `{"layer": a name of LAYERS, its arguments}`;
            `table`: true for tokens from the conditioned table;
            `attention`: arguments of `SpectralAttention`, which then attends;
            `initialize`: arguments of `keras_cond.initialize`, or of one of `STARTS`
            where its `scheme` is one.
        seed: Integer; fixes the weights.

    Returns:
        A built `keras.Model`.

    Raises:
        ValueError: If a layer is unknown, or weights cannot be told apart.
    """
    keras.utils.set_random_seed(seed)
    model = build(Conditioning())
    if set(changes) - {"initialize"}:
        plain = model
        keras.utils.set_random_seed(seed)
        model = build(conditioning_of(changes))
        copy_weights(plain, model)
    if "initialize" in changes:
        initialize(model, changes["initialize"], seed)
    return model


def conditioning_of(changes):
    """Return the `models.blocks.Conditioning` that changes ask for."""
    attention = changes.get("attention")
    return Conditioning(
        "changed",
        patches=_maker(changes.get("patches"), "patch_layer"),
        tokens=_maker(changes.get("tokens"), "token_layer"),
        table=changes.get("table", False),
        attention=None if attention is None else lambda: dict(attention),
    )


def initialize(model, arguments, seed):
    """Write the starting values that an arm asks for.

    Args:
        model: A built `keras.Model`.
        arguments: As `initialize` of `build_model`.
        seed: Integer.
    """
    arguments = dict(arguments)
    scheme = arguments.pop("scheme")
    if scheme in STARTS:
        start = STARTS[scheme](**arguments)
        keras_cond.initialize(model, start, seed=seed)
    else:
        keras_cond.initialize(model, scheme, seed=seed, **arguments)


def copy_weights(source, target):
    """Give a model the weights of another one, layer by layer.

    Args:
        source: `keras.Model`.
        target: `keras.Model` whose layers with trainable weights have the names and
            shapes of the source's.

    Raises:
        ValueError: If such a layer is missing.
    """
    layers = {layer.name: layer for layer in source.layers}
    for layer in target.layers:
        if layer.trainable_weights and layer.name not in layers:
            raise ValueError(
                f"{target.name}: the layer {layer.name!r} has weights that "
                f"{source.name} lacks, expected layers of the same names."
            )
        if layer.trainable_weights:
            layer.set_weights(layers[layer.name].get_weights())


def _maker(entry, name):
    if entry is None:
        return None
    arguments = dict(entry)
    layer = arguments.pop("layer", None)
    if layer not in LAYERS:
        raise ValueError(f"layer: got {layer!r}, expected one of {', '.join(LAYERS)}.")
    return lambda: LAYERS[layer](name=name, **arguments)
