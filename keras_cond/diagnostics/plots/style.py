"""Colours, markers and axes that the figures share.

The colours are Okabe and Ito's, which colour-blind eyes tell apart; markers, dashes and
hatches carry the same meaning in grey.
"""

import numpy as np

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#000000", "#CC79A7", "#E69F00")
MARKERS = ("o", "s", "^", "D", "v", "P")
DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 1)))
HATCHES = ("", "///")
# Where on the axis, as a part of its height, numbers stand that have no place on it.
TOP, BOTTOM = 0.965, 0.035


def new_figure(width, height):
    """Returns an empty `matplotlib.figure.Figure` of a size in inches.

    No window and no global state of matplotlib is involved.

    Raises:
        ImportError: If matplotlib is missing.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            "Drawing needs matplotlib, which is not installed. Install it with "
            "`pip install matplotlib`."
        ) from error
    return Figure(figsize=(width, height), layout="constrained")


def save(figure, path):
    """Writes a figure into a file."""
    figure.savefig(path, dpi=130)


def kappa_axis(axes, values, label):
    """Makes the y axis of a panel logarithmic, for some condition numbers.

    Args:
        axes: The panel.
        values: Numbers to be drawn, of which the finite positive ones fix the limits.
        label: Label of the axis.
    """
    values = np.ravel(np.asarray(values, "float64"))
    finite = values[np.isfinite(values) & (values > 0)]
    low, high = (finite.min(), finite.max()) if len(finite) else (1.0, 10.0)
    low, high = min(low, 1.0), max(high, 10.0)
    span = np.log10(high / low)
    axes.set_yscale("log")
    # Room above and below for what has no place on the axis.
    axes.set_ylim(low / 10 ** (0.1 * span), high * 10 ** (0.2 * span))
    axes.set_ylabel(label)
    axes.grid(axis="y", alpha=0.3)


def draw_points(axes, x, y, **style):
    """Draws points; infinite ones at the top edge, undefined ones at the bottom.

    Those are marked by "∞" and "nan" beside them.

    Args:
        axes: The panel, with a logarithmic y axis.
        x: Numbers.
        y: As many numbers.
        **style: Passed to `Axes.plot`.
    """
    x, y = np.asarray(x, "float64"), np.asarray(y, "float64")
    finite = np.isfinite(y)
    axes.plot(x[finite], y[finite], **style)
    for where, height, text in _outside(y):
        _draw_at_edge(axes, x[where], height, text, {**style, "linestyle": "none"})


def draw_line(axes, x, y, place=0, **style):
    """Draws a line; where `y` is infinite it runs along the top edge, marked "∞".

    Where it is undefined, it runs along the bottom edge, marked "nan".

    Args:
        axes: The panel, with a logarithmic y axis.
        x: Numbers.
        y: As many numbers.
        place: int, the number of the line: keeps several at an edge apart.
        **style: Passed to `Axes.plot`.
    """
    x, y = np.asarray(x, "float64"), np.asarray(y, "float64")
    every = max(1, len(y) // 10)
    axes.plot(x, np.where(np.isfinite(y), y, np.nan), markevery=every, **style)
    for where, height, text in _outside(y):
        height += (0.03 if height == BOTTOM else -0.03) * (place % 4)
        index = np.flatnonzero(where)
        for stretch in np.split(index, np.flatnonzero(np.diff(index) > 1) + 1):
            _draw_at_edge(axes, x[stretch[[0, -1]]], height, text, style)


def _outside(y):
    """Yields where `y` has no place on an axis, at which height, and its sign."""
    for where, height, text in (
        (np.isinf(y), TOP, "∞"),
        (np.isnan(y), BOTTOM, "nan"),
    ):
        if where.any():
            yield where, height, text


def _draw_at_edge(axes, x, height, text, style):
    edge = axes.get_xaxis_transform()
    style = {**style, "label": None, "transform": edge}
    axes.plot(x, np.full(len(x), height), **style)
    places = x[-1:] if style["linestyle"] != "none" else np.unique(x)
    for place in places:
        axes.annotate(
            text,
            (place, height),
            xycoords=edge,
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            fontsize="small",
        )


def integer_ticks(axes):
    """Puts whole numbers alone on the x axis."""
    axes.xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
