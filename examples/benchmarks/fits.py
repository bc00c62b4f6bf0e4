"""Power laws through measured costs."""

import numpy as np


def fit_exponent(sizes, costs):
    """Exponent p of cost ~ size^p, by least squares of the logarithms.

    It is fitted through the larger half of the sizes (at least two): what a call costs
    whatever its size hides the law at the small ones.

    Args:
        sizes: Positive numbers in increasing order.
        costs: Numbers, one for each size.

    Returns:
        The exponent, dimensionless; NaN if a cost is not positive.

    Raises:
        ValueError: If there are fewer than two sizes.
    """
    if len(sizes) < 2:
        raise ValueError(f"sizes: got {list(sizes)}, expected two or more. Add one.")
    start = min(len(sizes) // 2, len(sizes) - 2)
    costs = np.asarray(costs[start:], dtype="float64")
    if not np.all(costs > 0):
        return float("nan")
    slope, _ = np.polyfit(np.log(sizes[start:]), np.log(costs), 1)
    return float(slope)
