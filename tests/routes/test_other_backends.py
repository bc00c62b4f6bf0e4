"""The NumPy and OpenVINO backends of Keras load what another backend saved.

Run once, with the first of these that is installed: building is quickest on PyTorch.
"""

import importlib.util
import json
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from tests.autodiff import BACKEND, to_numpy
from tests.routes.models import MODELS, SVD_LAYERS, example, svd_layer

FIRST = next(
    name for name in ("torch", "tensorflow", "jax") if importlib.util.find_spec(name)
)
pytestmark = pytest.mark.skipif(BACKEND != FIRST, reason=f"runs with {FIRST}")

# The model is called rather than `predict`: on a processor with units for bfloat16
# OpenVINO's `predict` computes in it, and loses two digits of the stock layers too.
PROGRAM = """
    import json, sys, traceback
    import numpy as np
    import keras_cond
    import keras

    found = {}
    folder, *names = sys.argv[1:]
    for name in names:
        try:
            with np.load(f"{folder}/{name}.npz") as file:
                x, expected = file["x"], file["y"]
            model = keras.models.load_model(f"{folder}/{name}.keras")
            got = keras.ops.convert_to_numpy(model(x))
            # Keras' attention on OpenVINO has NaN for a query that is padding, in the
            # stock layer too; the last id of each sample is.
            got, expected = got[:, :-1], expected[:, :-1]
            found[name] = float(np.abs(got - expected).max() / np.abs(expected).max())
        except Exception:
            found[name] = traceback.format_exc()[-1500:]
    print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    models = {name: build() for name, build in MODELS.items()}
    models.update({f"{name}-svd": svd_layer(name) for name in SVD_LAYERS})
    for name, model in models.items():
        x = example(model)
        model.save(folder / f"{name}.keras")
        np.savez(folder / f"{name}.npz", x=x, y=to_numpy(model(x)))
    return folder


@pytest.fixture(scope="module", params=["numpy", "openvino"])
def found(folder, request):
    if not importlib.util.find_spec(request.param):
        pytest.skip(f"{request.param} is not installed")
    names = [path.stem for path in folder.glob("*.keras")]
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM), str(folder), *names],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "KERAS_BACKEND": request.param},
    )
    assert result.returncode == 0, result.stderr[-2000:]
    return request.param, json.loads(result.stdout.strip().split("\n")[-1])


@pytest.mark.parametrize("name", MODELS)
def test_outputs_are_those_of_the_backend_that_saved(found, name):
    _, differences = found
    assert not isinstance(differences[name], str), differences[name]
    assert differences[name] <= 1e-4


@pytest.mark.parametrize("name", SVD_LAYERS)
def test_the_svd_runs_on_numpy_and_keras_refuses_it_on_openvino(found, name):
    backend, differences = found
    difference = differences[f"{name}-svd"]
    if backend == "numpy":
        assert not isinstance(difference, str), difference
        assert difference <= 1e-4
    else:
        assert "NotImplementedError" in difference
        assert "`svd` is not supported with openvino backend" in difference
