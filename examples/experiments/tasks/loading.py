"""The task that a configuration names."""

from . import images, language, listops, masked

KINDS = {
    "images": images.load,
    "language": language.load,
    "masked": masked.load,
    "listops": listops.load,
}


def load_task(configuration):
    """Load the task of a run.

    Args:
        configuration: See `declaration.Experiment.configuration`.

    Returns:
        A `task.Task`.

    Raises:
        ValueError: If its kind is unknown or its data cannot be had.
    """
    kind = configuration["task"]["kind"]
    if kind not in KINDS:
        raise ValueError(f"task: got the kind {kind!r}, expected one of {list(KINDS)}.")
    return KINDS[kind](configuration)
