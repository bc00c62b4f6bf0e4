"""Instruments that show the conditioning of the attention layers of any model."""

from keras_cond.diagnostics.comparison import Comparison
from keras_cond.diagnostics.inspect import inspect
from keras_cond.diagnostics.plots import (
    plot_bars,
    plot_history,
    plot_layers,
    plot_spectra,
)
from keras_cond.diagnostics.report import LayerReport, Report

__all__ = [
    "Comparison",
    "LayerReport",
    "Report",
    "inspect",
    "plot_bars",
    "plot_history",
    "plot_layers",
    "plot_spectra",
]
