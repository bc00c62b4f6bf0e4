"""Command-line arguments of the benchmarks; imported before Keras is."""

import argparse
import importlib
import os
import sys
from pathlib import Path

from common.arguments import PRECISIONS, check_choice

# The ways to run that a backend has; the first is what Keras itself chooses where
# there is a GPU (without one, TensorFlow runs the plain graph).
MODES = {
    "tensorflow": ("jit", "graph", "eager"),
    "jax": ("jit", "eager"),
    "torch": ("eager", "jit"),
}


def benchmark_parser(description, pairs):
    """Parser with the arguments that every benchmark has.

    Args:
        description: First line of the help text.
        pairs: Default number of measurements.

    Returns:
        An `argparse.ArgumentParser`, to which a script adds its own arguments.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    add = parser.add_argument
    add("--backend", help=f"{', '.join(MODES)}; default: Keras' own choice")
    add("--mode", help="jit (XLA), graph or eager; default: jit, on torch eager")
    add("--mixed-precision", default="float32", help=", ".join(PRECISIONS))
    add("--pairs", type=int, default=pairs, help="number of timed measurements")
    add("--without-memory", action="store_true", help="time alone, no child processes")
    add("--json", help="file of the numbers; the picture is beside it, as .png")
    add("--overwrite", action="store_true", help="replace earlier files of that name")
    add("--smoke", action="store_true", help="a few seconds, to see that it runs")
    return parser


def case_parser(description, preset, batch_size):
    """`benchmark_parser` with the arguments that choose cases.

    Args:
        description: First line of the help text.
        preset: Default models.
        batch_size: Default number of examples in a step.
    """
    parser = benchmark_parser(description, pairs=20)
    add = parser.add_argument
    add("--preset", default=preset, help="models, as in cases.py")
    add("--cases", default="table", help="table, all, or methods as in methods.py")
    add("--batch-size", type=int, default=batch_size, help="None: as in cases.py")
    return parser


def start(arguments, name):
    """Check the common arguments, choose the backend and the files of a run.

    `arguments.mode` and `arguments.json` are filled in where they were left out.

    Args:
        arguments: What a `benchmark_parser` returned.
        name: Name of the benchmark, in the default path of the numbers.

    Raises:
        ValueError: If an argument makes no sense, Keras runs on another backend
            already, or a file of the run exists and is not to be overwritten.
    """
    check_choice("--mixed-precision", arguments.mixed_precision, PRECISIONS)
    for option in ("pairs", "batch_size", "minutes"):
        value = getattr(arguments, option, None)
        if value is not None and value < 1:
            raise ValueError(
                f"--{option.replace('_', '-')}: got {value}, expected a whole number "
                "from 1. Raise it."
            )
    backend = choose_backend(arguments.backend)
    modes = MODES[backend]
    arguments.mode = arguments.mode or modes[0]
    check_choice(f"--mode on {backend}", arguments.mode, modes)
    arguments.json = Path(arguments.json or f"runs/{name}-{backend}.json")
    for file in (arguments.json, picture_of(arguments.json)):
        if file.exists() and not arguments.overwrite:
            raise ValueError(
                f"--json: {file} exists. Choose another --json, or pass --overwrite to "
                "replace it."
            )
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    importlib.import_module("keras").config.set_dtype_policy(arguments.mixed_precision)
    importlib.import_module("benchmarks.backends").flush_denormals()


def choose_backend(name):
    """Make Keras use a backend, or raise ValueError if it is too late for that.

    Args:
        name: `"tensorflow"`, `"jax"`, `"torch"`, or `None` for Keras' own choice.

    Returns:
        Name of the backend.
    """
    if name is not None:
        check_choice("--backend", name, MODES)
        if "keras" not in sys.modules:
            os.environ["KERAS_BACKEND"] = name
    found = importlib.import_module("keras").backend.backend()
    if name not in (None, found):
        raise ValueError(
            f"--backend: got {name!r}, but Keras runs on {found!r} in this process "
            "already. Start a new process."
        )
    check_choice("backend of Keras", found, MODES)
    return found


def picture_of(json_file):
    """Path of the picture beside a file of numbers."""
    return Path(json_file).with_suffix(".png")
