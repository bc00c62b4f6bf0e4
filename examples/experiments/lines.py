"""Results as lines of JSON: one for each finished run, appended and never changed."""

import json
import os
from pathlib import Path

from common.runs import without_infinities


def path_of(folder, experiment):
    """Return the file of an experiment's lines.

    Args:
        folder: The folder of the results.
        experiment: A `declaration.Experiment`.
    """
    return Path(folder) / f"{experiment.name}.jsonl"


def key_of(configuration):
    """Return a configuration as text that is equal where all of it is equal."""
    return json.dumps(configuration, sort_keys=True)


def read_lines(path):
    """Read the lines of a file.

    Args:
        path: The file; one that is not there has no lines.

    Returns:
        `(lines, torn)`: a list of dicts, and what a killed process left of a last
        line, `""` if nothing.

    Raises:
        ValueError: If a line other than the last is damaged, or two have the same
            configuration.
    """
    path = Path(path)
    content = path.read_bytes().decode("utf-8", "replace") if path.exists() else ""
    *complete, torn = content.split("\n")
    lines, seen = [], {}
    for number, text in enumerate(complete, start=1):
        try:
            line = json.loads(text)
            key = key_of(line["configuration"])
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"{path}: line {number} is damaged ({type(error).__name__}: {error}), "
                "expected the JSON of one run. Restore the file from its history."
            ) from error
        if key in seen:
            raise ValueError(
                f"{path}: lines {seen[key]} and {number} are of the same run. Remove "
                "the later one; let one process alone write."
            )
        seen[key] = number
        lines.append(line)
    return lines, torn


def append_line(path, line):
    """Append one line, in one write, and wait until it is on the disk.

    What a killed process left of a last line is cut off first: it is no run.

    Args:
        path: The file; it and its folder are created if need be.
        line: Dict of what JSON can say; infinite numbers become strings.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(without_infinities(line), allow_nan=False) + "\n"
    with open(path, "ab+") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        whole = file.read().rfind(b"\n") + 1
        if whole != size:
            file.truncate(whole)
        file.write(text.encode())
        file.flush()
        os.fsync(file.fileno())


def number(value):
    """Return a number of a line as a float, `"inf"` and `"nan"` too."""
    return float(value)
