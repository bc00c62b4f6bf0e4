"""The same weights and batches give the same numbers on every backend.

A mini ViT of the package's layers, trained for a few steps, and the inputs whose
singular values coincide. One process a backend; run once, not once a backend.
"""

import importlib.util
import itertools
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from tests.autodiff import BACKEND

INSTALLED = [
    name for name in ("jax", "tensorflow", "torch") if importlib.util.find_spec(name)
]
ROOT = pathlib.Path(__file__).parent.parent

# float32 rounds at 1e-7; three blocks, their norms and softmaxes and (for the losses)
# four steps leave 1e-5 of the largest value. 1e-4 is what the case asks for.
TOLERANCE = 1e-4

pytestmark = [
    pytest.mark.skipif(len(INSTALLED) < 2, reason="needs two backends to compare"),
    pytest.mark.skipif(BACKEND != INSTALLED[0], reason=f"runs with {INSTALLED[0]}"),
]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Backend -> name -> array."""
    folder = tmp_path_factory.mktemp("backends")
    found = {}
    for backend in INSTALLED:
        path = folder / f"{backend}.npz"
        run = subprocess.run(
            [sys.executable, "-m", "tests.mini_vit", str(path)],
            cwd=ROOT,
            env={**os.environ, "KERAS_BACKEND": backend, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert run.returncode == 0, f"{backend}: {run.stderr[-2000:]}"
        with np.load(path) as file:
            found[backend] = {
                str(name): file[f"value_{i}"] for i, name in enumerate(file["names"])
            }
    return found


def disagreements(results, wanted, tolerance=TOLERANCE):
    """The names whose arrays differ by more than the tolerance, and by how much.

    Relative to the largest entry of the array, or to 1e-3 where all are smaller: the
    gradient of a key bias is 0 but for rounding.
    """
    found = {}
    for one, other in itertools.combinations(results, 2):
        assert list(results[one]) == list(results[other])
        for name in filter(wanted, results[one]):
            a, b = results[one][name], results[other][name]
            scale = max(np.abs(a).max(), np.abs(b).max(), 1e-3)
            difference = np.abs(a - b).max() / scale
            if not difference <= tolerance:
                found[one, other, name] = float(difference)
    return found


def test_losses_and_outputs_agree_over_the_steps_of_training(results):
    wanted = ("losses", "outputs at start", "outputs at end", "weights at end")
    assert disagreements(results, lambda name: name in wanted) == {}
    for values in results.values():
        losses = values["losses"]
        assert losses.shape == (4,) and np.isfinite(losses).all()
        assert losses[-1] < losses[0]


def test_gradients_of_every_weight_agree(results):
    assert disagreements(results, lambda name: name.startswith("gradient of")) == {}
    for values in results.values():
        gradients = [v for k, v in values.items() if k.startswith("gradient of")]
        assert sum(np.abs(g).max() > 1e-3 for g in gradients) > 40


@pytest.mark.parametrize("method", ["newton_schulz", "svd"])
def test_coinciding_singular_values_agree_in_value_and_gradient(results, method):
    for values in results.values():
        mine = {k: v for k, v in values.items() if k.startswith(method)}
        assert len(mine) == 16
        assert all(np.isfinite(v).all() for v in mine.values())
    # An SVD leaves noise of a few eps in null directions, which the slope 5/floor of
    # the correction amplifies; matrix products keep equal rows equal.
    tolerance = TOLERANCE if method == "newton_schulz" else 2e-3
    found = disagreements(results, lambda name: name.startswith(method), tolerance)
    assert found == {}
