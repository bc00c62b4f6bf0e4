"""`initialize`: what each scheme writes, and what it leaves alone."""

import warnings

import keras
import numpy as np
import pytest
import scipy.fft
from hypothesis import given
from hypothesis import strategies as st
from keras import ops

import keras_cond
from keras_cond.projections import find_attention
from tests.surgery.models import HEADS, WIDTH, D, batch, grouped, outputs, plain

ROLES = ("query", "key", "value", "output")


def kernels(model):
    """[layer][role] -> matrices."""
    return [
        {role: getattr(attention, role).read() for role in ROLES}
        for attention in find_attention(model)
    ]


def singular_values(matrices):
    return np.linalg.svd(matrices.astype("float64"), compute_uv=False)


def joint(matrices):
    """(heads, D, d) -> D x (heads d)."""
    return np.concatenate(list(matrices), axis=1)


# -- schemes ---------------------------------------------------------------------


def test_conditioned_is_the_papers_algorithm():
    model = plain()
    before = kernels(model)
    keras_cond.initialize(model, seed=1)
    for old, new in zip(before, kernels(model), strict=True):
        for role in ("query", "key"):
            np.testing.assert_allclose(singular_values(new[role]), 1, atol=1e-5)
        np.testing.assert_array_equal(new["value"], [np.eye(D, WIDTH)] * HEADS)
        np.testing.assert_array_equal(new["output"], old["output"])


def test_conditioned_jointly_is_one_identity():
    model = plain(1)
    keras_cond.initialize(model, per_head=False)
    np.testing.assert_array_equal(joint(kernels(model)[0]["value"]), np.eye(D))


@pytest.mark.parametrize("per_head", [True, False])
def test_gaussian_has_the_norms_of_conditioned(per_head):
    model, control = plain(1), plain(1)
    keras_cond.initialize(model, per_head=per_head)
    keras_cond.initialize(control, "gaussian", per_head=per_head)
    for role in ("query", "key", "value"):
        one, other = kernels(model)[0][role], kernels(control)[0][role]
        axes = (1, 2) if per_head or role != "value" else None
        norms = [
            np.linalg.norm(m, axis=axes) if axes else np.linalg.norm(m)
            for m in (one, other)
        ]
        np.testing.assert_allclose(*norms, rtol=1e-5)
        assert singular_values(joint(other)).min() < 0.9  # it is not the same


def test_mimetic_products():
    # One head as wide as the tokens: the products are not approximated.
    size = 64
    layer = keras.layers.MultiHeadAttention(1, size)
    layer.build((None, 3, size), (None, 3, size))
    keras_cond.initialize(layer, "mimetic", seed=3)
    found = kernels(layer)[0]
    query_key = found["query"][0] @ found["key"][0].T
    value_output = found["value"][0] @ found["output"][0]
    for product, weight, sign in ((query_key, 0.7, 1), (value_output, 0.4, -1)):
        noise = product / weight - sign * np.eye(size)
        # N(0, 1/size) entries: standard errors of mean and deviation.
        assert abs(noise.mean()) < 5 / size**1.5
        assert abs(noise.std() * size**0.5 - 1) < 5 / size
        assert abs(np.diag(noise).mean()) < 5 / size
        s = singular_values(product)
        factors = (found["query"][0], found["key"][0])
        if sign == 1:
            for factor in factors:
                np.testing.assert_allclose(singular_values(factor) ** 2, s, rtol=2e-3)


def test_mimetic_heads_are_the_best_of_their_rank():
    model = plain(1)
    keras_cond.initialize(model, "mimetic", seed=0)
    found = kernels(model)[0]
    rng = np.random.default_rng([0, 0])
    for head in range(HEADS):
        product = 0.7 * (rng.standard_normal((D, D)) / np.sqrt(D) + np.eye(D))
        u, s, vt = np.linalg.svd(product)
        best = (u[:, :WIDTH] * s[:WIDTH]) @ vt[:WIDTH]
        np.testing.assert_allclose(
            found["query"][head] @ found["key"][head].T, best, atol=1e-5
        )
    product = 0.4 * (rng.standard_normal((D, D)) / np.sqrt(D) - np.eye(D))
    together = sum(v @ o for v, o in zip(found["value"], found["output"], strict=True))
    np.testing.assert_allclose(together, product, atol=1e-5)


def test_mimetic_with_shared_keys_and_values():
    model = grouped()
    keras_cond.initialize(model, "mimetic", seed=0)
    found = kernels(model)[0]
    assert found["query"].shape == (4, D, 4) and found["key"].shape == (2, D, 4)
    rng = np.random.default_rng([0, 0])
    for head in range(4):
        product = 0.7 * (rng.standard_normal((D, D)) / np.sqrt(D) + np.eye(D))
        key = found["key"][head // 2]
        # The best that a query can do with the key it has.
        best = product @ key @ np.linalg.inv(key.T @ key) @ key.T
        np.testing.assert_allclose(found["query"][head] @ key.T, best, atol=1e-5)
    # Equal attention of all heads gives the whole product.
    product = 0.4 * (rng.standard_normal((D, D)) / np.sqrt(D) - np.eye(D))
    values = np.repeat(found["value"], 2, axis=0)
    together = sum(v @ o for v, o in zip(values, found["output"], strict=True))
    np.testing.assert_allclose(together, product, atol=1e-5)


@pytest.mark.parametrize("heads, width", [(2, 8), (3, 4), (1, 2)])
def test_mimetic_on_odd_widths(heads, width):
    layer = keras.layers.MultiHeadAttention(heads, width)
    layer.build((None, 3, D), (None, 3, D))
    keras_cond.initialize(layer, "mimetic", seed=0)
    found = kernels(layer)[0]
    s = singular_values(joint(found["value"]))
    assert (s > 0.1).sum() == min(D, heads * width)
    assert (np.abs(joint(found["value"])).max(axis=0) > 1e-3).all()


def test_dct_is_that_of_scipy():
    model = plain(1)
    before = kernels(model)[0]
    keras_cond.initialize(model, "dct")
    after = kernels(model)[0]
    basis = scipy.fft.dct(np.eye(D), axis=0, norm="ortho")  # rows are cosines
    np.testing.assert_allclose(joint(after["key"]), basis.T, atol=1e-6)
    np.testing.assert_array_equal(after["query"], before["query"])
    keras_cond.initialize(model, "dct", projections=("query", "value"))
    np.testing.assert_allclose(joint(kernels(model)[0]["value"]), basis.T, atol=1e-6)


@pytest.mark.parametrize("per_head", [True, False])
def test_spectral_adds_the_identity(per_head):
    model = plain(1)
    before = kernels(model)[0]
    keras_cond.initialize(model, "spectral", per_head=per_head, correction_scale=3.0)
    after = kernels(model)[0]
    for role in ("query", "key", "value"):
        added = after[role] - before[role]
        wanted = np.eye(D) if not per_head else np.tile(np.eye(D, WIDTH), HEADS)
        np.testing.assert_allclose(joint(added), 3 * wanted, atol=1e-6)


def test_spectral_equals_the_layer():
    stock, spectral = plain(1), plain(1, keras_cond.SpectralAttention)
    spectral.set_weights(stock.get_weights())
    keras_cond.initialize(stock, "spectral")
    np.testing.assert_allclose(
        outputs(stock, batch()), outputs(spectral, batch()), atol=2e-4
    )


def test_weights_from_selects_evenly():
    small, large = plain(1), plain(2)
    keras_cond.initialize(large, "gaussian")
    wide = keras.layers.MultiHeadAttention(4, 6)
    inputs = keras.Input((3, 12))
    source = keras.Model(inputs, wide(inputs, inputs))
    keras_cond.initialize(small, keras_cond.weights_from(source))
    found, wanted = kernels(small)[0], kernels(source)[0]
    rows = [0, 1, 3, 4, 6, 7, 9, 10]
    np.testing.assert_array_equal(
        found["query"], wanted["query"][np.ix_([0, 2], rows, [0, 1, 3, 4])]
    )
    np.testing.assert_array_equal(
        found["output"], wanted["output"][np.ix_([0, 2], [0, 1, 3, 4], rows)]
    )
    with pytest.raises(ValueError, match="larger in every"):
        keras_cond.initialize(source, keras_cond.weights_from(small))
    with pytest.raises(ValueError, match="with 1 attention layers, for layer number 2"):
        keras_cond.initialize(large, keras_cond.weights_from(small))


def test_a_function_of_ones_own():
    model = plain(1)
    keras_cond.initialize(
        model, lambda attention, index, rng: {"key": np.full((HEADS, D, WIDTH), 7.0)}
    )
    assert (kernels(model)[0]["key"] == 7).all()


def test_one_bad_matrix_and_nothing_is_written():
    model = plain(1)
    before = kernels(model)[0]

    def scheme(attention, index, rng):
        return {"query": 0 * before["query"], "key": np.nan * before["key"]}

    with pytest.raises(ValueError, match="nothing was written"):
        keras_cond.initialize(model, scheme)
    np.testing.assert_array_equal(kernels(model)[0]["query"], before["query"])


def test_a_second_identity_is_refused():
    model = plain(1)
    keras_cond.initialize(model, "spectral")
    with pytest.raises(ValueError, match="corrected before"):
        keras_cond.initialize(model, "spectral")
    with pytest.raises(ValueError, match="corrected before"):
        keras_cond.apply(model, correction="polar")
    keras_cond.initialize(model, "conditioned")
    keras_cond.initialize(model, "spectral")


class NoOutput(keras.layers.Layer):
    """Attention without an output projection."""

    num_heads = 2

    def __init__(self):
        super().__init__(name="bare")
        self.q_proj, self.k_proj, self.v_proj = (keras.layers.Dense(D) for _ in "qkv")

    def build(self, shape):
        for dense in (self.q_proj, self.k_proj, self.v_proj):
            dense.build(shape)

    def call(self, x):
        weights = ops.softmax(self.q_proj(x) @ ops.swapaxes(self.k_proj(x), -1, -2))
        return weights @ self.v_proj(x)


@pytest.mark.parametrize(
    "scheme", ["mimetic", lambda a, i, r: {"output": np.zeros((2, WIDTH, D))}]
)
def test_a_layer_without_an_output_projection_is_named(scheme):
    inputs = keras.Input((6, D))
    model = keras.Model(inputs, NoOutput()(inputs))
    with pytest.raises(ValueError, match=r"'bare' \(NoOutput: its output projection"):
        keras_cond.initialize(model, scheme)
    keras_cond.initialize(model)


# -- seeds -----------------------------------------------------------------------


@given(st.integers(0, 2**40))
def test_one_seed_one_model_with_no_two_matrices_equal(seed):
    one = CACHED.setdefault("one", plain())
    other = CACHED.setdefault("other", plain())
    keras_cond.initialize(one, seed=seed)
    keras_cond.initialize(other, seed=seed)
    first, second = kernels(one), kernels(other)
    for a, b in zip(first, second, strict=True):
        for role in ("query", "key", "value"):
            np.testing.assert_array_equal(a[role], b[role])
    all_heads = [h for layer in first for r in ("query", "key") for h in layer[r]]
    for i, head in enumerate(all_heads):
        assert all(np.abs(head - other).max() > 1e-3 for other in all_heads[:i])


CACHED = {}


def test_without_a_seed_the_global_one_decides():
    model = plain(1)
    drawn = []
    for seed in (1, 1, 2):
        keras.utils.set_random_seed(seed)
        keras_cond.initialize(model)
        drawn.append(kernels(model)[0]["query"])
    np.testing.assert_array_equal(drawn[0], drawn[1])
    assert np.abs(drawn[0] - drawn[2]).max() > 1e-3


# -- what is left alone ----------------------------------------------------------


def test_report_says_before_and_after():
    model = plain()
    report = keras_cond.initialize(model, per_head=False)
    assert np.max(report.before.layers[0].value.joint) > 2
    assert np.max(report.after.layers[0].value.joint) == pytest.approx(1)
    assert "attention_1" in str(report)


def test_frozen_layers_stay_unless_asked():
    model = plain()
    model.get_layer("attention_0").trainable = False
    before = kernels(model)
    with pytest.warns(UserWarning, match=r"'attention_0' \(frozen") as caught:
        keras_cond.initialize(model)
    assert len([w for w in caught if w.category is UserWarning]) == 1
    after = kernels(model)
    np.testing.assert_array_equal(after[0]["query"], before[0]["query"])
    assert np.abs(after[1]["query"] - before[1]["query"]).max() > 1e-3
    keras_cond.initialize(model, include_frozen=True)
    assert np.abs(kernels(model)[0]["query"] - before[0]["query"]).max() > 1e-3


def test_one_warning_names_all_that_cannot_be_handled():
    inputs = keras.Input((6, D))
    x = keras.layers.Attention(name="bare")([inputs, inputs])
    x = keras.layers.MultiHeadAttention(2, 4, name="good")(x, x)
    x = keras_cond.SpectralAttention(2, 4, name="ours")(x, x)
    model = keras.Model(inputs, x)
    with pytest.warns(UserWarning) as caught:
        keras_cond.initialize(model, "spectral")
    caught = [w for w in caught if w.category is UserWarning]
    messages = [str(w.message) for w in caught]
    assert len(messages) == 1
    assert "'bare' (Attention: it has no projections)" in messages[0]
    assert "'ours' (SpectralAttention: it corrects" in messages[0]
    assert caught[0].filename == __file__


def test_a_layer_used_twice_is_written_once():
    inputs = keras.Input((6, D))
    layer = keras.layers.MultiHeadAttention(2, 4)
    x = layer(inputs, inputs)
    model = keras.Model(inputs, layer(x, x))
    before = kernels(model)[0]["query"]
    keras_cond.initialize(model, "spectral", correction_scale=1.0)
    added = kernels(model)[0]["query"] - before
    np.testing.assert_allclose(added, [np.eye(D, WIDTH)] * 2, atol=1e-6)


def test_a_trained_model_is_refused():
    model = plain(1)
    model.compile("sgd", "mse")
    keras_cond.initialize(model)  # compiled is not trained
    model.fit(batch(), np.zeros((2, 6, 3)), verbose=0)
    before = kernels(model)[0]["query"]
    with pytest.raises(ValueError, match="optimizer has made 1 steps"):
        keras_cond.initialize(model)
    np.testing.assert_array_equal(kernels(model)[0]["query"], before)
    report = keras_cond.initialize(model, trained_ok=True)
    assert report.before is not report.after


def test_compiled_functions_see_the_new_values():
    model = plain(1)
    x = batch()
    model.predict(x, verbose=0)
    keras_cond.initialize(model)
    np.testing.assert_allclose(
        model.predict(x, verbose=0), outputs(model, x), atol=1e-5
    )


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "bfloat16", "float16"])
def test_other_precisions(dtype):
    layer = keras.layers.MultiHeadAttention(HEADS, WIDTH, dtype=dtype)
    layer.build((None, 3, D), (None, 3, D))
    keras_cond.initialize(layer)
    atol = 1e-5 if dtype.startswith("mixed") else 2e-2
    np.testing.assert_allclose(
        singular_values(kernels(layer)[0]["query"]), 1, atol=atol
    )


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"scheme": "orthogonal"}, "Expected one of"),
        ({"scheme": 3}, "Unknown `scheme`"),
        ({"seed": -1}, "`seed` must be"),
        ({"seed": 1.5}, "`seed` must be"),
        ({"projections": ("queries",)}, "Expected some of"),
        ({"projections": ()}, "Expected some of"),
        ({"projections": ("query", "output")}, "no values for all of these"),
        ({"scheme": keras_cond.SemiOrthogonalQK()}, "as `kernel_initializer`"),
        ({"scheme": lambda a, i, r: None}, "Expected keys among"),
        ({"scheme": lambda a, i, r: {"keys": a.key.read()}}, "Expected keys among"),
        ({"per_head": "no"}, "per_head"),
        ({"correction_scale": float("nan")}, "correction_scale"),
        ({"scheme": lambda a, i, r: {"key": np.zeros(3)}}, "one matrix a head"),
        (
            {"scheme": lambda a, i, r: {"key": np.full((HEADS, D, WIDTH), np.nan)}},
            "must be finite",
        ),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        keras_cond.initialize(plain(1), **arguments)


def test_a_model_without_attention_is_an_error():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    with pytest.raises(ValueError, match="found no attention layer"):
        keras_cond.initialize(model)
    with pytest.raises(ValueError, match="built"):
        keras_cond.initialize(keras.Sequential([keras.layers.Dense(3)]))


def test_unique_paths_and_the_warning_about_equal_ones():
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        model = plain()
        keras_cond.initialize(model)
    inputs = keras.Input((6, D))
    towers = [plain(1), plain(1)]
    for index, tower in enumerate(towers):
        tower.name = f"tower_{index}"
    both = keras.Model(inputs, [tower(inputs) for tower in towers])
    assert len({w.path for w in both.weights}) < len(both.weights)
    if keras.backend.backend() == "torch":
        with pytest.warns(UserWarning, match="several weights of the model"):
            keras_cond.initialize(both)
