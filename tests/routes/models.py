"""Three small models that together hold every layer of the package.

Batch and length are unknown. The polar correction is in one of them alone: compiling it
takes seconds.
"""

import keras
import numpy as np

import keras_cond

VOCABULARY = 11
WIDTH = 6


def encoder(length=None, correction_scale=0.5):
    """Sequence embedding with padding, attention with one identity for all heads."""
    ids = keras.Input((length,), dtype="int32")
    x = keras_cond.ConditionedEmbedding(VOCABULARY, WIDTH, mask_zero=True)(ids)
    x = keras_cond.SpectralAttention(
        2, 4, correction_scale=correction_scale, per_head=False, name="attention"
    )(x, x)
    return keras.Model(ids, keras.layers.Dense(2, name="readout")(x))


def decoder(length=None):
    """Table embedding, causal grouped-query attention with the polar correction."""
    ids = keras.Input((length,), dtype="int32")
    x = keras_cond.ConditionedEmbedding(VOCABULARY, WIDTH, condition="table")(ids)
    attention = keras_cond.SpectralGroupedQueryAttention(
        3, 4, 2, correction="polar", name="attention"
    )
    x = attention(x, x, use_causal_mask=True)
    return keras.Model(ids, keras.layers.Dense(2, name="readout")(x))


def vision(length=None, correction_scale=0.5):
    """Both grayings, conditioned tokens, attention with an identity a head."""
    inputs = keras.Input((length, WIDTH))
    x = keras_cond.DCTTokenGraying(epsilon=0.7, rescale=True)(inputs)
    x = keras_cond.SVDTokenGraying(epsilon=0.7, rescale=True)(x)
    x = keras_cond.TokenConditioning()(x)
    x = keras_cond.SpectralAttention(
        2, 3, correction_scale=correction_scale, name="attention"
    )(x, x)
    return keras.Model(inputs, keras.layers.Dense(2, name="readout")(x))


def applied():
    """A stock model whose table, then whose tokens `apply` conditioned."""
    ids = keras.Input((None,), dtype="int32")
    x = keras.layers.Embedding(VOCABULARY, WIDTH, mask_zero=True, name="tokens")(ids)
    x = keras.layers.MultiHeadAttention(2, 4)(x, x)
    model = keras.Model(ids, keras.layers.Dense(2, name="readout")(x))
    model = keras_cond.apply(model, tokens="table")
    return keras_cond.apply(model, tokens="sequence", after="tokens", causal=False)


MODELS = {"encoder": encoder, "decoder": decoder, "vision": vision}


def svd_layer(name):
    """A model of one layer that takes the SVD."""
    if name == "ConditionedEmbedding":
        inputs = keras.Input((None,), dtype="int32")
        layer = keras_cond.ConditionedEmbedding(VOCABULARY, WIDTH, method="svd")
    else:
        inputs = keras.Input((None, WIDTH))
        layer = getattr(keras_cond, name)(method="svd")
    return keras.Model(inputs, layer(inputs))


SVD_LAYERS = ("ConditionedEmbedding", "SVDTokenGraying", "TokenConditioning")


def example(model, batch=2, length=5, seed=0):
    """A batch for a model; of ids, the last one of each sample is padding."""
    rng = np.random.default_rng(seed)
    if model.inputs[0].dtype == "int32":
        ids = rng.integers(1, VOCABULARY, (batch, length)).astype("int32")
        ids[:, -1] = 0
        return ids
    return rng.standard_normal((batch, length, WIDTH)).astype("float32")
