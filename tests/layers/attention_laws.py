"""Laws that both spectral attention layers obey.

The stock layer with shifted kernels is the reference, and a NumPy attention where the
stock layer itself might be wrong. Weights of a layer with biases and without a gate
come in the order query, key, value, output, kernel before bias.
"""

import warnings
from typing import ClassVar

import keras
import numpy as np
import pytest
from keras import ops

from tests import oracles
from tests.autodiff import BACKEND, compiled, to_numpy, weight_gradients, weighted_sum
from tests.layer_contract import LayerContract

WIDTH = 8
CORRECTIONS = ("identity", "polar")


def tokens(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def as_list(outputs):
    return [
        to_numpy(t) for t in (outputs if isinstance(outputs, tuple) else (outputs,))
    ]


def query_projection(layer):
    """The query projection; grouped-query attention has no public name for it."""
    return next(p for p in layer._flatten_layers() if p.name == "query")


class AttentionContract(LayerContract):
    """The contract of a layer that is called with a query and a value."""

    def call(self, layer, x, **kwargs):
        return layer(x, x, **kwargs)

    def arguments_for_policy(self, policy):
        if BACKEND == "jax" and "float16" in policy and "bfloat16" not in policy:
            # JAX's fused attention has no gradient in float16 on a CPU, in the stock
            # layer either; dropout takes the other path.
            return {"dropout": 0.1}
        return {}


class SpectralAttentionLaws:
    """`layer_class(**sizes)` is `stock_class(**sizes)` with corrected projections."""

    layer_class = None
    stock_class = None
    sizes: ClassVar[dict] = {}

    def pair(self, query, value=None, key=None, **arguments):
        """The layer and its stock twin, both built, with the same weights."""
        names = ("correction", "correction_scale", "per_head")
        ours = {k: v for k, v in arguments.items() if k in names}
        shared = {k: v for k, v in arguments.items() if k not in names}
        sizes = {**self.sizes, **shared}
        layer = self.layer_class(**sizes, **ours)
        twin = self.stock_class(**sizes)
        value = query if value is None else value
        inputs = [query, value] if key is None else [query, value, key]
        # By hand: a call would move the seed of the dropout.
        for one in (layer, twin):
            one.build(*[t.shape for t in inputs])
        rng = np.random.default_rng(1)
        weights = [
            (0.3 * rng.standard_normal(w.shape)).astype("float32")
            for w in twin.get_weights()
        ]
        layer.set_weights(weights)
        twin.set_weights(weights)
        return layer, twin, weights, inputs

    def shifted(self, weights, correction, per_head, scale=10.0):
        if correction == "identity":
            return oracles.correct_attention_weights(
                weights, lambda w: oracles.identity_correction(w, scale, per_head)
            )
        return oracles.correct_attention_weights(
            weights, lambda w: oracles.polar_correction(w, per_head)
        )

    # -- it is the stock layer -------------------------------------------------

    def test_it_is_the_stock_layer_with_the_same_weights_in_the_same_order(self):
        layer, twin, weights, _ = self.pair(tokens(2, 5, WIDTH))
        assert isinstance(layer, self.stock_class)
        assert [w.name for w in layer.weights] == [w.name for w in twin.weights]
        assert [w.shape for w in layer.weights] == [w.shape for w in twin.weights]
        for stored, given in zip(layer.get_weights(), weights, strict=True):
            np.testing.assert_array_equal(stored, given)

    @pytest.mark.parametrize("correction", CORRECTIONS)
    @pytest.mark.parametrize(
        "case",
        [
            "plain",
            "attention mask",
            "causal",
            "keras masks",
            "scores",
            "cross",
            "key apart",
            "dropout 0.5 in inference",
            "dropout 0.5 in training",
            "sliding window",
            "gate",
            "no bias",
        ],
    )
    def test_scale_zero_is_the_stock_layer_bit_for_bit(self, case, correction):
        query = tokens(2, 5, WIDTH)
        value = key = None
        arguments, call = {}, {}
        mask = np.random.default_rng(3).random((2, 5, 5)) > 0.3
        mask |= np.eye(5, dtype=bool)
        if case == "attention mask":
            call = {"attention_mask": mask}
        elif case == "causal":
            call = {"use_causal_mask": True}
        elif case == "keras masks":
            call = {"query_mask": mask[:, 0], "value_mask": mask[:, 0]}
        elif case == "scores":
            call = {"return_attention_scores": True, "use_causal_mask": True}
        elif case == "cross":
            value = tokens(2, 7, WIDTH - 2, seed=5)
        elif case == "key apart":
            value = tokens(2, 7, WIDTH - 2, seed=5)
            key = tokens(2, 7, WIDTH + 1, seed=6)
        elif case.startswith("dropout"):
            arguments = {"dropout": 0.5, "seed": 13}
            call = {"training": case.endswith("training")}
        elif case == "sliding window":
            arguments = {"sliding_window": 2}
        elif case == "gate":
            arguments = {"use_gate": True}
        elif case == "no bias":
            arguments = {"use_bias": False}
        layer, twin, _, inputs = self.pair(
            query, value, key, correction=correction, correction_scale=0, **arguments
        )
        got = as_list(layer(*inputs, **call))
        expected = as_list(twin(*inputs, **call))
        assert len(got) == len(expected)
        for ours, stock in zip(got, expected, strict=True):
            np.testing.assert_array_equal(ours, stock)
        corrected, *_ = self.pair(
            query, value, key, correction=correction, correction_scale=2.0, **arguments
        )
        other = as_list(corrected(*inputs, **call))
        assert np.abs(other[0] - expected[0]).max() > 1e-3, "the correction is inert"

    # -- what the corrections are ----------------------------------------------

    @pytest.mark.parametrize("per_head", [True, False])
    @pytest.mark.parametrize("correction", CORRECTIONS)
    def test_it_equals_numpy_attention_with_shifted_kernels(self, correction, per_head):
        x = tokens(2, 5, WIDTH)
        layer, _, weights, _ = self.pair(
            x, correction=correction, per_head=per_head, correction_scale=1.5
        )
        shifted = self.shifted(weights, correction, per_head, 1.5)
        expected = [oracles.attention(s, s, shifted) for s in x]
        np.testing.assert_allclose(to_numpy(layer(x, x)), expected, atol=1e-3)
        raw = [oracles.attention(s, s, weights) for s in x]
        assert np.abs(np.array(expected) - raw).max() > 0.05

    @pytest.mark.parametrize("per_head", [True, False])
    def test_identity_equals_the_stock_layer_whose_kernels_were_shifted(self, per_head):
        x, mask = tokens(2, 5, WIDTH), np.tril(np.ones((1, 5, 5), bool))
        layer, twin, weights, _ = self.pair(x, per_head=per_head)
        # The default scale is the paper's 10.
        twin.set_weights(self.shifted(weights, "identity", per_head, 10.0))
        np.testing.assert_allclose(
            to_numpy(layer(x, x, attention_mask=mask)),
            to_numpy(twin(x, x, attention_mask=mask)),
            rtol=1e-5,
            atol=1e-5,
        )

    def test_cross_attention_of_different_widths_equals_numpy(self):
        query, value = tokens(2, 5, WIDTH), tokens(2, 7, WIDTH - 2, seed=5)
        key = tokens(2, 7, WIDTH + 1, seed=6)
        for correction in CORRECTIONS:
            layer, _, weights, _ = self.pair(
                query, value, key, correction=correction, correction_scale=1.5
            )
            shifted = self.shifted(weights, correction, True, 1.5)
            expected = [
                oracles.attention(q, v, shifted, key=k)
                for q, v, k in zip(query, value, key, strict=True)
            ]
            np.testing.assert_allclose(
                to_numpy(layer(query, value, key)), expected, atol=1e-3
            )

    def test_gate_and_output_are_never_corrected(self):
        x = tokens(2, 5, WIDTH)
        layer, twin, weights, _ = self.pair(x, use_gate=True, correction_scale=3.0)
        corrected = []
        for variable, w in zip(twin.weights, weights, strict=True):
            projection = variable.path.split("/")[-2]
            if variable.name == "kernel" and projection in ("query", "key", "value"):
                w = oracles.identity_correction(w, 3.0, per_head=True)
            corrected.append(w)
        twin.set_weights(corrected)
        np.testing.assert_allclose(
            to_numpy(layer(x, x)), to_numpy(twin(x, x)), rtol=1e-5, atol=1e-5
        )

    @pytest.mark.parametrize("per_head", [True, False])
    def test_polar_bounds_kappa_at_every_step_of_a_fit(self, per_head):
        inputs = keras.Input((5, WIDTH))
        layer = self.layer_class(**self.sizes, correction="polar", per_head=per_head)
        model = keras.Model(inputs, layer(inputs, inputs))
        model.compile(keras.optimizers.AdamW(0.05), "mse")
        x, y = tokens(4, 5, WIDTH), tokens(4, 5, WIDTH, seed=1)
        twin = self.stock_class(**self.sizes)
        twin.build(x.shape, x.shape)
        worst, seen = [], []

        laws = self

        class Check(keras.callbacks.Callback):
            def on_epoch_end(self, epoch, logs=None):
                raw = layer.get_weights()
                shifted = laws.shifted(raw, "polar", per_head)
                twin.set_weights(shifted)
                # The layer's output is that of kernels whose kappa is at most 2 ...
                np.testing.assert_allclose(
                    to_numpy(layer(x, x)), to_numpy(twin(x, x)), atol=2e-3
                )
                # ... which is read off the same kernels.
                for kernel in (shifted[0], shifted[2], shifted[4]):
                    heads = (
                        oracles.head_matrices(kernel)
                        if per_head
                        else [oracles.joint_matrix(kernel)]
                    )
                    worst.extend(oracles.condition_number(w) for w in heads)
                seen.append(raw[0])

        model.fit(x, y, batch_size=4, epochs=4, verbose=0, callbacks=[Check()])
        assert len(seen) == 4 and np.abs(seen[0] - seen[3]).max() > 0.01
        assert max(worst) <= 2.02

    # -- gradients and compiled calls ------------------------------------------

    @pytest.mark.parametrize("correction", CORRECTIONS)
    def test_gradients_are_those_of_the_shifted_stock_layer(self, correction):
        x, weight = tokens(2, 5, WIDTH), tokens(2, 5, WIDTH, seed=4)
        layer, twin, weights, _ = self.pair(
            x, correction=correction, correction_scale=0.5
        )
        got = weight_gradients(layer, lambda: weighted_sum(weight, layer(x, x)))
        assert all(np.isfinite(g).all() for g in got)
        twin.set_weights(self.shifted(weights, correction, True, 0.5))
        stock = weight_gradients(twin, lambda: weighted_sum(weight, twin(x, x)))
        # Through the identity the kernels' gradients pass as they are; through the
        # polar factor they do not, while biases and output kernel see no difference.
        # (The gradient of a key bias is 0 but for rounding, so one scale for all.)
        scale = max(np.abs(g).max() for g in stock)
        for index, (ours, theirs) in enumerate(zip(got, stock, strict=True)):
            if correction == "identity" or index not in (0, 2, 4):
                np.testing.assert_allclose(ours / scale, theirs / scale, atol=1e-3)
            else:
                assert np.abs(ours - theirs).max() > 1e-3 * scale

    @pytest.mark.parametrize("correction", CORRECTIONS)
    def test_compiled_equals_eager(self, correction):
        x = tokens(2, 5, WIDTH)
        layer, *_ = self.pair(x, correction=correction)
        got = compiled(lambda t: layer(t, t))(ops.convert_to_tensor(x))
        np.testing.assert_allclose(to_numpy(got), to_numpy(layer(x, x)), atol=1e-4)

    def test_a_zero_kernel_has_finite_gradients(self):
        x = tokens(2, 5, WIDTH)
        layer, _, weights, _ = self.pair(x, correction="polar")
        layer.set_weights([np.zeros_like(w) for w in weights[:6]] + weights[6:])
        got = weight_gradients(layer, lambda: ops.sum(layer(x, x)))
        assert all(np.isfinite(g).all() for g in got)
        assert np.abs(got[4]).max() > 0

    def test_the_future_stays_hidden_with_a_causal_mask(self):
        x = tokens(2, 5, WIDTH)
        changed = x.copy()
        changed[:, 3:] += 1.0
        for correction in CORRECTIONS:
            layer, *_ = self.pair(x, correction=correction)
            for training in (False, True):
                one = to_numpy(layer(x, x, use_causal_mask=True, training=training))
                other = layer(changed, changed, use_causal_mask=True, training=training)
                np.testing.assert_allclose(
                    to_numpy(other)[:, :3], one[:, :3], rtol=1e-5, atol=1e-5
                )

    # -- the correction is kept exactly once -----------------------------------

    @pytest.mark.parametrize("correction", CORRECTIONS)
    def test_weights_travel_to_the_stock_layer_and_back_raw(self, correction):
        x = tokens(2, 5, WIDTH)
        layer, twin, weights, _ = self.pair(x, correction=correction)
        before = to_numpy(layer(x, x))
        for _ in range(3):
            twin.set_weights(layer.get_weights())
            layer.set_weights(twin.get_weights())
        for stored, given in zip(layer.get_weights(), weights, strict=True):
            np.testing.assert_array_equal(stored, given)
        np.testing.assert_array_equal(to_numpy(layer(x, x)), before)

    @pytest.mark.parametrize("correction", CORRECTIONS)
    def test_decay_and_regularizers_act_on_the_raw_kernel(self, correction):
        x = tokens(2, 5, WIDTH)
        layer, twin, *_ = self.pair(
            x, correction=correction, kernel_regularizer=keras.regularizers.L2(0.1)
        )
        layer(x, x), twin(x, x)
        np.testing.assert_allclose(
            [float(ops.convert_to_numpy(v)) for v in layer.losses],
            [float(ops.convert_to_numpy(v)) for v in twin.losses],
            rtol=1e-6,
        )

    @pytest.mark.parametrize("correction", CORRECTIONS)
    def test_quantizing_keeps_the_correction_or_refuses(self, correction):
        x = tokens(4, 5, WIDTH)
        layer, _, weights, _ = self.pair(x, correction=correction, correction_scale=2.0)
        inputs = keras.Input((5, WIDTH))
        model = keras.Model(inputs, layer(inputs, inputs))
        before = to_numpy(model(x))
        try:
            with warnings.catch_warnings():
                # Keras warns of layers it leaves in floating point.
                warnings.simplefilter("ignore")
                model.quantize("int8")
        except (ValueError, NotImplementedError) as error:
            assert "fold" in str(error)
        after = to_numpy(model(x))
        scale = np.abs(before).max()
        # int8 leaves a few percent; losing the correction moves outputs by their size.
        np.testing.assert_allclose(after / scale, before / scale, atol=0.1)
        raw = np.array([oracles.attention(s, s, weights) for s in x])
        assert np.abs(raw - before).max() > 0.3 * scale

    @pytest.mark.parametrize("correction", CORRECTIONS)
    def test_lora_starts_unchanged_trains_and_adds_the_correction_once(
        self, correction
    ):
        x = tokens(4, 5, WIDTH)
        layer, twin, weights, _ = self.pair(
            x, correction=correction, correction_scale=2.0
        )
        before = to_numpy(layer(x, x))
        query_projection(layer).enable_lora(2)
        np.testing.assert_allclose(to_numpy(layer(x, x)), before, atol=1e-5)
        dense = query_projection(layer)
        rng = np.random.default_rng(0)
        a = 0.3 * rng.standard_normal(dense.lora_kernel_a.shape)
        b = 0.3 * rng.standard_normal(dense.lora_kernel_b.shape)
        dense.lora_kernel_a.assign(a)
        dense.lora_kernel_b.assign(b)
        merged = [weights[0] + a @ b, *weights[1:]]
        twin.set_weights(self.shifted(merged, correction, True, 2.0))
        np.testing.assert_allclose(
            to_numpy(layer(x, x)), to_numpy(twin(x, x)), atol=2e-3
        )

    @pytest.mark.parametrize("correction", CORRECTIONS)
    def test_lora_merged_into_a_file_holds_the_correction_once(
        self, correction, tmp_path
    ):
        x = tokens(4, 5, WIDTH)
        inputs = keras.Input((5, WIDTH))
        layer = self.layer_class(
            **self.sizes, correction=correction, correction_scale=2.0
        )
        model = keras.Model(inputs, layer(inputs, inputs))
        query_projection(layer).enable_lora(2)
        rng = np.random.default_rng(0)
        dense = query_projection(layer)
        dense.lora_kernel_b.assign(0.3 * rng.standard_normal(dense.lora_kernel_b.shape))
        expected = to_numpy(model(x))
        model.save(tmp_path / "m.keras")
        loaded = keras.models.load_model(tmp_path / "m.keras")
        np.testing.assert_allclose(to_numpy(loaded(x)), expected, atol=1e-3)

    # -- seeds -----------------------------------------------------------------

    def kernels(self, layer):
        return [to_numpy(w) for w in layer.weights if w.name == "kernel"]

    @pytest.mark.parametrize("seed_kind", ["int", "generator"])
    def test_one_seeded_initializer_gives_four_different_kernels(self, seed_kind):
        seed = 1 if seed_kind == "int" else keras.random.SeedGenerator(1)
        initializer = keras.initializers.GlorotUniform(seed=seed)
        seen = []
        for _ in range(2):
            layer = self.layer_class(**self.sizes, kernel_initializer=initializer)
            layer.build((2, 5, WIDTH), (2, 5, WIDTH))
            seen.extend(self.kernels(layer))
        assert len(seen) == 8
        for i, one in enumerate(seen):
            for other in seen[:i]:
                size = min(one.size, other.size)
                assert np.abs(one.ravel()[:size] - other.ravel()[:size]).max() > 1e-3

    @pytest.mark.parametrize("seed_kind", ["int", "generator"])
    def test_the_same_seed_rebuilds_the_same_model(self, seed_kind):
        def build():
            seed = 1 if seed_kind == "int" else keras.random.SeedGenerator(1)
            initializer = keras.initializers.GlorotUniform(seed=seed)
            result = []
            for _ in range(2):
                layer = self.layer_class(**self.sizes, kernel_initializer=initializer)
                layer.build((2, 5, WIDTH), (2, 5, WIDTH))
                result.extend(self.kernels(layer))
            return result

        for one, other in zip(build(), build(), strict=True):
            np.testing.assert_array_equal(one, other)

    def test_from_config_rebuilds_the_same_kernels(self):
        initializer = keras.initializers.GlorotUniform(seed=1)
        self.layer_class(**self.sizes, kernel_initializer=initializer)
        layer = self.layer_class(**self.sizes, kernel_initializer=initializer)
        again = self.layer_class.from_config(layer.get_config())
        for one in (layer, again):
            one.build((2, 5, WIDTH), (2, 5, WIDTH))
        for ours, theirs in zip(self.kernels(layer), self.kernels(again), strict=True):
            np.testing.assert_array_equal(ours, theirs)

    def test_each_role_has_its_own_initializer(self):
        layer = self.layer_class(
            **self.sizes,
            kernel_initializer="zeros",
            query_initializer=keras.initializers.Constant(1.0),
            key_initializer=keras.initializers.Constant(2.0),
            value_initializer=keras.initializers.Constant(3.0),
            output_initializer=keras.initializers.Constant(4.0),
        )
        layer.build((2, 5, WIDTH), (2, 5, WIDTH))
        assert [float(k.max()) for k in self.kernels(layer)] == [1.0, 2.0, 3.0, 4.0]
        layer = self.layer_class(
            **self.sizes, kernel_initializer="ones", value_initializer="zeros"
        )
        layer.build((2, 5, WIDTH), (2, 5, WIDTH))
        assert [float(k.max()) for k in self.kernels(layer)] == [1.0, 1.0, 0.0, 1.0]

    # -- precision and bad input -----------------------------------------------

    @pytest.mark.parametrize("correction", CORRECTIONS)
    def test_nan_stays_in_its_own_sample(self, correction):
        x = tokens(3, 5, WIDTH)
        layer, *_ = self.pair(x, correction=correction)
        alone = to_numpy(layer(x, x))
        x[1, 2, 3] = np.nan
        got = to_numpy(layer(x, x))
        assert np.isnan(got[1]).any()
        np.testing.assert_allclose(got[[0, 2]], alone[[0, 2]], atol=1e-5)

    @pytest.mark.parametrize("scale", [-1.0, float("nan"), float("inf")])
    def test_a_negative_or_non_finite_scale_is_refused(self, scale):
        with pytest.raises(ValueError, match=rf"(?s)correction_scale.*{scale}"):
            self.layer_class(**self.sizes, correction_scale=scale)

    def test_unknown_correction_is_refused_and_the_known_ones_are_named(self):
        with pytest.raises(ValueError, match="correction") as error:
            self.layer_class(**self.sizes, correction="svd")
        for word in ("svd", *CORRECTIONS):
            assert word in str(error.value)
