"""The instrument that measures a model."""

import time

import numpy as np

from keras_cond.diagnostics.head_jacobian import measure_jacobians
from keras_cond.diagnostics.projection_spectrum import ProjectionSpectrum
from keras_cond.diagnostics.recorder import record
from keras_cond.diagnostics.report import LayerReport, Report
from keras_cond.diagnostics.spectrum import kappa
from keras_cond.projections import find_attention


def inspect(model, inputs=None, jacobian=False, max_tokens=32):
    """Measures the condition numbers κ = σ_max / σ_min in every attention layer.

    Of the weights: κ of the query, key and value matrices that act (correction and LoRA
    included), of each head's D × d matrix and of the joint D × (heads · d) one, in
    float64. A singular value of at most eps of float32 times the largest counts as
    zero, and κ of a singular matrix is inf; κ of a matrix with a NaN is NaN.

    Given inputs: κ of the tokens that enter, of each head's attention matrix, and of
    the output, for every sample, without its padding; and the entropy of attention. The
    attention matrix is the layer's own, or softmax(q kᵀ / √d) where that was seen to
    reproduce the layer's output; otherwise it is None ("n/a"), never guessed.

    The model is called once, eagerly, with `training=False`. No weight, optimizer or
    seed state changes, and what was compiled before stays as it was.

    Args:
        model: A built Keras model or layer: your own, or one of KerasHub.
        inputs: None, or one batch of what the model is called with: an array or a
            tensor, or a list or dict of them.
        jacobian: bool. If True, also κ of the Jacobian of each head's output in
            (W_Q, W_K, W_V), of softmax and of linear attention, each beside its upper
            bound. For the first sample, and on a subsample of its tokens.
        max_tokens: int ≥ 1, the size of that subsample, evenly spaced. The time grows
            with its cube: 32 tokens of a 64-wide head take some seconds.

    Returns:
        A `Report`.

    Raises:
        ValueError: If the model is not built, `jacobian` is asked for without inputs,
            or `max_tokens` is not a whole number from 1.

    Example:

    >>> inputs = keras.Input((5, 8))
    >>> layer = keras.layers.MultiHeadAttention(num_heads=2, key_dim=4)
    >>> model = keras.Model(inputs, layer(inputs, inputs))
    >>> report = keras_cond.diagnostics.inspect(model, np.ones((3, 5, 8)))
    >>> report.layers[0].tokens  # five equal tokens: a singular matrix
    [inf, inf, inf]

    Reference: the quantities are those of "Conditioned Embedded Tokens", ICCV 2025,
    arXiv:2505.12789, and "Spectral Conditioning of Attention", NeurIPS 2025,
    arXiv:2603.07162.
    """
    start = time.perf_counter()
    if isinstance(max_tokens, bool) or not (
        isinstance(max_tokens, int) and max_tokens >= 1
    ):
        raise ValueError(
            "`max_tokens` is the size of the subsample of tokens. Received: "
            f"max_tokens={max_tokens!r}. Expected a whole number from 1, for example "
            "the default 32."
        )
    if jacobian and inputs is None:
        raise ValueError(
            "The Jacobian is that on given tokens. Received: jacobian=True, "
            "inputs=None. Pass a batch as `inputs`."
        )
    attentions = find_attention(model)
    measured = {id(attention): [] for attention in attentions}
    jacobians = {}

    def receive(attention, call):
        measured[id(attention)].append(measure_call(call))
        if jacobian and id(attention) not in jacobians:
            result = measure_jacobians(attention, call, max_tokens)
            jacobians[id(attention)] = result

    if inputs is not None:
        record(model, inputs, attentions, receive)
    layers = [
        LayerReport(
            attention.path,
            attention.num_heads,
            attention.num_key_value_heads,
            ProjectionSpectrum.of(attention.query.effective()),
            ProjectionSpectrum.of(attention.key.effective()),
            ProjectionSpectrum.of(attention.value.effective()),
            **_joined(measured[id(attention)]),
            jacobian=jacobians.get(id(attention)),
        )
        for attention in attentions
    ]
    seconds = time.perf_counter() - start
    return Report(model.name, layers, inputs is not None, seconds)


def measure_call(call):
    """Measures one call of one layer.

    Args:
        call: `AttentionCall`.

    Returns:
        dict of `"tokens"`, `"attention"`, `"output"`, `"entropy"`: lists over samples,
        or None where the call does not tell.
    """
    numbers = {"tokens": _kappas(call.tokens, call.queries), "output": None}
    numbers["attention"] = numbers["entropy"] = None
    if call.output is not None:
        numbers["output"] = _kappas(call.output, call.queries)
    if call.probabilities is not None:
        numbers["attention"], numbers["entropy"] = [], []
        samples = zip(call.probabilities, call.queries, call.keys, strict=True)
        for p, queries, keys in samples:
            p = p[:, queries][:, :, keys]
            empty = [float("nan")] * len(p)
            some = p.shape[1] > 0 and p.shape[2] > 0
            numbers["attention"].append(kappa(p).tolist() if some else empty)
            numbers["entropy"].append(_entropies(p) if some else empty)
    return numbers


def _kappas(batch, real):
    """κ of the real rows of each sample; NaN for a sample without any."""
    return [
        float(kappa(sample[rows])) if rows.any() else float("nan")
        for sample, rows in zip(batch, real, strict=True)
    ]


def _entropies(probabilities):
    """Mean entropy of a row, for each head, as `keras_cond.ops.attention_entropy`."""
    p = probabilities.astype("float64")
    logarithm = np.log(np.where(p > 0, p, 1.0))
    return np.mean(-np.sum(p * logarithm, axis=-1), axis=-1).tolist()


def _joined(calls):
    """The numbers of several calls of a layer as if they were one batch."""
    if not calls:
        return {}
    return {
        name: None
        if any(call[name] is None for call in calls)
        else [number for call in calls for number in call[name]]
        for name in calls[0]
    }
