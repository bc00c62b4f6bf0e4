"""An attention layer and its four projections."""

import dataclasses

import keras

from keras_cond.projections.projection import Projection


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Attention:
    """An attention layer of a model, as found by `find_attention`.

    Args:
        layer: The Keras layer.
        path: str, the names from below the model to the layer, joined by "/"; unique
            in the model.
        query: `Projection`.
        key: `Projection`.
        value: `Projection`.
        output: `Projection`, or None where the layer has none that is one matrix a
            head.
    """

    layer: keras.Layer
    path: str
    query: Projection
    key: Projection
    value: Projection
    output: Projection | None

    @property
    def num_heads(self):
        """int, the number of query heads."""
        return self.query.shape[0]

    @property
    def num_key_value_heads(self):
        """int, the number of key and value heads: fewer where queries share them."""
        return self.key.shape[0]

    @property
    def head_dim(self):
        """int, d, the width of a query or key head."""
        return self.query.shape[2]

    @property
    def model_dim(self):
        """int, D, the width of the tokens that make the queries."""
        return self.query.shape[1]

    def __repr__(self):
        heads = f"{self.num_heads}"
        if self.num_key_value_heads != self.num_heads:
            heads += f" / {self.num_key_value_heads}"
        return (
            f"<Attention {self.path!r} ({type(self.layer).__name__}): {heads} heads, "
            f"D={self.model_dim}, d={self.head_dim}>"
        )
