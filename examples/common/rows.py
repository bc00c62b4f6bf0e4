"""Batches of encoded texts: rows of ids and their labels."""

import keras
import numpy as np


class ShuffledRows(keras.utils.PyDataset):
    """Rows in another order each epoch; an incomplete last batch is dropped.

    Set `epoch` at the start of each epoch (`training.fit` does): the order follows from
    it and the seed alone.

    Args:
        ids: int32 array `(n, length)`.
        labels: Array `(n,)`.
        batch_size: Rows in a batch, at most n.
        seed: Integer.
        epoch_size: Largest number of rows an epoch draws; `None` draws all.
    """

    def __init__(self, ids, labels, batch_size, seed, epoch_size=None):
        super().__init__()
        self.epoch = 0
        self._ids = ids
        self._labels = labels
        self._batch_size = batch_size
        self._seed = seed
        self._epoch_size = min(epoch_size or len(ids), len(ids))

    def __len__(self):
        return self._epoch_size // self._batch_size

    def __getitem__(self, index):
        order = np.random.default_rng((self._seed, self.epoch))
        chosen = order.permutation(len(self._ids))
        chosen = chosen[index * self._batch_size : (index + 1) * self._batch_size]
        return self._ids[chosen], self._labels[chosen]


class FilledRows(keras.utils.PyDataset):
    """All rows in their own order, the last batch filled with rows of zeros.

    So every batch has one shape, and no row is left out.

    Args:
        ids: int32 array `(n, length)`.
        batch_size: Rows in a batch.
    """

    def __init__(self, ids, batch_size):
        super().__init__()
        self._ids = ids
        self._batch_size = batch_size

    def __len__(self):
        return -(-len(self._ids) // self._batch_size)

    def __getitem__(self, index):
        first = index * self._batch_size
        return (fill(self._ids[first : first + self._batch_size], self._batch_size),)


def fill(rows, number):
    """Add rows of zeros until there are `number`.

    Args:
        rows: Array `(n, ...)`, n <= number.
        number: Length of the result.

    Returns:
        Array `(number, ...)` of the same dtype.
    """
    missing = np.zeros((number - len(rows), *rows.shape[1:]), rows.dtype)
    return np.concatenate([rows, missing])
