"""Times of two functions that are called in turn, and the ratio between them."""

import time

import numpy as np


def seconds_of(function):
    """Seconds that one call takes."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def interleave(first, second, pairs, after_pair=None):
    """Time two functions in turn, A B, B A, A B, ..., so that both see one machine.

    Args:
        first: Function without arguments.
        second: Function without arguments.
        pairs: Number of pairs of calls.
        after_pair: `None`, or a function of the number of pairs done.

    Returns:
        Two lists of seconds, of length `pairs`; equal places make a pair.
    """
    times = ([], [])
    for pair in range(pairs):
        order = ((0, first), (1, second))
        for side, function in order if pair % 2 == 0 else reversed(order):
            times[side].append(seconds_of(function))
        if after_pair:
            after_pair(pair + 1)
    return times


def ratio_statistics(stock, ours):
    """Median and quartiles of the pairwise ratios ours / stock, and medians in ms.

    The median of the ratios, rather than the ratio of the medians: what slows the
    machine for a while slows both halves of a pair.

    Args:
        stock: Seconds, one for each pair.
        ours: Seconds, in the same order.

    Returns:
        Dictionary of `ratio`, `quartiles` (two numbers), `stock_ms`, `ours_ms` and
        `pairs`.
    """
    stock, ours = np.asarray(stock), np.asarray(ours)
    low, middle, high = np.percentile(ours / stock, [25, 50, 75])
    return {
        "ratio": float(middle),
        "quartiles": [float(low), float(high)],
        "stock_ms": 1e3 * float(np.median(stock)),
        "ours_ms": 1e3 * float(np.median(ours)),
        "pairs": len(stock),
    }
