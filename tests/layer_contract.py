"""One contract that every layer of the package runs.

A test module subclasses `LayerContract`, names the layer and the arguments to build
it with, and overrides `call` where the layer takes more than one input. Lengths are
few, because JAX compiles each anew.
"""

import json
import pickle
from typing import ClassVar

import keras
import numpy as np
import pytest
from keras import ops

from tests import matrices
from tests.autodiff import BACKEND, compiled, dtype_of, to_numpy, weighted_sum

# Compute dtype of each policy, and how far one rounding to it may move an output,
# relative to the largest: half a unit in the last place, times the roundings of a
# chain of two to four operations.
POLICIES = {
    "float32": ("float32", 1e-6),
    "mixed_float16": ("float16", 1e-2),
    "mixed_bfloat16": ("bfloat16", 6e-2),
    "float16": ("float16", 1e-2),
    "bfloat16": ("bfloat16", 6e-2),
}

VOCABULARY = 11
CHANNELS = 6
LENGTH = 5


@keras.saving.register_keras_serializable(package="keras_cond_tests")
class MaskProbe(keras.layers.Layer):
    """Returns the mask that reached it, as numbers; -1 where none did."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True

    def call(self, inputs, mask=None):
        if mask is None:
            return -ops.ones_like(inputs[..., 0])
        return ops.cast(mask, inputs.dtype)

    def compute_output_shape(self, input_shape):
        return input_shape[:-1]


class LayerContract:
    """Laws of every layer; `layer_class` and `arguments` say which one."""

    layer_class = None
    # Constructor arguments, all of them different from their defaults.
    arguments: ClassVar[dict] = {}
    # What the layer reads: "features" (batch, length, CHANNELS) or "ids".
    reads = "features"
    seed = 0

    # -- how to build and call -------------------------------------------------

    def build_layer(self, **overrides):
        # A seeded initializer gives each layer it is passed to other values, so that
        # models to be compared need an instance each.
        arguments = {
            name: type(value).from_config(value.get_config())
            if isinstance(value, keras.initializers.Initializer)
            else value
            for name, value in self.arguments.items()
        }
        return self.layer_class(**{**arguments, **overrides})

    def arguments_for_policy(self, policy):
        """Arguments without which the stock parent fails under `policy`."""
        return {}

    def call(self, layer, x, **kwargs):
        return layer(x, **kwargs)

    def example(self, batch=3, length=LENGTH):
        rng = np.random.default_rng(self.seed)
        if self.reads == "ids":
            return rng.integers(1, VOCABULARY, (batch, length)).astype("int32")
        # Well conditioned, so that rounding is not amplified much.
        tokens = [
            3.0 * matrices.with_kappa((length, CHANNELS), 10.0, self.seed + i)
            for i in range(batch)
        ]
        return np.reshape(tokens, (batch, length, CHANNELS)).astype("float32")

    def input(self, batch=None, length=None, dtype=None):
        if self.reads == "ids":
            return keras.Input((length,), batch_size=batch, dtype="int32")
        return keras.Input((length, CHANNELS), batch_size=batch, dtype=dtype)

    def model(self, length=None, batch=None, dtype=None, **overrides):
        """Dense where the inputs are features, then the layer, then a readout."""
        inputs = self.input(batch, length)
        x = inputs
        if self.reads == "features":
            x = keras.layers.Dense(CHANNELS, name="before", dtype=dtype)(x)
        layer = self.build_layer(name="layer_under_test", dtype=dtype, **overrides)
        x = self.call(layer, x)
        x = keras.layers.Dense(2, name="after", dtype=dtype)(x)
        return keras.Model(inputs, x)

    def target(self, batch=3, length=LENGTH):
        rng = np.random.default_rng(self.seed + 1)
        return rng.standard_normal((batch, length, 2)).astype("float32")

    def output(self, model, x):
        return to_numpy(model(ops.convert_to_tensor(x)))

    # -- config ----------------------------------------------------------------

    def test_config_round_trips_every_argument(self):
        layer = self.build_layer(name="mine")
        config = layer.get_config()
        for name, value in self.arguments.items():
            got = config[name]
            if isinstance(value, keras.initializers.Initializer):
                value = keras.saving.serialize_keras_object(value)
            assert got == value, f"{name}: {got!r} in the config, {value!r} passed"
        again = self.layer_class.from_config(config)
        assert json.dumps(again.get_config()) == json.dumps(config)

    def test_it_is_registered_under_the_package_name(self):
        serialized = keras.saving.serialize_keras_object(self.build_layer())
        assert (
            serialized["registered_name"] == f"keras_cond>{self.layer_class.__name__}"
        )
        again = keras.saving.deserialize_keras_object(serialized)
        assert type(again) is self.layer_class
        assert again.get_config() == serialized["config"]

    def test_a_clone_with_the_same_weights_gives_the_same_outputs(self):
        model, x = self.model(), self.example()
        clone = keras.models.clone_model(model)
        clone.set_weights(model.get_weights())
        assert type(clone.get_layer("layer_under_test")) is self.layer_class
        np.testing.assert_allclose(
            self.output(clone, x), self.output(model, x), rtol=1e-6, atol=1e-6
        )

    def test_every_weight_has_its_own_path(self):
        # Equal paths collide on torch, where a gradient then accumulates silently.
        weights = self.model().weights
        assert len({w.path for w in weights}) == len(weights)

    # -- files -----------------------------------------------------------------

    def test_a_pickled_layer_comes_back(self):
        layer, x = self.build_layer(), ops.convert_to_tensor(self.example())
        expected = to_numpy(self.call(layer, x))
        again = pickle.loads(pickle.dumps(layer))
        assert type(again) is self.layer_class
        np.testing.assert_allclose(
            to_numpy(self.call(again, x)), expected, rtol=1e-6, atol=1e-6
        )

    def test_weights_files_load_and_save_without_drifting(self, tmp_path):
        model, x = self.model(), self.example()
        expected = self.output(model, x)
        path = tmp_path / "w.weights.h5"
        model.save_weights(path)
        keras.utils.set_random_seed(99)
        other = self.model()
        for _ in range(2):  # a correction added on either way would add up
            other.load_weights(path)
            np.testing.assert_allclose(
                self.output(other, x), expected, rtol=1e-6, atol=1e-6
            )
            other.save_weights(path)
        for before, after in zip(model.get_weights(), other.get_weights(), strict=True):
            np.testing.assert_array_equal(before, after)

    def test_resuming_from_a_file_equals_never_stopping(self, tmp_path):
        x, y = self.example(), self.target()
        path = tmp_path / "checkpoint.keras"
        model = self.model()
        model.compile(keras.optimizers.SGD(0.005, momentum=0.9), "mse")
        checkpoint = keras.callbacks.ModelCheckpoint(path)
        model.fit(x, y, epochs=2, verbose=0, callbacks=[checkpoint], shuffle=False)
        resumed = keras.models.load_model(path)
        np.testing.assert_allclose(
            self.output(resumed, x), self.output(model, x), rtol=1e-5, atol=1e-6
        )
        model.fit(x, y, epochs=2, verbose=0, shuffle=False)
        resumed.fit(x, y, epochs=2, verbose=0, shuffle=False)
        for one, other in zip(model.get_weights(), resumed.get_weights(), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)

    # -- shapes ----------------------------------------------------------------

    @pytest.mark.parametrize(
        ("batch", "length"), [(3, LENGTH), (None, LENGTH), (3, None), (None, None)]
    )
    def test_symbolic_shape_and_dtype_are_the_eager_ones(self, batch, length):
        layer = self.build_layer()
        symbolic = self.call(layer, self.input(batch, length))
        eager = self.call(layer, ops.convert_to_tensor(self.example()))
        assert tuple(symbolic.shape) == (batch, length, *eager.shape[2:])
        assert dtype_of(symbolic) == dtype_of(eager) == layer.compute_dtype

    def test_it_trains_on_batches_of_several_lengths(self):
        model = self.model()
        model.compile(keras.optimizers.SGD(0.01), "mse")
        before = model.get_weights()
        for length in (5, 6, 7):
            loss = model.train_on_batch(self.example(3, length), self.target(3, length))
            assert np.isfinite(loss)
        assert any(
            np.abs(a - b).max() > 1e-6
            for a, b in zip(before, model.get_weights(), strict=True)
        )
        # A matrix made for one length must not be used for another.
        layer = model.get_layer("layer_under_test")
        for length in (7, 5):
            x = self.example(3, length)
            inner = x
            if self.reads == "features":
                inner = model.get_layer("before")(x)
            inner = self.call(layer, ops.convert_to_tensor(inner))
            np.testing.assert_allclose(
                model.predict(x, verbose=0),
                to_numpy(model.get_layer("after")(inner)),
                rtol=1e-4,
                atol=1e-5,
            )

    def test_a_batch_of_one_equals_its_row_of_a_larger_batch(self):
        layer, x = self.build_layer(), self.example()
        together = to_numpy(self.call(layer, ops.convert_to_tensor(x)))
        alone = to_numpy(self.call(layer, ops.convert_to_tensor(x[1:2])))
        np.testing.assert_allclose(alone[0], together[1], rtol=1e-5, atol=1e-5)

    @pytest.mark.parametrize("jit", [False, True])
    def test_an_empty_batch_stays_empty(self, jit):
        layer, x = self.build_layer(), ops.convert_to_tensor(self.example())
        full = self.call(layer, x)

        def function(t):
            return self.call(layer, t)

        empty = (compiled(function) if jit else function)(
            ops.convert_to_tensor(self.example()[:0])
        )
        assert tuple(empty.shape) == (0, *full.shape[1:])

    # -- masks -----------------------------------------------------------------

    def test_a_mask_passes_through(self):
        inputs = self.input(length=LENGTH)
        if self.reads == "ids":
            layer, x = self.build_layer(mask_zero=True), self.example()
            x[0, 3:] = 0
            x[1, 0] = 0
            expected = x != 0
            outputs = MaskProbe()(layer(inputs))
        else:
            x = self.example()
            x[0, 3:] = -1.0
            x[1, 0] = -1.0
            expected = ~(x == -1.0).all(-1)
            masked = keras.layers.Masking(-1.0)(inputs)
            outputs = MaskProbe()(self.call(self.build_layer(), masked))
        got = keras.Model(inputs, outputs).predict(x, verbose=0)
        np.testing.assert_array_equal(got, expected.astype("float32"))

    def test_padding_does_not_reach_real_tokens(self):
        inputs = self.input()
        if self.reads == "ids":
            layer = self.build_layer(mask_zero=True)
            model = keras.Model(inputs, layer(inputs))
            pad_value = 0
        else:
            layer = self.build_layer()
            masked = keras.layers.Masking(-1.0)(inputs)
            model = keras.Model(inputs, self.call(layer, masked))
            pad_value = -1.0
        x = self.example(length=7)
        x[0, 5:] = pad_value
        x[1, :2] = pad_value
        x[2, [1, 5]] = pad_value
        real = np.array([[1] * 5 + [0] * 2, [0] * 2 + [1] * 5, [1, 0, 1, 1, 1, 0, 1]])
        padded = self.output(model, x)
        alone = self.output(
            model, np.stack([s[m] for s, m in zip(x, real == 1, strict=True)])
        )
        for i in range(3):
            scale = max(1.0, np.abs(alone[i]).max())
            np.testing.assert_allclose(
                padded[i, real[i] == 1] / scale, alone[i] / scale, atol=1e-5
            )

    # -- precision -------------------------------------------------------------

    @pytest.mark.parametrize("policy", POLICIES)
    def test_every_dtype_policy_computes_in_its_dtype_and_trains(self, policy):
        compute_dtype, tolerance = POLICIES[policy]
        keras.utils.set_random_seed(1)
        more = self.arguments_for_policy(policy)
        reference = self.build_layer(**more)
        x = self.example()
        expected = to_numpy(self.call(reference, ops.convert_to_tensor(x)))
        layer = self.build_layer(dtype=policy, **more)
        inputs = ops.convert_to_tensor(x)
        if self.reads == "features":
            inputs = ops.cast(inputs, compute_dtype)
        got = self.call(layer, inputs)
        layer.set_weights(reference.get_weights())
        got = self.call(layer, inputs)
        symbolic = self.call(layer, self.input(3, LENGTH, dtype=compute_dtype))
        assert dtype_of(got) == dtype_of(symbolic) == compute_dtype
        for weight in layer.trainable_weights:
            assert dtype_of(weight) == layer.variable_dtype
        scale = np.abs(expected).max()
        np.testing.assert_allclose(
            to_numpy(got) / scale, expected / scale, atol=tolerance
        )
        model = self.model(length=LENGTH, dtype=policy, **more)
        model.compile(keras.optimizers.SGD(1e-2), "mse")
        before = [np.array(w) for w in model.get_weights()]
        loss = model.train_on_batch(x, self.target())
        assert np.isfinite(loss)
        after = model.get_weights()
        assert all(np.isfinite(np.asarray(w, "float32")).all() for w in after)
        assert any(
            (np.asarray(a, "float32") != np.asarray(b, "float32")).any()
            for a, b in zip(before, after, strict=True)
        )

    # -- training --------------------------------------------------------------

    def trained(self, **compile_arguments):
        keras.utils.set_random_seed(7)
        model = self.model(length=LENGTH)
        model.compile(keras.optimizers.SGD(0.005), "mse", **compile_arguments)
        history = model.fit(
            self.example(4), self.target(4), epochs=3, batch_size=4, verbose=0
        )
        return model, history.history["loss"]

    @pytest.mark.skipif(BACKEND == "torch", reason="the next test is torch's")
    def test_fit_is_the_same_eagerly_and_compiled(self):
        _, eager_losses = self.trained(run_eagerly=True)
        assert eager_losses[-1] < eager_losses[0]
        model, losses = self.trained(jit_compile=True)
        np.testing.assert_allclose(losses, eager_losses, rtol=1e-3)
        assert np.isfinite(model.predict(self.example(4), verbose=0)).all()

    @pytest.mark.skipif(BACKEND != "torch", reason="the test before is the others'")
    def test_fit_trains_and_torch_compile_changes_neither_value_nor_gradient(self):
        import torch

        _, losses = self.trained()
        assert losses[-1] < losses[0]
        # Of `torch.compile` all but the C++ compiler behind it, and of the train step
        # the layer alone: the rest takes a minute a layer and is Keras'. One fit with
        # both is in `test_spectral_attention.py`. The reset keeps earlier compiles
        # from exhausting the limit beyond which torch falls back without a word.
        torch._dynamo.reset()
        layer = self.build_layer()
        x = ops.convert_to_tensor(self.example())
        weight = np.random.default_rng(0).standard_normal((3, LENGTH, CHANNELS))
        self.call(layer, x)

        def eager_call(t):
            return weighted_sum(weight, self.call(layer, t))

        results = []
        for function in (eager_call, torch.compile(eager_call, backend="aot_eager")):
            t = x.clone()
            if self.reads == "features":
                t.requires_grad_(True)
            value = function(t)
            leaves = [v.value for v in layer.trainable_variables]
            leaves += [t] if self.reads == "features" else []
            results.append([value, *torch.autograd.grad(value, leaves)])
        for eager, other in zip(*results, strict=True):
            np.testing.assert_allclose(
                to_numpy(other), to_numpy(eager), rtol=1e-3, atol=1e-4
            )
