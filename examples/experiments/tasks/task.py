"""What every task offers to a run."""

import dataclasses
from collections.abc import Callable

import keras
import numpy as np


@dataclasses.dataclass(frozen=True)
class Task:
    """Data, and the model and the training that go with them.

    Attributes:
        train: Batches with an `epoch` that fixes their order.
        validation: Held-out batches for the curves and the choice of learning rates.
        test: Held-out batches of which nothing is chosen.
        probes: A few inputs on which κ is measured.
        facts: Sizes of the data and what else belongs into a line.
        build: Function of a `models.blocks.Conditioning` that returns a model.
        compile: Function that compiles a model.
        finish: Function of a trained model that returns further scores.
    """

    train: keras.utils.PyDataset
    validation: keras.utils.PyDataset
    test: keras.utils.PyDataset
    probes: np.ndarray | dict
    facts: dict
    build: Callable
    compile: Callable
    finish: Callable = lambda model: {}


class Part(keras.utils.PyDataset):
    """Some consecutive batches of others.

    Args:
        batches: A `keras.utils.PyDataset`.
        first: Index of the first batch.
        end: Index behind the last one.
    """

    def __init__(self, batches, first, end):
        super().__init__()
        self._batches = batches
        self._range = range(first, end)

    def __len__(self):
        return len(self._range)

    def __getitem__(self, index):
        return self._batches[self._range[index]]


def split(batches, fraction):
    """Split held-out batches into those that choose and those that judge.

    Args:
        batches: A `keras.utils.PyDataset` of at least two batches.
        fraction: Part of the batches that choose.

    Returns:
        `(validation, test)`, a `Part` each.

    Raises:
        ValueError: If one of them would be empty.
    """
    cut = round(fraction * len(batches))
    if not 0 < cut < len(batches):
        raise ValueError(
            f"validation_fraction: got {fraction} of {len(batches)} held-out batches, "
            "expected a number that leaves some to validate and some to test on."
        )
    return Part(batches, 0, cut), Part(batches, cut, len(batches))
