"""Fine-tuning of a classifier on labelled texts, and the table of its scores."""

import keras

from .arguments import check_count, check_learning_rate, parse_list
from .labelled import LABELLED
from .metrics import average_score, crammed_average, scores
from .tables import format_table
from .training import fit

GLUE = tuple(name for name in LABELLED if name.startswith("glue/"))


def add_task_arguments(parser):
    """Add the arguments that choose tasks and how they are trained on.

    Args:
        parser: From `arguments.training_parser`.
    """
    add = parser.add_argument
    add("--task", default="wordnet", help=f"{', '.join(LABELLED)}, glue or none")
    add("--task-data-dir", help="folder of the tasks' data; default: --data-dir")
    add("--task-train-size", type=int, help="number of training texts; default: all")
    add("--task-epochs", type=int, default=2)
    add("--task-learning-rate", type=float, default=1e-3, help="highest rate")


def check_task_arguments(arguments):
    """Raise ValueError unless the arguments of `add_task_arguments` make sense.

    Args:
        arguments: What the parser returned.
    """
    check_count("--task-epochs", arguments.task_epochs)
    check_count("--task-train-size", arguments.task_train_size)
    check_learning_rate("--task-learning-rate", arguments.task_learning_rate)
    task_names(arguments.task)


def task_names(text):
    """Names of the tasks that a command line asks for.

    Args:
        text: Names of `LABELLED`, separated by commas, `glue` for all of GLUE; or
            `none`.

    Returns:
        List of names of `LABELLED`, none twice.

    Raises:
        ValueError: If a name is unknown or given twice.
    """
    if text == "none":
        return []
    names = parse_list("--task", text, (*LABELLED, "glue", "none"))
    if "none" in names:
        raise ValueError(f"--task: got {text!r}, expected none alone.")
    if "glue" not in names:
        return names
    return [*(name for name in names if name not in (*GLUE, "glue")), *GLUE]


def fine_tune(classifier, task, optimizer, epochs, verbose=None):
    """Train a classifier on a task and judge it.

    Args:
        classifier: `keras.Model` from ids to `task.num_labels` outputs.
        task: A `SentenceTask`.
        optimizer: `keras.optimizers.Optimizer`.
        epochs: Number of epochs.
        verbose: As in `training.fit`.

    Returns:
        Dict for results.json: `scores` (validation split -> metric -> value), the
        training `loss` of each epoch and its `seconds`.
    """
    if task.num_labels == 1:
        loss = keras.losses.MeanSquaredError()
    else:
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    classifier.compile(optimizer=optimizer, loss=loss)
    history, seconds = fit(classifier, task.train, None, epochs, verbose=verbose)
    judged = {
        name: scores(
            task.metrics,
            labels,
            classifier.predict(batches, verbose=0)[: len(labels)],
        )
        for name, (batches, labels) in task.validation.items()
    }
    return {"scores": judged, "loss": history["loss"], "seconds": seconds}


def print_scores(results, tasks):
    """Print one row for each score, one column for each method.

    Args:
        results: Method -> dict with `tasks`, name of a task -> what `fine_tune` says.
        tasks: List of `SentenceTask`. With all of GLUE, its averages are printed too.
    """
    rows = []
    for task in tasks:
        for split in task.validation:
            place = f"{task.name} {split}" if len(task.validation) > 1 else task.name
            for metric in task.metrics:
                cells = [
                    f"{result['tasks'][task.name]['scores'][split][metric]:.4f}"
                    for result in results.values()
                ]
                most_frequent = "-"
                if task.majority:
                    most_frequent = f"{task.majority[split][metric]:.4f}"
                rows.append([f"{place}: {metric}", most_frequent, *cells])
    if {task.name for task in tasks} >= set(GLUE):
        by_method = {
            method: {name: result["tasks"][name]["scores"] for name in GLUE}
            for method, result in results.items()
        }
        for title, average in (
            ("GLUE: average of tasks", average_score),
            ("GLUE: average of Crammed BERT", crammed_average),
        ):
            cells = [f"{average(judged):.4f}" for judged in by_method.values()]
            rows.append([title, "-", *cells])
    print("\nScores in validation, beside those of the most frequent class:")
    print(format_table(["score", "most frequent", *results], rows))
