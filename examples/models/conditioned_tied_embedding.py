"""Conditioned token embedding that also hands out the table of a tied head."""

import keras
from keras import ops

import keras_cond

HEAD_TABLES = ("raw", "conditioned")


@keras.saving.register_keras_serializable(package="keras_cond_examples")
class ConditionedTiedEmbedding(keras_cond.layers.ConditionedEmbedding):
    """`ConditionedEmbedding(condition="table")` for a model with a tied head.

    One call looks tokens up in the conditioned table E + σ_max(E) polar(E), V × D, and
    returns the table that the head multiplies by, so that the table is conditioned once
    a step whatever the head takes.

    Args:
        input_dim: int, size V of the vocabulary.
        output_dim: int, number D of channels.
        head_table: What the head multiplies by, `"raw"` (E, the default) or
            `"conditioned"`. The conditioning is meant for what attention reads. With
            the raw table the logits are made as in the plain model, so that one thing
            differs from it; conditioned logits are larger by σ_max(E) polar(E), which
            grows with the one direction that frequent tokens share.
        **kwargs: The further arguments of `ConditionedEmbedding`.

    Call arguments:
        inputs: Integer tensor `(batch, tokens)`, 0 <= id < V.

    Returns:
        Tokens `(batch, tokens, D)` in the compute dtype, and the head's table `(V, D)`.

    Raises:
        ValueError: If `head_table` is unknown, or `condition` is given and not
            `"table"`: in a causal model a conditioned sequence shows a token the
            later ones.
    """

    def __init__(self, input_dim, output_dim, head_table="raw", **kwargs):
        if head_table not in HEAD_TABLES:
            raise ValueError(
                f"head_table: got {head_table!r}, expected one of {HEAD_TABLES}."
            )
        condition = kwargs.pop("condition", "table")
        if condition != "table":
            raise ValueError(
                f"condition: got {condition!r}, expected 'table'. A tied head belongs "
                "to a causal model, in which conditioning a sequence shows a token the "
                "later ones."
            )
        super().__init__(input_dim, output_dim, condition="table", **kwargs)
        self.head_table = head_table

    def call(self, inputs):
        if self.head_table == "raw":
            return super().call(inputs), ops.convert_to_tensor(self.embeddings)
        table = super().call(ops.arange(self.input_dim))
        return ops.take(table, inputs, axis=0), table

    def compute_output_spec(self, inputs):
        table = (self.input_dim, self.output_dim)
        dtype = self.compute_dtype if self.head_table == "conditioned" else self.dtype
        return (
            super().compute_output_spec(inputs),
            keras.KerasTensor(table, dtype=dtype),
        )

    def compute_mask(self, inputs, mask=None):
        return None

    def get_config(self):
        return {**super().get_config(), "head_table": self.head_table}


def token_tables(embedding):
    """Tables of the lookup and of the tied head.

    Args:
        embedding: A `ConditionedTiedEmbedding` or `keras.layers.ReversibleEmbedding`.

    Returns:
        Two tensors `(V, D)`.
    """
    if isinstance(embedding, ConditionedTiedEmbedding):
        tables = embedding(ops.arange(embedding.input_dim))
    else:
        tables = (ops.convert_to_tensor(embedding.embeddings),) * 2
    return tuple(ops.stop_gradient(table) for table in tables)
