"""Batches of images held in memory, the same on every backend.

The order and the augmentation of a batch follow from the seed, the epoch and the
index of the batch alone, so that runs with one seed see the same images whatever
backend trains and however often it asks for a batch.
"""

import keras
import numpy as np


class TrainingBatches(keras.utils.PyDataset):
    """Shuffled and augmented batches; an incomplete last batch is dropped.

    Set `epoch` at the start of each epoch (`training.fit` does).

    Args:
        images: uint8 array `(n, height, width, channels)`.
        labels: Integer array `(n,)`.
        num_classes: Length of the one-hot labels.
        batch_size: Images in a batch, at most n.
        seed: Integer; fixes order and augmentation.
        padding: Pixels of black added on each side before a random crop to the
            original size.
        flip: Whether half of the images are mirrored left to right.
    """

    def __init__(self, images, labels, num_classes, batch_size, seed, padding, flip):
        super().__init__()
        self.epoch = 0
        self._images = images
        self._labels = keras.utils.to_categorical(labels, num_classes)
        self._batch_size = batch_size
        self._seed = seed
        self._padding = padding
        self._flip = flip

    def __len__(self):
        return len(self._images) // self._batch_size

    def __getitem__(self, index):
        order = np.random.default_rng((self._seed, self.epoch))
        chosen = order.permutation(len(self._images))
        chosen = chosen[index * self._batch_size : (index + 1) * self._batch_size]
        rng = np.random.default_rng((self._seed, self.epoch, index))
        images = pad_and_crop(self._images[chosen], self._padding, rng)
        if self._flip:
            images = flip_some(images, rng)
        return images.astype("float32"), self._labels[chosen]


class EvaluationBatches(keras.utils.PyDataset):
    """All images in their own order, the last batch as long as it comes out.

    Args:
        images: uint8 array `(n, height, width, channels)`.
        labels: Integer array `(n,)`.
        num_classes: Length of the one-hot labels.
        batch_size: Images in a batch.
    """

    def __init__(self, images, labels, num_classes, batch_size):
        super().__init__()
        self._images = images
        self._labels = keras.utils.to_categorical(labels, num_classes)
        self._batch_size = batch_size

    def __len__(self):
        return -(-len(self._images) // self._batch_size)

    def __getitem__(self, index):
        rows = slice(index * self._batch_size, (index + 1) * self._batch_size)
        return self._images[rows].astype("float32"), self._labels[rows]


def pad_and_crop(images, padding, rng):
    """Add `padding` black pixels on each side, then crop at a random place.

    Args:
        images: Array `(n, height, width, channels)`.
        padding: Pixels; 0 returns the images.
        rng: `numpy.random.Generator`.

    Returns:
        Array of the same shape and dtype.
    """
    side = (padding, padding)
    padded = np.pad(images, ((0, 0), side, side, (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(
        padded, images.shape[1:3], axis=(1, 2)
    )  # (n, 2 padding + 1, 2 padding + 1, channels, height, width)
    top, left = rng.integers(0, 2 * padding + 1, (2, len(images)))
    return np.moveaxis(windows[np.arange(len(images)), top, left], 1, -1)


def flip_some(images, rng):
    """Mirror each image left to right with probability 1/2.

    Args:
        images: Array `(n, height, width, channels)`.
        rng: `numpy.random.Generator`.

    Returns:
        Array of the same shape and dtype.
    """
    mirrored = rng.random(len(images)) < 0.5
    return np.where(mirrored[:, None, None, None], images[:, :, ::-1], images)
