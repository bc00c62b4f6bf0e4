"""Backend, seeds and precision of the whole suite.

The backend under test is `KERAS_BACKEND`; without it, the first of TensorFlow, JAX
and torch that is installed. It has to be chosen before Keras is imported, so this
file comes first.
"""

import getpass
import importlib.util
import os
import tempfile

BACKENDS = {"tensorflow": "tensorflow", "jax": "jax", "torch": "torch"}

if "KERAS_BACKEND" not in os.environ:
    os.environ["KERAS_BACKEND"] = next(
        name for name, module in BACKENDS.items() if importlib.util.find_spec(module)
    )
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# Compiling takes most of the time on JAX: half of it without optimizations, and a
# quarter of that again where an earlier run left its programs.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
os.environ.setdefault(
    "JAX_COMPILATION_CACHE_DIR",
    os.path.join(tempfile.gettempdir(), f"keras_cond_jax_{getpass.getuser()}"),
)
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
# Figures are drawn to files, never to a screen.
os.environ.setdefault("MPLBACKEND", "Agg")

import keras  # noqa: E402
import pytest  # noqa: E402
from hypothesis import HealthCheck, settings  # noqa: E402

# Derandomized: a red run is red again on the next machine. No deadline: the first
# call of a shape compiles.
settings.register_profile(
    "keras_cond",
    max_examples=10,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
settings.load_profile("keras_cond")

if keras.backend.backend() == "torch":
    import torch

    # The matrices here are tiny: a second thread costs more than it brings.
    torch.set_num_threads(1)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Gives a worker whole files or classes, so that it compiles a shape only once."""
    from xdist.scheduler import LoadScopeScheduling

    return LoadScopeScheduling(config, log)


@pytest.fixture(autouse=True)
def same_start_for_every_test():
    """Seeds every generator, and restores the global dtype policy and float type."""
    policy = keras.config.dtype_policy()
    floatx = keras.config.floatx()
    keras.utils.set_random_seed(0)
    yield
    keras.config.set_floatx(floatx)
    keras.config.set_dtype_policy(policy)
