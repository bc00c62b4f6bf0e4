"""Means with intervals, and differences between arms seed by seed."""

import dataclasses
import itertools
import math

import numpy as np
from scipy import stats

CONFIDENCE = 0.95


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A mean over seeds.

    Attributes:
        mean: The mean; NaN of no numbers.
        half_width: Half of its 95 % interval by Student's t; NaN of fewer than two.
        count: Number of seeds.
    """

    mean: float
    half_width: float
    count: int

    @property
    def excludes_zero(self):
        """Whether 0 is outside the interval."""
        return abs(self.mean) > self.half_width  # False with NaN.


def estimate(values):
    """Return the `Estimate` of a mean.

    Args:
        values: Floats, one for each seed.
    """
    values = np.asarray(list(values), float)
    count = len(values)
    if count == 0:
        return Estimate(math.nan, math.nan, 0)
    if count == 1:
        return Estimate(float(values[0]), math.nan, 1)
    quantile = stats.t.ppf((1 + CONFIDENCE) / 2, count - 1)
    half_width = quantile * values.std(ddof=1) / math.sqrt(count)
    return Estimate(float(values.mean()), float(half_width), count)


def paired(values, others):
    """Return the `Estimate` of the mean difference over common seeds.

    Args:
        values: Seed -> float.
        others: Seed -> float, which is subtracted.
    """
    seeds = sorted(values.keys() & others.keys())
    return estimate(values[seed] - others[seed] for seed in seeds)


def epochs_to_reach(curve, target, higher_is_better):
    """Return after how many epochs a curve reaches a value.

    Args:
        curve: Values after epoch 1, 2, ...; between them it is a straight line.
        target: The value.
        higher_is_better: Whether to reach it from below.

    Returns:
        Float from 1 on, since nothing is known before; infinite if it never does.
    """
    sign = 1 if higher_is_better else -1
    gaps = [sign * (value - target) for value in curve]
    if gaps[0] >= 0:
        return 1.0
    for epoch, (before, after) in enumerate(itertools.pairwise(gaps), start=1):
        if after >= 0:
            return epoch - before / (after - before)
    return math.inf
