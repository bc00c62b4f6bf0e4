"""Three models that hold every layer of the package, in sizes that four devices share.

A program here trains them the same way with and without a distribution: SGD, so that
the weights afterwards show every gradient.
"""

import json
import os
import subprocess
import sys

import keras
import numpy as np

import keras_cond
from tests.autodiff import BACKEND

VOCABULARY = 16
WIDTH = 8
LENGTH = 5
BATCH = 16


def encoder():
    """Sequence embedding with padding, one identity and one polar factor for all."""
    ids = keras.Input((LENGTH,), dtype="int32")
    x = keras_cond.ConditionedEmbedding(VOCABULARY, WIDTH, mask_zero=True)(ids)
    x = keras_cond.SpectralAttention(4, 4, correction_scale=0.5, per_head=False)(x, x)
    x = keras_cond.SpectralAttention(4, 4, correction="polar", per_head=False)(x, x)
    return keras.Model(ids, keras.layers.Dense(4, name="readout")(x))


def decoder():
    """Table embedding, causal grouped-query attention with a polar factor a head."""
    ids = keras.Input((LENGTH,), dtype="int32")
    x = keras_cond.ConditionedEmbedding(VOCABULARY, WIDTH, condition="table")(ids)
    x = keras_cond.SpectralGroupedQueryAttention(4, 8, 4, correction="polar")(
        x, x, use_causal_mask=True
    )
    return keras.Model(ids, keras.layers.Dense(4, name="readout")(x))


def vision():
    """Both grayings, conditioned tokens, attention with an identity a head."""
    inputs = keras.Input((LENGTH, WIDTH))
    x = keras_cond.DCTTokenGraying(epsilon=0.7, rescale=True)(inputs)
    x = keras_cond.SVDTokenGraying(epsilon=0.7, rescale=True)(x)
    x = keras.layers.Dense(WIDTH, name="patches")(x)
    x = keras_cond.SVDTokenGraying(epsilon=0.7, rescale=True, method="svd")(x)
    x = keras_cond.TokenConditioning()(x)
    x = keras_cond.SpectralAttention(4, 4, correction_scale=0.5)(x, x)
    return keras.Model(inputs, keras.layers.Dense(4, name="readout")(x))


MODELS = {"encoder": encoder, "decoder": decoder, "vision": vision}


def data(model):
    """Two batches of inputs and targets; of ids, the last of each sample is padding."""
    rng = np.random.default_rng(0)
    if model.inputs[0].dtype == "int32":
        x = rng.integers(1, VOCABULARY, (2 * BATCH, LENGTH)).astype("int32")
        x[:, -1] = 0
    else:
        x = rng.standard_normal((2 * BATCH, LENGTH, WIDTH)).astype("float32")
    return x, rng.standard_normal((2 * BATCH, LENGTH, 4)).astype("float32")


def trained(build, **fit_arguments):
    """Builds a model from one seed and fits it; returns it and the logs as lists."""
    keras.utils.set_random_seed(0)
    model = build()
    model.compile(keras.optimizers.SGD(0.01), "mse")
    x, y = data(model)
    logs = model.fit(
        x, y, batch_size=BATCH, epochs=2, shuffle=False, verbose=0, **fit_arguments
    )
    return model, logs.history


def difference(got, expected):
    """Largest difference of two lists of arrays, over the largest number of each."""
    return max(
        float(np.abs(g - e).max() / max(1e-3, np.abs(e).max()))
        for g, e in zip(got, expected, strict=True)
    )


def run(program, *arguments, **environment):
    """Runs a module of the tests in a process of its own; returns what it prints.

    Args:
        program: Name of the module, which prints JSON as its last line.
        *arguments: Its command line.
        **environment: Variables to add.
    """
    result = subprocess.run(
        [sys.executable, "-m", program, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "KERAS_BACKEND": BACKEND, **environment},
    )
    assert result.returncode == 0, result.stderr[-3000:]
    return json.loads(result.stdout.strip().split("\n")[-1])
