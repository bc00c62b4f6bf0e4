"""Which layers are found, in which order, under which path, and which are named."""

import warnings

import keras
import numpy as np
import pytest
from keras import ops

import keras_cond
from keras_cond.projections import find_attention
from tests.projections import laws

D, LENGTH = 8, 5
HEADS = {"num_heads": 2}


def mha(**kwargs):
    return keras.layers.MultiHeadAttention(2, 3, **kwargs)


def paths(model):
    return [attention.path for attention in find_attention(model)]


def quietly(model):
    """Finds attention and fails on any warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return find_attention(model)


class Block(keras.layers.Layer):
    def __init__(self, attention, **kwargs):
        super().__init__(**kwargs)
        self.attention = attention

    def call(self, x):
        return x + self.attention(x, x)


class Stack(keras.layers.Layer):
    def __init__(self, blocks, **kwargs):
        super().__init__(**kwargs)
        self.blocks = blocks

    def call(self, x):
        for block in self.blocks:
            x = block(x)
        return x


class Separate(keras.layers.Layer):
    """Attention of a user: 2-D kernels under the names that are given."""

    def __init__(self, names, **attributes):
        super().__init__()
        for name in names:
            setattr(self, name, keras.layers.Dense(D, name=name))
        for name, value in attributes.items():
            setattr(self, name, value)

    def build(self, shape):
        for layer in self._layers:
            layer.build(shape)
        self.built = True

    def call(self, x):
        return x


def functional(*layers):
    """A model of layers that take one argument."""
    inputs = x = keras.Input((LENGTH, D))
    for layer in layers:
        x = layer(x)
    return keras.Model(inputs, x)


def named(model):
    """What is found, and the text of the one warning."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = find_attention(model)
    messages = [str(w.message) for w in caught if "Left out" in str(w.message)]
    assert len(messages) == 1, messages
    return found, messages[0]


def test_order_and_paths_are_those_of_the_model():
    model = functional(
        Block(mha(name="mha"), name="first"),
        Stack([Block(mha(name="mha"), name=f"block_{i}") for i in range(3)], name="s"),
        keras.Sequential([Block(mha(name="mha"), name="inner")], name="nested"),
        Block(keras.layers.GroupQueryAttention(3, 4, 2, name="gqa"), name="last"),
    )
    found = quietly(model)
    assert [attention.path for attention in found] == [
        "first/mha",
        "s/block_0/mha",
        "s/block_1/mha",
        "s/block_2/mha",
        "nested/inner/mha",
        "last/gqa",
    ]
    assert found[2].layer is model.get_layer("s").blocks[1].attention
    sizes = [(a.num_heads, a.num_key_value_heads, a.head_dim) for a in found]
    assert sizes == [(2, 2, 3)] * 5 + [(4, 2, 3)]
    assert {a.model_dim for a in found} == {D}


def test_a_shared_layer_is_found_once():
    shared = mha(name="shared")
    model = functional(Block(shared, name="a"), Block(shared, name="b"))
    assert paths(model) == ["a/shared"]
    block = Block(mha(name="mha"), name="block")
    assert paths(functional(block, block, Stack([block]))) == ["block/mha"]


def test_equal_names_get_paths_of_their_own():
    stack = Stack([Block(mha(name="mha"), name="block") for _ in range(3)], name="s")
    found = paths(functional(stack))
    assert found[0] == "s/block/mha"
    assert len(set(found)) == 3


def test_any_kind_of_model_and_a_layer_alone():
    class Subclassed(keras.Model):
        def __init__(self):
            super().__init__()
            self.block = Block(mha(name="mha"), name="block")

        def call(self, x):
            return self.block(x)

    model = Subclassed()
    model(laws.tokens(D))
    assert paths(model) == ["block/mha"]
    assert paths(functional(model)) == [f"{model.name}/block/mha"]
    block = Block(mha(name="mha"), name="block")
    block(laws.tokens(D))
    assert paths(block) == ["mha"]
    assert paths(block.attention) == ["mha"]
    sequential = keras.Sequential([keras.Input((LENGTH, D)), block])
    assert paths(sequential) == ["block/mha"]


def test_our_layers_and_subclasses_are_found():
    class Mine(keras.layers.MultiHeadAttention):
        pass

    model = functional(
        Block(Mine(2, 3), name="a"),
        Block(keras_cond.SpectralAttention(2, 3), name="b"),
        Block(keras_cond.SpectralGroupedQueryAttention(3, 4, 2), name="c"),
    )
    assert [a.num_heads for a in quietly(model)] == [2, 2, 4]


@pytest.mark.parametrize(
    ("names", "attributes", "heads"),
    [
        ("q_proj k_proj v_proj o_proj", {"num_heads": 4}, 4),
        ("q_proj k_proj v_proj out_proj", {"num_attention_heads": 2}, 2),
        ("query_dense key_dense value_dense output_dense", {"num_query_heads": 2}, 2),
        ("query_projector key_projector value_projector output_projector", HEADS, 2),
        ("query_proj key_proj value_proj out_proj", HEADS, 2),
        ("q_dense k_dense v_dense o_dense", {"heads": 2}, 2),
        ("q k v proj", HEADS, 2),
    ],
)
def test_separate_matrices_are_split_by_the_number_of_heads(names, attributes, heads):
    names = names.split()
    layer = Separate(names, **attributes)
    layer.build((None, LENGTH, D))
    (attention,) = quietly(layer)
    assert attention.num_heads == attention.num_key_value_heads == heads
    assert attention.head_dim == D // heads
    laws.randomize(attention)
    laws.assert_each_computes_the_product(attention)
    for name, projection in zip(names, laws.projections(attention), strict=True):
        assert projection.dense is getattr(layer, name)


def test_a_layer_without_output_projection_is_found():
    layer = Separate(("q_proj", "k_proj", "v_proj"), num_heads=2)
    layer.build((None, LENGTH, D))
    (attention,) = quietly(layer)
    assert attention.output is None


def test_attention_without_projections_is_named_in_one_warning():
    inputs = keras.Input((LENGTH, D))
    x = keras.layers.Attention(name="dot")([inputs, inputs])
    x = keras.layers.AdditiveAttention(name="additive")([x, x])
    x = Block(mha(name="mha"), name="block")(x)
    found, message = named(keras.Model(inputs, x))
    assert [attention.path for attention in found] == ["block/mha"]
    assert "'dot' (Attention: it has no projections)" in message
    assert "'additive' (AdditiveAttention: it has no projections)" in message


@pytest.mark.parametrize(
    ("names", "attributes", "reason"),
    [
        (("qkv", "proj"), {"num_heads": 2}, "fused kernel is of an unknown order"),
        (("q", "k", "v"), {}, "no attribute such as `num_heads`"),
        (("q", "k", "v"), {"num_heads": 3}, "3 heads do not divide"),
        (("q", "k"), {"num_heads": 2}, "it has no `v`"),
        (
            ("q", "k", "v"),
            {"num_heads": 4, "num_kv_heads": 2},
            "2 wide and key heads 4",
        ),
    ],
)
def test_what_cannot_be_read_is_named_and_never_guessed(names, attributes, reason):
    # A name that KerasHub's registry knows: this layer is not KerasHub's.
    layer = type("WindowAttention", (Separate,), {})(names, **attributes)
    model = functional(Block(mha(name="mha"), name="block"), layer)
    found, message = named(model)
    assert [attention.path for attention in found] == ["block/mha"]
    assert f"'{layer.name}' (WindowAttention: " in message
    assert reason in message


def test_attention_that_was_never_called_is_named():
    class Idle(Block):
        def call(self, x):
            return x

    found, message = named(functional(Idle(mha(name="mha"), name="idle")))
    assert found == []
    assert "'idle/mha' (MultiHeadAttention: " in message
    assert "not built" in message


def test_a_quantized_layer_is_named():
    model = functional(
        Block(mha(name="mha"), name="float"), Block(mha(name="mha"), name="quantized")
    )
    model.get_layer("quantized").attention.query_dense.quantize("int8")
    found, message = named(model)
    assert [attention.path for attention in found] == ["float/mha"]
    assert "'quantized/mha' (MultiHeadAttention: `_query_dense` is quantized" in message


def test_the_warning_points_to_the_callers_line():
    model = functional(Separate(("qkv",)))
    with pytest.warns(UserWarning, match="Left out") as caught:
        find_attention(model)
    assert caught[0].filename == __file__
    # Also through a function of the package.
    package = {"__name__": "keras_cond.inner", "find_attention": find_attention}
    exec("def inspect(model): return find_attention(model)", package)
    with pytest.warns(UserWarning, match="Left out") as caught:
        package["inspect"](model)
    assert caught[0].filename == __file__


def test_models_without_attention_warn_of_nothing():
    model = functional(
        keras.layers.Dense(D),
        keras.layers.LSTM(D, return_sequences=True),
        keras.layers.LayerNormalization(),
        keras_cond.TokenConditioning(),
    )
    assert quietly(model) == []


def test_finding_changes_nothing():
    model = functional(Block(mha(), name="a"))
    before = model.get_weights()
    x = laws.tokens(D)
    outputs = ops.convert_to_numpy(model(x))
    find_attention(model)
    for one, other in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(ops.convert_to_numpy(model(x)), outputs)


@pytest.mark.parametrize(
    "model",
    [
        lambda: keras.layers.MultiHeadAttention(2, 3, name="bare"),
        lambda: keras.Sequential([keras.layers.Dense(D)], name="bare"),
        lambda: Block(mha(), name="bare"),
    ],
)
def test_unbuilt_models_are_refused(model):
    with pytest.raises(ValueError, match=r"unbuilt \w+ 'bare'. Call it on a batch"):
        find_attention(model())


@pytest.mark.parametrize("model", [None, [], "vit", np.zeros(3), keras.Model])
def test_what_is_no_model_is_refused(model):
    with pytest.raises(ValueError, match=r"must be a Keras model or layer. Received"):
        find_attention(model)
