r"""Store the raw IDX files of Fashion-MNIST as a tensorflow-datasets data set.

    apt-get install -y dataset-fashion-mnist
    python examples/prepare_fashion_mnist.py \
        --source /usr/share/datasets/fashion-mnist --data-dir DIR

tensorflow-datasets refuses files whose checksum differs from the original download,
Debian's among them, although the images in them are the same. Once stored,
`tfds.load("fashion_mnist", data_dir=DIR)` reads them like a download of its own. Takes
20 seconds and 40 MB.
"""

import argparse

from common.checks import check_class_count, check_images
from common.idx import read_idx_folder

# The version under which tensorflow-datasets 4.9 looks for the data set.
VERSION = "3.0.1"


def main(argv=None):
    """Run the script.

    Args:
        argv: Command-line arguments; `None` takes those of the process.
    """
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--source", required=True, help="folder of the four IDX files")
    parser.add_argument("--data-dir", required=True, help="folder to store them in")
    arguments = parser.parse_args(argv)

    splits = read_idx_folder(arguments.source)
    if splits is None:
        raise ValueError(
            f"--source: {arguments.source} holds none of the four IDX files, expected "
            "train-images-idx3-ubyte and its three companions, each with or without "
            ".gz. Debian has them in the package dataset-fashion-mnist."
        )
    for split, (images, labels) in splits.items():
        where = f"{arguments.source}, {split}"
        check_images(images, labels, (28, 28, 1), 10, where)
        check_class_count(labels, 10, where)
    print(f"Stored in {store(splits, arguments.data_dir)}")


def store(splits, data_dir):
    """Write the arrays with tensorflow-datasets' own tools.

    Args:
        splits: `{split: (images, labels)}`.
        data_dir: Folder of the prepared data sets.

    Returns:
        The folder of the data set.
    """
    import tensorflow_datasets as tfds

    features = tfds.features.FeaturesDict(
        {
            "image": tfds.features.Image(shape=(28, 28, 1)),
            "label": tfds.features.ClassLabel(num_classes=10),
        }
    )
    builder = tfds.dataset_builders.store_as_tfds_dataset(
        name="fashion_mnist",
        version=VERSION,
        features=features,
        split_datasets={
            split: [
                (index, {"image": image, "label": label})
                for index, (image, label) in enumerate(zip(*arrays, strict=True))
            ]
            for split, arrays in splits.items()
        },
        data_dir=data_dir,
        homepage="https://github.com/zalandoresearch/fashion-mnist",
    )
    return builder.data_dir


if __name__ == "__main__":
    main()
