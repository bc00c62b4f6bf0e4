import ast
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

import keras_cond
from keras_cond.diagnostics import (
    inspect,
    plot_bars,
    plot_history,
    plot_layers,
    plot_spectra,
)
from keras_cond.diagnostics.plots import style
from tests.diagnostics.models import attention_model, batch

INF, NAN = float("inf"), float("nan")


@pytest.fixture(scope="module")
def report():
    keras.utils.set_random_seed(0)
    model = attention_model(2)
    dense = model.get_layer("attention_0").query_dense
    dense.kernel.assign(np.zeros(dense.kernel.shape))
    return inspect(model, batch())


@pytest.fixture
def figures(monkeypatch):
    """Keeps the figures that are saved, to look into them."""
    kept = []

    def save(figure, path):
        figure.canvas.draw()
        kept.append(figure)
        figure.savefig(path, dpi=40)

    for name in ("bars", "history", "layers", "spectra"):
        module = sys.modules[f"keras_cond.diagnostics.plots.{name}"]
        monkeypatch.setattr(module, "save", save)
    return kept


def points(axes):
    """The y values of all lines that stand in data coordinates."""
    lines = [line for line in axes.lines if line.get_transform() == axes.transData]
    return np.concatenate([line.get_ydata() for line in lines])


def texts(axes):
    return [text.get_text() for text in axes.texts]


def test_every_head_and_every_joint_matrix_is_a_point(report, figures, tmp_path):
    plot_layers(report, tmp_path / "layers.png")
    weights, inputs = figures[0].axes
    spectra = [getattr(r, q) for r in report.layers for q in ("query", "key", "value")]
    kappas = [k for s in spectra for k in (*s.per_head, s.joint)]
    finite = np.array(kappas)[np.isfinite(kappas)]
    np.testing.assert_allclose(np.sort(points(weights)), np.sort(finite))
    # The zero query kernels: at the top edge and labelled, not dropped.
    assert len(finite) < len(kappas) and "∞" in texts(weights)
    assert weights.get_yscale() == inputs.get_yscale() == "log"
    assert len(points(inputs)) > 0


def test_every_point_is_inside_its_panel(report, figures, tmp_path):
    plot_layers(report, tmp_path / "layers.png")
    for axes in figures[0].axes:
        low, high = axes.get_ylim()
        assert ((points(axes) > low) & (points(axes) < high)).all()


def test_three_pairs_of_bars_have_the_medians(report, figures, tmp_path):
    other = inspect(attention_model(2), batch())
    plot_bars(report, other, tmp_path / "bars.png")
    axes = figures[0].axes[0]
    heights = [patch.get_height() for patch in axes.patches]
    assert len(heights) == 6
    np.testing.assert_allclose(heights[0], np.median(report.layers[0].tokens))
    np.testing.assert_allclose(heights[4], np.median(other.layers[0].output))
    everything = [layer.output for layer in other.layers]
    np.testing.assert_allclose(heights[5], np.median(everything))
    hatches = {patch.get_hatch() for patch in axes.patches}
    assert len(hatches) == 2


def test_spectra_have_every_singular_value(report, figures, tmp_path):
    plot_spectra(report, tmp_path / "spectra.png")
    joint_key = figures[0].axes[4]
    values = report.layers[1].key.joint_values
    drawn = [line.get_ydata() for line in joint_key.lines]
    assert any(np.allclose(y, values / values[0]) for y in drawn)
    assert "0" in texts(figures[0].axes[0])


def test_infinite_stretches_run_along_the_top_edge(figures, tmp_path):
    history = {
        "batch": [1, 2, 3, 4],
        "epoch": [0, 0, 0, 0],
        "kappa_joint_query_max": [2.0, INF, INF, 5.0],
        "kappa_joint_query_median": [2.0, NAN, 3.0, 4.0],
    }
    plot_history(history, tmp_path / "history.png")
    axes = figures[0].axes[0]
    assert sorted(texts(axes)) == ["nan", "∞"]
    edge = [n for n in axes.lines if n.get_transform() != axes.transData]
    assert sorted(tuple(n.get_xdata()) for n in edge) == [(2, 2), (2, 3)]
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels == ["joint query max", "joint query median"]


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda path: plot_history({}, path), "after `fit`"),
        (lambda path: plot_layers(inspect(plain()), path), "without attention layers"),
        (lambda path: plot_spectra(inspect(plain()), path), "without attention layers"),
        (lambda path: plot_bars(*[inspect(attention_model(1))] * 2, path), "inputs"),
    ],
)
def test_nothing_to_draw_is_an_error(draw, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        draw(tmp_path / "figure.png")


def plain():
    inputs = keras.Input((3,))
    return keras.Model(inputs, keras.layers.Dense(2)(inputs))


def test_missing_matplotlib_is_named(monkeypatch, report, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match="pip install matplotlib"):
        report.plot(tmp_path / "figure.png")


def test_matplotlib_is_imported_inside_functions_alone():
    package = Path(keras_cond.__file__).parent
    importers = []
    for file in package.rglob("*.py"):
        for statement in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(statement, ast.Import | ast.ImportFrom | ast.Try | ast.If):
                if "matplotlib" in ast.unparse(statement):
                    importers.append(file.name)
    assert importers == []


def test_colours_differ_in_grey_or_in_marker():
    assert len(set(zip(style.COLOURS, style.MARKERS, strict=True))) == 6
    assert len(set(style.MARKERS)) == 6
