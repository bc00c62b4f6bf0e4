"""Scalars of a report under stable names."""

import numpy as np

from keras_cond.diagnostics.median import median

WEIGHTS = ("query", "key", "value")
INPUTS = ("tokens", "attention", "output", "entropy")
QUANTITIES = (*WEIGHTS, *INPUTS)


def layer_values(layer, quantity):
    """The numbers of one quantity of one layer.

    Args:
        layer: `LayerReport`.
        quantity: One of `QUANTITIES`.

    Returns:
        dict of name → nonempty list of floats.
    """
    if quantity in WEIGHTS:
        spectrum = getattr(layer, quantity)
        return {
            f"kappa_head_{quantity}": spectrum.per_head,
            f"kappa_joint_{quantity}": [spectrum.joint],
        }
    values = getattr(layer, quantity)
    name = quantity if quantity == "entropy" else f"kappa_{quantity}"
    return {} if values is None else {name: np.ravel(values).tolist()}


def summarize(values_by_name):
    """Medians and worst values: the largest κ, the smallest entropy.

    Args:
        values_by_name: dict of name → list of floats.

    Returns:
        dict of name with the suffix `_median`, `_max` or `_min` → float.
    """
    scalars = {}
    for name, values in values_by_name.items():
        scalars[f"{name}_median"] = median(values)
        if name == "entropy":
            scalars[f"{name}_min"] = float(np.min(values))
        else:
            scalars[f"{name}_max"] = float(np.max(values))
    return scalars


def report_scalars(report, quantities):
    """Scalars of a whole model, over its layers, heads and samples.

    Args:
        report: `Report`.
        quantities: Some of `QUANTITIES`.

    Returns:
        dict of name → float. A quantity that no layer tells is NaN.
    """
    joined = {}
    for quantity in quantities:
        if quantity in INPUTS:
            name = quantity if quantity == "entropy" else f"kappa_{quantity}"
            joined[name] = []
        for layer in report.layers:
            for name, values in layer_values(layer, quantity).items():
                joined.setdefault(name, []).extend(values)
    return summarize({name: v or [float("nan")] for name, v in joined.items()})
