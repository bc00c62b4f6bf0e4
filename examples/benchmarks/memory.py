"""Memory of a few training steps, measured in a process of its own.

On a CPU it is the resident size of the process: between steps, where a compiled program
and what its compiler left behind have a large part, and at the peak from the second
step on. The difference between them is what a step needs. Where the system cannot
forget an earlier peak (Linux can), the peak is that of the whole process, and the
numbers say so. On a GPU it is what the backend counts. The allocators are told to
return large blocks at once, so that the resident size follows what is in use.
"""

import gc
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

STEPS = 3
STATUS = Path("/proc/self/status")
# The first two are read by glibc, the third by TensorFlow: with oneDNN it keeps what is
# freed in a pool. Others ignore them.
ALLOCATOR = {
    "MALLOC_MMAP_THRESHOLD_": "65536",
    "MALLOC_TRIM_THRESHOLD_": "65536",
    "TF_ENABLE_ONEDNN_OPTS": "0",
}


def in_child(script, request):
    """Run a script of the benchmarks in a process of its own.

    Args:
        script: Path of the script; it gets the request as its only argument and prints
            its answer, both as JSON.
        request: Dictionary; `backend` is the backend that the process runs.

    Returns:
        The answer.

    Raises:
        RuntimeError: If the process fails, with its last words.
    """
    run = subprocess.run(
        [sys.executable, str(script), json.dumps(request)],
        env={**os.environ, **ALLOCATOR, "KERAS_BACKEND": request["backend"]},
        capture_output=True,
        text=True,
    )
    if run.returncode:
        raise RuntimeError(
            f"The process that measures the memory of {request} ended with "
            f"{run.returncode}: {run.stderr.strip()[-2000:]}"
        )
    return json.loads(run.stdout.splitlines()[-1])


def peak_of_steps(case, side, mode, precision, backend):
    """Memory of a few training steps of a case, in a process of its own.

    Args:
        case: A `Case`.
        side: `"stock"` or `"ours"`.
        mode: `"jit"`, `"graph"` or `"eager"`.
        precision: Name of the dtype policy.
        backend: Name of the backend.

    Returns:
        Dictionary of `between_steps` and `peak`, both in bytes, and `with_compiling`,
        whether the peak may be one of compiling.
    """
    return in_child(
        __file__,
        {
            "case": [case.preset, case.method, case.batch_size],
            "side": side,
            "mode": mode,
            "precision": precision,
            "backend": backend,
        },
    )


def reset_peak():
    """Forget the peak so far; returns whether that is possible here."""
    from benchmarks.backends import accelerator, reset_accelerator_peak

    if accelerator():
        return reset_accelerator_peak()
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def peak_bytes():
    """Largest number of bytes in use since the last reset."""
    return _bytes("peak", "VmHWM")


def used_bytes():
    """Number of bytes in use now; on a CPU, where the system is not Linux, the peak."""
    return _bytes("now", "VmRSS")


def _bytes(when, key):
    from benchmarks.backends import accelerator, accelerator_bytes

    if accelerator():
        return accelerator_bytes(when)
    # Linux' `ru_maxrss` can be that of the process that started this one.
    if STATUS.exists():
        lines = STATUS.read_text(encoding="utf-8").splitlines()
        return next(int(x.split()[1]) for x in lines if x.startswith(key)) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _answer(request):
    import keras
    from benchmarks.cases import Case, build_ours, build_stock
    from benchmarks.steps import steps_of

    keras.config.set_dtype_policy(request["precision"])
    case = Case(*request["case"])
    model = build_stock(case.preset)
    if request["side"] == "ours":
        model = build_ours(case, model)
    train, _ = steps_of(model, case, request["mode"])
    train()
    gc.collect()  # The stock model that lent its weights.
    forgotten = reset_peak()
    between = used_bytes()
    for _ in range(STEPS):
        train()
    return {
        "between_steps": between,
        "peak": peak_bytes(),
        "with_compiling": not forgotten,
    }


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent))
    print(json.dumps(_answer(json.loads(sys.argv[1]))))
