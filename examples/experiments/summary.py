"""What the lines of an experiment say about each of its arms."""

import dataclasses
import math

import numpy as np

from .declaration import DEFAULT, Arm
from .lines import key_of, number
from .plan import all_runs, learning_rate_of
from .statistics import Estimate, epochs_to_reach, estimate, paired


@dataclasses.dataclass(frozen=True)
class Row:
    """One arm.

    Attributes:
        arm: The `Arm`.
        learning_rate: What it was trained with.
        tuned: Whether that was chosen for this arm.
        diverged: Number of seeds with a loss that is not finite; they are in no mean.
        score: `Estimate` of the test score.
        to_default: Paired `Estimate` of its difference to the default.
        to_control: The same to the arm's own control; `None` if it has none.
        also: Name -> `Estimate` of further test scores.
        epochs: Median over seeds of the epochs until the validation score is what
            the default's is at the end with that seed.
        measurements: Name -> list over epochs, from 0, of the median over seeds.
        curve: Mean validation score after each epoch.
    """

    arm: Arm
    learning_rate: float
    tuned: bool
    diverged: int
    score: Estimate
    to_default: Estimate
    to_control: Estimate | None
    also: dict
    epochs: float
    measurements: dict
    curve: list


def summarize(experiment, lines):
    """Return the rows of the arms that have results, in the order of the file.

    Args:
        experiment: An `Experiment`.
        lines: What `lines.read_lines` returned.

    Returns:
        List of `Row`.
    """
    by_arm = results(experiment, lines)
    finite = {
        name: {seed: line for seed, line in some.items() if not line["diverged"]}
        for name, some in by_arm.items()
    }
    scores = {
        name: {seed: score_of(line, experiment.score) for seed, line in some.items()}
        for name, some in finite.items()
    }
    tunes = len(experiment.learning_rates) > 1
    rows = []
    for arm in experiment.arms:
        if not by_arm[arm.name]:
            continue
        own, used = scores[arm.name], finite[arm.name]
        control = None
        if arm.control is not None:
            control = paired(own, scores[arm.control])
        rows.append(
            Row(
                arm=arm,
                learning_rate=learning_rate_of(experiment, lines, arm.name),
                tuned=tunes and arm.main,
                diverged=len(by_arm[arm.name]) - len(used),
                score=estimate(own.values()),
                to_default=paired(own, scores[DEFAULT]),
                to_control=control,
                also={
                    name: estimate(score_of(line, name) for line in used.values())
                    for name in experiment.also
                },
                epochs=_epochs(experiment, used, finite[DEFAULT]),
                measurements=_measurements(used),
                curve=_curve(experiment, used),
            )
        )
    return rows


def results(experiment, lines):
    """Return arm -> seed -> line, of the results that the file declares now."""
    by_key = {key_of(line["configuration"]): line for line in lines}
    found = {arm.name: {} for arm in experiment.arms}
    for run in all_runs(experiment, lines):
        if run.purpose != "result" or run.configuration is None:
            continue
        line = by_key.get(key_of(run.configuration))
        if line is not None:
            found[run.arm.name][run.seed] = line
    return found


def score_of(line, name):
    """Return a test score of a line; the perplexity is that of its loss."""
    if name == "perplexity":
        return math.exp(number(line["test"]["loss"]))
    return number(line["test"][name])


def _epochs(experiment, used, defaults):
    key = f"val_{experiment.score}"
    numbers = [
        epochs_to_reach(
            line["curves"][key],
            defaults[seed]["curves"][key][-1],
            experiment.higher_is_better,
        )
        for seed, line in used.items()
        if seed in defaults
    ]
    return float(np.median(numbers)) if numbers else math.nan


def _measurements(used):
    names = dict.fromkeys(n for line in used.values() for n in line["measurements"])
    return {
        name: np.median(
            [[number(v) for v in line["measurements"][name]] for line in used.values()],
            axis=0,
        ).tolist()
        for name in names
    }


def _curve(experiment, used):
    curves = [line["curves"][f"val_{experiment.score}"] for line in used.values()]
    return np.mean(curves, axis=0).tolist() if curves else []
