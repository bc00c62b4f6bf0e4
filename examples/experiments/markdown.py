"""Tables of an experiment in Markdown."""

import math

from .declaration import DEFAULT
from .plan import all_runs, learning_rate_of, remaining
from .verdicts import judged, verdict

# What the second table shows, of what is measured.
MEASUREMENTS = {
    "entropy": "entropy",
    "least entropy": "entropy_min",
    "κ of a query head": "kappa_head_query",
    "κ of all query heads": "kappa_joint_query",
    "κ of all value heads": "kappa_joint_value",
    "κ of tokens": "kappa_tokens",
    "κ of attention": "kappa_attention",
}
_PERCENT = "accuracy"


def score_table(experiment, rows):
    """Return the table of scores and differences.

    Differences whose 95 % interval excludes 0 are bold.

    Args:
        experiment: An `Experiment`.
        rows: From `summary.summarize`.
    """
    unit = " (%)" if _is_percentage(experiment.score) else ""
    header = [
        "arm",
        "seeds",
        "learning rate",
        f"{_words(experiment.score)}{unit}",
        "minus default",
        "minus its control",
        *(_words(name) for name in experiment.also),
        "epochs to the default's end",
    ]
    lines = [
        [
            f"`{row.arm.name}`",
            _seeds(row),
            f"{row.learning_rate:g}{'' if row.tuned else ' (not tuned)'}",
            _score(row.score, experiment.score),
            "" if row.arm.name == DEFAULT else _gap(row.to_default, experiment.score),
            _control(row, experiment.score),
            *(_score(row.also[name], name) for name in experiment.also),
            _epochs(row.epochs),
        ]
        for row in rows
    ]
    return _table(header, lines)


def measurement_table(rows):
    """Return the table of κ and entropy, before → after training."""
    present = {
        title: key
        for title, key in MEASUREMENTS.items()
        if any(key in row.measurements for row in rows)
    }
    header = ["arm", *present]
    lines = [
        [
            f"`{row.arm.name}`",
            *(_change(row.measurements.get(key)) for key in present.values()),
        ]
        for row in rows
    ]
    return _table(header, lines)


def block_table(rows):
    """Return the table of κ of the blocks' outputs, before → after training."""
    keys = sorted(
        {k for row in rows for k in row.measurements if k.startswith("kappa_block_")}
    )
    header = ["arm", *(f"block {key.rsplit('_', 1)[1]}" for key in keys)]
    lines = [
        [
            f"`{row.arm.name}`",
            *(_change(row.measurements.get(key)) for key in keys),
        ]
        for row in rows
    ]
    return _table(header, lines)


def arm_table(experiment):
    """Return the table that says what each arm is."""
    lines = [
        [
            f"`{arm.name}`",
            "main" if arm.main else "",
            arm.what,
            f"`{arm.control}`" if arm.control else "",
        ]
        for arm in experiment.arms
    ]
    return _table(["arm", "", "what it changes", "its control"], lines)


def tuning_table(experiment, lines):
    """Return the table of validation scores by which learning rates were chosen."""
    by_run = {
        (line["arm"], line["learning_rate"]): line
        for line in lines
        if line["purpose"] == "tuning"
    }
    rows = []
    for arm in experiment.arms:
        if not arm.main:
            continue
        chosen = learning_rate_of(experiment, lines, arm.name)
        cells = []
        for rate in experiment.learning_rates:
            line = by_run.get((arm.name, rate))
            cell = ""
            if line is not None:
                cell = _number(
                    float(line["validation"][experiment.score]), experiment.score
                )
                cell = "diverged" if line["diverged"] else cell
            cells.append(f"**{cell}**" if rate == chosen and cell else cell)
        rows.append([f"`{arm.name}`", *cells])
    return _table(["arm", *(f"{rate:g}" for rate in experiment.learning_rates)], rows)


def verdict_table(summaries):
    """Return the table of verdicts, a row a method and a column an experiment.

    Args:
        summaries: List of pairs of an `Experiment` and what `summary.summarize`
            returned.
    """
    cells = {}
    for experiment, rows in summaries:
        for row in judged(rows):
            cells.setdefault(row.arm.name, {})[experiment.name] = (
                f"{_gap(row.to_default, experiment.score)}: "
                f"{verdict(row, experiment.higher_is_better)}"
            )
    names = [experiment.name for experiment, _ in summaries]
    header = ["method", *(f"{e.name}, {_words(e.score)}" for e, _ in summaries)]
    return _table(
        header,
        [
            [f"`{arm}`", *(found.get(n, "") for n in names)]
            for arm, found in cells.items()
        ],
    )


def status(experiment, lines):
    """Return a sentence that says how much of the experiment is done."""
    total, left = len(all_runs(experiment, lines)), len(remaining(experiment, lines))
    seeds = f"{len(experiment.main_seeds)} seeds for main arms"
    if experiment.other_seeds != experiment.main_seeds:
        seeds += f", {len(experiment.other_seeds)} for the others"
    return f"{total - left} of {total} runs are made ({seeds})."


def _table(header, lines):
    rows = [header, ["---"] * len(header), *lines]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def _seeds(row):
    text = str(row.score.count + row.diverged)
    return f"{text}, {row.diverged} diverged" if row.diverged else text


def _score(value, name):
    if value.count == 0:
        return "diverged"
    text = _number(value.mean, name)
    if math.isnan(value.half_width):
        return text
    return f"{text} ± {_number(value.half_width, name)}"


def _gap(value, name):
    if value.count == 0:
        return ""
    sign = "-" if value.mean < 0 else "+"
    text = sign + _number(abs(value.mean), name)
    if math.isnan(value.half_width):
        return text
    text = f"{text} ± {_number(value.half_width, name)}"
    return f"**{text}**" if value.excludes_zero else text


def _control(row, name):
    if row.to_control is None or row.to_control.count == 0:
        return ""
    return f"{_gap(row.to_control, name)} (`{row.arm.control}`)"


def _number(value, name):
    if _is_percentage(name):
        return f"{100 * value:.2f}"
    return f"{value:.2f}" if name == "perplexity" else f"{value:.4f}"


def _is_percentage(name):
    return name.endswith(_PERCENT)


def _epochs(value):
    if math.isnan(value):
        return ""
    return "not reached" if math.isinf(value) else f"{value:.1f}"


def _change(values):
    return f"{_short(values[0])} → {_short(values[-1])}" if values else ""


def _short(value):
    if not math.isfinite(value):
        return {True: "∞", False: "NaN"}[math.isinf(value)]
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.1e}"


def _words(name):
    return name.replace("_", " ")
