"""Spectra of singular values."""

import numpy as np

from keras_cond.diagnostics.plots.style import BOTTOM, DASHES, new_figure, save

ROLES = ("query", "key", "value")
# Singular values below this part of the largest are drawn at the bottom edge.
SMALLEST = 1e-8


def plot_spectra(report, path):
    """Draws the singular values of every layer, relative to the largest.

    The upper row has each head's D × d matrix, the lower one the joint D × (heads · d)
    matrix. Layers run from dark to light; values of at most 1e-8 of the largest stand
    at the bottom edge, marked "0".

    Args:
        report: `Report`.
        path: The file; its ending says the format.

    Raises:
        ValueError: If the report has no layers.
        ImportError: If matplotlib is missing.
    """
    if not report.layers:
        raise ValueError(
            "There is nothing to draw. Received: a report without attention layers "
            f"of {report.model_name!r}."
        )
    figure = new_figure(11, 6.4)
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    figure.suptitle(f"Singular values of {report.model_name}, largest = 1")
    last = max(1, len(report.layers) - 1)
    # The lightest tenth of the map does not show on white.
    colours = colormaps["cividis"].resampled(256)
    panels = figure.subplots(2, 3, sharey="row")
    for column, role in zip(panels.T, ROLES, strict=True):
        column[0].set_title(role)
        for index, layer in enumerate(report.layers):
            spectrum = getattr(layer, role)
            style = {
                "color": colours(0.9 * index / last),
                "linestyle": DASHES[index % 4],
            }
            for values in spectrum.head_values:
                _draw(column[0], values, linewidth=0.8, alpha=0.8, **style)
            _draw(column[1], spectrum.joint_values, linewidth=1.6, **style)
    panels[0, 0].set_ylabel("singular values of each head")
    panels[1, 0].set_ylabel("singular values of all heads joint")
    for axes in panels.ravel():
        axes.set_yscale("log")
        axes.grid(alpha=0.3)
        axes.xaxis.get_major_locator().set_params(integer=True)
    for row, which in zip(panels, ("head_values", "joint_values"), strict=True):
        drawn = [line.get_ydata().min() for axes in row for line in axes.lines]
        low = min(drawn, default=1.0)
        row[0].set_ylim(max(low / 1.5, SMALLEST / 2), 1.5)
        for axes, role in zip(row, ROLES, strict=True):
            if any(_zero(getattr(getattr(r, role), which)) for r in report.layers):
                axes.text(0.99, BOTTOM, "0", transform=axes.transAxes, ha="right")
    for axes in panels[1]:
        axes.set_xlabel("index of the singular value")
    if len(report.layers) > 1:
        scale = ScalarMappable(Normalize(0, last / 0.9), colours)
        bar = figure.colorbar(scale, ax=panels, fraction=0.03, pad=0.02)
        bar.ax.set_ylim(0, last)
        bar.set_label("attention layer")
        bar.ax.yaxis.get_major_locator().set_params(integer=True)
    save(figure, path)


def _zero(values):
    return bool((values <= SMALLEST * values[..., :1]).any())


def _draw(axes, values, **style):
    largest = values[0] if values[0] > 0 else 1.0
    relative = np.maximum(values / largest, SMALLEST / 2)
    if np.isfinite(relative).all():
        axes.plot(np.arange(1, len(values) + 1), relative, **style)
