"""Conditioned embedding of a model whose output head uses the same table."""

import keras
from keras import ops

from keras_cond.layers.conditioned_embedding import ConditionedEmbedding

HEAD_TABLES = ("raw", "conditioned")


@keras.saving.register_keras_serializable(package="keras_cond")
class ConditionedReversibleEmbedding(
    ConditionedEmbedding, keras.layers.ReversibleEmbedding
):
    """`keras.layers.ReversibleEmbedding` that looks tokens up in a conditioned table.

    Tokens are rows of E + σ_max(E) · polar(E) for the V × D table E, the one weight, as
    in `ConditionedEmbedding(condition="table")`. Called with `reverse=True` it is the
    tied head: tokens to logits, by the raw table or the conditioned one.

    Args:
        input_dim: int, size V of the vocabulary.
        output_dim: int, number D of channels.
        head_table: What the head multiplies by, `"raw"` (E, the default) or
            `"conditioned"`. The conditioning is meant for what attention reads. With
            the raw table the logits are made as in the plain model, so that one thing
            differs from it; conditioned logits are larger by σ_max(E) · polar(E), which
            grows with the one direction that frequent tokens share. On PyTorch
            `"conditioned"` conditions the table twice a step; a compiler sees that it
            is the same.
        method: As in `ConditionedEmbedding`.
        floor: As in `ConditionedEmbedding`.
        stop_gradient: As in `ConditionedEmbedding`.
        **kwargs: The further arguments of `keras.layers.ReversibleEmbedding`, among
            them `reverse_dtype` and `mask_zero`.

    Call arguments:
        inputs: Integer tensor (batch, ..., tokens), 0 ≤ id < V; with `reverse=True`
            float tensor (batch, ..., D).
        reverse: bool, whether to map tokens to logits. Default: False.

    Returns:
        Tensor (batch, ..., tokens, D) in the compute dtype; with `reverse=True` logits
        (batch, ..., V), as from the parent.

    Raises:
        ValueError: As `ConditionedEmbedding`; and if `head_table` is unknown or
            `tie_weights` is False, since the head then has a table of its own:
            `ConditionedEmbedding` and a `Dense` do that.

    Example:

    >>> embedding = keras_cond.ConditionedReversibleEmbedding(100, 8)
    >>> tokens = embedding(np.array([[5, 17, 3, 42]]))  # (1, 4, 8)
    >>> logits = embedding(tokens, reverse=True)  # (1, 4, 100)

    Reference: "Conditioned Embedded Tokens", ICCV 2025, arXiv:2505.12789, theorem 4.4,
    with the table in place of the sequence.
    """

    def __init__(
        self,
        input_dim,
        output_dim,
        head_table="raw",
        method="newton_schulz",
        floor=1e-3,
        stop_gradient=False,
        **kwargs,
    ):
        if head_table not in HEAD_TABLES:
            raise ValueError(
                f"Unknown `head_table`. Received: head_table={head_table!r}. Expected "
                f"one of {HEAD_TABLES}."
            )
        if not kwargs.get("tie_weights", True):
            raise ValueError(
                "The head uses the table of the tokens. Received: tie_weights=False. "
                "Use `ConditionedEmbedding(condition='table')` and a `Dense` head "
                "instead."
            )
        super().__init__(
            input_dim,
            output_dim,
            condition="table",
            method=method,
            floor=floor,
            stop_gradient=stop_gradient,
            **kwargs,
        )
        self.head_table = head_table

    def call(self, inputs, reverse=False):
        if not reverse:
            return super().call(inputs)
        if self.head_table == "raw":
            return keras.layers.ReversibleEmbedding.call(self, inputs, reverse=True)
        kernel = ops.transpose(self._conditioned(self.embeddings))
        dtype = self.reverse_dtype or self.compute_dtype
        logits = ops.matmul(ops.cast(inputs, dtype), ops.cast(kernel, dtype))
        if self.logit_soft_cap is not None:
            logits = ops.tanh(logits / self.logit_soft_cap) * self.logit_soft_cap
        return logits

    def compute_mask(self, inputs, mask=None):
        if keras.backend.is_float_dtype(inputs.dtype):  # The reverse call.
            return None
        return super().compute_mask(inputs, mask)

    def compute_output_spec(self, inputs, reverse=False):
        return keras.layers.ReversibleEmbedding.compute_output_spec(
            self, inputs, reverse=reverse
        )

    def get_config(self):
        config = super().get_config()
        del config["condition"]
        return {**config, "head_table": self.head_table}
