"""One model on all devices of this machine, each with its part of every batch."""

import keras


def use_all_devices(arguments):
    """Build and train from now on with `keras.distribution`, if `--data-parallel` says.

    Args:
        arguments: From `arguments.training_parser`.

    Raises:
        ValueError: If the backend is not JAX, there is one device only, or the batch
            cannot be shared out evenly.
    """
    if not arguments.data_parallel:
        return
    if keras.backend.backend() != "jax":
        raise ValueError(
            f"--data-parallel: got the backend {keras.backend.backend()}, expected "
            "jax, the one that keras.distribution trains with. Set KERAS_BACKEND=jax."
        )
    devices = keras.distribution.list_devices()
    if len(devices) < 2:
        raise ValueError(
            f"--data-parallel: got one device, {devices[0]}, expected two or more. "
            "Leave it out, or cut the CPU into several devices with "
            "XLA_FLAGS=--xla_force_host_platform_device_count=8."
        )
    if arguments.batch_size % len(devices):
        raise ValueError(
            f"--batch-size: got {arguments.batch_size}, expected a multiple of the "
            f"{len(devices)} devices of --data-parallel. Change it."
        )
    keras.distribution.set_distribution(
        keras.distribution.DataParallel(devices=devices)
    )
    print(f"data parallel on {len(devices)} devices: {', '.join(devices)}")


def check_last_batch(batches, what):
    """Raise ValueError if the last batch cannot be shared out among the devices.

    Args:
        batches: A `keras.utils.PyDataset` of inputs and targets, or None.
        what: What the message calls the examples.
    """
    distribution = keras.distribution.distribution()
    if distribution is None or batches is None:
        return
    devices = distribution.num_model_replicas
    size = len(batches[len(batches) - 1][1])
    if size % devices:
        raise ValueError(
            f"--data-parallel: got {size} {what} in the last batch, expected a "
            f"multiple of the {devices} devices. Use a number of devices that divides "
            "it, or leave --data-parallel out."
        )
