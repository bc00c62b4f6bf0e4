"""What `import keras_cond` may bring into a process."""

import os
import subprocess
import sys

import keras
import pytest

MODULES = {"tensorflow": "tensorflow", "jax": "jax", "torch": "torch"}

# Runs before anything is imported: the named packages look as if not installed.
BLOCKER = """
import sys

class Without:
    def __init__(self, finder):
        self._finder = finder

    def __getattr__(self, name):
        return getattr(self._finder, name)

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {blocked!r}:
            return None
        return self._finder.find_spec(name, path, target)

sys.meta_path[:] = [Without(finder) for finder in sys.meta_path]
"""


def run_python(code):
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "KERAS_BACKEND": keras.backend.backend()},
        capture_output=True,
        text=True,
    )


@pytest.fixture
def absent():
    """The backends that are not under test, and matplotlib."""
    others = set(MODULES.values()) - {MODULES[keras.backend.backend()]}
    return sorted(others | {"matplotlib"})


def test_package_works_where_one_backend_alone_is_installed(absent):
    run = run_python(
        BLOCKER.format(blocked=absent)
        + """
import keras_cond
import numpy as np

x = np.random.default_rng(0).normal(size=(2, 5, 8)).astype("float32")
layer = keras_cond.SpectralAttention(num_heads=2, key_dim=4)
print(layer(x, x).shape, keras_cond.ops.condition(x).shape)
"""
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.split("\n")[0].count("2, 5, 8") == 2


def test_blocker_blocks(absent):
    run = run_python(BLOCKER.format(blocked=absent) + f"import {absent[0]}")
    assert run.returncode != 0
    assert "ModuleNotFoundError" in run.stderr


def test_import_adds_no_second_backend_and_no_plotting(absent):
    run = run_python(
        f"""
import sys
import keras
before = set(sys.modules)
import keras_cond
added = {{name.split(".")[0] for name in set(sys.modules) - before}}
print(sorted(added & set({absent!r})))
"""
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == "[]"
