"""The one file of the benchmarks that knows the backends by name."""

import importlib
import os
import platform

import keras
import numpy as np
from common.runs import environment
from keras import ops


def compile_options(mode):
    """Arguments of `Model.compile` for a mode: `"jit"`, `"graph"` or `"eager"`."""
    eager = mode == "eager" and keras.backend.backend() != "torch"
    return {"jit_compile": mode == "jit", "run_eagerly": eager}


def flush_denormals():
    """Numbers below 1e-38 count as 0 on PyTorch too, as they do for the others.

    Processors are many times slower with them, and an attention that λ = 10 makes
    sharp has them all over: its steps would take up to 1.6 times as long, whoever
    computes them. To be called before the threads start that are to know of it.
    """
    if keras.backend.backend() == "torch":
        _module().set_flush_denormal(True)


def compiled(function, mode):
    """A function of tensors, run as a model of that mode would run it.

    Args:
        function: Takes tensors and returns one.
        mode: `"jit"`, `"graph"` (TensorFlow alone) or `"eager"`.

    Returns:
        A function of the same arguments that returns when the result is there.
    """
    backend = keras.backend.backend()
    if mode == "jit" and backend == "jax":
        function = _module().jit(function)
    elif mode != "eager" and backend == "tensorflow":
        function = _module().function(function, jit_compile=mode == "jit")
    elif mode == "jit":
        function = _module().compile(function)

    def call(*tensors):
        result = function(*tensors)
        _wait(result)
        return result

    return call


def gradient(function):
    """The function that returns the gradient of sum(function(x)²) in x."""
    backend = keras.backend.backend()

    def total(x):
        return ops.sum(ops.square(function(x)))

    def by_tape(x):
        with _module().GradientTape() as tape:
            tape.watch(x)
            value = total(x)
        return tape.gradient(value, x)

    def by_autograd(x):
        x = x.detach().requires_grad_(True)
        return _module().autograd.grad(total(x), x)[0]

    if backend == "jax":
        return _module().grad(total)
    return by_tape if backend == "tensorflow" else by_autograd


def machine():
    """What the numbers depend on besides the arguments."""
    backend = keras.backend.backend()
    return {
        **environment(),
        "backend_version": _module().__version__,
        "numpy": np.__version__,
        "processor": _processor(),
        "cores": os.cpu_count(),
        "omp_num_threads": os.environ.get("OMP_NUM_THREADS"),
        "device": accelerator() or "CPU",
        "system": platform.system(),
        "backend": backend,
    }


def accelerator():
    """Name of the GPU that the backend computes on; `None` for none."""
    backend = keras.backend.backend()
    module = _module()
    if backend == "torch":
        return module.cuda.get_device_name() if module.cuda.is_available() else None
    if backend == "jax":
        device = module.devices()[0]
        return None if device.platform == "cpu" else device.device_kind
    names = [device.name for device in module.config.list_physical_devices("GPU")]
    return names[0] if names else None


def accelerator_bytes(when):
    """Number of bytes in use on the GPU.

    Args:
        when: `"now"`, or `"peak"` for the largest number since the last reset.
    """
    backend, module, peak = keras.backend.backend(), _module(), when == "peak"
    if backend == "torch":
        cuda = module.cuda
        return cuda.max_memory_allocated() if peak else cuda.memory_allocated()
    if backend == "jax":
        statistics = module.devices()[0].memory_stats()
        return statistics["peak_bytes_in_use" if peak else "bytes_in_use"]
    information = module.config.experimental.get_memory_info("GPU:0")
    return information["peak" if peak else "current"]


def reset_accelerator_peak():
    """Forget the peak; returns whether the backend can (JAX cannot)."""
    backend = keras.backend.backend()
    if backend == "torch":
        _module().cuda.reset_peak_memory_stats()
    elif backend == "tensorflow":
        _module().config.experimental.reset_memory_stats("GPU:0")
    return backend != "jax"


def set_product_precision(name):
    """Choose how float32 matrix products are computed on a GPU.

    Args:
        name: `"float32"`, `"tf32"` or `"bfloat16"`.
    """
    backend = keras.backend.backend()
    if backend == "torch":
        names = {"float32": "highest", "tf32": "high", "bfloat16": "medium"}
        _module().set_float32_matmul_precision(names[name])
    elif backend == "jax":
        names = {"float32": "highest", "tf32": "tensorfloat32", "bfloat16": "bfloat16"}
        _module().config.update("jax_default_matmul_precision", names[name])
    else:
        raise ValueError(
            "The precision of products is chosen on jax and torch. Got the backend "
            f"{backend!r}: pass --backend jax or torch."
        )


def _module():
    return importlib.import_module(keras.backend.backend())


def _wait(result):
    """Returns when an asynchronous result has been computed."""
    backend = keras.backend.backend()
    if backend == "jax":
        _module().block_until_ready(result)
    elif accelerator():
        ops.convert_to_numpy(ops.ravel(result)[0])


def _processor():
    """Name of the processor."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            lines = [line for line in file if line.startswith("model name")]
        return lines[0].partition(":")[2].strip()
    except (OSError, IndexError):
        return platform.processor() or platform.machine()
