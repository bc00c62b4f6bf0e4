"""Laws of one projection: what it reads is what acts, what it writes is kept."""

import keras
import numpy as np
import pytest
from keras import ops

import keras_cond
from keras_cond.projections import find_attention
from tests.autodiff import float64, to_numpy
from tests.projections import laws

D, LENGTH = 8, 5
ROLES = ("query", "key", "value", "output")
# Every width is another number, so that no axis can be taken for another.
STOCK = {
    "multi-head": lambda: keras.layers.MultiHeadAttention(2, 3, value_dim=4),
    "without bias": lambda: keras.layers.MultiHeadAttention(2, 3, use_bias=False),
    "grouped-query": lambda: keras.layers.GroupQueryAttention(3, 4, 2),
    "multi-query": lambda: keras.layers.GroupQueryAttention(3, 4, 1, use_bias=False),
}
OURS = {
    "identity per head": lambda: keras_cond.SpectralAttention(
        2, 3, value_dim=4, correction_scale=2.0
    ),
    "identity joint": lambda: keras_cond.SpectralAttention(
        2, 3, correction_scale=2.0, per_head=False
    ),
    "polar per head": lambda: keras_cond.SpectralAttention(2, 3, correction="polar"),
    "polar joint": lambda: keras_cond.SpectralAttention(
        2, 3, correction="polar", per_head=False
    ),
    "identity grouped": lambda: keras_cond.SpectralGroupedQueryAttention(
        3, 4, 2, correction_scale=2.0
    ),
    "polar grouped": lambda: keras_cond.SpectralGroupedQueryAttention(
        3, 4, 2, correction="polar"
    ),
}


def built(make):
    """Returns a layer with random weights and what was found of it."""
    layer = make()
    layer.build((None, LENGTH, D), (None, LENGTH, D))
    (attention,) = find_attention(layer)
    laws.randomize(attention)
    return layer, attention


def multi_head():
    return built(STOCK["multi-head"])


def output(layer, x):
    x = ops.convert_to_tensor(x)
    # Without the scores, Keras on JAX refuses values of another width than keys.
    outputs, _ = layer(x, x, return_attention_scores=True)
    return to_numpy(outputs)


@pytest.mark.parametrize("name", STOCK)
def test_each_projection_multiplies_by_what_is_read(name):
    laws.assert_each_computes_the_product(built(STOCK[name])[1])


@pytest.mark.parametrize("name", STOCK | OURS)
def test_attention_by_hand_from_the_parts_is_that_of_the_layer(name):
    layer, attention = built((STOCK | OURS)[name])
    x = laws.tokens(D)
    np.testing.assert_allclose(
        output(layer, x), laws.by_hand(attention, x), rtol=1e-4, atol=1e-4
    )


def test_cross_attention_has_keys_of_another_width():
    layer = keras.layers.MultiHeadAttention(2, 3)
    layer.build((None, LENGTH, D), (None, LENGTH, 6))
    (attention,) = find_attention(layer)
    laws.randomize(attention)
    assert attention.query.shape == (2, D, 3)
    assert attention.key.shape == (2, 6, 3)
    x, y = laws.tokens(D), laws.tokens(6, seed=2)
    got = to_numpy(layer(ops.convert_to_tensor(x), ops.convert_to_tensor(y)))
    expected = laws.by_hand(attention, x, y)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


def test_tokens_on_a_grid():
    layer = keras.layers.MultiHeadAttention(2, 3, attention_axes=2)
    layer.build((None, 2, LENGTH, D), (None, 2, LENGTH, D))
    (attention,) = find_attention(layer)
    laws.randomize(attention)
    x = laws.tokens(D)
    got = output(layer, x[None])[0]
    expected = laws.by_hand(attention, x)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", STOCK | OURS)
def test_what_is_written_is_read_and_the_rest_is_kept(name):
    layer, attention = built((STOCK | OURS)[name])
    for role in ROLES:
        projection = getattr(attention, role)
        before = {w.path: to_numpy(w) for w in layer.weights}
        matrices = laws.tokens(projection.shape[-1], projection.shape[:2], seed=3)
        projection.write(matrices)
        np.testing.assert_array_equal(projection.read(), matrices)
        changed = [w for w in layer.weights if (to_numpy(w) != before[w.path]).any()]
        assert changed == [projection.variable]


def test_only_our_corrections_act_beside_what_is_stored():
    for name, make in STOCK.items():
        _, attention = built(make)
        for projection in laws.projections(attention):
            np.testing.assert_array_equal(
                projection.effective(), projection.read(), err_msg=name
            )
    _, attention = built(OURS["identity per head"])
    for role in ROLES[:3]:
        projection = getattr(attention, role)
        expected = projection.read() + 2 * np.eye(*projection.shape[1:])
        np.testing.assert_allclose(projection.effective(), expected, rtol=1e-6)
    np.testing.assert_array_equal(attention.output.effective(), attention.output.read())
    _, attention = built(OURS["polar per head"])
    attention.key.write(attention.key.read() * [1.0, 1e-2, 1.0])
    assert (np.linalg.cond(attention.key.read()) > 50).all()
    assert (np.linalg.cond(attention.key.effective()) < 2.001).all()


@pytest.mark.parametrize("name", ["multi-head", "identity per head", "polar grouped"])
def test_lora_acts_but_is_not_stored(name):
    layer, attention = built((STOCK | OURS)[name])
    stored, acting = attention.query.read(), attention.query.effective()
    dense = attention.query.dense
    dense.enable_lora(2, lora_alpha=1)
    rng = np.random.default_rng(4)
    for weight in (dense.lora_kernel_a, dense.lora_kernel_b):
        weight.assign(rng.normal(size=weight.shape))
    np.testing.assert_array_equal(attention.query.read(), stored)
    assert np.abs(attention.query.effective() - acting).max() > 0.1
    x = laws.tokens(D)
    np.testing.assert_allclose(
        output(layer, x), laws.by_hand(attention, x), rtol=1e-4, atol=1e-4
    )
    if name == "multi-head":
        product = to_numpy(dense.lora_kernel_a) @ to_numpy(dense.lora_kernel_b)
        np.testing.assert_allclose(
            attention.query.effective(),
            stored + np.moveaxis(product, 1, 0) / 2,
            rtol=1e-5,
            atol=1e-5,
        )


def test_the_bias_is_one_row_a_head():
    layer, attention = multi_head()
    rows = laws.tokens(3, (2,))
    layer.query_dense.bias.assign(rows)
    np.testing.assert_array_equal(attention.query.bias(), rows)
    assert attention.output.bias().shape == (D,)
    _, attention = built(STOCK["without bias"])
    assert [p.bias() for p in laws.projections(attention)] == [None] * 4


def test_a_bias_shared_by_all_heads_is_repeated():
    _, attention = multi_head()
    dense = keras.layers.EinsumDense("abc,cde->abde", (None, 2, 3), bias_axes="e")
    dense.build((None, LENGTH, D))
    dense.bias.assign([1.0, 2.0, 3.0])
    attention.query.dense = dense
    np.testing.assert_array_equal(attention.query.bias(), [[1, 2, 3], [1, 2, 3]])


def test_arrays_are_copies():
    _, attention = multi_head()
    projection = attention.query
    stored = projection.read()
    for array in (projection.read(), projection.effective(), projection.bias()):
        array[...] = 7
    np.testing.assert_array_equal(projection.read(), stored)
    assert not (projection.bias() == 7).any()


def test_a_projection_follows_training():
    inputs = keras.Input((LENGTH, D))
    layer = keras.layers.MultiHeadAttention(2, 3)
    model = keras.Model(inputs, layer(inputs, inputs))
    (attention,) = find_attention(model)
    before = attention.value.read()
    model.compile(keras.optimizers.SGD(0.1), "mse")
    x = laws.tokens(D)
    model.fit(x, x, epochs=1, verbose=0)
    assert np.abs(attention.value.read() - before).max() > 1e-4
    laws.assert_each_computes_the_product(attention)


def test_a_tensor_can_be_written():
    _, attention = multi_head()
    doubled = 2 * attention.query.read()
    attention.query.write(ops.convert_to_tensor(doubled))
    np.testing.assert_array_equal(attention.query.read(), doubled)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_is_read_as_float32_and_written_rounded(dtype):
    layer = keras.layers.MultiHeadAttention(2, 3, dtype=dtype)
    layer.build((None, LENGTH, D), (None, LENGTH, D))
    (attention,) = find_attention(layer)
    for array in (attention.query.read(), attention.query.effective()):
        assert array.dtype == np.float32
    attention.query.write(np.full((2, D, 3), 1.0009765625 + 2.0**-14))
    expected = {"float16": 1.0009765625, "bfloat16": 1.0}[dtype]
    np.testing.assert_array_equal(attention.query.read(), np.full((2, D, 3), expected))


def test_double_precision_is_kept():
    with float64():
        layer = keras.layers.MultiHeadAttention(2, 3, dtype="float64")
        layer.build((None, LENGTH, D), (None, LENGTH, D))
        (attention,) = find_attention(layer)
        matrices = np.random.default_rng(5).normal(size=(2, D, 3))
        attention.query.write(matrices)
        np.testing.assert_array_equal(attention.query.read(), matrices)


@pytest.mark.parametrize(
    ("matrices", "message"),
    [
        (np.zeros((2, 3, D)), r"Received: shape=\(2, 3, 8\).*Expected: \(2, 8, 3\)"),
        (np.zeros((D, 3)), r"Received: shape=\(8, 3\).*Expected: \(2, 8, 3\)"),
        (np.full((2, D, 3), np.nan), "48 values that are NaN or infinite"),
        (np.where(np.arange(3) == 1, np.inf, np.ones((2, D, 3))), "16 values that are"),
        (np.full((2, D, 3), 1e300), "48 values .* infinite in float32"),
    ],
)
@pytest.mark.filterwarnings("ignore:overflow")
def test_other_shapes_and_numbers_that_are_not_finite_are_refused(matrices, message):
    _, attention = multi_head()
    before = attention.query.read()
    with pytest.raises(ValueError, match=message):
        attention.query.write(matrices)
    np.testing.assert_array_equal(attention.query.read(), before)


def test_a_kernel_quantized_since_it_was_found_is_refused():
    layer, attention = multi_head()
    layer.query_dense.quantize("int8")
    for access in (
        attention.query.read,
        attention.query.effective,
        lambda: attention.query.write(np.zeros((2, D, 3))),
        lambda: attention.query.variable,
    ):
        with pytest.raises(
            ValueError, match=r"is quantized.*'int8'.*before you quanti"
        ):
            access()
    assert attention.key.read().shape == (2, D, 3)
