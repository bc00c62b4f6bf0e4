"""Which runs of an experiment are left, in which order, and how long they take."""

import dataclasses
import math

from .declaration import DEFAULT, Arm
from .lines import key_of, number


@dataclasses.dataclass(frozen=True)
class Run:
    """One training.

    Attributes:
        arm: The `Arm`.
        purpose: `"tuning"`, to choose a learning rate, or `"result"`.
        seed: Seed of weights, subset and order of the data.
        learning_rate: Highest learning rate; `None` until it is chosen.
        configuration: What the run depends on; `None` until the rate is chosen.
    """

    arm: Arm
    purpose: str
    seed: int
    learning_rate: float | None
    configuration: dict | None


def all_runs(experiment, lines, arms=None):
    """Return the runs of an experiment, in the order in which they should be made.

    First those that choose the learning rates of the main arms; then, one seed after
    another, the main arms and the others. So whenever it ends, what there is compares.

    Args:
        experiment: An `Experiment`.
        lines: What `lines.read_lines` returned.
        arms: Names of the arms to run; `None` runs all. The default's learning rate is
            chosen in any case, since the others need it.

    Returns:
        List of `Run`.
    """
    wanted = [arm for arm in experiment.arms if arms is None or arm.name in set(arms)]
    tuned = [arm for arm in wanted if arm.main]
    if experiment.arms[0] not in tuned and wanted:
        tuned.insert(0, experiment.arms[0])
    rates = experiment.learning_rates if len(experiment.learning_rates) > 1 else ()
    runs = [
        _run(experiment, arm, "tuning", experiment.tuning_seed, rate)
        for arm in tuned
        for rate in rates
    ]
    ordered = sorted(wanted, key=lambda arm: not arm.main)
    seeds = list(dict.fromkeys((*experiment.main_seeds, *experiment.other_seeds)))
    runs.extend(
        _run(
            experiment,
            arm,
            "result",
            seed,
            learning_rate_of(experiment, lines, arm.name),
        )
        for seed in seeds
        for arm in ordered
        if seed in experiment.seeds(arm)
    )
    return runs


def remaining(experiment, lines, arms=None):
    """Return the runs of `all_runs` that no line is of."""
    done = {key_of(line["configuration"]) for line in lines}
    return [
        run
        for run in all_runs(experiment, lines, arms)
        if run.configuration is None or key_of(run.configuration) not in done
    ]


def learning_rate_of(experiment, lines, arm_name):
    """Return the learning rate of an arm, or `None` while it is not chosen.

    That of a main arm is the one with the best validation score of the tuning runs;
    the other arms have the default's. A diverged run is not chosen; if all diverged,
    the smallest rate is.

    Args:
        experiment: An `Experiment`.
        lines: What `lines.read_lines` returned.
        arm_name: Name of the arm.
    """
    rates = experiment.learning_rates
    if len(rates) == 1:
        return rates[0]
    arm = experiment.arm(arm_name)
    if not arm.main:
        return learning_rate_of(experiment, lines, DEFAULT)
    by_key = {key_of(line["configuration"]): line for line in lines}
    scores = {}
    for rate in rates:
        configuration = experiment.configuration(arm, rate, experiment.tuning_seed)
        line = by_key.get(key_of(configuration))
        if line is None:
            return None
        if not line["diverged"]:
            score = number(line["validation"][experiment.score])
            scores[rate] = score if experiment.higher_is_better else -score
    return max(scores, key=scores.get) if scores else min(rates)


def estimated_seconds(experiment, lines, runs):
    """Estimate how long runs take, from lines of the same arm, else of any.

    Args:
        experiment: An `Experiment`.
        lines: What `lines.read_lines` returned.
        runs: List of `Run`.

    Returns:
        List of floats.
    """
    seconds = {}
    for line in lines:
        seconds.setdefault(line["arm"], []).append(line["seconds"])
    everything = [one for some in seconds.values() for one in some]
    usual = _mean(everything) if everything else experiment.seconds_per_run
    return [
        _mean(seconds[run.arm.name]) if run.arm.name in seconds else usual
        for run in runs
    ]


def stale(experiment, lines):
    """Return the lines that are of no run which the experiment declares now."""
    keys = {
        key_of(run.configuration)
        for run in all_runs(experiment, lines)
        if run.configuration is not None
    }
    return [line for line in lines if key_of(line["configuration"]) not in keys]


def _run(experiment, arm, purpose, seed, rate):
    configuration = None
    if rate is not None:
        configuration = experiment.configuration(arm, rate, seed)
    return Run(arm, purpose, seed, rate, configuration)


def _mean(numbers):
    return math.fsum(numbers) / len(numbers)
