"""Splits of a data set into training and validation examples."""

import numpy as np


def split_by_text(texts, fraction=0.1, seed=0):
    """Split examples at random so that no text is on both sides.

    Args:
        texts: The text of each example. Examples of one text, up to case and spaces,
            stay together.
        fraction: Part of the different texts that validates, at least one of them.
        seed: Integer. The split depends on it and on the texts alone.

    Returns:
        `(train, validation)`: integer arrays of indices into `texts`, shuffled.
    """
    keys = [text_key(text) for text in texts]
    _, groups = np.unique(np.array(keys, dtype=object), return_inverse=True)
    rng = np.random.default_rng(seed)
    num_groups = groups.max() + 1
    held_out = np.zeros(num_groups, bool)
    held_out[rng.permutation(num_groups)[: max(1, round(fraction * num_groups))]] = True
    order = rng.permutation(len(keys))
    validates = held_out[groups[order]]
    return order[~validates], order[validates]


def text_key(text):
    """Return what texts share that are equal up to case and spaces."""
    return " ".join(text.lower().split())
