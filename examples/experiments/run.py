r"""Make the runs of an experiment that are not made yet.

    python examples/experiments/run.py fashion_mnist --dry-run
    python examples/experiments/run.py fashion_mnist

An experiment is declared by a file beside this one. Each finished run appends one line
to results/EXPERIMENT.jsonl; a killed one leaves nothing, and the next call goes on
behind it. A line counts as long as the file declares just its configuration; lines of
another one stay where they are and are named. `--limit-seconds` ends before the run
that would exceed it; all times are those of the processor. `--scale paper` has the
settings of the papers, for GPUs and data that tensorflow-datasets downloads.

The backend is PyTorch unless KERAS_BACKEND says otherwise: it is the fastest on one CPU
core for models of this size. All lines of a file are of one backend.
"""

import argparse
import os
import sys
import time
from pathlib import Path

os.environ.setdefault("KERAS_BACKEND", "torch")
sys.path.insert(0, str(Path(__file__).parent.parent))

from experiments.declaration import FOLDER, names, read_experiments
from experiments.lines import append_line, path_of, read_lines
from experiments.plan import estimated_seconds, remaining, stale

RESULTS = FOLDER / "results"


def main(argv=None):
    """Run the script.

    Args:
        argv: Command-line arguments; `None` takes those of the process.
    """
    arguments = parse_arguments(argv)
    for experiment in read_experiments(
        arguments.experiment, arguments.scale, arguments.folder
    ):
        path = path_of(arguments.results, experiment)
        lines = report_state(experiment, path)
        if arguments.dry_run:
            list_runs(experiment, lines, arguments.arms)
        else:
            make_runs(experiment, path, arguments)


def parse_arguments(argv):
    """Read and check the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("experiment", help=", ".join(names()))
    add("--dry-run", action="store_true", help="list what is left, and its time")
    add("--arms", help="names of arms, separated by commas; default: all")
    add("--limit-seconds", type=float, default=float("inf"))
    add("--scale", default="here", help="here or paper")
    add("--results", default=RESULTS, help="folder of the lines")
    add("--folder", default=FOLDER, help="folder of the experiments' files")
    arguments = parser.parse_args(argv)
    if not arguments.limit_seconds > 0:
        raise ValueError(
            f"--limit-seconds: got {arguments.limit_seconds}, expected a number above "
            "0."
        )
    if arguments.arms is not None:
        arguments.arms = arguments.arms.split(",")
        for experiment in read_experiments(
            arguments.experiment, arguments.scale, arguments.folder
        ):
            for name in arguments.arms:
                experiment.arm(name)
    return arguments


def report_state(experiment, path):
    """Print what is wrong with the lines that there are, and return them."""
    lines, torn = read_lines(path)
    if torn:
        print(
            f"{path}: the last line ends after {len(torn)} characters: a run was "
            "killed while it wrote. It counts as not made."
        )
    old = stale(experiment, lines)
    if old:
        arms = sorted({line["arm"] for line in old})
        print(
            f"{path}: {len(old)} lines are of a configuration that {experiment.name} "
            f"does not declare (any more): {', '.join(arms)}. They are not used."
        )
    return lines


def list_runs(experiment, lines, arms):
    """Print the runs that are left, with their estimated time."""
    runs = remaining(experiment, lines, arms)
    if not runs:
        print(f"{experiment.name}: nothing is left to run ({len(lines)} lines).")
        return
    seconds = estimated_seconds(experiment, lines, runs)
    for run, estimate in zip(runs, seconds, strict=True):
        rate = "not chosen yet" if run.learning_rate is None else run.learning_rate
        print(
            f"{run.purpose:6} seed {run.seed:<4} {run.arm.name:28} learning rate "
            f"{rate:<14} {estimate:6.0f} s"
        )
    print(
        f"{experiment.name}: {len(runs)} runs are left, {len(lines)} lines are there; "
        f"about {duration(sum(seconds))}."
    )


def make_runs(experiment, path, arguments):
    """Make the runs that are left, until there is none or the time is up."""
    start = time.process_time()
    made = 0
    while True:
        lines, _ = read_lines(path)
        runs = remaining(experiment, lines, arguments.arms)
        if not runs:
            print(f"{experiment.name}: nothing is left to run ({len(lines)} lines).")
            return
        seconds = estimated_seconds(experiment, lines, runs)
        spent = time.process_time() - start
        if spent + seconds[0] > arguments.limit_seconds:
            print(
                f"{experiment.name}: {made} runs made in {duration(spent)}, "
                f"{len(runs)} are left: about {duration(sum(seconds))}."
            )
            return
        show_progress(made, runs, sum(seconds))
        check_backend(lines, path)
        from experiments.trial import train

        append_line(path, train(experiment, runs[0]))
        made += 1


def check_backend(lines, path):
    """Raise ValueError unless this process has the backend of the lines."""
    import keras

    for line in lines:
        backend = line["environment"]["backend"]
        if backend != keras.backend.backend():
            raise ValueError(
                f"{path}: holds lines of {backend}, got the backend "
                f"{keras.backend.backend()}; the same seed gives other weights there. "
                f"Set KERAS_BACKEND={backend}, or pass another folder as --results."
            )


def show_progress(made, runs, seconds):
    """Draw a bar on a terminal; print a line elsewhere."""
    total = made + len(runs)
    run = runs[0]
    text = (
        f"{made}/{total}, {duration(seconds)} left: {run.purpose}, {run.arm.name}, "
        f"seed {run.seed}, learning rate {run.learning_rate}"
    )
    if sys.stdout.isatty():
        filled = 20 * made // total
        print(f"\r\033[K[{'#' * filled:20}] {text}", end="\n" * (len(runs) == 1))
    else:
        print(text, flush=True)


def duration(seconds):
    """Seconds as text: `"50 s"`, `"12 min"`, `"3.4 h"`."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


if __name__ == "__main__":
    main()
