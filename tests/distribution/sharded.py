"""Trains every layer on 8 virtual devices of the CPU and on one, and compares.

Run by `test_sharded.py`, with the name of a model; prints JSON.
"""

import json
import sys

import keras
import numpy as np

import keras_cond
from tests.distribution.models import (
    LENGTH,
    MODELS,
    VOCABULARY,
    WIDTH,
    data,
    difference,
    trained,
)

# A head, a row of the table or a column of the readout on each of four devices ...
BY_HEAD = {
    "embeddings": ("model", None),
    "(query|key|value)/kernel": (None, "model", None),
    "attention_output/kernel": ("model", None, None),
    "(patches|readout)/kernel": (None, "model"),
}
# ... or the channels of each.
BY_CHANNEL = {
    "embeddings": (None, "model"),
    "(query|key|value)/kernel": ("model", None, None),
    "attention_output/kernel": (None, None, "model"),
    "(patches|readout)/kernel": ("model", None),
}


def model_parallel(layouts):
    """Two groups of four devices: each has half of a batch, and the whole model."""
    mesh = keras.distribution.DeviceMesh((2, 4), ("batch", "model"), devices())
    layout_map = keras.distribution.LayoutMap(mesh)
    for path, layout in layouts.items():
        layout_map[f".*{path}"] = layout
    return keras.distribution.ModelParallel(
        layout_map=layout_map, batch_dim_name="batch"
    )


def initialized():
    """Shape, shape of a shard and error of kernels that Keras makes in shards."""
    found = {}
    shape = (2048, 32, 128)
    for name, make in {
        "semi-orthogonal": lambda: keras_cond.SemiOrthogonalQK(num_heads=32, seed=1),
        "identity": keras_cond.RectangularIdentity,
        "cosines": keras_cond.DCTBasis,
    }.items():
        expected = keras.ops.convert_to_numpy(make()(shape))
        with model_parallel({"kernel": (None, "model", None)}).scope():
            value = keras.Variable(make(), shape=shape, name="kernel").value
        part = value.sharding.shard_shape(shape)
        found[name] = (shape, part, difference([np.asarray(value)], [expected]))
    return found


def operated():
    """What surgery and the instruments give for a sharded model and for another."""
    alone = operate()
    with model_parallel(BY_HEAD).scope():
        sharded = operate()
    return {
        "names": [name for name, _ in alone],
        "differences": [
            difference([got], [expected])
            for (_, got), (_, expected) in zip(sharded, alone, strict=True)
        ],
    }


def stock():
    """Stock attention with a constraint and a penalty of the package."""
    inputs = keras.Input((LENGTH, WIDTH))
    x = keras.layers.MultiHeadAttention(
        4,
        4,
        kernel_constraint=keras_cond.MaxConditionNumber(2.0, per_head=False),
        kernel_regularizer=keras_cond.regularizers.ConditionNumber(0.1),
    )(inputs, inputs)
    return keras.Model(inputs, keras.layers.Dense(4, name="readout")(x))


def table_model():
    """A conditioned table to fold."""
    ids = keras.Input((LENGTH,), dtype="int32")
    layer = keras_cond.ConditionedEmbedding(VOCABULARY, WIDTH, condition="table")
    return keras.Model(ids, layer(ids))


def operate():
    """Trains with a constraint, a penalty and a monitor, then changes the model.

    Returns:
        List of names and arrays of what came out.
    """
    monitor = keras_cond.callbacks.ConditionMonitor()
    model, logs = trained(stock, callbacks=[monitor])
    logs.pop("condition_seconds")
    found = [(name, np.array(values)) for name, values in logs.items()]
    found += [(f"trained {i}", w) for i, w in enumerate(model.get_weights())]
    x, _ = data(model)
    layer = keras_cond.diagnostics.inspect(model, x[:2]).layers[0]
    for name in ("tokens", "attention", "output", "entropy"):
        found.append((f"inspected {name}", np.array(getattr(layer, name))))
    query = keras_cond.projections.find_attention(model)[0].query
    query.write(2 * query.read())
    keras_cond.apply(model, correction="polar")
    found += [(f"applied {i}", w) for i, w in enumerate(model.get_weights())]
    for scheme in ("conditioned", "mimetic", "spectral"):
        keras_cond.initialize(model, scheme, seed=0, trained_ok=True)
        found += [(f"{scheme} {i}", w) for i, w in enumerate(model.get_weights())]
    keras.utils.set_random_seed(0)
    new = keras_cond.fold(table_model())
    found += [(f"folded {i}", w) for i, w in enumerate(new.get_weights())]
    return found


def devices():
    return keras.distribution.list_devices("cpu")


def main(name, *names):
    if name in ("operated", "initialized"):
        print(json.dumps(globals()[name]()))
        return
    distributions = {
        "data": lambda: keras.distribution.DataParallel(devices=devices()),
        "heads": lambda: model_parallel(BY_HEAD),
        "channels": lambda: model_parallel(BY_CHANNEL),
    }
    alone, logs = trained(MODELS[name])
    found = {"devices": len(devices()), "loss": logs["loss"]}
    for distribution in names:
        with distributions[distribution]().scope():
            model, logs = trained(MODELS[name])
            found[distribution] = {
                "loss": logs["loss"],
                "weights": difference(model.get_weights(), alone.get_weights()),
                "shards": shards(model),
            }
    print(json.dumps(found))


def shards(model):
    """Path of each weight -> its shape, and the shape of what one device holds."""
    return {
        weight.path: [weight.shape, weight.value.sharding.shard_shape(weight.shape)]
        for weight in model.weights
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
