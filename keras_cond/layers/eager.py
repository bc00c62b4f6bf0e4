"""The one place that asks which backend runs."""

import keras
import numpy as np
from keras import ops


def on_torch():
    """Returns whether the backend is PyTorch."""
    return keras.backend.backend() == "torch"


def known_values(x):
    """Returns a tensor as a NumPy array, or None while a graph is being traced."""
    if on_torch():
        # Reading a value would cut the graph in two, or stop an export.
        import torch

        if torch.compiler.is_compiling() or x.is_meta:
            return None
    try:
        return np.asarray(ops.convert_to_numpy(x))
    except Exception:  # Each backend raises its own error for a traced tensor.
        return None
