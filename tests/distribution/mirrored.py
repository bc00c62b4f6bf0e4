"""Trains every layer with TensorFlow's MirroredStrategy on two devices of the CPU.

Run by `test_mirrored.py`; prints, as JSON, how far the results are from one device's.
"""

import json

import numpy as np
import tensorflow as tf

import keras_cond
from tests.distribution.models import LENGTH, MODELS, WIDTH, difference, trained


def main():
    cpu = tf.config.list_physical_devices("CPU")[0]
    half = tf.config.LogicalDeviceConfiguration()
    tf.config.set_logical_device_configuration(cpu, [half, half])
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    found = {"devices": strategy.num_replicas_in_sync}
    for name in ("encoder", "vision"):  # Tracing takes long.
        build = MODELS[name]
        alone, logs = trained(build, callbacks=monitors(name))
        with strategy.scope():
            mirrored, mirrored_logs = trained(build, callbacks=monitors(name))
        variable = mirrored.trainable_variables[0].value
        found[name] = {
            "copies": len(strategy.experimental_local_results(variable)),
            "weights": difference(mirrored.get_weights(), alone.get_weights()),
            "logs": {
                key: [logs[key], mirrored_logs[key]]
                for key in logs
                if key != "condition_seconds"
            },
        }
    print(json.dumps(found))


def monitors(name):
    """A monitor for the model whose tokens are floats: it runs without compiling."""
    if name != "vision":
        return []
    x = np.random.default_rng(1).standard_normal((2, LENGTH, WIDTH)).astype("float32")
    return [keras_cond.callbacks.ConditionMonitor(inputs=x)]


if __name__ == "__main__":
    main()
