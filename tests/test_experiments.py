"""The experiments: what they declare, how they run, and what is made of their lines."""

import dataclasses
import json
import math
import types

import keras
import numpy as np
import pytest
from common.document import fill_blocks, read_blocks
from experiments import analyse, run, trial, verdicts
from experiments.changes import build_model
from experiments.declaration import names, read_experiments
from experiments.lines import append_line, path_of, read_lines
from experiments.plan import all_runs, learning_rate_of, remaining
from experiments.statistics import Estimate, epochs_to_reach, estimate, paired
from experiments.summary import results, summarize
from experiments.tasks import load_task
from models.blocks import Size
from models.vit import build_vit
from scipy import stats

import keras_cond

TINY = """
question = "Does it run?"
[task]
kind = "images"
dataset = "digits"
train_size = 50
validation_fraction = 0.5
held_out_batch = 180
num_probes = 2
[model]
kind = "vit"
width = 8
num_layers = 1
num_heads = 2
mlp_ratio = 1
[training]
epochs = 1
batch_size = 25
weight_decay = 0.05
label_smoothing = 0.1
[seeds]
main = [0]
other = [0]
tuning = 9
[learning_rates]
values = [0.01]
[score]
name = "accuracy"
better = "higher"
also = []
[budget]
seconds_per_run = 2
[[arm]]
name = "default"
what = "nothing"
main = true
[[arm]]
name = "gaussian"
what = "noise"
initialize = { scheme = "gaussian" }
"""


@pytest.fixture
def tiny(tmp_path):
    """A folder with the experiment `tiny`, and what runs it."""
    (tmp_path / "tiny.toml").write_text(TINY)

    def main(*arguments):
        folders = ["--folder", str(tmp_path), "--results", str(tmp_path)]
        run.main(["tiny", *folders, *arguments])

    main.folder = tmp_path
    main.path = tmp_path / "tiny.jsonl"
    main.experiment = lambda: read_experiments("tiny", folder=tmp_path)[0]
    return main


def fake_train(experiment, run):
    """A line without training."""
    return {
        "arm": run.arm.name,
        "purpose": run.purpose,
        "seed": run.seed,
        "learning_rate": run.learning_rate,
        "configuration": run.configuration,
        "environment": {"backend": keras.backend.backend()},
        "diverged": False,
        "seconds": 3.0,
    }


# What is declared.


@pytest.mark.parametrize("name", names())
def test_every_file_is_an_experiment_whose_runs_differ(name):
    scales = ["here", "paper"] if "[[paper]]" in source_of(name) else ["here"]
    for scale in scales:
        for experiment in read_experiments(name, scale):
            runs = all_runs(experiment, [])
            known = [r.configuration for r in runs if r.configuration is not None]
            texts = {json.dumps(c, sort_keys=True) for c in known}
            assert len(texts) == len(known)
            assert runs[0].arm.name == "default"


def source_of(name):
    return (run.FOLDER / f"{name}.toml").read_text()


@pytest.mark.parametrize(
    "old, new, message",
    [
        ('name = "gaussian"', 'name = "default"', "no name twice"),
        ('what = "noise"', 'what = "noise"\ncontrol = "no"', "the control 'no'"),
        ('what = "noise"', 'what = "noise"\ncolour = 1', r"\['colour'"),
        ("tuning = 9", "tuning = 0", "tuning seed 0"),
        ('better = "higher"', 'better = "more"', "'higher' or 'lower'"),
        ("[budget]\nseconds_per_run = 2", "[budget]", r"\[budget\]"),
        ("main = true", "", "not a main arm"),
        ("[seeds]", "[seed]", "got the keys"),
        ("[task]", "[task", "is not TOML"),
    ],
)
def test_a_wrong_file_is_refused_with_its_path(tiny, old, new, message):
    (tiny.folder / "tiny.toml").write_text(TINY.replace(old, new))
    with pytest.raises(ValueError, match=message):
        tiny.experiment()


def test_an_unknown_experiment_or_arm_is_refused(tiny):
    with pytest.raises(ValueError, match=r"expected one of .*fashion_mnist"):
        read_experiments("no")
    with pytest.raises(ValueError, match="got 'no', expected one of default"):
        tiny("--arms", "no")
    with pytest.raises(ValueError, match="no settings of papers"):
        tiny("--scale", "paper")


# What an arm changes.


def model_of(changes, seed=0):
    size = Size(width=16, num_layers=2, num_heads=2, mlp_ratio=1)

    def build(conditioning):
        return build_vit((8, 8, 1), 10, size, conditioning)

    return build_model(build, changes, seed)


def kernels_of(model):
    attentions = keras_cond.projections.find_attention(model)
    return [
        getattr(attention, role).effective()
        for attention in attentions
        for role in ("query", "key", "value")
    ]


def changes_of(name):
    return read_experiments("fashion_mnist")[0].arm(name).changes


@pytest.mark.parametrize(
    "arm", ["spectral", "conditioned_tokens", "svd_scale", "combined", "mimetic"]
)
def test_an_arm_changes_no_weight_outside_attention(arm):
    plain, changed = model_of({}), model_of(changes_of(arm))
    for layer in changed.layers:
        if layer.trainable_weights and "attention" not in layer.name:
            expected = plain.get_layer(layer.name).get_weights()
            for one, other in zip(layer.get_weights(), expected, strict=True):
                np.testing.assert_array_equal(one, other)
    if "initialize" not in changes_of(arm):
        layer, same = (m.get_layer("block_1_attention") for m in (changed, plain))
        for one, other in zip(layer.get_weights(), same.get_weights(), strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "arm, control",
    [
        ("conditioned_init", "gaussian"),
        ("conditioned_init_qk", "gaussian_qk"),
        ("unit_spectral_10", "gaussian"),
        ("unit_spectral_joint_0.5", "gaussian"),
        ("spectral", "spectral_init"),
        ("polar", "polar_norm"),
    ],
)
def test_a_control_has_the_norms_of_its_arm_head_by_head(arm, control):
    own, others = (kernels_of(model_of(changes_of(name))) for name in (arm, control))
    for one, other in zip(own, others, strict=True):
        norms = (np.linalg.norm(k, axis=(1, 2)) for k in (one, other))
        np.testing.assert_allclose(*norms, rtol=1e-4)
    # Where the correction is live, its control acts with the same kernels at the start.
    assert np.allclose(own[0], others[0]) == (arm == "spectral")


def test_the_controls_of_tokens_and_patches_only_scale():
    images = np.random.default_rng(0).uniform(0, 255, (3, 8, 8, 1)).astype("float32")

    def tokens(arm, layer):
        model = model_of({} if arm is None else changes_of(arm))
        until = keras.Model(model.input, model.get_layer(layer).output)
        return keras.ops.convert_to_numpy(until(images))

    np.testing.assert_allclose(
        tokens("double_tokens", "token_layer"),
        2 * tokens(None, "patch_embedding"),
        rtol=1e-6,
    )
    patches = tokens(None, "patches")
    for arm in ("svd_scale", "dct_scale"):
        ratio = tokens(arm, "patch_layer") / patches
        spread = ratio.max(axis=(1, 2)) - ratio.min(axis=(1, 2))
        np.testing.assert_allclose(spread, 0, atol=1e-3 * ratio.max())


def test_all_arms_of_a_seed_see_the_same_batches(tiny):
    experiment = tiny.experiment()
    first = [
        load_task(experiment.configuration(arm, 0.01, 0)).train[0]
        for arm in experiment.arms
    ]
    np.testing.assert_array_equal(first[0][0], first[1][0])
    other = load_task(experiment.configuration(experiment.arms[0], 0.01, 1)).train[0]
    assert not np.array_equal(first[0][0], other[0])


# Running.


def test_a_run_appends_one_line_and_a_second_call_adds_nothing(tiny, capsys):
    tiny("--dry-run")
    assert "2 runs are left, 0 lines are there; about 4 s" in capsys.readouterr().out
    tiny()
    content = tiny.path.read_bytes()
    lines, torn = read_lines(tiny.path)
    assert torn == "" and [line["arm"] for line in lines] == ["default", "gaussian"]
    for line in lines:
        assert not line["diverged"] and 0 <= line["test"]["accuracy"] <= 1
        assert len(line["curves"]["val_accuracy"]) == 1
        assert len(line["measurements"]["entropy"]) == 2
        assert len(line["measurements"]["kappa_block_0"]) == 2
        assert line["environment"]["backend"] == keras.backend.backend()
        assert line["configuration"]["seed"] == 0
    assert lines[0]["measurements"]["kappa_head_query"][0] > 1
    tiny()
    tiny("--dry-run")
    assert tiny.path.read_bytes() == content
    assert "nothing is left to run" in capsys.readouterr().out


def test_a_run_that_diverges_is_recorded_as_such(tiny):
    (tiny.folder / "tiny.toml").write_text(TINY.replace("[0.01]", "[1e30]"))
    tiny("--arms", "default")
    (line,), _ = read_lines(tiny.path)
    assert line["diverged"]
    (row,) = summarize(tiny.experiment(), [line])
    assert row.diverged == 1 and row.score.count == 0
    blocks = analyse.make_blocks(tiny.experiment(), [line])
    assert "1, 1 diverged" in blocks["tiny scores"]


def test_a_killed_run_loses_only_itself(tiny, monkeypatch, capsys):
    calls = []

    def killed_second(experiment, run):
        calls.append(run.arm.name)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return fake_train(experiment, run)

    monkeypatch.setattr(trial, "train", killed_second)
    with pytest.raises(KeyboardInterrupt):
        tiny()
    first = tiny.path.read_bytes()
    assert first.count(b"\n") == 1
    tiny()
    assert tiny.path.read_bytes().startswith(first)
    assert calls == ["default", "gaussian", "gaussian"]


def test_half_a_last_line_is_reported_and_its_run_made_again(tiny, monkeypatch, capsys):
    monkeypatch.setattr(trial, "train", fake_train)
    tiny()
    whole = tiny.path.read_bytes()
    tiny.path.write_bytes(whole[:-20])
    tiny("--dry-run")
    assert "a run was killed while it wrote" in capsys.readouterr().out
    with pytest.raises(ValueError, match="the last line is cut off"):
        analyse.complete_lines(tiny.experiment(), tiny.folder)
    tiny()
    assert tiny.path.read_bytes() == whole


def test_a_damaged_or_double_line_is_an_error(tmp_path):
    path = tmp_path / "a.jsonl"
    append_line(path, {"configuration": {"seed": 0}, "x": math.inf})
    assert read_lines(path)[0][0]["x"] == "inf"
    append_line(path, {"configuration": {"seed": 0}})
    with pytest.raises(ValueError, match="lines 1 and 2 are of the same run"):
        read_lines(path)
    path.write_text('{"configuration": {}}\n{"conf\n')
    with pytest.raises(ValueError, match="line 2 is damaged"):
        read_lines(path)


def test_a_changed_arm_does_not_reuse_its_old_lines(tiny, monkeypatch, capsys):
    monkeypatch.setattr(trial, "train", fake_train)
    tiny()
    changed = TINY.replace('"gaussian" }', '"gaussian", per_head = false }')
    (tiny.folder / "tiny.toml").write_text(changed)
    tiny()
    output = capsys.readouterr().out
    assert "1 lines are of a configuration" in output and "gaussian" in output
    lines, _ = read_lines(tiny.path)
    assert [line["arm"] for line in lines] == ["default", "gaussian", "gaussian"]
    used = results(tiny.experiment(), lines)["gaussian"][0]
    assert used["configuration"]["changes"]["initialize"]["per_head"] is False


def test_lines_of_another_backend_are_not_continued(tiny, monkeypatch):
    def of_another(experiment, run):
        return fake_train(experiment, run) | {"environment": {"backend": "another"}}

    monkeypatch.setattr(trial, "train", of_another)
    with pytest.raises(ValueError, match="holds lines of another"):
        tiny()


def test_the_time_limit_ends_before_the_run_that_would_exceed_it(tiny, monkeypatch):
    monkeypatch.setattr(trial, "train", fake_train)
    tiny("--limit-seconds", "2.9")
    assert len(read_lines(tiny.path)[0]) == 1


# The plan.


def test_tuning_comes_first_then_seed_by_seed_the_main_arms_first():
    experiment = read_experiments("digits")[0]
    runs = all_runs(experiment, [])
    tuning = [run for run in runs if run.purpose == "tuning"]
    assert runs[: len(tuning)] == tuning
    assert {run.seed for run in tuning} == {experiment.tuning_seed}
    order = [(run.seed, not run.arm.main) for run in runs[len(tuning) :]]
    assert order == sorted(order)
    assert all(run.learning_rate is None for run in runs[len(tuning) :])


def test_the_best_finite_learning_rate_is_chosen_and_lent_to_the_other_arms():
    experiment = read_experiments("digits")[0]
    lines = []
    for arm, rate, accuracy, diverged in (
        ("default", 0.003, 0.5, False),
        ("default", 0.01, 0.6, False),
        ("gaussian", 0.003, 0.5, False),
        ("gaussian", 0.01, 0.9, True),
    ):
        configuration = experiment.configuration(
            experiment.arm(arm), rate, experiment.tuning_seed
        )
        lines.append(
            {
                "configuration": configuration,
                "validation": {"accuracy": accuracy},
                "diverged": diverged,
            }
        )
    assert learning_rate_of(experiment, lines, "default") == 0.01
    assert learning_rate_of(experiment, lines, "gaussian") == 0.003
    assert learning_rate_of(experiment, lines, "conditioned_init_qk") == 0.01
    assert learning_rate_of(experiment, lines, "conditioned_init") is None
    assert len(remaining(experiment, lines)) == len(all_runs(experiment, [])) - 4


# Statistics.


def test_an_interval_is_that_of_student():
    values = [0.1, 0.4, 0.2, 0.9, 0.35]
    expected = stats.t.interval(0.95, 4, np.mean(values), stats.sem(values))
    found = estimate(values)
    np.testing.assert_allclose(
        (found.mean - found.half_width, found.mean + found.half_width), expected
    )
    assert not estimate([1.0]).excludes_zero and estimate([]).count == 0


BETTER, WORSE, UNCLEAR = (
    Estimate(1.0, 0.5, 5),
    Estimate(-1.0, 0.5, 5),
    Estimate(0.3, 0.5, 5),
)


@pytest.mark.parametrize(
    ("to_default", "to_control", "expected"),
    [
        (BETTER, None, verdicts.HELPS),
        (BETTER, BETTER, verdicts.HELPS),
        (BETTER, UNCLEAR, verdicts.SCALE),
        (BETTER, WORSE, verdicts.SCALE),
        (UNCLEAR, BETTER, verdicts.SHAPE),
        (UNCLEAR, None, verdicts.NOT_SEEN),
        (WORSE, UNCLEAR, verdicts.HURTS),
        (WORSE, BETTER, f"{verdicts.HURTS}, but beats its control"),
        (Estimate(1.0, float("nan"), 1), None, verdicts.NOT_SEEN),
    ],
)
@pytest.mark.parametrize("higher_is_better", [True, False])
def test_the_rule_of_verdicts(to_default, to_control, expected, higher_is_better):
    def turned(value):
        if value is None or higher_is_better:
            return value
        return dataclasses.replace(value, mean=-value.mean)

    row = types.SimpleNamespace(
        arm=types.SimpleNamespace(control=to_control and "gaussian"),
        to_default=turned(to_default),
        to_control=turned(to_control),
    )
    assert verdicts.verdict(row, higher_is_better) == expected


def test_a_paired_difference_is_over_common_seeds():
    found = paired({0: 1.0, 1: 2.0, 2: 9.0}, {0: 0.5, 1: 1.5, 3: 0.0})
    assert (found.mean, found.half_width, found.count) == (0.5, 0.0, 2)
    assert found.excludes_zero


def test_epochs_to_reach_a_value_are_interpolated():
    assert epochs_to_reach([0.2, 0.6, 0.7], 0.4, True) == pytest.approx(1.5)
    assert epochs_to_reach([3.0, 2.0, 1.0], 2.0, False) == pytest.approx(2.0)
    assert epochs_to_reach([0.5, 0.6], 0.1, True) == 1.0
    assert epochs_to_reach([0.5, 0.6], 0.7, True) == math.inf


# The document.


def test_blocks_are_filled_and_missing_ones_named():
    text = "a\n<!-- begin x -->\nold\n<!-- end x -->\nb\n"
    new = fill_blocks(text, {"x": "| new |"})
    assert read_blocks(new) == {"x": "| new |"} and new.startswith("a\n")
    assert fill_blocks(new, {"x": "| new |"}) == new
    with pytest.raises(ValueError, match="has no block y"):
        fill_blocks(text, {"y": ""})


def test_every_table_of_the_document_is_what_the_lines_give():
    document = (analyse.DOCS / "evidence.md").read_text(encoding="utf-8")
    blocks = read_blocks(document)
    compared = 0
    for name in names():
        experiment = read_experiments(name)[0]
        if not path_of(analyse.RESULTS, experiment).exists():
            continue
        lines = analyse.complete_lines(experiment, analyse.RESULTS)
        made = analyse.make_blocks(experiment, lines)
        for block in made.keys() & blocks.keys():
            assert blocks[block] == made[block], f"run analyse.py {name}: {block}"
            compared += 1
    assert compared > 0
    assert blocks[analyse.VERDICTS] == analyse.make_verdicts(analyse.RESULTS)
