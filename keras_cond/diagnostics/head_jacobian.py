"""The Jacobian of single heads and the papers' bounds, on a few tokens."""

import dataclasses

import numpy as np

from keras_cond.diagnostics.plain_attention import same_scores
from keras_cond.diagnostics.spectrum import (
    kappa,
    kappa_of_spectrum,
    spectrum,
    tolerance,
)
from keras_cond.ops import attention_jacobian_condition
from keras_cond.ops.attention import masked_softmax


@dataclasses.dataclass(frozen=True)
class HeadJacobian:
    """κ of one head on a subsample of tokens, true values beside upper bounds.

    Attributes:
        jacobian: float, κ of the Jacobian of A = P X W_V in (W_Q, W_K, W_V).
        jacobian_bound: float, its upper bound κ(X)³ κ(Λ) κ(W_V) (κ(W_Q) + κ(W_K)) +
            κ(X) κ(P); inf, because the derivative Λ of every softmax is singular.
        jacobian_bound_nonzero: float, the same with the zero singular values of Λ left
            out, as if its null directions did not matter: not proven to be a bound.
        jacobian_assumed: bool, whether Λ has no zero singular values: False.
        softmax_attention: float, κ(A).
        softmax_attention_bound: float, κ(P) κ(X) κ(W_V).
        softmax_assumed: bool, whether the assumptions of that bound hold: N ≥ D, or
            W_V square.
        linear_attention: float, κ(X W_Q (X W_K)ᵀ X W_V).
        linear_attention_bound: float, κ(W_Q) κ(W_K) κ(W_V) κ(X)³.
        linear_assumed: bool, whether the assumptions of that bound hold: N ≥ D and
            square weights.
    """

    jacobian: float
    jacobian_bound: float
    jacobian_bound_nonzero: float
    jacobian_assumed: bool
    softmax_attention: float
    softmax_attention_bound: float
    softmax_assumed: bool
    linear_attention: float
    linear_attention_bound: float
    linear_assumed: bool


@dataclasses.dataclass(frozen=True)
class JacobianReport:
    """The heads of one layer, or why they could not be measured.

    Attributes:
        tokens_used: int, the size of the subsample; 0 where nothing was measured.
        tokens: int, the number of real tokens of the sample.
        heads: List of `HeadJacobian`, empty where nothing was measured.
        reason: str, why nothing was measured; otherwise empty.
    """

    tokens_used: int
    tokens: int
    heads: list
    reason: str = ""

    def to_dict(self):
        """The numbers as Python floats."""
        return dataclasses.asdict(self)


def measure_jacobians(attention_layer, call, max_tokens):
    """Measures every head on evenly spaced real tokens of the first sample.

    The formula for the Jacobian is that of softmax(X W_Q (X W_K)ᵀ / √d) X W_V. Where
    the layer's own attention matrix is another (positions in the scores, a query bias),
    nothing is measured.

    Args:
        attention_layer: An attention of `find_attention`.
        call: `AttentionCall`.
        max_tokens: int, the size of the subsample.

    Returns:
        `JacobianReport`.
    """
    real = np.flatnonzero(call.queries[0])
    if call.allowed is None or not len(real):
        return JacobianReport(0, len(real), [], "no self-attention on real tokens")
    if call.probabilities is None:
        return JacobianReport(0, len(real), [], "the attention matrix is not known")
    weights = _weights(attention_layer)
    x = call.tokens[0].astype("float64")
    for head, (wq, wk, _) in enumerate(weights):
        p = _plain(x[real], wq, wk, call.allowed[0][np.ix_(real, real)])
        if not same_scores(call.probabilities[0, head][np.ix_(real, real)], p):
            reason = "the scores are not X W_Q (X W_K)ᵀ / √d alone (positions, biases)"
            return JacobianReport(0, len(real), [], reason)
    count = min(max_tokens, len(real))
    chosen = real[np.linspace(0, len(real) - 1, count).round().astype(int)]
    allowed = call.allowed[0][np.ix_(chosen, chosen)]
    heads = [_measure(x[chosen], *head, allowed) for head in weights]
    return JacobianReport(count, len(real), heads)


def _weights(attention_layer):
    """The float64 (W_Q, W_K, W_V) of every query head."""
    groups = attention_layer.num_heads // attention_layer.num_key_value_heads
    query = attention_layer.query.effective().astype("float64")
    key = attention_layer.key.effective().astype("float64").repeat(groups, axis=0)
    value = attention_layer.value.effective().astype("float64").repeat(groups, axis=0)
    return list(zip(query, key, value, strict=True))


def _plain(x, wq, wk, allowed):
    """The attention matrix of one head, in float64 on every backend."""
    scores = x @ wq @ (x @ wk).T / np.sqrt(wq.shape[1])
    return masked_softmax(scores, allowed, np)


def _measure(x, wq, wk, wv, allowed):
    tokens, width = x.shape
    p, v = _plain(x, wq, wk, allowed), x @ wv
    kappa_x, kappa_q, kappa_k, kappa_v = (float(kappa(a)) for a in (x, wq, wk, wv))
    square = wq.shape[1] == wv.shape[1] == width
    kappa_p = float(kappa(p))
    weights = kappa_x**3 * kappa_v * (kappa_q + kappa_k)
    kappa_softmax, nonzero = _softmax_derivative(p)
    return HeadJacobian(
        attention_jacobian_condition(x, wq, wk, wv, mask=allowed).value,
        weights * kappa_softmax + kappa_x * kappa_p,
        weights * nonzero + kappa_x * kappa_p,
        bool(np.isfinite(kappa_softmax)),
        float(kappa(p @ v)),
        kappa_p * kappa_x * kappa_v,
        tokens >= width or wv.shape[1] == width,
        float(kappa(x @ wq @ (x @ wk).T @ v)),
        kappa_q * kappa_k * kappa_v * kappa_x**3,
        tokens >= width and square,
    )


def _softmax_derivative(p):
    """κ of Λ, the block-diagonal derivative of the softmax, and κ without its zeros."""
    blocks = p[:, :, None] * (np.eye(len(p)) - p[:, None, :])
    values = np.sort(spectrum(blocks), axis=None)[::-1]
    zero = len(p) * tolerance(blocks)
    kept = values[values > zero * values[0]]
    nonzero = float(kept[0] / kept[-1]) if len(kept) else np.inf
    return float(kappa_of_spectrum(values, zero)), nonzero
