import dataclasses
import json
import warnings

import keras
import numpy as np
import pytest

import keras_cond
from keras_cond.diagnostics import inspect
from keras_cond.diagnostics.median import median
from tests import matrices, oracles
from tests.autodiff import to_numpy
from tests.diagnostics.models import (
    HEAD_DIM,
    HEADS,
    TOKENS,
    WIDTH,
    Scaled,
    attention_model,
    batch,
    head_kernel,
    set_kernel,
)

INF = float("inf")


@pytest.fixture(scope="module")
def stock():
    keras.utils.set_random_seed(0)
    return attention_model()


def own_model(layer):
    inputs = keras.Input((TOKENS, WIDTH))
    return keras.Model(inputs, layer(inputs))


def make_attention_sharp(layer):
    """Sets random kernels of a size that makes attention far from uniform."""
    rng = np.random.default_rng(5)
    for weight in layer.weights:
        weight.assign(rng.normal(size=weight.shape) / 2)


# -- weights -------------------------------------------------------------------


def test_kappa_of_weights_is_that_of_numpy_in_float64(stock):
    report = inspect(stock)
    assert [layer.path for layer in report.layers] == ["attention_0", "attention_1"]
    for index, layer in enumerate(report.layers):
        attention = stock.get_layer(f"attention_{index}")
        for role in ("query", "key", "value"):
            kernel = head_kernel(getattr(attention, f"{role}_dense"))
            spectrum = getattr(layer, role)
            joint = np.concatenate(list(kernel), axis=1)
            np.testing.assert_allclose(
                spectrum.per_head, np.linalg.cond(kernel), rtol=1e-9
            )
            np.testing.assert_allclose(spectrum.joint, np.linalg.cond(joint), rtol=1e-9)
            np.testing.assert_allclose(
                spectrum.norm_per_head, np.linalg.norm(kernel, 2, (1, 2)), rtol=1e-12
            )
            np.testing.assert_allclose(
                spectrum.norm, np.linalg.norm(joint, 2), rtol=1e-12
            )


@pytest.mark.parametrize("kappa", [1.0, 1e3, 1e6])
def test_a_known_spectrum_is_reported(kappa):
    model = attention_model(1)
    dense = model.get_layer("attention_0").key_dense
    wanted = [matrices.with_kappa((WIDTH, HEAD_DIM), kappa, seed=s) for s in (1, 2)]
    set_kernel(dense, wanted)
    per_head = inspect(model).layers[0].key.per_head
    # The kernel is rounded to float32: kappa moves by eps · kappa at most.
    np.testing.assert_allclose(per_head, kappa, rtol=1e-6 + 2e-7 * kappa)


def test_one_near_singular_head_is_reported_as_exactly_that_head():
    model = attention_model(1)
    dense = model.get_layer("attention_0").value_dense
    kernel = [matrices.with_kappa((WIDTH, HEAD_DIM), k, seed=3) for k in (2.0, 1e5)]
    set_kernel(dense, kernel)
    report = inspect(model)
    layer = report.layers[0]
    np.testing.assert_allclose(layer.value.per_head, [2.0, 1e5], rtol=0.05)
    assert max(*layer.query.per_head, *layer.key.per_head) < 100
    row = next(line for line in str(report).splitlines() if "attention_0" in line)
    assert "1.0e+05 h1" in row


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        (np.zeros((HEADS, WIDTH, HEAD_DIM)), INF),
        (np.outer(np.arange(1, 9), [0.1, 0.2, 0.3, 0.7])[None].repeat(2, 0), INF),
        (np.full((HEADS, WIDTH, HEAD_DIM), np.nan), np.nan),
        (np.full((HEADS, WIDTH, HEAD_DIM), np.inf), np.nan),
    ],
    ids=["zero", "rank 1", "nan", "inf"],
)
def test_degenerate_kernels_give_inf_or_nan_and_no_warning(kernel, expected, tmp_path):
    model = attention_model(1)
    set_kernel(model.get_layer("attention_0").query_dense, kernel)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        warnings.simplefilter("error", UserWarning)
        report = inspect(model)
        text = str(report)
        str(report.compare(report))
        report.plot(tmp_path / "report.png")
    spectrum = report.layers[0].query
    np.testing.assert_array_equal([*spectrum.per_head, spectrum.joint], expected)
    assert str(expected) in text
    assert all(np.isfinite(report.layers[0].key.per_head))


@pytest.mark.parametrize("correction", ["identity", "polar"])
def test_the_weights_that_act_are_measured(correction):
    model = attention_model(
        1,
        keras_cond.SpectralAttention,
        num_heads=HEADS,
        key_dim=HEAD_DIM,
        correction=correction,
        per_head=False,
    )
    kernel = head_kernel(model.get_layer("attention_0").query_dense)
    joint = np.concatenate(list(kernel), axis=1)
    if correction == "identity":
        expected = np.linalg.cond(joint + 10 * np.eye(WIDTH))
    else:
        expected = oracles.kappa_after_conditioning(joint)
    got = inspect(model).layers[0].query.joint
    np.testing.assert_allclose(got, expected, rtol=1e-3)


def test_lora_counts_as_a_weight_that_acts():
    model = attention_model(1)
    dense = model.get_layer("attention_0").query_dense
    dense.enable_lora(1)
    change = np.zeros(dense.lora_kernel_b.shape)
    change[0] = 50.0
    dense.lora_kernel_a.assign(np.ones(dense.lora_kernel_a.shape))
    dense.lora_kernel_b.assign(change)
    got = inspect(model).layers[0].query.per_head
    np.testing.assert_allclose(got, np.linalg.cond(head_kernel(dense)), rtol=1e-3)
    assert min(got) > 30


# -- inputs --------------------------------------------------------------------


def test_tokens_attention_and_output_are_those_of_the_layers(stock):
    x = batch()
    report = inspect(stock, x)
    first = stock.get_layer("attention_0")
    output, p = first(x, x, return_attention_scores=True)
    output, p = (np.asarray(to_numpy(a), "float64") for a in (output, p))
    layer = report.layers[0]
    np.testing.assert_allclose(layer.tokens, np.linalg.cond(x), rtol=1e-3)
    np.testing.assert_allclose(layer.attention, np.linalg.cond(p), rtol=1e-2)
    np.testing.assert_allclose(layer.output, np.linalg.cond(output), rtol=1e-2)
    entropy = -(p * np.log(p)).sum(-1).mean(-1)
    np.testing.assert_allclose(layer.entropy, entropy, rtol=1e-4)
    # The second layer gets the residual sum.
    second = np.linalg.cond(np.asarray(x + output, "float64"))
    np.testing.assert_allclose(report.layers[1].tokens, second, rtol=1e-3)


def test_grouped_queries_are_measured():
    model = attention_model(
        1,
        keras.layers.GroupQueryAttention,
        head_dim=4,
        num_query_heads=4,
        num_key_value_heads=2,
    )
    layer = inspect(model, batch(), jacobian=True, max_tokens=2).layers[0]
    assert (layer.num_heads, layer.num_key_value_heads) == (4, 2)
    assert [len(s.per_head) for s in (layer.query, layer.key, layer.value)] == [4, 2, 2]
    assert np.shape(layer.attention) == (3, 4)
    assert len(layer.jacobian.heads) == 4


@pytest.mark.parametrize("where", ["right", "left", "middle"])
def test_padding_is_left_out(where):
    model = attention_model(2, mask=True)
    x = batch(1)
    mask = {
        "right": [1, 1, 1, 1, 0, 0],
        "left": [0, 0, 1, 1, 1, 1],
        "middle": [1, 0, 1, 1, 0, 1],
    }[where]
    mask = np.array(mask, bool)
    x[:, ~mask] = -1.0
    layer = inspect(model, x).layers[0]
    real = np.asarray(x[0, mask], "float64")
    np.testing.assert_allclose(layer.tokens, [np.linalg.cond(real)], rtol=1e-3)
    attention = model.get_layer("attention_0")
    _, p = attention(real[None], real[None], return_attention_scores=True)
    p = np.asarray(to_numpy(p), "float64")
    np.testing.assert_allclose(layer.attention, np.linalg.cond(p), rtol=2e-2)
    # An attention matrix with the padding in it has entropies of another size.
    entropy = -(p * np.log(p)).sum(-1).mean(-1)
    np.testing.assert_allclose(layer.entropy, entropy, rtol=1e-3)


@pytest.mark.parametrize("rank", [2, 3])
def test_padding_is_left_out_where_only_an_attention_mask_tells_it(rank):
    # As in BERT: the mask says which keys are real; the same queries are padding.
    inputs, mask = keras.Input((TOKENS, WIDTH)), keras.Input((TOKENS,), dtype="bool")
    pairs = mask[:, None, :] if rank == 2 else mask[:, None, :] & mask[:, :, None]
    layer = keras.layers.MultiHeadAttention(HEADS, HEAD_DIM)
    model = keras.Model([inputs, mask], layer(inputs, inputs, attention_mask=pairs))
    x, real = batch(2), np.array([[1, 1, 1, 1, 1, 1], [1, 0, 1, 1, 0, 1]], bool)
    result = inspect(model, [x, real]).layers[0]
    tokens = [a[m].astype("float64") for a, m in zip(x, real, strict=True)]
    expected = [np.linalg.cond(a) for a in tokens]
    np.testing.assert_allclose(result.tokens, expected, rtol=1e-3)
    short = x[1:, real[1]]
    _, p = layer(short, short, return_attention_scores=True)
    kappa = np.linalg.cond(np.asarray(to_numpy(p), "float64"))[0]
    np.testing.assert_allclose(result.attention[1], kappa, rtol=2e-2)


def test_a_sample_of_padding_alone_is_nan():
    model = attention_model(1, mask=True)
    x = batch(2)
    x[1] = -1.0
    layer = inspect(model, x).layers[0]
    assert np.isfinite(layer.tokens[0]) and np.isnan(layer.tokens[1])
    assert np.isnan(layer.attention[1]).all()


def test_a_layer_used_twice_is_reported_once_with_the_samples_of_both():
    inputs = keras.Input((TOKENS, WIDTH))
    layer = keras.layers.MultiHeadAttention(HEADS, HEAD_DIM)
    model = keras.Model(inputs, layer(layer(inputs, inputs), inputs))
    report = inspect(model, batch(3))
    assert len(report.layers) == 1
    assert len(report.layers[0].tokens) == 6


@pytest.mark.parametrize("softmax_layer", [False, True])
def test_a_layer_that_hides_its_scores_is_measured_where_the_formula_explains_it(
    softmax_layer,
):
    layer = Scaled(softmax_layer=softmax_layer)
    model = own_model(layer)
    make_attention_sharp(layer)
    x = batch()
    q, k = (np.asarray(to_numpy(d(x))) for d in (layer.query_dense, layer.key_dense))
    scores = np.einsum("bthk,bshk->bhts", q, k) / 2
    p = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    got = inspect(model, x).layers[0].attention
    np.testing.assert_allclose(got, np.linalg.cond(p), rtol=1e-2)


def test_what_the_formula_does_not_explain_is_not_guessed():
    layer = Scaled(scale=0.3)
    model = own_model(layer)
    make_attention_sharp(layer)
    report = inspect(model, batch(), jacobian=True)
    assert report.layers[0].attention is None
    assert report.layers[0].entropy is None
    assert report.layers[0].output is not None
    assert report.layers[0].jacobian.heads == []
    assert "n/a" in str(report)


# -- Jacobian ------------------------------------------------------------------


def test_the_jacobian_is_measured_on_the_subsample_that_is_named(stock):
    x = batch()
    report = inspect(stock, x, jacobian=True, max_tokens=4)
    result = report.layers[0].jacobian
    assert (result.tokens_used, result.tokens) == (4, TOKENS)
    assert "4 of 6" in str(report)
    attention = stock.get_layer("attention_0")
    roles = (attention.query_dense, attention.key_dense, attention.value_dense)
    chosen = x[0, [0, 2, 3, 5]].astype("float64")
    for head, numbers in enumerate(result.heads):
        weights = [head_kernel(dense)[head] for dense in roles]
        expected = keras_cond.ops.attention_jacobian_condition(chosen, *weights).value
        np.testing.assert_allclose(numbers.jacobian, expected, rtol=1e-6)


def test_bounds_are_not_below_true_values_where_their_assumptions_hold():
    # One head as wide as the model, and as many tokens as channels or more.
    inputs = keras.Input((6, 4))
    layer = keras.layers.MultiHeadAttention(1, 4, use_bias=False)
    model = keras.Model(inputs, layer(inputs, inputs))
    for seed in range(5):
        rng = np.random.default_rng(seed)
        for weight in layer.weights:
            weight.assign(rng.normal(size=weight.shape))
        x = rng.normal(size=(1, 6, 4)).astype("float32")
        head = inspect(model, x, jacobian=True).layers[0].jacobian.heads[0]
        assert head.softmax_assumed and head.linear_assumed
        assert head.softmax_attention_bound >= head.softmax_attention * (1 - 1e-6)
        assert head.linear_attention_bound >= head.linear_attention * (1 - 1e-6)
        assert head.jacobian_bound == INF and not head.jacobian_assumed
        assert np.isfinite([head.softmax_attention_bound, head.jacobian]).all()


def test_bounds_outside_their_assumptions_are_marked(stock):
    report = inspect(stock, batch(), jacobian=True, max_tokens=4)
    assert not report.layers[0].jacobian.heads[0].linear_assumed
    assert "upper bound" in str(report) and "* not proven here" in str(report)


def test_a_query_bias_makes_the_jacobian_unknown_not_wrong():
    model = attention_model(1)
    layer = model.get_layer("attention_0")
    make_attention_sharp(layer)
    result = inspect(model, batch(), jacobian=True).layers[0].jacobian
    assert result.heads == [] and "biases" in result.reason


def test_a_causal_mask_enters_the_jacobian():
    inputs = keras.Input((TOKENS, WIDTH))
    layer = keras.layers.MultiHeadAttention(HEADS, HEAD_DIM, use_bias=False)
    model = keras.Model(inputs, layer(inputs, inputs, use_causal_mask=True))
    x = batch(1)
    result = inspect(model, x, jacobian=True).layers[0].jacobian
    weights = [
        head_kernel(dense)[0]
        for dense in (layer.query_dense, layer.key_dense, layer.value_dense)
    ]
    expected = keras_cond.ops.attention_jacobian_condition(
        x[0], *weights, mask=np.tri(TOKENS, dtype=bool)
    )
    np.testing.assert_allclose(result.heads[0].jacobian, expected.value, rtol=1e-6)


# -- leaves no trace -----------------------------------------------------------


def test_a_report_changes_no_state_and_training_goes_on_as_without_it():
    x, y = batch(8), np.ones((8, 1), "float32")

    model = attention_model(1, dropout=0.3)
    model.compile("adam", "mse")
    model.train_on_batch(x, y)
    variables = [*model.variables, *model.optimizer.variables]
    state = [np.array(to_numpy(v)) for v in variables]

    def losses():
        model.reset_metrics()
        return [float(model.train_on_batch(x, y)) for _ in range(2)]

    keras.utils.set_random_seed(4)
    without = losses()
    for variable, value in zip(variables, state, strict=True):
        variable.assign(value)
    keras.utils.set_random_seed(4)
    inspect(model, x, jacobian=True, max_tokens=2)
    for variable, value in zip(variables, state, strict=True):
        np.testing.assert_array_equal(to_numpy(variable), value)
    assert losses() == without


@keras.saving.register_keras_serializable(package="keras_cond_tests")
class Counter(keras.layers.Layer):
    """Counts its calls, and draws from a seed, whether in training or not."""

    def build(self, input_shape):
        self.count = self.add_weight(shape=(), trainable=False, dtype="int32")
        self.seed = keras.random.SeedGenerator(0)

    def call(self, inputs):
        self.count.assign(self.count + 1)
        return inputs + 0 * keras.random.normal(inputs.shape[1:], seed=self.seed)


def test_a_layer_that_changes_state_at_every_call_does_not_while_inspected():
    inputs = keras.Input((TOKENS, WIDTH))
    layer = keras.layers.MultiHeadAttention(HEADS, HEAD_DIM)
    x = Counter()(inputs)
    model = keras.Model(inputs, layer(x, x))
    before = [np.array(to_numpy(v)) for v in model.variables]
    inspect(model, batch())
    for variable, value in zip(model.variables, before, strict=True):
        np.testing.assert_array_equal(to_numpy(variable), value)


def test_layers_get_their_call_back_even_when_the_model_fails(stock):
    with pytest.raises(Exception):  # noqa: B017  each backend has its own
        inspect(stock, np.ones((2, TOKENS, WIDTH + 1), "float32"))
    for index in range(2):
        layer = stock.get_layer(f"attention_{index}")
        assert "call" not in vars(layer)
        assert type(layer) is keras.layers.MultiHeadAttention


# -- arguments, dict, table ----------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"jacobian": True}, "Pass a batch as `inputs`"),
        ({"max_tokens": 0}, "Expected a whole number from 1"),
        ({"max_tokens": 2.5}, "Expected a whole number from 1"),
    ],
)
def test_wrong_arguments_are_named(stock, arguments, message):
    with pytest.raises(ValueError, match=message):
        inspect(stock, **arguments)


def test_the_dict_is_json_of_python_numbers(stock):
    report = inspect(stock, batch(), jacobian=True, max_tokens=2)
    numbers = report.to_dict()
    assert json.loads(json.dumps(numbers)) == numbers
    first = numbers["layers"][0]
    assert type(first["query"]["per_head"][0]) is float
    assert type(first["attention"][0][0]) is float
    assert type(first["jacobian"]["heads"][0]["jacobian"]) is float


def test_every_table_fits_a_terminal(stock):
    report = inspect(stock, batch(), jacobian=True, max_tokens=2)
    kappa = dataclasses.replace(report.layers[0].query, per_head=[1e30], joint=1e30)
    layer = dataclasses.replace(
        report.layers[0],
        path="decoder/block_11/" * 4,
        num_heads=128,
        num_key_value_heads=64,
        query=kappa,
        key=kappa,
        value=kappa,
    )
    report = dataclasses.replace(report, layers=[layer, *report.layers])
    text = f"{report}\n{report.compare(report)}"
    assert max(map(len, text.splitlines())) <= 100


def test_a_model_without_attention_is_an_empty_report():
    inputs = keras.Input((3,))
    model = keras.Model(inputs, keras.layers.Dense(2)(inputs), name="plain")
    assert str(inspect(model)) == "plain: 0 attention layers"


def test_comparison_sets_before_beside_after():
    model = attention_model(1)
    before = inspect(model, batch())
    dense = model.get_layer("attention_0").query_dense
    set_kernel(dense, [matrices.with_kappa((WIDTH, HEAD_DIM), 1e4, seed=1)] * 2)
    comparison = before.compare(inspect(model, batch()))
    old = f"{before.layers[0].query.per_head[0]:.2f}"[:2]
    row = [r for r in str(comparison).splitlines() if r.startswith("attention_0")][1]
    assert "-> 1.0e+04" in row and old in row
    assert comparison.to_dict()["after"]["layers"][0]["query"]["per_head"][0] > 9e3


def test_reports_of_different_models_are_not_compared(stock):
    with pytest.raises(ValueError, match="as many attention layers and heads"):
        inspect(stock).compare(inspect(attention_model(1)))
    with pytest.raises(ValueError, match="and dict"):
        inspect(stock).compare({})


def test_a_median_between_infinities_is_infinite():
    assert median([1.0, INF, INF, INF]) == INF
    assert median([1.0, 3.0]) == 2.0
    assert median([[1.0, INF, 2.0]]) == 2.0
    assert np.isnan(median([1.0, np.nan, 2.0]))
    assert median(None) is None
