"""The folder of a run, and what is written into it."""

import importlib
import json
import math
import platform
from pathlib import Path

import keras

_OWN_FILES = ("results.json", "tokenizer.json", "*.png", "*.keras")


def new_run_folder(path, overwrite):
    """Create the folder of a run, empty of earlier results.

    Args:
        path: The folder.
        overwrite: Whether results of an earlier run in it may be deleted.

    Returns:
        The folder as a `pathlib.Path`.

    Raises:
        ValueError: If the folder holds anything and `overwrite` is false, or the path
            is a file.
    """
    folder = Path(path)
    if folder.exists() and not folder.is_dir():
        raise ValueError(
            f"--output: {folder} is a file, expected a folder. Choose another --output."
        )
    if folder.is_dir() and any(folder.iterdir()) and not overwrite:
        raise ValueError(
            f"--output: {folder} is not empty, expected a new or an empty folder. "
            "Choose another --output, or pass --overwrite to replace the results."
        )
    folder.mkdir(parents=True, exist_ok=True)
    for pattern in _OWN_FILES:
        for file in folder.glob(pattern):
            file.unlink()
    return folder


def write_results(path, results):
    """Write results as JSON, with infinite and undefined numbers as strings.

    Args:
        path: The file.
        results: Dictionaries, lists, strings and numbers.
    """
    text = json.dumps(without_infinities(results), indent=2, allow_nan=False)
    Path(path).write_text(text + "\n", encoding="utf-8")


def environment():
    """What the numbers depend on besides the arguments."""
    backend = keras.backend.backend()
    return {
        "backend": backend,
        backend: importlib.import_module(backend).__version__,
        "keras": keras.version(),
        "python": platform.python_version(),
        "machine": platform.machine(),
    }


def without_infinities(value):
    """Return a copy of nested results in which JSON can say every number.

    Args:
        value: Dictionaries, lists, tuples, strings and numbers.

    Returns:
        The same with `"inf"`, `"-inf"` and `"nan"` in place of such floats.
    """
    if isinstance(value, dict):
        return {key: without_infinities(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_infinities(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
