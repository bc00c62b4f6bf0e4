"""Texts are judged as GLUE and Crammed BERT judge them, by independent formulas."""

import numpy as np
import pytest
from common.metrics import average_score, crammed_average, scores
from hypothesis import given
from hypothesis import strategies as st


def counts(labels, predictions):
    """True positives, true negatives, false positives and false negatives."""
    return [
        float(np.sum((predictions == p) & (labels == l)))
        for p, l in ((1, 1), (0, 0), (1, 0), (0, 1))
    ]


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=30))
def test_binary_metrics_are_their_formulas(pairs):
    # Each of the four outcomes occurs: no formula divides by zero.
    pairs = [*pairs, (0, 0), (0, 1), (1, 0), (1, 1)]
    labels, predictions = np.array(pairs, int).T
    logits = np.random.default_rng(0).normal(size=(len(pairs), 2))
    logits.sort(axis=-1)
    logits[predictions == 0] = logits[predictions == 0, ::-1]
    tp, tn, fp, fn = counts(labels, predictions)
    product = (tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)
    assert scores(("accuracy", "f1", "matthews"), labels, logits) == pytest.approx(
        {
            "accuracy": (tp + tn) / len(pairs),
            "f1": 2 * tp / (2 * tp + fp + fn),
            "matthews": (tp * tn - fp * fn) / np.sqrt(product),
        }
    )


def correlation(x, y):
    x, y = x - x.mean(), y - y.mean()
    return (x @ y) / np.sqrt((x @ x) * (y @ y))


def ranks(x):
    """1 for the smallest; equal numbers share the mean of their places."""
    return np.array([np.sum(x < v) + (np.sum(x == v) + 1) / 2 for v in x])


def test_correlations_are_their_formulas():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 6, 40).astype("float32")  # many are equal
    predictions = (labels + rng.normal(0, 2, 40)).astype("float32")
    computed = scores(("pearson", "spearman"), labels, predictions[:, None])
    exact, guessed = labels.astype(float), predictions.astype(float)
    assert computed["pearson"] == pytest.approx(correlation(exact, guessed), rel=1e-5)
    expected = correlation(ranks(labels), ranks(predictions))
    assert computed["spearman"] == pytest.approx(expected)
    assert abs(computed["pearson"] - computed["spearman"]) > 1e-3


def test_a_prediction_is_the_largest_of_many_logits():
    logits = np.random.default_rng(0).normal(size=(9, 45))
    labels = np.argsort(logits)[:, -1]
    labels[:3] = np.argsort(logits)[:3, -2]
    assert scores(("accuracy",), labels, logits)["accuracy"] == pytest.approx(6 / 9)


def test_predictions_of_one_class_have_no_matthews_correlation():
    logits = np.array([[0.0, 1.0]] * 4)
    assert scores(("matthews",), [0, 1, 1, 1], logits) == {"matthews": 0}


@pytest.mark.parametrize(
    "metrics, labels, outputs, message",
    [
        (("bleu",), [0], [[0, 1]], "got 'bleu' for 2 labels, expected some of .*f1"),
        (("f1",), [0], [[0, 1, 2]], "got 'f1' for 3 labels"),
        (("accuracy",), [0], [[0]], "got 'accuracy' for 1 labels, .*pearson"),
        (("pearson",), [0], [[0, 1]], "got 'pearson' for 2 labels"),
        (("accuracy",), [0], [0], r"got shape \(1,\) for labels of shape \(1,\)"),
        (("accuracy",), [0, 1], [[0, 1]], r"got shape \(1, 2\) for .* \(2,\)"),
        (("accuracy",), [], np.zeros((0, 2)), "n at least 1"),
        (("accuracy",), [0], [[np.nan, 1]], "got 1 that are not finite.*diverged"),
    ],
)
def test_outputs_that_cannot_be_judged_are_refused(metrics, labels, outputs, message):
    with pytest.raises(ValueError, match=message):
        scores(metrics, labels, outputs)


def test_averages_are_those_of_the_papers():
    # BERT-base's row of its paper (arXiv:1810.04805, table 1), in per cent. The other
    # metrics of a task are made up.
    columns = {
        "glue/sst2": {"accuracy": 93.5},
        "glue/stsb": {"pearson": 85.8, "spearman": 80.8},
        "glue/rte": {"accuracy": 66.4},
        "glue/qnli": {"accuracy": 90.5},
        "glue/qqp": {"f1": 71.2, "accuracy": 89.2},
        "glue/mrpc": {"f1": 88.9, "accuracy": 84.9},
        "glue/cola": {"matthews": 52.1},
    }
    results = {name: {"validation": column} for name, column in columns.items()}
    results["glue/mnli"] = {
        "matched": {"accuracy": 84.6},
        "mismatched": {"accuracy": 83.4},
    }
    assert round(crammed_average(results), 1) == 79.6
    tasks = [84.0, 93.5, 83.3, 66.4, 90.5, 80.2, 86.9, 52.1]
    assert average_score(results) == pytest.approx(sum(tasks) / 8)
    del results["glue/rte"]
    assert average_score(results) == pytest.approx((sum(tasks) - 66.4) / 7)
    with pytest.raises(ValueError, match=r"got the tasks .*expected .*'glue/rte'"):
        crammed_average(results)
    with pytest.raises(ValueError, match="got no tasks"):
        average_score({})
