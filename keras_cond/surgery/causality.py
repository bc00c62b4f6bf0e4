"""Whether a model lets tokens see later ones, found by trying."""

import keras
import numpy as np
from keras import ops

from keras_cond.surgery.graph import input_of, rebuild

# The number of tokens of the example, where the model leaves it open.
LENGTH = 7


def is_causal(model, target):
    """Returns whether tokens after the layer `target` depend on earlier ones alone.

    The first token that the layer returns is changed, then the last, and every tensor
    of the graph with an axis of tokens is compared. Where the layer is called several
    times, as by an encoder and a decoder, one causal call is enough.

    Args:
        model: A model that `is_graph` and holds `target` itself.
        target: The layer that returns the tokens.

    Returns:
        True if changing the first token changes others and changing the last does not;
        False if the last one does; None if no token acts on another. False, too, where
        the layer returns no (batch, tokens, channels).
    """
    changes, tensors = [], []

    def after_call(layer, kwargs, output, inputs):
        if layer is target and not kwargs.get("reverse") and len(output.shape) == 3:
            changes.append(_ChangeToken())
            output = changes[-1](output)
        tensors.extend(
            tensor for tensor in keras.tree.flatten(output) if _has_tokens(tensor)
        )
        return output

    inputs, _ = rebuild(model, lambda layer: layer, after_call)
    if not changes:
        return False
    probe = keras.Model(inputs, tensors)
    example = keras.tree.map_structure(_example, input_of(model))
    before = keras.tree.flatten(probe(example, training=False))

    def acts_on_others(change, token):
        change.token = token
        after = keras.tree.flatten(probe(example, training=False))
        change.token = None
        return any(
            _others_differ(*pair, token) for pair in zip(before, after, strict=True)
        )

    verdicts = []
    for change in changes:
        if acts_on_others(change, -1):
            verdicts.append(False)
        else:
            verdicts.append(True if acts_on_others(change, 0) else None)
    return next((verdict for verdict in (True, None) if verdict in verdicts), False)


class _ChangeToken(keras.layers.Layer):
    """Adds noise to one token of (batch, tokens, channels) while `token` says which."""

    def __init__(self):
        super().__init__()
        self.token = None
        self.supports_masking = True

    def call(self, x):
        if self.token is None:
            return x
        change = np.zeros(x.shape)
        change[:, self.token] = np.random.default_rng(0).standard_normal(x.shape[-1])
        return x + ops.cast(change, x.dtype)


def _has_tokens(tensor):
    return len(getattr(tensor, "shape", ())) >= 3


def _others_differ(before, after, token):
    """Whether tensors of shape (batch, tokens, ...) differ but for one token."""
    before, after = (np.asarray(ops.convert_to_numpy(x)) for x in (before, after))
    return not np.array_equal(
        np.delete(before, token, axis=1), np.delete(after, token, axis=1)
    )


def _example(tensor):
    """A batch of one for an input: ones for whole numbers, noise for others."""
    shape = [size or LENGTH for size in tensor.shape]
    shape[0] = tensor.shape[0] or 1
    if keras.backend.is_float_dtype(tensor.dtype):
        return np.random.default_rng(1).standard_normal(shape).astype(tensor.dtype)
    return np.ones(shape, "bool" if tensor.dtype == "bool" else "int32")
