"""One batch of random inputs and targets, as NumPy arrays.

Each function takes a `cases.Preset` and the number of examples.
"""

import numpy as np

MASKED_FRACTION = 0.15


def image_batch(preset, batch_size):
    """Images with values from 0 to 255, and their labels."""
    rng = np.random.default_rng(0)
    images = rng.uniform(0, 255, (batch_size, *preset.image_shape))
    labels = rng.integers(0, preset.num_outputs, batch_size)
    return images.astype("float32"), labels.astype("int32")


def text_batch(preset, batch_size):
    """Token ids and the ids that follow them."""
    rng = np.random.default_rng(0)
    shape = (batch_size, preset.num_tokens + 1)
    ids = rng.integers(0, preset.num_outputs, shape).astype("int32")
    return ids[:, :-1], ids[:, 1:]


def masked_batch(preset, batch_size):
    """Token ids without padding, the places to predict, and what stood there."""
    rng = np.random.default_rng(0)
    shape = (batch_size, preset.num_tokens)
    ids = rng.integers(1, preset.num_outputs, shape).astype("int32")
    num_places = max(1, int(MASKED_FRACTION * preset.num_tokens))
    places = np.argsort(rng.random(shape), axis=1)[:, :num_places].astype("int32")
    return {"ids": ids, "places": places}, np.take_along_axis(ids, places, axis=1)
