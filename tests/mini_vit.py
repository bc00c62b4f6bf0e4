"""What one backend computes with the package's layers, written to a file.

Run by `test_backends_agree.py`, one process for each backend:
`KERAS_BACKEND=jax python -m tests.mini_vit FILE.npz`. Weights and batches come from
NumPy, so they are the same in each.
"""

import sys

import keras
import numpy as np
from keras import ops

import keras_cond
from tests import matrices
from tests.autodiff import gradient, to_numpy, weight_gradients, weighted_sum

IMAGES = (4, 12, 12)
PATCH = 4
WIDTH = 8
CLASSES = 3
STEPS = 4


def patches(images):
    """(batch, 12, 12) -> (batch, 9, 16)."""
    n = IMAGES[1] // PATCH
    x = images.reshape(-1, n, PATCH, n, PATCH).transpose(0, 1, 3, 2, 4)
    return x.reshape(-1, n * n, PATCH * PATCH)


def block(x, attention):
    x = x + attention(*[keras.layers.LayerNormalization()(x)] * 2)
    y = keras.layers.LayerNormalization()(x)
    y = keras.layers.Dense(2 * WIDTH, activation="gelu")(y)
    return x + keras.layers.Dense(WIDTH)(y)


def build():
    """Graying, patch embedding, conditioning, one block of each attention, a head."""
    inputs = keras.Input((9, PATCH * PATCH))
    x = keras_cond.DCTTokenGraying(0.9, rescale=True, floor=1e-2)(inputs)
    x = keras_cond.SVDTokenGraying(0.9, rescale=True, floor=1e-2)(x)
    x = keras.layers.Dense(WIDTH)(x)
    x = keras_cond.TokenConditioning()(x)
    x = block(x, keras_cond.SpectralAttention(2, 4, correction_scale=0.5))
    x = block(x, keras_cond.SpectralAttention(2, 4, correction="polar", per_head=False))
    x = block(x, keras_cond.SpectralGroupedQueryAttention(4, 2, 1, correction="polar"))
    x = keras.layers.GlobalAveragePooling1D()(keras.layers.LayerNormalization()(x))
    return keras.Model(inputs, keras.layers.Dense(CLASSES)(x))


def set_weights(model, rng):
    """Scales of normalizations near 1, epsilons as they are, the rest small noise."""
    for weight in model.weights:
        if weight.shape == ():
            continue
        noise = 0.3 * rng.standard_normal(weight.shape)
        weight.assign(noise + (1.0 if weight.name == "gamma" else 0.0))


def results():
    """Name -> array of everything that the backends have to agree on."""
    rng = np.random.default_rng(0)
    model = build()
    set_weights(model, rng)
    x = patches(rng.random(IMAGES)).astype("float32")
    y = np.array([0, 1, 2, 1])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    found = {"outputs at start": to_numpy(model(x))}
    gradients = weight_gradients(model, lambda: loss(y, model(x, training=True)))
    for weight, value in zip(model.trainable_weights, gradients, strict=True):
        found[f"gradient of {weight.path}"] = value
    model.compile(keras.optimizers.SGD(0.05), loss)
    history = model.fit(x, y, batch_size=4, epochs=STEPS, shuffle=False, verbose=0)
    found["losses"] = np.array(history.history["loss"])
    found["outputs at end"] = model.predict(x, verbose=0)
    found["weights at end"] = np.concatenate(
        [to_numpy(w).ravel() for w in model.trainable_weights]
    )
    for method in ("newton_schulz", "svd"):
        for name, value in matrices.coinciding_inputs().items():
            weight = np.random.default_rng(1).standard_normal(value.shape)

            def function(t, method=method, weight=weight):
                return weighted_sum(weight, keras_cond.ops.condition(t, method=method))

            value = value.astype("float32")
            found[f"{method} of {name}"] = to_numpy(
                keras_cond.ops.condition(ops.convert_to_tensor(value), method=method)
            )
            found[f"{method} gradient of {name}"] = gradient(function, value)
    return found


if __name__ == "__main__":
    # Names hold slashes, which a zip archive would read as folders.
    found = results()
    np.savez(
        sys.argv[1],
        names=np.array(list(found)),
        **{f"value_{i}": value for i, value in enumerate(found.values())},
    )
