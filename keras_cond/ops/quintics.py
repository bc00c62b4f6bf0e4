"""Odd quintics that, composed, send every number of an interval to one.

For a matrix with singular values s, the product a X + b X XᵀX + c X XᵀX XᵀX has
the singular values p(s) = a s + b s³ + c s⁵ and the same singular vectors. A short
chain of such p that ends at 1 therefore gives the polar factor by matrix products
alone. The coefficients are found once in float64 and cached; they are Python floats.
"""

from functools import cache

import numpy as np

# The chain stops when |1 - p| is below this on the whole interval.
PRECISION = 1e-6
# A number at the upper end of an interval is sent to that of the next one, and its
# rounding error grows at every step; beyond the interval it explodes, in chains of nine
# or more. So each interval reaches further up, by this fraction of the error before.
MARGIN = 0.02
# Where Gram matrices follow from each other, rounding in them grows by the square of
# this before they are taken anew. So even products rounded to bfloat16 cannot make the
# iteration explode (at 130 they do), and those rounded to TF32 give what the iteration
# on the long matrix itself does.
GROWTH = 32


def best_quintic(lower, upper):
    """Returns the odd quintic closest to 1 on an interval, in the maximum norm.

    The error of the best p(s) = a s + b s³ + c s⁵ alternates in sign at four points
    lower < q < r < upper (Chebyshev), where q and r are the extrema of p. The points
    and the coefficients are improved in turn until they agree (Remez exchange).

    Args:
        lower: float, left end of the interval, 0 < lower <= upper.
        upper: float, right end of the interval.

    Returns:
        Tuple `((a, b, c), error)` with error = max |1 - p| on the interval.

    Reference: N. Amsel et al., "The Polar Express", 2025, arXiv:2505.16932,
    sections 3.2 and 3.3.
    """
    if upper - lower < 1e-3 * upper:
        # Limit of a point interval: p and its first two derivatives fit there.
        return (15 / 8 / upper, -10 / 8 / upper**3, 3 / 8 / upper**5), 0.0
    q, r = lower + (upper - lower) * np.array([0.25, 0.75])
    for _ in range(100):
        points = np.array([lower, q, r, upper])
        signs = np.array([1.0, -1.0, 1.0, -1.0])
        system = np.stack([points, points**3, points**5, signs], axis=1)
        a, b, c, error = np.linalg.solve(system, np.ones(4))
        root = np.sqrt(9 * b**2 - 20 * a * c)
        extrema = np.sqrt([(-3 * b - root) / (10 * c), (-3 * b + root) / (10 * c)])
        if np.max(np.abs(extrema - [q, r])) < 1e-13:
            break
        q, r = extrema
    return (float(a), float(b), float(c)), abs(float(error))


@cache
def quintic_chain(lower, widest=0.0):
    """Returns quintics whose composition is 1 on [lower, 1], to 1e-6.

    Each is the best one for the interval that the ones before it leave. All but the
    last few aim at the small values, so the chain is short: seven for 1e-3.

    Args:
        lower: float in (0, 1), the smallest number to be sent to 1.
        widest: float in [0, 1). Below it an interval is cut: the quintics are then
            gentler (their factor p(s)/s stays away from 0) and more of them are
            needed. The default, 0, never cuts.

    Returns:
        Tuple of `(a, b, c)` triples, the first to be applied first.
    """
    chain, upper = [], 1.0
    while True:
        coefficients, error = best_quintic(max(lower, widest * upper), upper)
        a, b, c = coefficients
        lower = a * lower + b * lower**3 + c * lower**5
        chain.append(coefficients)
        if 1 - lower < PRECISION and error < PRECISION:
            return tuple(chain)
        lower, upper = min(lower, 1 - error), (1 + error) * (1 + MARGIN * error)


def monic_chain(chain):
    """Writes a chain without the factors of the fifth powers.

    They vanish when every s is measured in a unit of its own; only a number that the
    first s is divided by is left.

    Args:
        chain: From `quintic_chain`.

    Returns:
        The unit of the first s, and a list of `(a, b)`: s' = a s + b s³ + s⁵ for each
        quintic. The last s' is that of the chain.
    """
    unit, steps = 1.0, []
    for a, b, c in reversed(chain):
        unit = (unit / c) ** (1 / 5)
        steps.append((a / (c * unit**4), b / (c * unit**2)))
    return unit, steps[::-1]


def stages(chain):
    """Cuts a chain into lists that lift small numbers by at most `GROWTH` each."""
    result, growth = [], np.inf
    for coefficients in chain:
        growth *= coefficients[0]
        if growth > GROWTH:
            result.append([])
            growth = coefficients[0]
        result[-1].append(coefficients)
    return result
