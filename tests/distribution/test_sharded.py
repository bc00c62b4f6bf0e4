"""`keras.distribution` on JAX: sharded models compute what one device does."""

import numpy as np
import pytest

from tests.autodiff import BACKEND
from tests.distribution.models import run

pytestmark = pytest.mark.skipif(BACKEND != "jax", reason="keras.distribution is JAX's")

# Sums are taken in another order: a few roundings of float32, times the slope of the
# grayings and corrections.
TOLERANCE = 1e-4
# XLA's threads are as many as the processor's cores, and eight devices may need more.
ENVIRONMENT = {
    "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
    "NPROC": "16",
}


@pytest.mark.parametrize(
    "model, distributions",
    [
        ("encoder", ["heads"]),
        ("decoder", ["channels"]),
        ("vision", ["data"]),
    ],
)
def test_a_distributed_model_trains_as_on_one_device(model, distributions):
    found = run("tests.distribution.sharded", model, *distributions, **ENVIRONMENT)
    assert found["devices"] == 8
    assert found["loss"][1] < found["loss"][0]
    for name in distributions:
        result = found[name]
        np.testing.assert_allclose(result["loss"], found["loss"], rtol=TOLERANCE)
        assert result["weights"] <= TOLERANCE
        split = {
            path
            for path, (whole, part) in result["shards"].items()
            if 4 * np.prod(part) == np.prod(whole)
        }
        kernels = {p for p in result["shards"] if p.endswith(("kernel", "embeddings"))}
        assert split == (set() if name == "data" else kernels)


def test_surgery_and_instruments_work_on_a_sharded_model():
    found = run("tests.distribution.sharded", "operated", **ENVIRONMENT)
    assert len(found["names"]) > 60
    differences = dict(zip(found["names"], found["differences"], strict=True))
    assert {n: d for n, d in differences.items() if not d <= TOLERANCE} == {}


def test_large_kernels_are_made_in_shards_and_hold_the_same_values():
    # Keras compiles an initializer with the layout of its result from 8M numbers on.
    found = run("tests.distribution.sharded", "initialized", **ENVIRONMENT)
    for name, (whole, part, differs) in found.items():
        assert 4 * np.prod(part) == np.prod(whole), name
        assert differs <= 1e-6, name
