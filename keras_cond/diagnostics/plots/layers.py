"""κ by layer, with the heads as points."""

import numpy as np

from keras_cond.diagnostics.plots.style import (
    COLOURS,
    MARKERS,
    draw_points,
    integer_ticks,
    kappa_axis,
    new_figure,
    save,
)

ROLES = ("query", "key", "value")
INPUTS = {
    "tokens": "tokens (a point a sample)",
    "attention": "attention matrix (a point a sample and head)",
    "output": "output (a point a sample)",
}


def plot_layers(report, path):
    """Draws κ of every layer on a logarithmic axis.

    The left panel has the weights: a small point for each head, a large open one for
    all heads joint. With inputs, a right panel has the tokens, the attention matrices
    and the outputs. Infinite numbers stand at the top edge, marked "∞".

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
    number = len(report.layers)
    panels = 1 + report.with_inputs
    width = max(5.0, 2.2 + 0.42 * number)
    figure = new_figure(panels * width, 4.6)
    figure.suptitle(f"Condition numbers of {report.model_name}")
    panel, *others = figure.subplots(1, panels, squeeze=False)[0]
    _weights(panel, report)
    for other in others:
        _inputs(other, report)
    save(figure, path)


def _weights(axes, report):
    values = []
    for spectra in ([getattr(r, role) for role in ROLES] for r in report.layers):
        values += [k for s in spectra for k in (*s.per_head, s.joint)]
    kappa_axis(axes, values, "κ of the weights")
    for place, role in enumerate(ROLES):
        shift = 0.26 * (place - 1)
        heads, joint = [], []
        for index, layer in enumerate(report.layers):
            spectrum = getattr(layer, role)
            heads += [(index + shift, kappa) for kappa in spectrum.per_head]
            joint.append((index + shift, spectrum.joint))
        style = {
            "color": COLOURS[place],
            "marker": MARKERS[place],
            "linestyle": "none",
        }
        draw_points(
            axes,
            *zip(*heads, strict=True),
            markersize=3.5,
            label=f"{role} head",
            **style,
        )
        draw_points(
            axes,
            *zip(*joint, strict=True),
            markersize=9,
            markerfacecolor="none",
            markeredgewidth=1.4,
            label=f"{role} joint",
            **style,
        )
    _finish(axes, report, ncols=3)


def _inputs(axes, report):
    points = {
        quantity: [
            (index + 0.26 * (place - 1), kappa)
            for index, layer in enumerate(report.layers)
            for kappa in np.ravel(getattr(layer, quantity) or [])
        ]
        for place, quantity in enumerate(INPUTS)
    }
    kappa_axis(axes, [k for group in points.values() for _, k in group], "κ on inputs")
    for place, (quantity, label) in enumerate(INPUTS.items()):
        if not points[quantity]:
            continue
        draw_points(
            axes,
            *zip(*points[quantity], strict=True),
            color=COLOURS[place + 3],
            marker=MARKERS[place + 3],
            markersize=4,
            alpha=0.6,
            linestyle="none",
            label=label,
        )
    _finish(axes, report, ncols=1)


def _finish(axes, report, ncols):
    axes.set_xlim(-0.6, len(report.layers) - 0.4)
    axes.set_xlabel("attention layer, in the order of the model")
    integer_ticks(axes)
    handles, _ = axes.get_legend_handles_labels()
    if handles:
        axes.legend(
            loc="upper center",
            bbox_to_anchor=(0.5, -0.16),
            ncols=ncols,
            frameon=False,
            fontsize="small",
        )
