"""The size of a transformer, as the settings of a model say it."""

from models.blocks import Size

_DIMENSIONS = ("width", "num_layers", "num_heads", "mlp_ratio")


def take_size(settings):
    """Take the size out of settings.

    Args:
        settings: Dict with `preset`, or with the attributes of `models.blocks.Size`.

    Returns:
        `(size, others)`: a preset's name or a `Size`, and the settings without it.
    """
    others = dict(settings)
    if "preset" in others:
        return others.pop("preset"), others
    return Size(**{name: others.pop(name) for name in _DIMENSIONS}), others
