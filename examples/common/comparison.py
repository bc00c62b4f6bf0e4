"""Training of several methods side by side, and the tables that all of them share."""

import numpy as np

import keras_cond

from .spectra import attention_condition_numbers
from .tables import format_number, format_table
from .training import fit


def train_methods(
    methods, build, token_condition_numbers, summarize, task, epochs, folder
):
    """Train one model after another; save each with a picture of its κ.

    Args:
        methods: Names of the methods.
        build: Function of a name that returns a compiled `keras.Model`.
        token_condition_numbers: Function of a model that returns a dict of numbers,
            taken before and after training.
        summarize: Function of a trained model and its history, the metrics as lists
            over epochs, that returns a dict to put into the results.
        task: Has batches `train` and `validation`, and inputs `probes`.
        epochs: Number of epochs.
        folder: `pathlib.Path` of the run: `{method}.keras` and `{method}-kappa.png`.

    Returns:
        Dict over methods, for results.json: what `summarize` says, seconds, number of
        parameters, condition numbers and the history.
    """
    results = {}
    for place, method in enumerate(methods, start=1):
        print(f"\n{method} ({place} of {len(methods)})")
        model = build(method)

        def condition_numbers(model=model):
            tokens = token_condition_numbers(model)
            return {**tokens, **attention_condition_numbers(model)}

        start = condition_numbers()
        history, seconds = fit(model, task.train, task.validation, epochs)
        results[method] = {
            **summarize(model, history),
            "seconds_per_epoch": float(np.median(seconds[1:] or seconds)),
            "seconds": seconds,
            "parameters": model.count_params(),
            "condition_numbers": {"start": start, "end": condition_numbers()},
            "history": history,
        }
        model.save(folder / f"{method}.keras")
        report = keras_cond.diagnostics.inspect(model, task.probes)
        report.plot(folder / f"{method}-kappa.png")
    return results


def histories(results, quantity):
    """One curve for each method."""
    return {method: result["history"][quantity] for method, result in results.items()}


def print_results(title, results, columns):
    """Print one row for each method, and its seconds per epoch at the end.

    Args:
        title: What the columns are, as in `"Validation loss"`.
        results: From `train_methods`.
        columns: `{title of the column: format such as ".4f"}`, each a key of a result.
    """
    print(f"\n{title}; seconds per epoch after the first:")
    rows = [
        [
            method,
            *(format(result[column], digits) for column, digits in columns.items()),
            f"{result['seconds_per_epoch']:.2f}",
        ]
        for method, result in results.items()
    ]
    print(format_table(["method", *columns, "s/epoch"], rows))


def print_condition_numbers(results, token_columns):
    """Print what training did to the condition numbers.

    Args:
        results: From `train_methods`.
        token_columns: `{title of the column: key among the condition numbers}`.
    """
    print("\nCondition numbers (medians), before -> after training, of the tokens:")
    _print_changes(
        results,
        {
            title: lambda numbers, key=key: numbers[key]
            for title, key in token_columns.items()
        },
    )
    for which, title in (("per_head", "D x d matrices"), ("joint", "D x (H d) matrix")):
        print(f"\nof the {title}:")
        _print_changes(
            results,
            {
                role: lambda numbers, role=role, which=which: numbers[role][which]
                for role in ("query", "key", "value")
            },
        )


def _print_changes(results, columns):
    """Print one row for each method, one column for each way to pick a number."""
    rows = []
    for method, result in results.items():
        numbers = result["condition_numbers"]
        cells = [
            f"{format_number(pick(numbers['start']))} -> "
            f"{format_number(pick(numbers['end']))}"
            for pick in columns.values()
        ]
        rows.append([method, *cells])
    print(format_table(["method", *columns], rows))
