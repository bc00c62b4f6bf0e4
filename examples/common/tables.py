"""Tables in plain text."""


def format_table(header, rows):
    """Align rows under a header; the first column to the left, others to the right.

    Args:
        header: Titles of the columns.
        rows: Lists of strings, as long as the header.

    Returns:
        The table as one string of several lines.
    """
    columns = list(zip(header, *rows, strict=True))
    widths = [max(len(cell) for cell in column) for column in columns]
    rule = ["-" * width for width in widths]
    return "\n".join(_format_row(row, widths) for row in [header, rule, *rows])


def format_number(value):
    """Three digits: `2.00`, `35.1`, `412`, `1.3e+04`, `inf`.

    Args:
        value: A number that is not negative.

    Returns:
        The number as a string.
    """
    for limit, digits in ((10, 2), (100, 1), (1000, 0)):
        if value < limit:
            return f"{value:.{digits}f}"
    return f"{value:.1e}"


def _format_row(row, widths):
    first, *others = [
        cell.ljust(width) if place == 0 else cell.rjust(width)
        for place, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]
    return "  ".join([first, *others]).rstrip()
