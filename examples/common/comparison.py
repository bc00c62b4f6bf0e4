"""Training of several methods side by side, and the tables that all of them share."""

import dataclasses

import numpy as np

import keras_cond

from .plots import plot_curves
from .runs import environment, write_results
from .spectra import attention_condition_numbers
from .tables import format_number, format_table
from .training import fit


@dataclasses.dataclass(frozen=True)
class Layout:
    """What the report of a run shows.

    Attributes:
        title: Title of the curves.
        panels: `{label of the y axis: key of the history}`.
        table: What the columns of the first table are, as in `"Validation loss"`.
        columns: `{key of a result, which titles the column: format such as ".4f"}`.
        token_columns: `{title of the column: key among the condition numbers}`.
    """

    title: str
    panels: dict
    table: str
    columns: dict
    token_columns: dict


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


def report(folder, arguments, facts, results, layout):
    """Write results.json and curves.png, and print the tables.

    Args:
        folder: `pathlib.Path` of the run.
        arguments: The command line, an `argparse.Namespace`.
        facts: Dict of what else belongs into results.json: sizes of the data.
        results: From `train_methods`.
        layout: A `Layout`.
    """
    write_results(
        folder / "results.json",
        {
            "arguments": vars(arguments),
            "environment": environment(),
            **facts,
            "methods": results,
        },
    )
    panels = {
        label: {method: result["history"][key] for method, result in results.items()}
        for label, key in layout.panels.items()
    }
    plot_curves(folder / "curves.png", layout.title, panels)
    print(f"\n{layout.table}; seconds per epoch after the first:")
    rows = [
        [
            method,
            *(format(result[key], digits) for key, digits in layout.columns.items()),
            f"{result['seconds_per_epoch']:.2f}",
        ]
        for method, result in results.items()
    ]
    print(format_table(["method", *layout.columns, "s/epoch"], rows))
    _print_condition_numbers(results, layout.token_columns)
    print(f"\nCurves: {folder / 'curves.png'}\nNumbers: {folder / 'results.json'}")


def _print_condition_numbers(results, token_columns):
    """Print what training did to the condition numbers."""
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
