"""Reader of IDX files, the format MNIST and Fashion-MNIST are published in.

A file holds four bytes (0, 0, 8 for unsigned bytes, the number of axes), the length
of each axis as a big-endian 32-bit integer, and the values
(https://github.com/zalandoresearch/fashion-mnist). It may be gzipped.
"""

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy as np

_UNSIGNED_BYTES = 8
_FILES = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}


def read_idx(path, num_axes):
    """Read one IDX file of unsigned bytes, gzipped where its name ends in `.gz`.

    Args:
        path: The file.
        num_axes: Number of axes it must have: 3 for images, 1 for labels.

    Returns:
        A uint8 array of `num_axes` axes.

    Raises:
        ValueError: If the file is not gzip, not IDX, of another number of axes,
            truncated or too long. The message names the file.
    """
    path = Path(path)
    try:
        opener = gzip.open if path.suffix == ".gz" else open
        with opener(path, "rb") as file:
            content = file.read()
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(
            f"{path}: cannot be read ({error}). Expected a whole IDX file, gzipped "
            "where its name ends in .gz. Fetch the file again."
        ) from error
    magic = bytes((0, 0, _UNSIGNED_BYTES, num_axes))
    if content[:4] != magic:
        raise ValueError(
            f"{path}: starts with {content[:4].hex(' ')}, expected {magic.hex(' ')} "
            f"(IDX, unsigned bytes, {num_axes} axes). Fetch the file again."
        )
    header = 4 + 4 * num_axes
    if len(content) < header:
        raise ValueError(
            f"{path}: holds {len(content)} bytes, expected at least the {header} of "
            "an IDX header. Fetch the file again."
        )
    shape = struct.unpack(f">{num_axes}I", content[4:header])
    if len(content) - header != math.prod(shape):
        raise ValueError(
            f"{path}: holds {len(content) - header} values, expected "
            f"{math.prod(shape)} for the shape {shape} in its header. Fetch the file "
            "again."
        )
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)


def read_idx_folder(folder):
    """Read the four files of Fashion-MNIST from one folder, gzipped or not.

    Args:
        folder: The folder, with the published file names.

    Returns:
        `{"train": (images, labels), "test": (images, labels)}`, uint8 arrays of
        shapes `(n, height, width, 1)` and `(n,)`; `None` if the folder holds none of
        the files.

    Raises:
        ValueError: If some of the files are missing or one of them is damaged.
    """
    folder = Path(folder)
    names = [name for pair in _FILES.values() for name in pair]
    found = {name: _find(folder, name) for name in names}
    missing = [name for name, path in found.items() if path is None]
    if len(missing) == len(names):
        return None
    if missing:
        raise ValueError(
            f"{folder}: lacks {', '.join(missing)}, expected the four files "
            f"{', '.join(names)}, each with or without .gz. Add the missing ones."
        )
    return {
        split: (read_idx(found[images], 3)[..., None], read_idx(found[labels], 1))
        for split, (images, labels) in _FILES.items()
    }


def _find(folder, name):
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            return path
    return None
