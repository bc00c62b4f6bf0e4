"""What the numbers say of each method, by one rule."""

from .declaration import DEFAULT

HELPS = "**helps**"
SCALE = "better, but not than its control"
HURTS = "hurts"
SHAPE = "no gain, but beats its control"
NOT_SEEN = "not seen"


def verdict(row, higher_is_better):
    """Judge an arm by its paired differences to the default and to its control.

    A difference counts if its 95 % interval excludes 0. An arm *helps* if it is better
    than the default and than its control (or has none); better than the default alone,
    it is *better, but not than its control*. Worse than the default, it *hurts*.

    Args:
        row: A `summary.Row`.
        higher_is_better: Whether a larger score is better.

    Returns:
        One of the sentences of this module.
    """
    default = _sign(row.to_default, higher_is_better)
    control = None
    if row.to_control is not None:
        control = _sign(row.to_control, higher_is_better)
    if default > 0:
        return HELPS if control in (None, 1) else SCALE
    better = control == 1 and row.arm.control != DEFAULT
    if default < 0:
        return f"{HURTS}, but beats its control" if better else HURTS
    return SHAPE if better else NOT_SEEN


def judged(rows):
    """Return the rows that a verdict is about: no controls, and not the default."""
    controls = {row.arm.control for row in rows} | {DEFAULT}
    return [
        row
        for row in rows
        if row.arm.name not in controls and (row.arm.main or row.arm.control)
    ]


def _sign(estimate, higher_is_better):
    """1 where the difference is for the better, -1 for the worse, 0 where unclear."""
    if not estimate.count or not estimate.excludes_zero:
        return 0
    return 1 if (estimate.mean > 0) == higher_is_better else -1
