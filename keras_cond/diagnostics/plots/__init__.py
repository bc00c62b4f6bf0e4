"""Figures of condition numbers; matplotlib is imported only when one is drawn."""

from keras_cond.diagnostics.plots.bars import plot_bars
from keras_cond.diagnostics.plots.history import plot_history
from keras_cond.diagnostics.plots.layers import plot_layers
from keras_cond.diagnostics.plots.spectra import plot_spectra

__all__ = ["plot_bars", "plot_history", "plot_layers", "plot_spectra"]
