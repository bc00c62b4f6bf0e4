"""Experiments as their files declare them.

A file has, beside its `question`, the tables `task`, `model`, `training`, `seeds`,
`learning_rates`, `score`, `budget` and an `arm` for each thing that is compared. An
arm's own `model` and `training` replace single settings; `patches`, `tokens`, `table`,
`attention` and `initialize` are what it changes in the model (see `changes.py`). Each
`paper` replaces settings in the same way and is an experiment of its own, for
`--scale paper`.
"""

import dataclasses
import tomllib
from pathlib import Path

FOLDER = Path(__file__).parent
CHANGES = ("patches", "tokens", "table", "attention", "initialize")
_TABLES = ("task", "model", "training", "seeds", "learning_rates", "score", "budget")
_ARM_KEYS = {"name", "what", "main", "control", "model", "training", *CHANGES}
_REQUIRED = {
    "seeds": {"main", "other", "tuning"},
    "learning_rates": {"values"},
    "score": {"name", "better", "also"},
    "budget": {"seconds_per_run"},
}
DEFAULT = "default"


@dataclasses.dataclass(frozen=True)
class Arm:
    """One of the things that an experiment compares.

    Attributes:
        name: Its name in lines and tables.
        what: What it changes, in words.
        main: Whether it gets the seeds and the tuned learning rate of the main arms.
        control: Name of the arm that has all of it but the idea; `None` for the
            default.
        model: Settings of the model that it replaces.
        training: Settings of the training that it replaces.
        changes: What it changes in the model, by the names of `CHANGES`.
    """

    name: str
    what: str
    main: bool
    control: str | None
    model: dict
    training: dict
    changes: dict


@dataclasses.dataclass(frozen=True)
class Experiment:
    """What is compared, on what, how often and how long.

    Attributes:
        name: Name of its file and of its results.
        question: What it is to answer.
        task: Settings of the data.
        model: Settings of the model.
        training: Settings of the training.
        main_seeds: Seeds of the main arms.
        other_seeds: Seeds of the other arms.
        tuning_seed: Seed with which the main arms' learning rates are chosen.
        learning_rates: What they are chosen from.
        score: Name of the number by which arms are compared.
        higher_is_better: Whether a larger score is better.
        also: Names of further test scores for the tables.
        seconds_per_run: What a run takes, until one is recorded.
        arms: Tuple of `Arm`, `DEFAULT` first.
    """

    name: str
    question: str
    task: dict
    model: dict
    training: dict
    main_seeds: tuple
    other_seeds: tuple
    tuning_seed: int
    learning_rates: tuple
    score: str
    higher_is_better: bool
    also: tuple
    seconds_per_run: float
    arms: tuple

    def arm(self, name):
        """Return the arm of a name; raises ValueError if there is none."""
        for arm in self.arms:
            if arm.name == name:
                return arm
        raise ValueError(
            f"arm: got {name!r}, expected one of {', '.join(a.name for a in self.arms)}"
            f" (experiment {self.name})."
        )

    def seeds(self, arm):
        """Return the seeds of an arm."""
        return self.main_seeds if arm.main else self.other_seeds

    def configuration(self, arm, learning_rate, seed):
        """Return everything that a run depends on, as a dict for JSON."""
        return {
            "task": self.task,
            "model": {**self.model, **arm.model},
            "training": {**self.training, **arm.training},
            "changes": arm.changes,
            "learning_rate": learning_rate,
            "seed": seed,
        }


def names():
    """Return the names of the experiments that have a file."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def read_experiments(name, scale="here", folder=FOLDER):
    """Read the file of an experiment.

    Args:
        name: Name of a file in the folder, without its ending.
        scale: `"here"` for what runs on a CPU, `"paper"` for the papers' settings.
        folder: `pathlib.Path` of the files.

    Returns:
        List of `Experiment`: one, or one for each of the file's `paper` tables.

    Raises:
        ValueError: If the file is not there, damaged, or not as described above.
    """
    path = Path(folder) / f"{name}.toml"
    if not path.is_file():
        raise ValueError(
            f"experiment: got {name!r}, expected one of {', '.join(names())}."
        )
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: is not TOML ({error}). Correct it.") from error
    papers = content.pop("paper", [])
    if scale == "here":
        return [_experiment(name, content, path)]
    if scale != "paper":
        raise ValueError(f"scale: got {scale!r}, expected here or paper.")
    if not papers:
        raise ValueError(f"{path}: has no settings of papers. Leave --scale out.")
    return [
        _experiment(f"{name}-paper-{paper['name']}", _with(content, paper), path)
        for paper in papers
    ]


def _with(content, paper):
    """The content of a file with a paper's tables put over its own, key by key.

    A table with `replace = true` takes the place of the whole table.
    """
    merged = dict(content)
    for table, settings in paper.items():
        if table != "name":
            settings = dict(settings)
            own = {} if settings.pop("replace", False) else content[table]
            merged[table] = {**own, **settings}
    return merged


def _experiment(name, content, path):
    expected = {"question", "arm", *_TABLES}
    if set(content) != expected:
        raise ValueError(
            f"{path}: got the keys {sorted(content)}, expected {sorted(expected)}."
        )
    for table, keys in _REQUIRED.items():
        if set(content[table]) != keys:
            raise ValueError(
                f"{path}: got [{table}] with {sorted(content[table])}, expected "
                f"{sorted(keys)}."
            )
    if content["score"]["better"] not in ("higher", "lower"):
        raise ValueError(
            f"{path}: got better = {content['score']['better']!r}, expected 'higher' "
            "or 'lower'."
        )
    seeds = content["seeds"]
    if seeds["tuning"] in (*seeds["main"], *seeds["other"]):
        raise ValueError(
            f"{path}: got the tuning seed {seeds['tuning']} among the others, expected "
            "one of its own, on which no result rests."
        )
    return Experiment(
        name=name,
        question=content["question"].strip(),
        task=content["task"],
        model=content["model"],
        training=content["training"],
        main_seeds=tuple(seeds["main"]),
        other_seeds=tuple(seeds["other"]),
        tuning_seed=seeds["tuning"],
        learning_rates=tuple(content["learning_rates"]["values"]),
        score=content["score"]["name"],
        higher_is_better=content["score"]["better"] == "higher",
        also=tuple(content["score"]["also"]),
        seconds_per_run=content["budget"]["seconds_per_run"],
        arms=_arms(content["arm"], path),
    )


def _arms(entries, path):
    arms = []
    for entry in entries:
        unknown = set(entry) - _ARM_KEYS
        if unknown or not {"name", "what"} <= set(entry):
            raise ValueError(
                f"{path}: got the arm {entry.get('name')!r} with {sorted(entry)}, "
                f"expected name, what, and others of {sorted(_ARM_KEYS)}."
            )
        arms.append(
            Arm(
                name=entry["name"],
                what=entry["what"],
                main=entry.get("main", False),
                control=entry.get("control"),
                model=entry.get("model", {}),
                training=entry.get("training", {}),
                changes={key: entry[key] for key in CHANGES if key in entry},
            )
        )
    found = [arm.name for arm in arms]
    if len(set(found)) != len(found) or found[0] != DEFAULT:
        raise ValueError(
            f"{path}: got the arms {found}, expected {DEFAULT!r} first and no name "
            "twice."
        )
    if not arms[0].main:
        raise ValueError(f"{path}: {DEFAULT!r} is not a main arm. Add main = true.")
    for arm in arms:
        if arm.control is not None and arm.control not in found:
            raise ValueError(
                f"{path}: got the control {arm.control!r} of {arm.name!r}, expected an "
                f"arm: {', '.join(found)}."
            )
    return tuple(arms)
