"""Curves of condition numbers over training."""

import numpy as np

from keras_cond.diagnostics.plots.style import (
    COLOURS,
    DASHES,
    MARKERS,
    draw_line,
    integer_ticks,
    kappa_axis,
    new_figure,
    save,
)

# Prefix of a name -> title of its panel; the first that fits.
PANELS = (
    ("kappa_joint", "κ of all heads joint"),
    ("kappa_head", "κ of heads"),
    ("kappa", "κ on inputs"),
    ("entropy", "entropy of attention (nats)"),
)


def plot_history(history, path):
    """Draws what a `ConditionMonitor` measured, over the batches of training.

    Args:
        history: dict, `ConditionMonitor.history`: `"batch"` has the numbers of batches
            seen, every other key as many numbers.
        path: The file; its ending says the format.

    Raises:
        ValueError: If the history holds no measurement.
        ImportError: If matplotlib is missing.
    """
    batches = history.get("batch", [])
    groups = {}
    for name, values in history.items():
        title = next((t for start, t in PANELS if name.startswith(start)), None)
        if title:
            groups.setdefault(title, []).append((name, values))
    if not batches or not groups:
        raise ValueError(
            "There is nothing to draw. Received: a history with the keys "
            f"{sorted(history)}. Expected that of a `ConditionMonitor` after `fit`."
        )
    columns = min(2, len(groups))
    rows = -(-len(groups) // columns)
    figure = new_figure(5.6 * columns, 4.4 * rows)
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes in panels[len(groups) :]:
        axes.set_visible(False)
    for axes, (title, curves) in zip(panels, groups.items(), strict=False):
        axes.set_xmargin(0.09)
        if title.startswith("κ"):
            kappa_axis(axes, [values for _, values in curves], title)
        else:
            largest = np.nanmax([*np.ravel([v for _, v in curves]), 1e-3])
            axes.set_ylim(0, 1.1 * largest)
            axes.set_ylabel(title)
            axes.grid(axis="y", alpha=0.3)
        quantities = list(dict.fromkeys(name.rsplit("_", 1)[0] for name, _ in curves))
        for number, (name, values) in enumerate(curves):
            quantity, statistic = name.rsplit("_", 1)
            place = quantities.index(quantity) % len(COLOURS)
            solid = statistic == "median"
            draw_line(
                axes,
                batches,
                values,
                place=number,
                color=COLOURS[place],
                marker=MARKERS[place],
                markerfacecolor=COLOURS[place] if solid else "none",
                markersize=4.5,
                linestyle=DASHES[0] if solid else DASHES[1],
                label=name.removeprefix("kappa_").replace("_", " "),
            )
        axes.set_xlabel("batches")
        integer_ticks(axes)
        axes.legend(
            loc="upper center",
            bbox_to_anchor=(0.5, -0.14),
            ncols=3,
            frameon=False,
            fontsize="small",
        )
    save(figure, path)
