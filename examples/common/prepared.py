"""Data sets that tensorflow-datasets keeps on disk."""

import numpy as np

_READ_AT_ONCE = 1024


def prepared_builder(name, data_dir):
    """Return the builder of a data set that is ready to be read.

    Args:
        name: Name of the data set in tensorflow-datasets.
        data_dir: Folder that holds the prepared data set. `None` is the default
            folder of tensorflow-datasets, into which the data set is downloaded if it
            is not there yet.

    Returns:
        A `tensorflow_datasets.core.DatasetBuilder` whose files are there and not
        shorter than the examples that were written to them.

    Raises:
        ValueError: If the data set is neither there nor can be fetched, or a file of
            it is missing or truncated.
    """
    import tensorflow_datasets as tfds

    try:
        builder = tfds.builder(name, data_dir=data_dir)
        if data_dir is None:
            builder.download_and_prepare()
    except Exception as error:
        raise ValueError(
            f"data set {name!r}: fetching it failed ({type(error).__name__}: {error}). "
            + _how_to_prepare(name)
        ) from error
    if not builder.is_prepared():
        raise ValueError(
            f"data set {name!r}: not found, expected it prepared in "
            f"{builder.data_dir}. " + _how_to_prepare(name)
        )
    for split in builder.info.splits.values():
        _check_files(split)
    return builder


def read_arrays(builder, split):
    """Read one split of an image data set into memory.

    Args:
        builder: From `prepared_builder`; its examples have an image and a label.
        split: Name of the split.

    Returns:
        Images `(n, height, width, channels)` and labels `(n,)`.

    Raises:
        ValueError: If a file is damaged.
    """
    import tensorflow_datasets as tfds

    try:
        dataset = builder.as_dataset(split=split, as_supervised=True)
        images, labels = zip(*tfds.as_numpy(dataset), strict=True)
        return np.stack(images), np.stack(labels)
    except Exception as error:
        raise _unreadable(builder, split, error) from error


def read_texts(builder, split):
    """Read the texts of one split, one at a time.

    Args:
        builder: From `prepared_builder`; its examples have a text.
        split: Name of the split.

    Yields:
        Strings, in the order of the files.

    Raises:
        ValueError: If a file is damaged or a text is not UTF-8.
    """
    import tensorflow_datasets as tfds

    try:
        for example in tfds.as_numpy(builder.as_dataset(split=split)):
            yield example["text"].decode("utf-8")
    except Exception as error:
        raise _unreadable(builder, split, error) from error


def read_labelled_texts(builder, split, text_features):
    """Read the texts and labels of one split into memory.

    Args:
        builder: From `prepared_builder`; its examples have a label.
        split: Name of the split.
        text_features: Names of the texts of an example.

    Returns:
        List of tuples of strings, one for each name, and labels `(n,)`, in the order
        of the files.

    Raises:
        ValueError: If the examples lack a feature, a file is damaged, or a text is
            not UTF-8.
    """
    import tensorflow_datasets as tfds

    expected = {*text_features, "label"}
    if not expected <= set(builder.info.features):
        raise ValueError(
            f"{builder.data_dir}: got examples with {sorted(builder.info.features)}, "
            f"expected {sorted(expected)}. Prepare the data set again."
        )
    texts, labels = [], []
    try:
        dataset = builder.as_dataset(split=split, batch_size=_READ_AT_ONCE)
        for batch in tfds.as_numpy(dataset):
            columns = (batch[name] for name in text_features)
            for example in zip(*columns, strict=True):
                texts.append(tuple(text.decode("utf-8") for text in example))
            labels.append(batch["label"])
        return texts, np.concatenate(labels)
    except Exception as error:
        raise _unreadable(builder, split, error) from error


def _unreadable(builder, split, error):
    return ValueError(
        f"{builder.data_dir}: split {split!r} cannot be read "
        f"({type(error).__name__}: {error}). Prepare the data set again."
    )


def _how_to_prepare(name):
    return (
        f"Run `tfds build {name} --data_dir DIR` where there is a network, copy DIR "
        "here and pass it as --data-dir."
    )


def _check_files(split):
    """Raise if a file of a split is missing or shorter than its examples."""
    missing = [path for path in split.filepaths if not path.exists()]
    if missing:
        raise ValueError(
            f"{missing[0]}: not there, expected the {split.num_shards} files of split "
            f"{split.name!r}. Prepare the data set again."
        )
    length = sum(path.stat().length for path in split.filepaths)
    if length < split.num_bytes:
        raise ValueError(
            f"{split.filepaths[0].parent}: split {split.name!r} holds {length} bytes, "
            f"expected at least {split.num_bytes}. A file is truncated: prepare the "
            "data set again."
        )
