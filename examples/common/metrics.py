"""The metrics of GLUE and their averages.

Crammed BERT (Geiping & Goldstein, 2022, arXiv:2212.14034) judges QQP and MRPC by F1
and STS-B by Pearson's correlation; GLUE (Wang et al., 2019) by two metrics each.
"""

import numpy as np
from scipy import stats
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

_CLASSIFICATION = {
    "accuracy": accuracy_score,
    "f1": f1_score,
    "matthews": matthews_corrcoef,
}
_REGRESSION = {
    "pearson": lambda labels, predictions: stats.pearsonr(labels, predictions)[0],
    "spearman": lambda labels, predictions: stats.spearmanr(labels, predictions)[0],
}
METRICS = (*_CLASSIFICATION, *_REGRESSION)

# Task -> the metric that is its column of Crammed BERT's table. MNLI has two columns,
# one for each of its validation splits.
_CRAMMED = {
    "glue/mnli": "accuracy",
    "glue/sst2": "accuracy",
    "glue/stsb": "pearson",
    "glue/rte": "accuracy",
    "glue/qnli": "accuracy",
    "glue/qqp": "f1",
    "glue/mrpc": "f1",
    "glue/cola": "matthews",
}


def scores(metrics, labels, outputs):
    """Judge the outputs of a model.

    Args:
        metrics: Names, of `METRICS`. F1 is that of class 1 of two.
        labels: Array `(n,)`: integers, or floats for regression.
        outputs: Finite array: logits `(n, num_labels)`, of which the largest is the
            predicted class, or the predictions `(n, 1)` of a regression.

    Returns:
        Dict of name -> float, from 0 to 1 or from -1 to 1. A correlation is NaN where
        all predictions are equal, of which SciPy warns.

    Raises:
        ValueError: If a metric is unknown or not one of such outputs, or a shape is
            wrong, or an output is not finite.
    """
    labels, outputs = np.asarray(labels), np.asarray(outputs)
    _check_outputs(labels, outputs)
    num_labels = outputs.shape[1]
    known = _REGRESSION if num_labels == 1 else _CLASSIFICATION
    predictions = outputs[:, 0] if num_labels == 1 else outputs.argmax(axis=-1)
    for name in metrics:
        if name not in known or (name == "f1" and num_labels != 2):
            raise ValueError(
                f"metrics: got {name!r} for {num_labels} labels, expected some of "
                f"{tuple(known)}, f1 for 2 labels alone."
            )
    return {name: float(known[name](labels, predictions)) for name in metrics}


def average_score(results):
    """GLUE's average: a task counts once, as the mean of all its numbers.

    Args:
        results: Task -> validation split -> metric -> value.

    Returns:
        Mean over the tasks, of MNLI's two splits and of the two metrics of a task.

    Raises:
        ValueError: If there are no tasks.
    """
    if not results:
        raise ValueError("results: got no tasks, expected at least one.")
    return float(
        np.mean(
            [
                np.mean([list(split.values()) for split in splits.values()])
                for splits in results.values()
            ]
        )
    )


def crammed_average(results):
    """Crammed BERT's average: the mean of nine columns, two of them MNLI's.

    The average in BERT's own paper (arXiv:1810.04805) is taken so, but for Spearman's
    correlation of STS-B.

    Args:
        results: Task -> validation split -> metric -> value, for the eight tasks.

    Returns:
        Mean of nine values: F1 of QQP and MRPC, Matthews' correlation of CoLA,
        Pearson's of STS-B, and the accuracies of the others.

    Raises:
        ValueError: If a task is missing: the averages of some of them do not compare.
    """
    if set(results) != set(_CRAMMED):
        raise ValueError(
            f"results: got the tasks {sorted(results)}, expected {sorted(_CRAMMED)}. "
            "Run the missing ones, or take average_score."
        )
    columns = [
        split[metric]
        for task, metric in _CRAMMED.items()
        for split in results[task].values()
    ]
    return float(np.mean(columns))


def _check_outputs(labels, outputs):
    if outputs.ndim != 2 or labels.shape != outputs.shape[:1] or len(labels) == 0:
        raise ValueError(
            f"outputs: got shape {outputs.shape} for labels of shape {labels.shape}, "
            "expected (n, num_labels) for (n,), n at least 1. Pass all logits of the "
            "split."
        )
    if not np.isfinite(outputs).all():
        raise ValueError(
            f"outputs: got {np.sum(~np.isfinite(outputs))} that are not finite, "
            "expected finite numbers. The training diverged: lower the learning rate."
        )
