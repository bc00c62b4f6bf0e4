"""Labelled images by name, checked before anything trains on them."""

import dataclasses
from pathlib import Path

import keras
import numpy as np

from .batches import EvaluationBatches, TrainingBatches
from .checks import check_class_count, check_images, check_train_size
from .idx import read_idx_folder
from .photographs import Photographs
from .prepared import prepared_builder, read_arrays

DATASETS = (
    "digits",
    "fashion_mnist",
    "cifar10",
    "cifar100",
    "oxford_iiit_pet",
    "oxford_flowers102",
    "imagenet2012",
)

_NUM_PROBES = 64


@dataclasses.dataclass(frozen=True)
class ImageTask:
    """Images to train and to validate on.

    Attributes:
        name: Name of the data set.
        image_shape: `(height, width, channels)` in pixels.
        num_classes: Number of classes.
        num_train: Number of images an epoch draws from.
        num_validation: Number of images validation reads.
        train: Batches of float images (0 to 255) and one-hot labels; has an `epoch`
            that fixes order and augmentation.
        validation: Batches in a fixed order, without augmentation.
        probes: Validation images on which condition numbers are measured.
    """

    name: str
    image_shape: tuple
    num_classes: int
    num_train: int
    num_validation: int
    train: keras.utils.PyDataset
    validation: keras.utils.PyDataset
    probes: np.ndarray


@dataclasses.dataclass(frozen=True)
class _Small:
    """Shape of a small data set and how far its images may be moved."""

    image_shape: tuple
    num_classes: int
    padding: int
    flip: bool


_SMALL = {
    "digits": _Small((8, 8, 1), 10, padding=0, flip=False),
    "fashion_mnist": _Small((28, 28, 1), 10, padding=0, flip=True),
    "cifar10": _Small((32, 32, 3), 10, padding=4, flip=True),
    "cifar100": _Small((32, 32, 3), 100, padding=4, flip=True),
}


def load_images(
    name,
    data_dir,
    batch_size,
    image_size,
    seed,
    train_size=None,
    validation_size=None,
    evaluation_batch_size=500,
):
    """Load one of `DATASETS`, checked.

    Args:
        name: One of `DATASETS`. `"digits"` comes with scikit-learn; the others are
            read by tensorflow-datasets, `"fashion_mnist"` also from its four raw IDX
            files in `data_dir` or `data_dir/fashion_mnist`.
        data_dir: Folder of the data; `None` is the default of tensorflow-datasets.
        batch_size: Images in a training batch.
        image_size: Side in pixels to which the photographs of the large data sets
            (Pets, Flowers, ImageNet) are brought. The small ones keep their size.
        seed: Integer; fixes the subset, the order and the augmentation.
        train_size: Number of training images; `None` takes all.
        validation_size: Number of validation images; `None` takes all.
        evaluation_batch_size: Images in a validation batch of a small data set; those
            of photographs are as large as training batches.

    Returns:
        An `ImageTask`.

    Raises:
        ValueError: If the data are missing, damaged, not what their name promises, or
            fewer than asked for.
    """
    if name not in DATASETS:
        raise ValueError(f"dataset: got {name!r}, expected one of {DATASETS}.")
    arguments = (name, data_dir, batch_size, seed, train_size, validation_size)
    if name in _SMALL:
        return _load_small(*arguments, evaluation_batch_size)
    return _load_photographs(*arguments, image_size)


def _load_small(
    name, data_dir, batch_size, seed, train_size, validation_size, evaluation_batch_size
):
    small = _SMALL[name]
    splits, where = _read_small(name, data_dir)
    for split, (images, labels) in splits.items():
        place = f"{where}, {split}"
        check_images(images, labels, small.image_shape, small.num_classes, place)
        check_class_count(labels, small.num_classes, place)
    images, labels = splits["train"]
    num_train = check_train_size(train_size, len(images), batch_size, where)
    chosen = np.random.default_rng(seed).permutation(len(images))[:num_train]
    held_out, held_out_labels = (part[:validation_size] for part in splits["test"])
    return ImageTask(
        name=name,
        image_shape=small.image_shape,
        num_classes=small.num_classes,
        num_train=num_train,
        num_validation=len(held_out),
        train=TrainingBatches(
            images[chosen],
            labels[chosen],
            small.num_classes,
            batch_size,
            seed,
            small.padding,
            small.flip,
        ),
        validation=EvaluationBatches(
            held_out, held_out_labels, small.num_classes, evaluation_batch_size
        ),
        probes=held_out[:_NUM_PROBES].astype("float32"),
    )


def _load_photographs(
    name, data_dir, batch_size, seed, train_size, validation_size, image_size
):
    builder = prepared_builder(name, data_dir)
    photographs = Photographs(builder, image_size, batch_size)
    where = str(builder.data_dir)
    num_train = check_train_size(train_size, photographs.num_train, batch_size, where)
    num_validation = min(
        validation_size or photographs.num_validation, photographs.num_validation
    )
    train = photographs.training_batches(num_train, seed)
    validation = photographs.validation_batches(num_validation)
    shape = (image_size, image_size, 3)
    for split, batches in (("training", train), ("validation", validation)):
        try:
            images, labels = batches[0]
        except Exception as error:
            raise ValueError(
                f"{where}: the {split} images cannot be read "
                f"({type(error).__name__}: {error}). Prepare the data set again."
            ) from error
        classes = labels.argmax(axis=-1)
        place = f"{where}, {split}"
        check_images(images, classes, shape, photographs.num_classes, place)
    return ImageTask(
        name=name,
        image_shape=shape,
        num_classes=photographs.num_classes,
        num_train=num_train,
        num_validation=num_validation,
        train=train,
        validation=validation,
        probes=images[:_NUM_PROBES],
    )


def _read_small(name, data_dir):
    """The arrays of the training and the test split, and what to call their source."""
    if name == "digits":
        return _digits(), "scikit-learn's digits"
    if name == "fashion_mnist" and data_dir is not None:
        for folder in (Path(data_dir), Path(data_dir) / name):
            splits = read_idx_folder(folder)
            if splits is not None:
                return splits, str(folder)
    builder = prepared_builder(name, data_dir)
    splits = {split: read_arrays(builder, split) for split in ("train", "test")}
    return splits, str(builder.data_dir)


def _digits():
    """1,437 images to train and 360 to test, the same split for every seed."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = np.round(digits.images * (255 / 16)).astype("uint8")[..., None]
    order = np.random.default_rng(0).permutation(len(images))
    test, train = order[:360], order[360:]
    return {
        "train": (images[train], digits.target[train]),
        "test": (images[test], digits.target[test]),
    }
