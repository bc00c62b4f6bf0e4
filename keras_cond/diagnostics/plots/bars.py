"""Three pairs of bars: tokens, first attention, all attention."""

import numpy as np

from keras_cond.diagnostics.median import median
from keras_cond.diagnostics.plots.style import (
    COLOURS,
    HATCHES,
    TOP,
    kappa_axis,
    new_figure,
    save,
)
from keras_cond.diagnostics.table import format_kappa


def plot_bars(original, conditioned, path):
    """Draws κ of the tokens, of the first and of all attention, of two models.

    The tokens are those that enter the first attention layer; attention is the output
    of a layer. Bars are medians over samples (and layers). Infinite ones reach the top
    edge and are marked so.

    Args:
        original: `Report` of the model as it was, made with inputs.
        conditioned: `Report` of the model with conditioning, made with inputs.
        path: The file; its ending says the format.

    Raises:
        ValueError: If a report was made without inputs.
        ImportError: If matplotlib is missing.

    Reference: "Conditioned Embedded Tokens", ICCV 2025, arXiv:2505.12789, the figure
    that compares the three.
    """
    heights = [_heights(report) for report in (original, conditioned)]
    figure = new_figure(6.4, 4.4)
    axes = figure.subplots()
    kappa_axis(axes, heights, "condition number κ")
    axes.set_ylim(bottom=1)
    axes.set_axisbelow(True)
    axes.set_title("Medians over samples")
    top = axes.get_ylim()[1]
    names = (f"original: {original.model_name}", f"with: {conditioned.model_name}")
    for place, (values, name) in enumerate(zip(heights, names, strict=True)):
        x = np.arange(3) + 0.38 * (place - 0.5)
        axes.bar(
            x,
            [value if np.isfinite(value) else top for value in values],
            width=0.34,
            color=(COLOURS[0], COLOURS[5])[place],
            edgecolor="black",
            hatch=HATCHES[place],
            label=name,
        )
        for centre, value in zip(x, values, strict=True):
            text = "∞" if value == np.inf else format_kappa(value)
            inside = not np.isfinite(value)
            axes.annotate(
                text,
                (centre, TOP if inside else value),
                xycoords=("data", "axes fraction") if inside else "data",
                xytext=(0, 0 if inside else 2),
                textcoords="offset points",
                ha="center",
                va="center" if inside else "bottom",
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5}
                if inside
                else None,
            )
    axes.set_xticks(range(3), ("tokens", "first attention", "all attention"))
    figure.legend(loc="outside lower center", ncols=1, frameon=False)
    save(figure, path)


def _heights(report):
    layers = [layer for layer in report.layers if layer.tokens is not None]
    outputs = [layer.output for layer in layers if layer.output is not None]
    if not outputs:
        raise ValueError(
            "The figure is about tokens and attention on inputs. Received: a report of "
            f"{report.model_name!r} without them. Expected one that was made with "
            "`inspect(model, inputs)`."
        )
    everything = [kappa for output in outputs for kappa in output]
    return [median(layers[0].tokens), median(outputs[0]), median(everything)]
