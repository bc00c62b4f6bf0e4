"""`apply`: attention corrected in place, tokens conditioned in a new model."""

import warnings

import keras
import numpy as np
import pytest
import scipy.linalg
from keras import ops

import keras_cond
from keras_cond.projections import find_attention
from tests.autodiff import dtype_of, to_numpy
from tests.surgery.models import (
    CHECK_FILES,
    HEADS,
    WIDTH,
    D,
    batch,
    differences,
    in_fresh_process,
    outputs,
    plain,
    store,
    text,
)

IDS = np.array([[3, 7, 1, 9, 4]])


def conditioned(x):
    """X + σ_max polar(X) of a float64 matrix of full rank."""
    u, _ = scipy.linalg.polar(x)
    return x + np.linalg.norm(x, 2) * u


# -- attention, in place ---------------------------------------------------------


@pytest.mark.parametrize("per_head", [True, False])
@pytest.mark.parametrize("correction", ["identity", "polar"])
def test_corrections_are_added_into_the_kernels(correction, per_head, capsys):
    model = plain()
    before = [attention.key.read() for attention in find_attention(model)]
    arguments = {"correction": correction, "per_head": per_head}
    assert keras_cond.apply(model, correction_scale=2.0, **arguments) is model
    printed = capsys.readouterr().out
    assert "attention_1" in printed and "κ of the joint matrix rose in" in printed
    for old, attention in zip(before, find_attention(model), strict=True):
        new = attention.key.read()
        if not per_head:
            old, new = (np.concatenate(list(m), axis=1)[None] for m in (old, new))
        for one, other in zip(old.astype("float64"), new, strict=True):
            if correction == "identity":
                wanted = one + 2 * np.eye(*one.shape)
            else:
                wanted = conditioned(one)
            np.testing.assert_allclose(other, wanted, atol=2e-5)


def test_correction_equals_the_layer_and_acts_in_compiled_functions():
    stock = plain(1)
    layers = plain(1, keras_cond.SpectralAttention, correction_scale=0.5)
    layers.set_weights(stock.get_weights())
    stock.predict(batch(), verbose=0)
    keras_cond.apply(stock, correction="identity", correction_scale=0.5)
    np.testing.assert_allclose(
        stock.predict(batch(), verbose=0), outputs(layers, batch()), atol=1e-5
    )


def test_the_printed_sentence_counts_what_got_worse(capsys):
    model = plain(1)
    attention = find_attention(model)[0]
    for projection in (attention.query, attention.key, attention.value):
        projection.write(np.stack(np.split(np.eye(D), HEADS, axis=1)))
    # 1 → 0.5 in one direction alone: κ of the identity rises.
    attention.key.write(
        attention.key.read()
        - 0.5 * np.stack(np.split(np.eye(D) * 2, HEADS, axis=1))
        + np.diag([1.0] * (D - 1) + [-0.4])[:, :]
        .reshape(D, HEADS, WIDTH)
        .transpose(1, 0, 2)
    )
    keras_cond.apply(
        model, correction="identity", correction_scale=0.39, per_head=False
    )
    assert "rose in 1 of 3 projections" in capsys.readouterr().out


def test_a_second_correction_is_refused_until_initialized():
    model = plain(1)
    keras_cond.apply(model, correction="identity")
    before = find_attention(model)[0].query.read()
    with pytest.raises(ValueError, match="has been corrected before"):
        keras_cond.apply(model, correction="polar")
    np.testing.assert_array_equal(find_attention(model)[0].query.read(), before)
    keras_cond.initialize(model)
    keras_cond.apply(model, correction="polar")


def test_our_own_layers_are_left_to_themselves():
    with pytest.raises(ValueError, match="corrects its own projections already"):
        keras_cond.apply(plain(1, keras_cond.SpectralAttention), correction="identity")


def test_frozen_kernels_stay_and_lora_takes_the_correction_once():
    model = plain()
    model.get_layer("attention_0").trainable = False
    model.get_layer("attention_1").query_dense.enable_lora(2)
    x = batch()
    before = find_attention(model)
    old = [before[0].query.read(), before[1].query.read()]
    with pytest.warns(UserWarning, match=r"'attention_0' \(frozen"):
        keras_cond.apply(model, correction="identity", correction_scale=1.0)
    after = find_attention(model)
    np.testing.assert_array_equal(after[0].query.read(), old[0])
    eye = [np.eye(D, WIDTH)] * HEADS
    np.testing.assert_allclose(after[1].query.effective(), old[1] + eye, atol=1e-6)
    wanted = outputs(model, x)
    weights = {w.path: to_numpy(w) for w in model.weights}
    assert sum("lora" in path for path in weights) == 2
    assert np.isfinite(wanted).all()


# -- tokens, in a new model ------------------------------------------------------


def test_tokens_of_a_sequence_are_conditioned_after_the_embedding():
    model = text()
    keras_cond.initialize(model, seed=0)
    before = outputs(model, IDS)
    new = keras_cond.apply(model, tokens="sequence")
    np.testing.assert_array_equal(outputs(model, IDS), before)
    assert len(new.weights) == len(model.weights)
    assert {id(w) for w in new.weights} == {id(w) for w in model.weights}
    table = to_numpy(model.get_layer("embedding").embeddings).astype("float64")
    rest = keras.Model(model.get_layer("skip").input[0], model.get_layer("head").output)
    wanted = outputs(rest, conditioned(table[IDS[0]])[None].astype("float32"))
    np.testing.assert_allclose(outputs(new, IDS), wanted, atol=1e-4)


def test_the_table_is_conditioned():
    model = text()
    new = keras_cond.apply(model, tokens="table")
    table = to_numpy(model.get_layer("embedding").embeddings).astype("float64")
    rest = keras.Model(model.get_layer("skip").input[0], model.get_layer("head").output)
    wanted = outputs(rest, conditioned(table)[IDS].astype("float32"))
    np.testing.assert_allclose(outputs(new, IDS), wanted, atol=1e-4)


@pytest.mark.parametrize("tokens", ["sequence", "table", "graying"])
def test_it_trains_saves_and_loads_in_a_fresh_process(tokens, tmp_path):
    model = text(mask_zero=True)
    if tokens == "graying":
        tokens = keras_cond.DCTTokenGraying(0.7, rescale=True)
    new = keras_cond.apply(model, tokens=tokens)
    ids = np.array([[3, 7, 1, 9, 0, 0], [2, 5, 0, 0, 0, 0]])
    new.compile("sgd", "mse")
    before = [to_numpy(w) for w in model.weights]
    new.fit(ids, np.zeros((2, 6, 3)), verbose=0)
    moved = [
        np.abs(to_numpy(w) - b).max()
        for w, b in zip(model.weights, before, strict=True)
    ]
    assert moved[0] > 0  # the shared table
    # What a row shows does not depend on its padding.
    alone = outputs(new, ids[1:, :2])
    np.testing.assert_allclose(outputs(new, ids)[1:, :2], alone, atol=1e-5)
    store(new, ids, tmp_path / "new")
    printed = in_fresh_process("import keras_cond\n" + CHECK_FILES, tmp_path / "new")
    assert differences(printed)[0] <= 1e-6


def test_a_callback_moves_epsilon_and_it_is_saved(tmp_path):
    graying = keras_cond.SVDTokenGraying(0.9)
    new = keras_cond.apply(plain(1), tokens=graying, after="skip_0", causal=False)
    graying.epsilon.assign(0.5)
    store(new, batch(), tmp_path / "new")
    loaded = keras.saving.load_model(tmp_path / "new.keras")
    np.testing.assert_allclose(
        outputs(loaded, batch()), outputs(new, batch()), atol=1e-6
    )
    assert float(to_numpy(loaded.tokens.epsilon)) == pytest.approx(0.5)


def test_models_inside_models_are_reached_by_path():
    inner = text()
    inner.name = "backbone"
    ids = keras.Input((None,), dtype="int32", name="ids")
    model = keras.Model(ids, keras.layers.Dense(2)(inner(ids)))
    for after in ("embedding", "backbone/embedding", None):
        new = keras_cond.apply(model, tokens="sequence", after=after)
        assert np.abs(outputs(new, IDS) - outputs(model, IDS)).max() > 1e-3
    again = keras_cond.apply(new, tokens="table")
    assert np.abs(outputs(again, IDS) - outputs(new, IDS)).max() > 1e-4
    copy = type(again).from_config(again.get_config())
    copy.set_weights(again.get_weights())
    np.testing.assert_allclose(outputs(copy, IDS), outputs(again, IDS), atol=1e-6)


def test_sequential_models():
    model = keras.Sequential(
        [
            keras.Input((6,), dtype="int32"),
            keras.layers.Embedding(20, D, name="words"),
            keras.layers.LSTM(3),
        ]
    )
    with pytest.raises(ValueError, match="no token acts on another"):
        keras_cond.apply(model, tokens="sequence")
    new = keras_cond.apply(model, tokens="sequence", causal=False)
    ids = np.arange(6)[None]
    assert np.abs(outputs(new, ids) - outputs(model, ids)).max() > 1e-4


@pytest.mark.parametrize("tokens", ["sequence", "table"])
def test_mixed_precision_conditions_in_full_precision(tokens):
    policy = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        model = text()
        new = keras_cond.apply(model, tokens=tokens, causal=False)
        layer = new.tokens or new.get_layer("embedding")
        conditioned_tokens = keras.Model(new.input, layer.output)(IDS)
    finally:
        keras.config.set_dtype_policy(policy)
    assert dtype_of(conditioned_tokens) == "bfloat16"
    table = to_numpy(model.get_layer("embedding").embeddings).astype("float64")
    if tokens == "table":
        wanted = conditioned(table)[IDS[0]]
    else:
        rounded = ops.cast(ops.cast(table[IDS[0]], "bfloat16"), "float32")
        wanted = conditioned(to_numpy(rounded).astype("float64"))
    # Half of the last of 8 bits.
    np.testing.assert_allclose(
        to_numpy(conditioned_tokens)[0], wanted, rtol=2**-8, atol=1e-5
    )


def test_lora_on_shared_layers_is_in_the_file(tmp_path):
    new = keras_cond.apply(text(), tokens="sequence")
    dense = new.get_layer("head")
    dense.enable_lora(2)
    dense.lora_kernel_b.assign(np.ones(dense.lora_kernel_b.shape))
    wanted = outputs(new, IDS)
    new.save(tmp_path / "new.keras")
    loaded = keras.saving.load_model(tmp_path / "new.keras")
    np.testing.assert_allclose(outputs(loaded, IDS), wanted, atol=1e-5)


# -- causal models ---------------------------------------------------------------


@pytest.mark.parametrize("kind", ["sequence", "conditioning", "svd", "dct"])
def test_sequence_conditioning_of_a_causal_model_is_refused(kind):
    tokens = {
        "sequence": "sequence",
        "conditioning": keras_cond.TokenConditioning(),
        "svd": keras_cond.SVDTokenGraying(),
        "dct": keras_cond.DCTTokenGraying(),
    }[kind]
    with pytest.raises(ValueError, match="a causal model about later ones"):
        keras_cond.apply(text(causal=True), tokens=tokens)
    with pytest.raises(ValueError, match=r"causal=True\)"):
        keras_cond.apply(text(), tokens=tokens, causal=True)


def test_table_conditioning_of_a_causal_model_leaks_nothing():
    new = keras_cond.apply(text(causal=True), tokens="table")
    other = IDS.copy()
    other[0, 3:] = [11, 12]
    np.testing.assert_array_equal(outputs(new, other)[:, :3], outputs(new, IDS)[:, :3])
    assert np.abs(outputs(new, other) - outputs(new, IDS)).max() > 1e-4


def test_attention_inside_a_layer_is_seen_to_be_causal():
    class Block(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.attention = keras.layers.MultiHeadAttention(HEADS, WIDTH)

        def call(self, x):
            return x + self.attention(x, x, use_causal_mask=True)

    ids = keras.Input((None,), dtype="int32")
    x = Block()(keras.layers.Embedding(20, D, name="embedding")(ids))
    model = keras.Model(ids, keras.layers.Dense(2)(x[:, -1]))
    with pytest.raises(ValueError, match="a causal model about later ones"):
        keras_cond.apply(model, tokens="sequence")


def test_saturated_attention_is_not_taken_for_anything():
    model = text()
    attention = find_attention(model)[0]
    keras_cond.apply(model, correction="identity", correction_scale=1e4)
    attention.value.write(np.zeros(attention.value.shape))
    with pytest.raises(ValueError, match="it cannot be told"):
        keras_cond.apply(model, tokens="sequence")


def causal_models():
    """Models whose tokens see earlier ones alone, in ways that are hard to see."""

    def ids(name="token_ids", size=None):
        return keras.Input((size,), dtype="int32", name=name)

    def embedded(tokens):
        normal = keras.initializers.RandomNormal(stddev=1.0, seed=1)
        layer = keras.layers.Embedding(
            20, D, embeddings_initializer=normal, name="tokens"
        )
        return layer(tokens)

    def attention(x, **arguments):
        layer = keras.layers.MultiHeadAttention(HEADS, WIDTH)
        return layer(x, x, use_causal_mask=True, **arguments)

    def scores():
        x = embedded(tokens := ids())
        y, _ = attention(x, return_attention_scores=True)
        return keras.Model(tokens, x + y)

    def by_hand():
        x = embedded(tokens := ids(size=4))
        q, k, v = (
            ops.transpose(
                ops.reshape(keras.layers.Dense(D)(x), (-1, 4, 2, 4)), (0, 2, 1, 3)
            )
            for _ in range(3)
        )
        future = np.triu(np.full((4, 4), -1e9, "float32"), 1)
        weights = ops.softmax(ops.matmul(q, ops.transpose(k, (0, 1, 3, 2))) + future)
        y = ops.transpose(ops.matmul(weights, v), (0, 2, 1, 3))
        return keras.Model(tokens, x + ops.reshape(y, (-1, 4, D)))

    def input_that_marks_padding_by_one():
        x = embedded(tokens := ids())
        padding = ids("is_padding")
        real = ops.expand_dims(ops.equal(padding, 0), 1)
        return keras.Model([tokens, padding], x + attention(x, attention_mask=real))

    def padding_of_id_one():
        x = embedded(tokens := ids())
        real = ops.expand_dims(ops.not_equal(tokens, 1), 1)
        return keras.Model(tokens, x + attention(x, attention_mask=real))

    def a_segment_table_of_one_row():
        x = embedded(tokens := ids())
        segments = ids("segment_ids")
        x = x + keras.layers.Embedding(1, D, name="segments")(segments)
        return keras.Model([tokens, segments], x + attention(x))

    def a_decoder_inside():
        shared = keras.layers.Embedding(20, D, name="tokens")
        x = shared(inner := ids("source_ids"))
        layer = keras.layers.MultiHeadAttention(HEADS, WIDTH)
        encoder = keras.Model(inner, x + layer(x, x), name="encoder")
        memory = keras.Input((None, D))
        x = shared(inner := ids("target_ids"))
        x = x + attention(x)
        layer = keras.layers.MultiHeadAttention(HEADS, WIDTH)
        decoder = keras.Model([inner, memory], x + layer(x, memory), name="decoder")
        source, target = ids("source"), ids("target")
        return keras.Model([source, target], decoder([target, encoder(source)]))

    return [
        scores,
        by_hand,
        input_that_marks_padding_by_one,
        padding_of_id_one,
        a_segment_table_of_one_row,
        a_decoder_inside,
    ]


@pytest.mark.parametrize("build", causal_models(), ids=lambda build: build.__name__)
def test_causal_models_are_recognized(build):
    model = build()
    after = "encoder/tokens" if build.__name__ == "a_decoder_inside" else "tokens"
    with pytest.raises(ValueError, match="about later ones"):
        keras_cond.apply(model, tokens="sequence", after=after)


def test_an_embedding_in_a_model_of_its_own():
    ids = keras.Input((None,), dtype="int32")
    words = keras.Sequential(
        [keras.layers.Embedding(20, D, name="words"), keras.layers.Dropout(0.1)]
    )
    x = words(ids)
    x = keras.layers.MultiHeadAttention(HEADS, WIDTH)(x, x)
    keras_cond.apply(keras.Model(ids, x), tokens="sequence", after="words")


# -- padding ---------------------------------------------------------------------


def towers():
    """Two texts with a mask each; the score does not depend on their padding."""
    inputs, means = [], []
    for name in ("query", "document"):
        ids = keras.Input((None,), dtype="int32", name=f"{name}_token_ids")
        mask = keras.Input((None,), dtype="int32", name=f"{name}_padding_mask")
        x = keras.layers.Embedding(20, D, name=f"{name}_embedding")(ids)
        real = ops.expand_dims(ops.cast(mask, "bool"), 1)
        layer = keras.layers.MultiHeadAttention(HEADS, WIDTH)
        x = x + layer(x, x, attention_mask=real)
        weights = ops.expand_dims(ops.cast(mask, x.dtype), -1)
        means.append(ops.sum(x * weights, axis=1) / ops.sum(weights, axis=1))
        inputs += [ids, mask]
    score = keras.layers.Dense(1)(keras.layers.Concatenate()(means))
    return keras.Model({tensor.name: tensor for tensor in inputs}, score)


def test_each_text_has_the_mask_of_its_name():
    new = keras_cond.apply(towers(), tokens="sequence", after="query_embedding")
    assert new.mask == "query_padding_mask"
    ids = np.array([[3, 7, 9]])
    document = {
        "document_token_ids": ids,
        "document_padding_mask": np.ones((1, 3), "int32"),
    }

    def score(length):
        pad = ((0, 0), (0, length - 3))
        return outputs(
            new,
            {
                "query_token_ids": np.pad(ids, pad, constant_values=5),
                "query_padding_mask": np.pad(np.ones((1, 3), "int32"), pad),
                **document,
            },
        )

    np.testing.assert_allclose(score(3), score(8), atol=1e-5)


def test_a_mask_that_cannot_be_told_is_asked_for():
    ids = keras.Input((6,), dtype="int32", name="words")
    masks = [
        keras.Input((6,), dtype="int32", name=f"{name}_padding_mask")
        for name in ("left", "right")
    ]
    x = keras.layers.Embedding(20, D, name="embedding")(ids)
    real = ops.expand_dims(ops.cast(masks[0] * masks[1], "bool"), 1)
    layer = keras.layers.MultiHeadAttention(HEADS, WIDTH)
    model = keras.Model([ids, *masks], layer(x, x, attention_mask=real))
    with pytest.raises(ValueError, match="Pass `mask`"):
        keras_cond.apply(model, tokens="sequence")
    new = keras_cond.apply(model, tokens="sequence", mask="left_padding_mask")
    assert new.mask == "left_padding_mask"
    assert keras_cond.apply(model, tokens="sequence", mask=False).mask is None
    with pytest.raises(ValueError, match="`mask` is the name of an input"):
        keras_cond.apply(model, tokens="sequence", mask="middle")


# -- refusals --------------------------------------------------------------------


class Cannot(keras.layers.Layer):
    """A layer whose configuration does not make it."""

    def call(self, x):
        return x

    def get_config(self):
        return {**super().get_config(), "surplus": 1}


def test_a_model_that_could_not_be_loaded_is_refused():
    ids = keras.Input((5,), dtype="int32")
    x = keras.layers.Embedding(20, D, name="embedding")(ids)
    x = keras.layers.MultiHeadAttention(HEADS, WIDTH)(x, x)
    model = keras.Model(ids, Cannot()(x))
    with pytest.raises(ValueError, match=r"cannot be made .*: Cannot \(TypeError"):
        keras_cond.apply(model, tokens="sequence")


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({}, "exactly one"),
        ({"tokens": "table", "correction": "polar"}, "exactly one"),
        ({"correction": "svd"}, "Unknown `correction`"),
        ({"correction": "identity", "correction_scale": 0}, "more than 0"),
        ({"correction": "identity", "correction_scale": "2"}, "correction_scale"),
        ({"correction": "identity", "after": "embedding"}, "belong to `tokens`"),
        ({"tokens": "rows"}, "`tokens` says how"),
        ({"tokens": keras.layers.Dense(3)}, "`tokens` says how"),
        ({"tokens": "table", "after": "nowhere"}, "names no layer"),
        ({"tokens": "table", "after": "ids"}, "names no layer"),
        ({"tokens": "table", "after": "head"}, "the table of an embedding"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        keras_cond.apply(text(), **arguments)


def test_models_without_a_graph_are_refused():
    class Own(keras.Model):
        pass

    with pytest.raises(ValueError, match="not built, or has a `call` of its own"):
        keras_cond.apply(Own(), tokens="sequence")


def test_an_embedding_that_does_more_is_refused():
    ids = keras.Input((5,), dtype="int32")
    x = keras_cond.ConditionedEmbedding(20, D, name="embedding")(ids)
    model = keras.Model(ids, keras.layers.MultiHeadAttention(HEADS, WIDTH)(x, x))
    with pytest.raises(ValueError, match="more than look rows up"):
        keras_cond.apply(model, tokens="table")


def test_the_words_are_found_beside_their_types():
    ids, types = (keras.Input((5,), dtype="int32") for _ in range(2))
    words = keras.layers.Embedding(20, D, name="word_embeddings")(ids)
    kinds = keras.layers.Embedding(2, D, name="token_type_embeddings")(types)
    x = words + kinds
    model = keras.Model([ids, types], keras.layers.MultiHeadAttention(2, 4)(x, x))
    new = keras_cond.apply(model, tokens="table")
    assert new.lookup.embedding.name == "word_embeddings"
    with pytest.raises(ValueError, match="a ConditionedLookup"):
        keras_cond.apply(new, tokens="table")


@keras.saving.register_keras_serializable()
class Scaled(keras.Model):
    """A Functional model with a `call` of its own."""

    def __init__(self, **kwargs):
        ids = keras.Input((5,), dtype="int32")
        x = keras.layers.Embedding(20, D, name="tokens")(ids)
        x = keras.layers.MultiHeadAttention(HEADS, WIDTH)(x, x)
        super().__init__(inputs=ids, outputs=x, **kwargs)

    def call(self, inputs, training=None, mask=None):
        return 10.0 * super().call(inputs, training=training, mask=mask)


def test_a_call_of_ones_own_is_refused():
    with pytest.raises(ValueError, match="has a `call` of its own"):
        keras_cond.apply(Scaled(), tokens="table")


def test_a_layer_that_returns_several_tensors_is_refused():
    inputs = keras.Input((5, D))
    layer = keras.layers.MultiHeadAttention(HEADS, WIDTH, name="attention")
    model = keras.Model(inputs, layer(inputs, inputs, return_attention_scores=True))
    with pytest.raises(ValueError, match="which returns list"):
        keras_cond.apply(model, tokens="sequence", after="attention")


def test_optional_inputs_stay_optional():
    ids = keras.Input((5,), dtype="int32", name="ids")
    bias = keras.Input((D,), name="bias", optional=True)

    class Shift(keras.layers.Layer):
        def call(self, x, bias=None):
            return x if bias is None else x + bias[:, None]

        def compute_output_shape(self, shape, *others):
            return shape

    x = keras.layers.Embedding(20, D, name="tokens")(ids)
    model = keras.Model({"ids": ids, "bias": bias}, Shift()(x, bias))
    new = keras_cond.apply(model, tokens="table")
    assert outputs(new, {"ids": IDS, "bias": None}).shape == (1, 5, D)


def test_every_weight_has_a_path_of_its_own():
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        new = keras_cond.apply(text(), tokens="table")
        new = keras_cond.apply(new, tokens="sequence", after="embedding")
        new = keras_cond.apply(
            new, tokens=keras_cond.DCTTokenGraying(), after="embedding"
        )
    assert len({w.path for w in new.weights}) == len(new.weights)
