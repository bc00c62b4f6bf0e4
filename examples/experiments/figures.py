"""Figures of an experiment."""

import math

import numpy as np
from common.plots import STYLES
from matplotlib.figure import Figure

from .declaration import DEFAULT

_PANELS = {
    "attention entropy (nats)": "entropy",
    "κ of all query heads": "kappa_joint_query",
    "κ of tokens": "kappa_tokens",
}


def plot_differences(path, experiment, rows):
    """Draw each arm's paired difference to the default and to its control.

    Args:
        path: The PNG file.
        experiment: An `Experiment`.
        rows: From `summary.summarize`.
    """
    rows = [row for row in rows if row.arm.name != DEFAULT]
    figure = Figure(figsize=(9, 1.4 + 0.27 * len(rows)), layout="constrained")
    panels = (("minus default", "to_default"), ("minus its own control", "to_control"))
    axes = figure.subplots(1, 2, sharey=True)
    for one, (title, attribute) in zip(axes, panels, strict=True):
        for place, row in enumerate(rows):
            value = getattr(row, attribute)
            if value is None or value.count == 0:
                continue
            width = 0 if math.isnan(value.half_width) else value.half_width
            colour, _, marker = STYLES[2 if row.arm.main else 7]
            one.errorbar(
                value.mean, place, xerr=width, color=colour, marker=marker, capsize=3
            )
        one.axvline(0, color="black", linewidth=0.8)
        one.grid(alpha=0.3)
        one.locator_params(axis="x", nbins=5)
        better = "right" if experiment.higher_is_better else "left"
        one.set_xlabel(f"{experiment.score} {title} ({better} is better)")
    axes[0].set_yticks(range(len(rows)), [row.arm.name for row in rows])
    axes[0].invert_yaxis()
    figure.suptitle(f"{experiment.name}: mean and 95 % interval over seeds")
    figure.savefig(path, dpi=110)


def plot_training(path, experiment, rows):
    """Draw the validation score, κ and entropy of the published methods over epochs.

    Args:
        path: The PNG file.
        experiment: An `Experiment`.
        rows: From `summary.summarize`.
    """
    controls = {row.arm.control for row in rows if row.arm.main}
    chosen = [r for r in rows if r.arm.main and r.arm.name not in controls]
    if len(chosen) < 2:
        chosen = rows
    panels = {
        title: key
        for title, key in _PANELS.items()
        if any(np.isfinite(row.measurements.get(key, [])).any() for row in rows)
    }
    count = 1 + len(panels)
    figure = Figure(figsize=(4.2 * count, 4.2), layout="constrained")
    axes = figure.subplots(1, count, sharex=True)
    for row, (colour, dashes, marker) in zip(chosen, STYLES, strict=False):
        style = {"color": colour, "linestyle": dashes, "marker": marker}
        style.update(markersize=4, label=row.arm.name)
        axes[0].plot(range(1, len(row.curve) + 1), row.curve, **style)
        for one, key in zip(axes[1:], panels.values(), strict=True):
            values = np.array(row.measurements.get(key, []), float)
            one.plot(np.where(np.isfinite(values), values, np.nan), **style)
    axes[0].set_ylabel(f"validation {experiment.score}")
    for one, title in zip(axes[1:], panels, strict=True):
        one.set_ylabel(title)
        if title.startswith("κ"):
            one.set_yscale("log")
    for one in axes:
        one.set_xlabel("epoch")
        one.grid(alpha=0.3)
        one.xaxis.get_major_locator().set_params(integer=True)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    figure.suptitle(f"{experiment.name}: mean score and median κ over seeds")
    figure.savefig(path, dpi=110)
