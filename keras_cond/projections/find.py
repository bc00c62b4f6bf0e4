"""Every attention layer of a model."""

import sys
import warnings

import keras

from keras_cond.projections.attention import Attention
from keras_cond.projections.fused import read_fused
from keras_cond.projections.separate import read_separate
from keras_cond.projections.sublayers import sublayers
from keras_cond.projections.unreadable import UnreadableError

# Token mixers without query, key and value projections, by class name.
OTHERS = {
    "Attention": "it has no projections",
    "AdditiveAttention": "it has no projections",
    "FNetEncoder": "it mixes tokens by a Fourier transform",
    "Qwen3_5GatedDeltaNet": "it is a recurrence",
    "RWKV7TimeMix": "it is a recurrence",
}
# Attributes that hold one kernel for queries, keys and values.
FUSED_NAMES = ("qkv", "_qkv_dense", "qkv_dense", "qkv_proj", "attention_qkv")


def find_attention(model):
    """Returns the attention layers of a model with their projections.

    Found are layers with a `Dense` or `EinsumDense` each for queries, keys and values
    under the usual names (`MultiHeadAttention`, `GroupQueryAttention`, their
    subclasses, those of KerasHub and of your own), and KerasHub's layers with one
    fused kernel. Layouts come from the equations, never from guesses.

    Args:
        model: A built Keras model or layer.

    Returns:
        List of `Attention`, in the order of the model. A layer that is used several
        times is in it once.

    Raises:
        ValueError: If `model` is not a Keras model or layer, or has not been built.

    Warns:
        UserWarning: Once, naming every layer that looks like attention and cannot be
            read, with the reason; these are left out.

    Example:

    >>> inputs = keras.Input((5, 8))
    >>> layer = keras.layers.MultiHeadAttention(num_heads=2, key_dim=3, name="mha")
    >>> model = keras.Model(inputs, layer(inputs, inputs))
    >>> keras_cond.projections.find_attention(model)
    [<Attention 'mha' (MultiHeadAttention): 2 heads, D=8, d=3>]
    """
    found, unreadable = search(model)
    if unreadable:
        warnings.warn(left_out(unreadable), UserWarning, stacklevel=frames_outside())
    return found


def left_out(unreadable):
    """Returns the sentence that names layers which cannot be read."""
    return (
        "Left out, because their query, key and value kernels cannot be read: "
        + "; ".join(unreadable)
        + "."
    )


def search(model):
    """As `find_attention`, without the warning.

    Returns:
        Tuple of the list of `Attention` and of what is to be said of the other layers,
        a list of str.
    """
    if not isinstance(model, keras.Layer):
        raise ValueError(
            "`model` must be a Keras model or layer. Received: "
            f"{type(model).__module__}.{type(model).__name__}. Pass the model itself, "
            "such as a `keras.Model` or a KerasHub backbone."
        )
    if not model.built:
        raise ValueError(
            "A model has kernels once it is built. Received: the unbuilt "
            f"{type(model).__name__} {model.name!r}. Call it on a batch, or "
            "`model.build(input_shape)`, first."
        )
    walk = _Walk()
    walk.visit(model, ())
    return walk.found, walk.unreadable


class _Walk:
    """Walks a model depth first."""

    def __init__(self):
        self.found = []
        self.unreadable = []
        self._visited = {}
        self._paths = set()

    def visit(self, layer, names):
        """Collects the attention in and below a layer; returns whether it named any."""
        if id(layer) in self._visited:
            return self._visited[id(layer)]
        self._visited[id(layer)] = False
        self._visited[id(layer)] = self._named(layer, names)
        return self._visited[id(layer)]

    def _named(self, layer, names):
        name = type(layer).__name__
        try:
            projections = read_fused(layer) or read_separate(layer)
        except UnreadableError as error:
            return self._name(layer, names, str(error))
        if projections is not None:
            path = self._unique("/".join(names) or layer.name)
            self.found.append(Attention(layer, path, *projections))
            return True
        below = [self.visit(inner, (*names, inner.name)) for inner in sublayers(layer)]
        if any(below):
            return True
        if name in OTHERS:
            return self._name(layer, names, OTHERS[name])
        if any(isinstance(getattr(layer, n, None), keras.Layer) for n in FUSED_NAMES):
            return self._name(layer, names, "its fused kernel is of an unknown order")
        if "Attention" in name and "Mask" not in name:
            reason = "it has no projections of a known name"
            if not layer.built:
                reason = "it is not built: call the model on data first"
            return self._name(layer, names, reason)
        return False

    def _name(self, layer, names, reason):
        path = "/".join(names) or layer.name
        self.unreadable.append(f"{path!r} ({type(layer).__name__}: {reason})")
        return True

    def _unique(self, path):
        """Returns `path`, with a number where an earlier layer has it."""
        unique, number = path, 1
        while unique in self._paths:
            unique, number = f"{path}_{number}", number + 1
        self._paths.add(unique)
        return unique


def frames_outside():
    """Returns the `stacklevel` at which a warning points to the caller's own line."""
    level, frame = 1, sys._getframe(1)
    while frame is not None and frame.f_globals["__name__"].startswith("keras_cond"):
        level, frame = level + 1, frame.f_back
    return level
