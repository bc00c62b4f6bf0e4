"""The median of numbers that may be infinite."""

import numpy as np


def median(values):
    """Median of a nested list as a float; None for None, NaN if one is NaN."""
    if values is None:
        return None
    # Between two infinities the mean is one, not NaN.
    ordered = np.sort(np.ravel(values))
    if not len(ordered) or np.isnan(ordered[-1]):
        return float("nan")
    low, high = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    return float(low if low == high else (low + high) / 2)
