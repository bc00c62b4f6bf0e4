"""Small models to operate on, and running a file of them in a fresh process."""

import os
import subprocess
import sys
import textwrap

import keras
import numpy as np

from tests.autodiff import to_numpy

D, HEADS, WIDTH, TOKENS = 8, 2, 4, 6


def plain(layers=2, attention=None, **arguments):
    """A model of attention layers named attention_0, ... on (batch, 6, 8) tokens."""
    attention = attention or keras.layers.MultiHeadAttention
    inputs = x = keras.Input((TOKENS, D), name="tokens")
    for index in range(layers):
        layer = attention(HEADS, WIDTH, name=f"attention_{index}", **arguments)
        x = keras.layers.Add(name=f"skip_{index}")([x, layer(x, x)])
    return keras.Model(inputs, keras.layers.Dense(3, name="head")(x))


def text(causal=False, **arguments):
    """A model of token ids: embedding, attention, logits for each token."""
    ids = keras.Input((None,), dtype="int32", name="ids")
    x = keras.layers.Embedding(20, D, name="embedding", **arguments)(ids)
    layer = keras.layers.MultiHeadAttention(HEADS, WIDTH, name="attention")
    x = keras.layers.Add(name="skip")([x, layer(x, x, use_causal_mask=causal)])
    return keras.Model(ids, keras.layers.Dense(3, name="head")(x))


def grouped():
    """A model with four query heads and two key and value heads."""
    inputs = keras.Input((TOKENS, D))
    layer = keras.layers.GroupQueryAttention(4, 4, 2, name="attention")
    return keras.Model(inputs, layer(inputs, inputs))


def batch(seed=0, size=2):
    shape = (size, TOKENS, D)
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def outputs(model, x):
    """The first output of a model as NumPy."""
    return to_numpy(keras.tree.flatten(model(x, training=False))[0])


def in_fresh_process(program, *arguments, without=()):
    """Runs a program in a new process, where some packages cannot be imported."""
    blocked = "".join(f"sys.modules[{name!r}] = None\n" for name in without)
    result = subprocess.run(
        [sys.executable, "-c", f"import sys\n{blocked}{textwrap.dedent(program)}"]
        + [str(argument) for argument in arguments],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    return result.stdout


# Loads each FILE.keras, calls it on the arrays of FILE.npz, and compares.
CHECK_FILES = """
import keras, numpy as np
for name in sys.argv[1:]:
    model = keras.saving.load_model(name + ".keras")
    with np.load(name + ".npz") as file:
        arrays = dict(file)
    wanted = arrays.pop("wanted")
    inputs = arrays.pop("x") if "x" in arrays else arrays
    got = keras.tree.flatten(model(inputs, training=False))[0]
    got = np.array(keras.ops.convert_to_numpy(got))
    print(type(model).__name__, float(np.abs(got - wanted).max()))
"""


def store(model, x, path):
    """Saves a model, an input (array or dict) and its output for `CHECK_FILES`."""
    model.save(f"{path}.keras")
    arrays = x if isinstance(x, dict) else {"x": x}
    np.savez(f"{path}.npz", wanted=outputs(model, x), **arrays)


def differences(printed):
    """The numbers that `CHECK_FILES` printed, by line."""
    lines = [line.split() for line in printed.splitlines() if line.strip()]
    return [float(line[-1]) for line in lines]
