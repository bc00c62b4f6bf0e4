"""Tables in plain text, of numbers with three digits."""

import math

import numpy as np

WIDTH = 100
NAME_WIDTH = 28


def format_table(header, rows):
    """Aligns rows under a header; the first column to the left, others to the right.

    Args:
        header: Titles of the columns.
        rows: Lists of strings, as long as the header.

    Returns:
        The table as one string.
    """
    columns = list(zip(header, *rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    lines = [header, ["-" * width for width in widths], *rows]
    return "\n".join(_line(line, widths) for line in lines)


def format_kappa(value):
    """Formats a number: `2.00`, `35.1`, `412`, `1.3e+04`, `inf`, `nan`; None: `n/a`."""
    if value is None:
        return "n/a"
    if not math.isfinite(value):
        return str(value)
    for limit, digits in ((9.995, 2), (99.95, 1), (9999.5, 0)):
        if abs(value) < limit:
            return f"{value:.{digits}f}"
    return f"{value:.1e}"


def format_worst(values):
    """Formats the largest of the heads' numbers with its head: `412 h3`.

    NaN is worst of all.
    """
    if values is None:
        return "n/a"
    order = np.where(np.isnan(values), np.inf, values)
    worst = int(np.argmax(np.isnan(values) if np.isnan(values).any() else order))
    return f"{format_kappa(values[worst])} h{worst}"


def shorten(path):
    """Shortens the path of a layer to its end."""
    return path if len(path) <= NAME_WIDTH else "…" + path[1 - NAME_WIDTH :]


def _line(cells, widths):
    first, *others = zip(cells, widths, strict=True)
    aligned = [first[0].ljust(first[1]), *(c.rjust(w) for c, w in others)]
    return "  ".join(aligned).rstrip()
