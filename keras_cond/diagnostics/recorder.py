"""What enters and leaves every attention layer while a model is called."""

import contextlib
import dataclasses
import inspect

import keras
import numpy as np

from keras_cond.diagnostics.arguments import (
    allowed,
    as_tokens,
    real_tokens,
    to_numpy,
)
from keras_cond.diagnostics.plain_attention import plain_probabilities

# Names under which attention layers keep the softmax layer of their scores.
SOFTMAX_NAMES = ("_softmax", "softmax")


@dataclasses.dataclass(frozen=True, eq=False)
class AttentionCall:
    """One call of one attention layer.

    Attributes:
        tokens: Array of shape (B, N, D), the queries' input.
        output: Array of shape (B, N, D_out), or None.
        probabilities: Array of shape (B, heads, N, S), or None where the layer does
            not tell.
        queries: Booleans of shape (B, N), true at real tokens.
        keys: Booleans of shape (B, S).
        allowed: Booleans of shape (B, N, N), true where a token may attend to another;
            None for cross-attention.
    """

    tokens: np.ndarray
    output: np.ndarray | None
    probabilities: np.ndarray | None
    queries: np.ndarray
    keys: np.ndarray
    allowed: np.ndarray | None


def record(model, inputs, attentions, receive):
    """Calls a model once and hands over every call of its attention layers.

    The model is called eagerly with `training=False`, in a scope that lets no variable
    change. Each layer's `call` is replaced on the instance meanwhile, and put back
    whatever happens; compiled functions of the model never see the replacement.

    Args:
        model: A built Keras model.
        inputs: What the model is called with.
        attentions: What `find_attention` returned.
        receive: Called with an attention and an `AttentionCall`, in the order of the
            calls. A shared layer may be called more than once.
    """
    with contextlib.ExitStack() as stack:
        for attention in attentions:
            stack.enter_context(_recorded(attention, receive))
        stack.enter_context(keras.StatelessScope())
        model(inputs, training=False)


@contextlib.contextmanager
def replaced_call(layer, call):
    """Replaces the `call` of one layer object while the context is open."""
    earlier = vars(layer).get("call")
    layer.call = call
    try:
        yield
    finally:
        if earlier is None:
            del layer.call
        else:
            layer.call = earlier


@contextlib.contextmanager
def _recorded(attention, receive):
    layer, original = attention.layer, attention.layer.call
    signature = inspect.signature(original)
    gives_scores = (
        "return_attention_scores" in signature.parameters
        # A fused kernel never has the scores; to ask for them is an error.
        and not layer.get_config().get("flash_attention")
    )
    softmax = [
        sublayer
        for sublayer in (getattr(layer, name, None) for name in SOFTMAX_NAMES)
        if isinstance(sublayer, keras.layers.Softmax)
    ]

    def call(*args, **kwargs):
        # Masks are read before the layer takes them off its inputs.
        bound = signature.bind(*args, **kwargs)
        look = _Look(attention, bound.arguments)
        if gives_scores:
            wanted = bound.arguments.get("return_attention_scores", False)
            bound.arguments["return_attention_scores"] = True
            output, scores = original(*bound.args, **bound.kwargs)
            result = (output, scores) if wanted else output
        else:
            seen = []
            with contextlib.ExitStack() as stack:
                for sublayer in softmax:
                    stack.enter_context(_outputs(sublayer, seen))
                result = original(*args, **kwargs)
            output = result[0] if isinstance(result, (tuple, list)) else result
            scores = seen[0] if len(seen) == 1 else None
        observed = look.complete(output, scores)
        if observed is not None:
            receive(attention, observed)
        return result

    with replaced_call(layer, call):
        yield


@contextlib.contextmanager
def _outputs(layer, seen):
    original = layer.call

    def call(*args, **kwargs):
        result = original(*args, **kwargs)
        seen.append(result)
        return result

    with replaced_call(layer, call):
        yield


class _Look:
    """What a call is given, and later what it returns."""

    def __init__(self, attention, arguments):
        self.attention = attention
        self.arguments = dict(arguments)
        tensors = [a for a in arguments.values() if len(getattr(a, "shape", ())) >= 3]
        self.tokens = as_tokens(tensors[0]) if tensors else None
        if self.tokens is not None:
            num_samples, num_queries = self.tokens.shape[:2]
            memory = as_tokens(arguments.get("key"))
            if memory is None:
                memory = as_tokens(arguments.get("value"))
            num_keys = num_queries if memory is None else memory.shape[1]
            self.crosses = memory is not None and not (
                memory.shape == self.tokens.shape
                and np.array_equal(memory, self.tokens, equal_nan=True)
            )
            sizes = (num_samples, num_queries, num_keys)
            self.queries, self.keys = real_tokens(self.arguments, *sizes)
            self.allowed = allowed(self.arguments, self.queries, self.keys)

    def complete(self, output, scores):
        """Returns an `AttentionCall`, or None where the layer got no tokens."""
        if self.tokens is None:
            return None
        output = as_tokens(output)
        if output is not None and output.shape[:2] != self.tokens.shape[:2]:
            output = None
        allowed = None if self.crosses else self.allowed
        probabilities = self._probabilities(scores)
        if probabilities is None and output is not None and not self.crosses:
            probabilities = plain_probabilities(
                self.attention, self.tokens, self.allowed, output
            )
        return AttentionCall(
            self.tokens, output, probabilities, self.queries, self.keys, allowed
        )

    def _probabilities(self, scores):
        """Returns (B, heads, N, S), or None for other than rows that sum to 1."""
        if scores is None:
            return None
        p = to_numpy(scores)
        shape = (
            len(self.tokens),
            self.attention.num_heads,
            self.queries.shape[1],
            self.keys.shape[1],
        )
        if p.ndim < 4 or p.shape[0] != shape[0] or p.shape[-2:] != shape[-2:]:
            return None
        p = p.reshape(shape[0], -1, *shape[-2:])
        if p.shape != shape:
            return None
        # Rows of padding may be anything.
        sums = p.sum(axis=-1).swapaxes(1, 2)[self.queries]
        if not np.allclose(sums, 1, atol=1e-2, equal_nan=True):
            return None
        return p
