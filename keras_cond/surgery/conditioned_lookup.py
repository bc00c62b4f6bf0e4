"""An existing embedding whose table is conditioned as it is looked up."""

import keras
from keras import ops

from keras_cond.ops import condition


@keras.saving.register_keras_serializable(package="keras_cond")
class ConditionedLookup(keras.layers.Layer):
    """Looks rows up in the conditioned table of an embedding layer: made by `apply`.

    E + σ_max(E) · polar(E) for the V × D table E, whose rows are the tokens; see
    `keras_cond.layers.ConditionedEmbedding` with `condition="table"`. The embedding
    stays the layer that it was and holds the raw table, the one weight. A call with
    `reverse=True`, the output projection of a tied model, multiplies by the raw table.

    Args:
        embedding: A `keras.layers.Embedding`, or a layer derived from it.
        **kwargs: Those of `keras.layers.Layer`.
    """

    def __init__(self, embedding, **kwargs):
        super().__init__(**kwargs)
        self.embedding = embedding
        self.supports_masking = True
        # The table is conditioned in the precision that it has.
        self.autocast = False
        # Whether a graph multiplies by the raw table too.
        self.tied = False

    def build(self, *args, **kwargs):
        if not self.embedding.built:
            self.embedding.build()

    def call(self, inputs, reverse=False):
        if reverse:
            self.tied = True
            return self.embedding(inputs, reverse=True)
        if self.embedding.quantization_mode is not None:
            raise ValueError(
                "Conditioning a table needs it in floating point. Received: the "
                f"embedding {self.embedding.name!r} quantized to "
                f"{self.embedding.quantization_mode!r}. Call `keras_cond.fold` first, "
                "then quantize what it returns."
            )
        rows = ops.take(self.table(), ops.cast(inputs, "int32"), axis=0)
        return ops.cast(rows, self.embedding.compute_dtype)

    def table(self):
        """Returns the conditioned table, of shape (V, D)."""
        return condition(self.embedding.embeddings)

    def compute_mask(self, inputs, previous_mask=None):
        # A `ReversibleEmbedding` sets its mask in `call` instead.
        whole = not keras.backend.is_float_dtype(inputs.dtype)
        return ops.not_equal(inputs, 0) if self.embedding.mask_zero and whole else None

    def get_config(self):
        embedding = keras.saving.serialize_keras_object(self.embedding)
        return {**super().get_config(), "embedding": embedding}

    @classmethod
    def from_config(cls, config):
        embedding = keras.saving.deserialize_keras_object(config["embedding"])
        return cls(**{**config, "embedding": embedding})
