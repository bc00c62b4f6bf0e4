"""Checks of data and arguments that run before anything trains."""

import numpy as np

_FETCH_AGAIN = "Fetch or prepare the data set again."


def check_images(images, labels, image_shape, num_classes, where):
    """Raise unless images and labels are what a data set promises.

    Args:
        images: Array `(n, *image_shape)`, uint8 or finite floats.
        labels: Array `(n,)` of integers from 0 to `num_classes - 1`.
        image_shape: `(height, width, channels)` in pixels.
        num_classes: Number of classes.
        where: What the message calls the data: a path and a split.

    Raises:
        ValueError: If a shape, dtype or value is wrong.
    """
    if images.shape[1:] != tuple(image_shape) or images.dtype.kind not in "uf":
        raise ValueError(
            f"{where}: got images of shape {images.shape[1:]} and dtype "
            f"{images.dtype}, expected {tuple(image_shape)} and numbers from 0 to 255. "
            f"{_FETCH_AGAIN}"
        )
    if not np.isfinite(images).all():
        raise ValueError(
            f"{where}: got NaN or infinite pixels, expected numbers from 0 to 255. "
            f"{_FETCH_AGAIN}"
        )
    if labels.shape != images.shape[:1] or labels.dtype.kind not in "iu":
        raise ValueError(
            f"{where}: got labels of shape {labels.shape} and dtype {labels.dtype} for "
            f"{len(images)} images, expected one integer an image. {_FETCH_AGAIN}"
        )
    if len(images) == 0:
        raise ValueError(f"{where}: got no images. {_FETCH_AGAIN}")
    if labels.min() < 0 or labels.max() >= num_classes:
        raise ValueError(
            f"{where}: got labels from {labels.min()} to {labels.max()}, expected 0 to "
            f"{num_classes - 1}. {_FETCH_AGAIN}"
        )


def check_class_count(labels, num_classes, where):
    """Raise unless every class occurs.

    Args:
        labels: Array `(n,)` of integers.
        num_classes: Number of classes there must be.
        where: What the message calls the data: a path and a split.

    Raises:
        ValueError: If a class is missing.
    """
    found = len(np.unique(labels))
    if found != num_classes:
        raise ValueError(
            f"{where}: got {found} classes, expected {num_classes}. {_FETCH_AGAIN}"
        )


def check_train_size(train_size, available, batch_size, where, what="images"):
    """Return the number of training examples, or raise if it cannot be had.

    Args:
        train_size: Number asked for; `None` is all.
        available: Number there are.
        batch_size: Examples in a batch; one batch must be filled.
        where: What the message calls the data.
        what: What the message calls the examples.

    Returns:
        The number of training examples.

    Raises:
        ValueError: If more are asked for than there are, or a batch is not filled.
    """
    if train_size is not None and train_size > available:
        raise ValueError(
            f"train size: got {train_size}, expected at most the {available} training "
            f"{what} of {where}. Lower it, or leave it out to take all."
        )
    num_train = available if train_size is None else train_size
    if batch_size > num_train:
        raise ValueError(
            f"batch size: got {batch_size}, expected at most the {num_train} training "
            f"{what}. Lower the batch size or raise the training size."
        )
    return num_train


def check_labelled_texts(texts, labels, highest, where):
    """Raise unless texts and labels are what a data set promises.

    Args:
        texts: List of tuples of strings. One in a thousand may be blank: two of QQP's
            questions are published so.
        labels: Array `(n,)` of numbers from 0 to `highest`.
        highest: The highest label: an integer for classes, a float for scores.
        where: What the message calls the data: a path and a split.

    Raises:
        ValueError: If there are no examples, texts are blank, or a label is wrong.
    """
    if not texts:
        raise ValueError(f"{where}: got no examples. {_FETCH_AGAIN}")
    for place, column in enumerate(zip(*texts, strict=True), start=1):
        num_blank = sum(not text.strip() for text in column)
        if num_blank > len(texts) / 1000:
            raise ValueError(
                f"{where}: got {num_blank} blank texts in place {place} of "
                f"{len(texts)} examples, expected text. {_FETCH_AGAIN}"
            )
    kinds, what = ("f", "floats") if isinstance(highest, float) else ("iu", "integers")
    # Written so that NaN is out of range.
    in_range = labels.min() >= 0 and labels.max() <= highest
    if labels.dtype.kind not in kinds or not in_range:
        raise ValueError(
            f"{where}: got labels of dtype {labels.dtype} from {labels.min()} to "
            f"{labels.max()}, expected {what} from 0 to {highest} (-1 marks a split "
            f"without labels). {_FETCH_AGAIN}"
        )
