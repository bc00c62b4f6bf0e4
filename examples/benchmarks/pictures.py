"""Pictures of what the benchmarks measured."""

from benchmarks.report import name_of
from common.plots import STYLES
from matplotlib.figure import Figure


def plot_overhead(path, results):
    """Draw the ratios of one run: medians with quartiles, beside their floors.

    Args:
        path: The PNG file.
        results: What overhead.py writes as JSON.
    """
    cases = results["cases"]
    names = [name_of(case) for case in cases]
    figure = Figure(figsize=(12, 1.6 + 0.35 * len(cases)), layout="constrained")
    machine = results["machine"]
    figure.suptitle(
        f"ours / stock: {machine['backend']} {machine['backend_version']}, "
        f"{results['mode']}, {machine['device']}"
    )
    for axes, kind in zip(
        figure.subplots(1, 2, sharey=True), ("training", "inference"), strict=True
    ):
        for place, case in enumerate(cases):
            numbers = case[kind]
            axes.plot(numbers["quartiles"], [place, place], color="#0072B2")
            axes.plot(numbers["ratio"], place, "o", color="#0072B2", label="median")
            axes.plot(numbers["floor"], place, "|", color="#D55E00", label="floor")
        axes.axvline(1, color="#000000", linewidth=0.8)
        axes.set_yticks(range(len(cases)), names)
        axes.set_xlabel(f"{kind} step, ours / stock")
        axes.grid(axis="x", alpha=0.3)
    axes.invert_yaxis()
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(handles[:2], labels[:2], frameon=False)
    figure.savefig(path, dpi=120)


def plot_growth(path, results):
    """Draw the cost of each op against each size, on log axes, with exponents.

    Args:
        path: The PNG file.
        results: What growth.py writes as JSON.
    """
    quantities = results["quantities"]
    columns, rows = len(results["sweeps"]), len(quantities)
    figure = Figure(figsize=(max(8, 5 * columns), 1 + 4.2 * rows), layout="constrained")
    machine = results["machine"]
    figure.suptitle(
        f"{machine['backend']} {machine['backend_version']}, {results['mode']}, "
        f"{machine['device']}; numbers in the legends are fitted exponents"
    )
    grid = figure.subplots(rows, columns, squeeze=False)
    for row, (quantity, label) in zip(grid, quantities.items(), strict=True):
        for axes, size in zip(row, results["sweeps"], strict=True):
            for (op, curves), style in zip(
                results["ops"].items(), STYLES, strict=False
            ):
                curve = curves[size]
                colour, dashes, marker = style
                axes.plot(
                    curve["sizes"],
                    curve[quantity],
                    color=colour,
                    linestyle=dashes,
                    marker=marker,
                    label=f"{op}: {curve['exponents'][quantity]:.2f}",
                )
            axes.set_xscale("log", base=2)
            axes.set_yscale("log")
            axes.set_xlabel(size)
            axes.set_ylabel(label)
            axes.grid(alpha=0.3)
            axes.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=100)
