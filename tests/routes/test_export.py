"""Exported models serve in a process without Keras, at other sizes, or refuse.

Every model is exported with unknown batch and length from the backend under test and
served at sizes that it has not seen. One process serves them all: importing TensorFlow
takes seconds.
"""

import contextlib
import io
import json
import subprocess
import sys
import textwrap
import warnings

import keras
import numpy as np
import pytest

import keras_cond
from tests.autodiff import BACKEND, to_numpy
from tests.routes.models import MODELS, SVD_LAYERS, WIDTH, applied, example, svd_layer

# JAX needs `jax2onnx` for ONNX, and its twenty packages; PyTorch needs `torch_xla` for
# a SavedModel.
FORMATS = {
    "tensorflow": ["tf_saved_model", "onnx"],
    "jax": ["tf_saved_model"],
    "torch": ["onnx"],
}[BACKEND]

EXPORTED = {**MODELS, "applied": applied}

PROGRAM = """
    import json, sys, traceback
    for name in ("jax", "torch", "keras_cond"):
        sys.modules[name] = None  # Importing it fails.
    import numpy as np

    def serve(path):
        if path.endswith(".onnx"):
            import onnxruntime
            session = onnxruntime.InferenceSession(path)
            (name,) = [i.name for i in session.get_inputs()]
            return lambda x: session.run(None, {name: x})[0]
        import tensorflow as tf
        model = tf.saved_model.load(path)
        return lambda x, model=model: model.serve(x).numpy()

    found = {}
    for path in sys.argv[1:]:
        try:
            with np.load(path + ".npz") as file:
                x, expected = file["x"], file["y"]
            got = serve(path)(x)
            assert got.shape == expected.shape, got.shape
            found[path] = float(np.abs(got - expected).max() / np.abs(expected).max())
        except Exception:
            found[path] = traceback.format_exc()[-1500:]
    print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What the fresh process found: a difference, or a traceback, by path."""
    folder = tmp_path_factory.mktemp("exported")
    paths = []
    for name, build in EXPORTED.items():
        keras.utils.set_random_seed(1)
        model = build()
        model(example(model))  # Keras exports what has been called.
        x = example(model, batch=3, length=8, seed=1)
        y = to_numpy(model(x))
        for form in FORMATS:
            path = str(folder / f"{name}.{form.removeprefix('tf_')}")
            with warnings.catch_warnings():
                # What is traced: sizes that are known, which PyTorch points out.
                warnings.filterwarnings("ignore", "Converting a tensor to a Python")
                model.export(path, format=form, verbose=False)
            np.savez(path + ".npz", x=x, y=y)
            paths.append(path)
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM), *paths],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-2000:]
    return {
        key.rpartition("/")[-1]: value
        for key, value in json.loads(result.stdout.strip().split("\n")[-1]).items()
    }


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("name", EXPORTED)
def test_it_serves_another_batch_and_length_in_a_fresh_process(found, name, form):
    difference = found[f"{name}.{form.removeprefix('tf_')}"]
    assert not isinstance(difference, str), difference
    # The products of float32 in another order.
    assert difference <= 1e-4


@pytest.mark.skipif(BACKEND == "jax", reason="needs jax2onnx")
@pytest.mark.parametrize("name", SVD_LAYERS)
def test_onnx_has_no_svd_and_the_error_names_the_other_method(name, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    model = svd_layer(name)
    model(example(model))
    path = str(tmp_path / "m.onnx")
    if BACKEND == "torch":
        with pytest.raises(ValueError, match="newton_schulz"):
            model.export(path, format="onnx", verbose=False)
        return
    # tf2onnx says so and yet writes a file, which cannot be loaded.
    with contextlib.redirect_stderr(io.StringIO()):
        model.export(path, format="onnx", verbose=False)
    with pytest.raises(Exception, match="ONNX_has_no_SVD_use_method_newton_schulz"):
        onnxruntime.InferenceSession(path)


@pytest.mark.skipif(BACKEND != "jax", reason="TensorFlow serves its own SVD")
@pytest.mark.parametrize("name", SVD_LAYERS)
def test_jax_refuses_to_export_an_svd_that_nobody_could_serve(name, tmp_path):
    model = svd_layer(name)
    with pytest.raises(ValueError, match="newton_schulz"):
        model.export(tmp_path / "m", verbose=False)


def test_an_svd_of_unknown_sizes_in_a_layer_of_the_user_is_no_export():
    # Keras on JAX traces the shapes of such a layer with sizes that have names.
    class Block(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.inner = keras_cond.TokenConditioning(method="svd")

        def call(self, x):
            return self.inner(x)

    inputs = keras.Input((None, WIDTH))
    model = keras.Model(inputs, Block()(inputs))
    assert model.output_shape == (None, None, WIDTH)


@pytest.mark.skipif(BACKEND != "torch", reason="PyTorch's own format")
class TestTorchExport:
    def served(self, model, path, dimensions, sizes):
        import torch

        names = ("batch", "length")
        shapes = {
            axis: torch.export.Dim(names[axis], min=2, max=64) for axis in dimensions
        }
        model.export(path, format="torch", verbose=False, dynamic_shapes=shapes)
        x = example(model, *sizes, seed=1)
        program = torch.export.load(path).module()
        return program(torch.as_tensor(x)).detach().numpy(), model.predict(x, verbose=0)

    def test_another_batch_and_length(self, tmp_path):
        inputs = keras.Input((None, WIDTH))
        layer = keras_cond.SpectralAttention(2, 4, correction_scale=2.0, per_head=False)
        model = keras.Model(inputs, layer(inputs, inputs))
        got, expected = self.served(model, tmp_path / "m.pt2", (0, 1), (3, 8))
        np.testing.assert_allclose(got, expected, atol=1e-5)

    @pytest.mark.parametrize("layer", ["DCTTokenGraying", "TokenConditioning"])
    def test_another_batch_of_a_known_length(self, layer, tmp_path):
        # The DCT takes its matrix from the length.
        inputs = keras.Input((5, WIDTH))
        model = keras.Model(inputs, getattr(keras_cond, layer)()(inputs))
        got, expected = self.served(model, tmp_path / "m.pt2", (0,), (3, 5))
        np.testing.assert_allclose(got, expected, atol=1e-5)


@pytest.mark.skipif(BACKEND != "torch", reason="the others export a SavedModel")
def test_a_saved_model_from_torch_is_refused_by_keras_with_the_stock_layer_too(
    tmp_path,
):
    errors = []
    for layer in (
        keras.layers.MultiHeadAttention(2, 4),
        keras_cond.SpectralAttention(2, 4),
    ):
        inputs = keras.Input((5, WIDTH))
        model = keras.Model(inputs, layer(inputs, inputs))
        with pytest.raises(Exception) as error:
            model.export(tmp_path / "m", verbose=False)
        errors.append(type(error.value))
    assert errors[0] is errors[1]
