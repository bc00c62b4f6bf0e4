"""Command-line arguments that every training script has."""

import argparse

from .tokenization import TOKENIZERS

PRECISIONS = ("float32", "mixed_bfloat16", "mixed_float16")


def training_parser(
    description, presets, methods, epochs, batch_size, learning_rate, weight_decay
):
    """Parser with the arguments of a training run.

    Args:
        description: First line of the help text.
        presets: Names of the presets, `mini` among them.
        methods: Names of the methods, which are compared by default.
        epochs: Default number of passes over the training data.
        batch_size: Default number of examples in a batch.
        learning_rate: Default highest learning rate, reached after the warm-up.
        weight_decay: Default decoupled weight decay.

    Returns:
        An `argparse.ArgumentParser`, to which a script adds its own arguments.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    add = parser.add_argument
    add("--preset", default="mini", help=", ".join(presets))
    add("--method", default=",".join(methods), help="what to compare")
    add("--data-dir", help="folder of the data; default: tensorflow-datasets' own")
    add("--train-size", type=int, help="number of training examples; default: all")
    add("--epochs", type=int, default=epochs)
    add("--batch-size", type=int, default=batch_size)
    add("--learning-rate", type=float, default=learning_rate, help="highest rate")
    add("--weight-decay", type=float, default=weight_decay)
    add("--seed", type=int, default=0)
    add("--mixed-precision", default="float32", help=", ".join(PRECISIONS))
    add("--data-parallel", action="store_true", help="on all devices (JAX)")
    add("--output", help="folder of the results; default: named after the run")
    add("--overwrite", action="store_true", help="replace an earlier run's results")
    add("--smoke", action="store_true", help="a few seconds, to see that it runs")
    return parser


def add_text_arguments(parser):
    """Add the arguments that choose a text and its tokenizer.

    Args:
        parser: From `training_parser`.
    """
    add = parser.add_argument
    add("--dataset", default="wordnet")
    add("--text", help="a UTF-8 file or a folder of them, in place of a data set")
    add("--validation-text", help="the same to validate on; default: part of --text")
    add("--tokenizer", default="bpe", help=", ".join(TOKENIZERS))


def check_text_arguments(arguments):
    """Raise ValueError unless the arguments of `add_text_arguments` make sense.

    Args:
        arguments: What the parser returned.
    """
    check_choice("--tokenizer", arguments.tokenizer, TOKENIZERS)
    if arguments.validation_text is not None and arguments.text is None:
        raise ValueError(
            "--validation-text: got one without --text. Pass the training text too."
        )


def check_training_arguments(arguments, presets):
    """Raise ValueError unless the arguments of `training_parser` make sense.

    Args:
        arguments: What the parser returned.
        presets: Names of the presets.
    """
    for name in ("epochs", "batch_size", "train_size"):
        check_count(_flag(name), getattr(arguments, name))
    check_learning_rate("--learning-rate", arguments.learning_rate)
    if not 0 <= arguments.weight_decay < float("inf"):
        raise ValueError(
            f"--weight-decay: got {arguments.weight_decay}, expected a finite number "
            "from 0. A usual one is 0.05; 0 is none."
        )
    if arguments.seed < 0:
        raise ValueError(
            f"--seed: got {arguments.seed}, expected a whole number from 0."
        )
    check_choice("--preset", arguments.preset, presets)
    check_choice("--mixed-precision", arguments.mixed_precision, PRECISIONS)


def check_count(name, value):
    """Raise ValueError unless a number of things is at least 1, or None.

    Args:
        name: What the message calls the number.
        value: The number.
    """
    if value is not None and value < 1:
        raise ValueError(
            f"{name}: got {value}, expected a whole number from 1. Raise it."
        )


def check_learning_rate(name, value):
    """Raise ValueError unless a learning rate is finite and above 0.

    Args:
        name: What the message calls the rate.
        value: The rate.
    """
    if not 0 < value < float("inf"):
        raise ValueError(
            f"{name}: got {value}, expected a finite number above 0. A usual one is "
            "1e-3."
        )


def check_choice(name, value, choices):
    """Raise ValueError unless `value` is one of `choices`.

    Args:
        name: What the message calls the value.
        value: The value.
        choices: What it may be.
    """
    if value not in choices:
        raise ValueError(
            f"{name}: got {value!r}, expected one of {', '.join(choices)}."
        )


def parse_list(name, text, choices):
    """Split a comma-separated list, each part one of `choices`, none twice.

    Args:
        name: What the message calls the list.
        text: The list, as in `"baseline,conditioned_init"`.
        choices: What a part may be.

    Returns:
        List of strings in the order given.

    Raises:
        ValueError: If a part is unknown or given twice.
    """
    parts = [part.strip() for part in text.split(",")]
    for part in parts:
        check_choice(name, part, choices)
    if len(set(parts)) != len(parts):
        raise ValueError(f"{name}: got {text!r}, expected each part once.")
    return parts


def _flag(name):
    return "--" + name.replace("_", "-")
