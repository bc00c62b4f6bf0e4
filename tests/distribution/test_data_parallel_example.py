"""`--data-parallel` of the examples."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import keras
import numpy as np
import pytest
from common.data_parallel import check_last_batch, use_all_devices

from tests.autodiff import BACKEND

ROOT = Path(__file__).parent.parent.parent


def numbers_of_a_run(folder, *arguments, **environment):
    """The history of a smoke run of one method."""
    run = subprocess.run(
        [
            *(sys.executable, "examples/vit.py", "--smoke", "--output", str(folder)),
            *("--method", "conditioned_tokens", *arguments),
        ],
        cwd=ROOT,
        env={
            **os.environ,
            "KERAS_BACKEND": BACKEND,
            "PYTHONPATH": str(ROOT),
            **environment,
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    parallel = "data parallel on 8 devices" in run.stdout
    assert parallel == ("--data-parallel" in arguments)
    results = json.loads((folder / "results.json").read_text())
    return results["methods"]["conditioned_tokens"]["history"]


@pytest.mark.skipif(BACKEND != "jax", reason="keras.distribution is JAX's")
def test_the_vision_transformer_trains_on_eight_devices_as_on_one(tmp_path):
    alone = numbers_of_a_run(tmp_path / "one")
    parallel = numbers_of_a_run(
        tmp_path / "eight",
        "--data-parallel",
        XLA_FLAGS="--xla_force_host_platform_device_count=8",
    )
    assert set(alone) == set(parallel)
    for name, values in alone.items():
        np.testing.assert_allclose(parallel[name], values, rtol=1e-4, err_msg=name)


@pytest.mark.parametrize(
    "backend, devices, batch_size, message",
    [
        ("torch", 2, 16, "got the backend torch, expected jax"),
        ("jax", 1, 16, "got one device, cpu:0, expected two or more"),
        ("jax", 3, 16, "got 16, expected a multiple of the 3 devices"),
    ],
)
def test_what_cannot_be_shared_out_is_refused(
    backend, devices, batch_size, message, monkeypatch
):
    monkeypatch.setattr(keras.backend, "backend", lambda: backend)
    names = [f"cpu:{i}" for i in range(devices)]
    monkeypatch.setattr(keras.distribution, "list_devices", lambda: names)
    arguments = SimpleNamespace(data_parallel=True, batch_size=batch_size)
    with pytest.raises(ValueError, match=message):
        use_all_devices(arguments)
    arguments.data_parallel = False
    use_all_devices(arguments)


def test_a_last_batch_that_cannot_be_shared_out_is_refused(monkeypatch):
    batches = [(None, np.zeros(8)), (None, np.zeros(6))]
    check_last_batch(batches, "images")
    replicas = SimpleNamespace(num_model_replicas=4)
    monkeypatch.setattr(keras.distribution, "distribution", lambda: replicas)
    with pytest.raises(ValueError, match="got 6 images in the last batch, expected a"):
        check_last_batch(batches, "images")
    check_last_batch(batches[:1], "images")
