"""Curves of training, told apart by colour, dash and marker."""

from matplotlib.figure import Figure

# Okabe and Ito's palette; the dashes and markers carry the meaning in grey too.
STYLES = (
    ("#000000", "-", "o"),
    ("#E69F00", "--", "s"),
    ("#0072B2", "-.", "^"),
    ("#009E73", ":", "D"),
    ("#D55E00", (0, (5, 1, 1, 1, 1, 1)), "v"),
    ("#CC79A7", (0, (1, 1)), "P"),
    ("#56B4E9", (0, (7, 2)), "X"),
    ("#999999", "-", "*"),
)


def plot_curves(path, title, panels):
    """Draw one panel for each quantity, one line for each method, over epochs.

    Args:
        path: The PNG file.
        title: Title of the figure.
        panels: `{label of the y axis: {method: values, one for each epoch}}`, at most
            eight methods.
    """
    figure = Figure(figsize=(5.2 * len(panels), 4.2), layout="constrained")
    figure.suptitle(title)
    for axes, (label, curves) in zip(
        figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True
    ):
        for (method, values), style in zip(curves.items(), STYLES, strict=False):
            colour, dashes, marker = style
            axes.plot(
                range(1, len(values) + 1),
                values,
                color=colour,
                linestyle=dashes,
                marker=marker,
                markersize=4.5,
                markevery=max(1, len(values) // 8),
                label=method,
            )
        axes.set_xlabel("epoch")
        axes.set_ylabel(label)
        axes.xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
        axes.grid(alpha=0.3)
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    figure.savefig(path, dpi=120)
