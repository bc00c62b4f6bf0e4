r"""Make the tables and figures of docs/evidence.md from the lines of the experiments.

    python examples/experiments/analyse.py
    python examples/experiments/analyse.py fashion_mnist

The numbers come from results/*.jsonl alone. Tables go into the marked blocks of
docs/evidence.md, figures into docs/images/evidence-EXPERIMENT-*.png.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from common.document import fill_blocks, read_blocks
from experiments.declaration import FOLDER, read_experiments
from experiments.lines import path_of, read_lines
from experiments.markdown import (
    arm_table,
    block_table,
    measurement_table,
    score_table,
    status,
    tuning_table,
    verdict_table,
)
from experiments.summary import summarize

RESULTS = FOLDER / "results"
# The block of the table, and the experiments in its columns.
VERDICTS = "verdicts"
JUDGED = (
    "fashion_mnist",
    "fashion_mnist_full",
    "wordnet_gpt",
    "wordnet_bert",
    "listops",
)
DOCS = FOLDER.parent.parent / "docs"


def main(argv=None):
    """Run the script.

    Args:
        argv: Command-line arguments; `None` takes those of the process.
    """
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("experiments", nargs="*", help="names; default: all with lines")
    arguments = parser.parse_args(argv)
    document = DOCS / "evidence.md"
    text = document.read_text(encoding="utf-8")
    names = arguments.experiments or sorted(p.stem for p in RESULTS.glob("*.jsonl"))
    wanted = read_blocks(text).keys()
    for name in names:
        experiment = read_experiments(name)[0]
        lines = complete_lines(experiment, RESULTS)
        blocks = make_blocks(experiment, lines)
        text = fill_blocks(text, {k: v for k, v in blocks.items() if k in wanted})
        draw(experiment, lines, DOCS / "images")
        print(f"{name}: {status(experiment, lines)}")
    text = fill_blocks(text, {VERDICTS: make_verdicts(RESULTS)})
    document.write_text(text, encoding="utf-8")


def complete_lines(experiment, folder):
    """Read the lines of an experiment.

    Args:
        experiment: An `Experiment`.
        folder: Folder of the results.

    Returns:
        List of dicts.

    Raises:
        ValueError: If the last line is cut off.
    """
    path = path_of(folder, experiment)
    lines, torn = read_lines(path)
    if torn:
        raise ValueError(
            f"{path}: the last line is cut off after {len(torn)} characters. Let "
            "run.py repeat its run, or remove it."
        )
    return lines


def make_blocks(experiment, lines):
    """Return block name -> Markdown, all from the lines."""
    name = experiment.name
    rows = summarize(experiment, lines)
    tables = {
        "scores": score_table(experiment, rows),
        "measurements": measurement_table(rows),
        "blocks": block_table(rows),
    }
    return {
        f"{name} status": status(experiment, lines),
        f"{name} arms": arm_table(experiment),
        f"{name} tuning": tuning_table(experiment, lines),
        **{
            f"{name} {which}": table if rows else "No results yet."
            for which, table in tables.items()
        },
    }


def make_verdicts(folder):
    """Return the table of verdicts on the experiments that have lines in a folder."""
    summaries = []
    for name in JUDGED:
        experiment = read_experiments(name)[0]
        rows = summarize(experiment, complete_lines(experiment, folder))
        if rows:
            summaries.append((experiment, rows))
    return verdict_table(summaries)


def draw(experiment, lines, folder):
    """Write the figures of an experiment into a folder."""
    from experiments.figures import plot_differences, plot_training

    rows = summarize(experiment, lines)
    if len(rows) > 1:
        folder.mkdir(parents=True, exist_ok=True)
        stem = f"evidence-{experiment.name}"
        plot_differences(folder / f"{stem}-differences.png", experiment, rows)
        plot_training(folder / f"{stem}-training.png", experiment, rows)


if __name__ == "__main__":
    main()
