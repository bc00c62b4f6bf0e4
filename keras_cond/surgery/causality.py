"""Whether a model lets tokens see later ones, found by trying."""

import keras
import numpy as np
from keras import ops

from keras_cond.surgery.graph import input_of, is_graph, layers_of, rebuild

# The number of tokens of the example, where the model leaves it open.
LENGTH = 7
# Tokens that are changed: all of a short sequence, of a longer one some.
CHANGED = 8
# A causal model is one if at least this share of later tokens feel an earlier one:
# where attention is saturated, few feel anything, and those may all be later ones.
SHARE = 0.5


def is_causal(model, target):
    """Returns whether tokens after the layer `target` depend on earlier ones alone.

    Tokens that the layer returns are changed, one at a time, and every (batch, tokens,
    channels) tensor of the graph is compared. It is done with other whole inputs of 1
    and of 0, because one of them may stand for padding. A layer that is called several
    times, as by an encoder and a decoder, or in several models inside the model, is
    causal if it is in one of them.

    Args:
        model: A model that `is_graph`.
        target: The layer that returns the tokens, in the model or in models inside it.

    Returns:
        True if tokens act on later ones alone; False if one acts on an earlier one;
        None if hardly any acts on another. False, too, where the layer returns no
        (batch, tokens, channels).
    """
    parts = [model, *(layer for _, layer, _ in layers_of(model))]
    holders = [part for part in parts if _holds(part, target)]
    verdicts = []
    for holder in {id(holder): holder for holder in holders}.values():
        verdict = _in_holder(holder, target)
        if verdict is None and holder is not model:
            # It mixes no tokens itself: those around it may.
            verdict = is_causal(model, holder)
        verdicts.append(verdict)
    return _joint(verdicts)


def _joint(verdicts):
    """One causal verdict is enough; otherwise one that is not."""
    return next((v for v in (True, False) if v in verdicts), None)


def _holds(part, target):
    return is_graph(part) and any(layer is target for layer in part.layers)


def _in_holder(model, target):
    changes, tensors = [], []

    def after_call(layer, kwargs, output, inputs):
        if layer is target and not kwargs.get("reverse") and _is_tokens(output):
            changes.append(_ChangeToken())
            output = changes[-1](output)
        tensors.extend(filter(_is_tokens, keras.tree.flatten(output)))
        return output

    inputs, _ = rebuild(model, lambda layer: layer, after_call)
    if not changes:
        return False
    probe = keras.Model(inputs, tensors)
    calls = {index: [] for index in range(len(changes))}
    for example in _examples(model):
        try:
            before = keras.tree.flatten(probe(example, training=False))
        except Exception:  # Each backend and layer raises its own: not an input then.
            continue
        for index, change in enumerate(changes):
            verdict = _verdict(
                lambda x=example: probe(x, training=False), before, change
            )
            calls[index].append(verdict)
    return _joint([_joint(found) for found in calls.values()])


def _verdict(run, before, change):
    earlier = later = pairs = 0
    length = change.length
    for token in sorted({round(t) for t in np.linspace(0, length - 1, CHANGED)}):
        change.token = token
        after = keras.tree.flatten(run())
        change.token = None
        felt = np.zeros(length, bool)
        for one, other in zip(before, after, strict=True):
            if one.shape[1] == length:
                felt |= _differs(one, other)
        earlier += felt[:token].sum()
        later += felt[token + 1 :].sum()
        pairs += length - token - 1
    if earlier:
        return False
    return True if pairs and later >= SHARE * pairs else None


class _ChangeToken(keras.layers.Layer):
    """Adds noise to one token of (batch, tokens, channels) while `token` says which."""

    def __init__(self):
        super().__init__()
        self.token = self.length = None
        self.supports_masking = True

    def call(self, x):
        self.length = x.shape[1]
        if self.token is None:
            return x
        change = np.zeros(x.shape)
        change[:, self.token] = np.random.default_rng(0).standard_normal(x.shape[-1])
        return x + ops.cast(change, x.dtype)


def _is_tokens(tensor):
    return len(getattr(tensor, "shape", ())) == 3


def _differs(before, after):
    """Which tokens of (batch, tokens, channels) differ; NaN equals NaN."""
    before, after = (np.asarray(ops.convert_to_numpy(x)) for x in (before, after))
    same = (before == after) | ((before != before) & (after != after))
    return ~same.all(axis=(0, 2))


def _examples(model):
    """Batches of one: token ids, noise, and 1 or 0 for other whole numbers.

    Token ids are those from 2 on, since 0 and 1 may be padding.
    """
    sizes = [
        layer.input_dim
        for _, layer, _ in layers_of(model)
        if hasattr(layer, "input_dim") and not _is_other(layer.name)
    ]
    vocabulary = min(sizes, default=3)
    inputs = input_of(model)
    others = [t for t in keras.tree.flatten(inputs) if _is_other(t.name)]
    for whole in (1, 0) if others else (1,):
        rng = np.random.default_rng(1)

        def example(tensor, whole=whole, rng=rng):
            shape = [size or LENGTH for size in tensor.shape]
            shape[0] = tensor.shape[0] or 1
            if keras.backend.is_float_dtype(tensor.dtype):
                return rng.standard_normal(shape).astype(tensor.dtype)
            if tensor.dtype == "bool" or _is_other(tensor.name):
                return np.full(
                    shape, whole, "bool" if tensor.dtype == "bool" else "int32"
                )
            return rng.integers(min(2, vocabulary - 1), vocabulary, shape, "int32")

        yield keras.tree.map_structure(example, inputs)


def _is_other(name):
    """Whether whole numbers of this name are something else than token ids."""
    parts = ("mask", "segment", "type", "position", "padding")
    return any(part in name for part in parts)
