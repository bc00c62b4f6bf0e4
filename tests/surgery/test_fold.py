"""`fold`: the same function with stock layers, in files that need nothing else."""

import warnings

import keras
import numpy as np
import pytest
from keras import ops
from models.vit import build_vit

import keras_cond
from tests.autodiff import to_numpy
from tests.surgery.models import (
    CHECK_FILES,
    HEADS,
    WIDTH,
    D,
    batch,
    differences,
    grouped,
    in_fresh_process,
    outputs,
    plain,
    store,
    text,
)

IDS = np.array([[3, 7, 1, 9, 4]])


def classes(model):
    """The modules of every class and object that the configuration names."""
    found = set()

    def visit(part):
        if isinstance(part, dict):
            found.add(str(part.get("module")))
            found.add(str(part.get("registered_name")))
            for value in part.values():
                visit(value)
        elif isinstance(part, list | tuple):
            for value in part:
                visit(value)

    visit(keras.saving.serialize_keras_object(model))
    return found


def assert_folded(model, x, atol=1e-5):
    """Folds without a warning, to the same outputs and without a trace of ours."""
    before = [to_numpy(w) for w in model.weights]
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        folded = keras_cond.fold(model)
    np.testing.assert_allclose(outputs(folded, x), outputs(model, x), atol=atol)
    assert not any("keras_cond" in name.split(">")[0] for name in classes(folded))
    for weight, value in zip(model.weights, before, strict=True):
        np.testing.assert_array_equal(to_numpy(weight), value)
    return folded


@pytest.mark.parametrize("per_head", [True, False])
@pytest.mark.parametrize("correction", ["identity", "polar"])
def test_spectral_attention_becomes_stock_attention(correction, per_head):
    arguments = {"correction": correction, "per_head": per_head, "correction_scale": 1}
    model = plain(2, keras_cond.SpectralAttention, **arguments)
    folded = assert_folded(model, batch())
    layer = folded.get_layer("attention_0")
    assert type(layer) is keras.layers.MultiHeadAttention
    assert type(layer.query_dense) is keras.layers.EinsumDense
    assert type(model.get_layer("attention_0")) is keras_cond.SpectralAttention


def test_grouped_attention_and_initializers_of_ours():
    inputs = keras.Input((6, D))
    layer = keras_cond.SpectralGroupedQueryAttention(
        4, 4, 2, kernel_initializer=keras_cond.SemiOrthogonalQK(), correction_scale=1
    )
    dense = keras.layers.Dense(3, kernel_initializer=keras_cond.DCTBasis())
    model = keras.Model(inputs, dense(layer(inputs, inputs)))
    folded = assert_folded(model, batch())
    assert type(folded.layers[-2]) is type(grouped().layers[-1])


def test_a_conditioned_table_becomes_an_embedding():
    ids = keras.Input((None,), dtype="int32")
    embedding = keras_cond.ConditionedEmbedding(20, D, "table", mask_zero=True)
    x = embedding(ids)
    x = keras.layers.MultiHeadAttention(HEADS, WIDTH)(x, x)
    folded = assert_folded(keras.Model(ids, x), IDS)
    assert type(folded.layers[1]) is keras.layers.Embedding


def test_what_apply_made_becomes_what_it_was_made_from():
    model = text()
    model.compile("sgd", "mse")
    new = keras_cond.apply(model, tokens="table")
    new.compile("adam", "mse")
    folded = assert_folded(new, IDS)
    assert type(folded) is type(model)
    assert [type(a) for a in folded.layers] == [type(a) for a in model.layers]
    folded.fit(IDS, np.zeros((1, 5, 3)), verbose=0)  # compiled as it was
    np.testing.assert_array_equal(outputs(new, IDS), outputs(new, IDS))


def tied(mask_zero=False):
    ids = keras.Input((None,), dtype="int32")
    embedding = keras.layers.ReversibleEmbedding(20, D, mask_zero=mask_zero)
    x = embedding(ids)
    layer = keras.layers.MultiHeadAttention(HEADS, WIDTH)
    x = layer(x, x, use_causal_mask=True)
    return keras.Model(ids, embedding(x, reverse=True))


@pytest.mark.parametrize("mask_zero", [True, False])
def test_a_tied_table_becomes_two(mask_zero):
    model = tied(mask_zero)
    ids = np.array([[3, 7, 1, 0, 0]])
    new = keras_cond.apply(model, tokens="table")
    folded = assert_folded(new, ids)
    embedding = folded.layers[1]
    assert type(embedding) is keras.layers.ReversibleEmbedding
    assert not embedding.tie_weights


@pytest.mark.parametrize("head_table", ["raw", "conditioned"])
def test_an_embedding_with_a_tied_head_becomes_stock(head_table):
    ids = keras.Input((None,), dtype="int32")
    embedding = keras_cond.ConditionedReversibleEmbedding(
        20, D, head_table, mask_zero=True, logit_soft_cap=9.0
    )
    x = embedding(ids)
    x = keras.layers.MultiHeadAttention(HEADS, WIDTH)(x, x, use_causal_mask=True)
    model = keras.Model(ids, embedding(x, reverse=True))
    folded = assert_folded(model, np.array([[3, 7, 1, 0, 0]]))
    stock = folded.layers[1]
    assert type(stock) is keras.layers.ReversibleEmbedding
    assert stock.tie_weights == (head_table == "conditioned")
    assert stock.logit_soft_cap == 9.0


@pytest.mark.parametrize("mask_zero", [True, False])
def test_the_mask_of_a_tied_embedding_goes_on(mask_zero):
    model = tied(mask_zero)
    model.layers[1].embeddings.assign(np.eye(20, D) + 0.1)
    ids = np.array([[3, 0, 1, 0, 5]])
    new = keras_cond.apply(model, tokens="table")
    other = keras_cond.apply(tied(not mask_zero), tokens="table")
    other.set_weights(new.get_weights())
    # Stock attention over the conditioned rows, with and without the mask.
    table = to_numpy(new.layers[1].table())
    attention = model.layers[2]
    for case, masked in ((new, mask_zero), (other, not mask_zero)):
        real = ids != 0 if masked else np.ones_like(ids, bool)
        rows = ops.convert_to_tensor(table[ids])
        attended = attention(
            rows,
            rows,
            use_causal_mask=True,
            query_mask=ops.convert_to_tensor(real),
            value_mask=ops.convert_to_tensor(real),
        )
        wanted = to_numpy(attended) @ to_numpy(model.layers[1].embeddings).T
        np.testing.assert_allclose(outputs(case, ids)[real], wanted[real], atol=1e-5)


def test_table_first_and_sequence_second():
    inner = keras_cond.apply(text(), tokens="table")
    outer = keras_cond.apply(inner, tokens="sequence", after="embedding")
    with pytest.warns(UserWarning, match="TokenConditioning"):
        folded = keras_cond.fold(outer)
    np.testing.assert_allclose(outputs(folded, IDS), outputs(outer, IDS), atol=1e-5)
    assert "ConditionedLookup" not in [type(x).__name__ for x in folded.layers]


@keras.saving.register_keras_serializable()
class TiedByItself(keras.Model):
    """A model that uses the raw table of its conditioned embedding as well."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.embedding = keras_cond.ConditionedEmbedding(20, D, condition="table")

    def call(self, ids):
        return ops.matmul(self.embedding(ids), ops.transpose(self.embedding.embeddings))


def test_a_table_that_a_model_of_ones_own_may_use_stays():
    model = TiedByItself()
    wanted = outputs(model, IDS)
    with pytest.warns(UserWarning, match="ConditionedEmbedding"):
        folded = keras_cond.fold(model)
    np.testing.assert_allclose(outputs(folded, IDS), wanted, atol=1e-6)


@keras.saving.register_keras_serializable()
class Head(keras.layers.Layer):
    """Multiplies by the table of an embedding that it holds."""

    def __init__(self, embedding, **kwargs):
        super().__init__(**kwargs)
        self.embedding = embedding

    def call(self, x):
        return ops.matmul(x, ops.transpose(self.embedding.embeddings))

    def get_config(self):
        embedding = keras.saving.serialize_keras_object(self.embedding)
        return {**super().get_config(), "embedding": embedding}

    @classmethod
    def from_config(cls, config):
        embedding = keras.saving.deserialize_keras_object(config["embedding"])
        return cls(**{**config, "embedding": embedding})


def test_a_head_that_holds_the_embedding_keeps_the_raw_table():
    ids = keras.Input((None,), dtype="int32")
    embedding = keras.layers.Embedding(20, D, name="tokens")
    x = embedding(ids)
    x = keras.layers.MultiHeadAttention(HEADS, WIDTH)(x, x)
    new = keras_cond.apply(keras.Model(ids, Head(embedding)(x)), tokens="table")
    with pytest.warns(UserWarning, match="ConditionedLookup"):
        folded = keras_cond.fold(new)
    np.testing.assert_allclose(outputs(folded, IDS), outputs(new, IDS), atol=1e-6)


@keras.saving.register_keras_serializable()
class OwnAttention(keras_cond.SpectralAttention):
    """A subclass, which may do anything."""


def test_a_subclass_stays_whole(tmp_path):
    inputs = keras.Input((6, D))
    layer = OwnAttention(HEADS, WIDTH, correction_scale=0.5)
    model = keras.Model(inputs, layer(inputs, inputs))
    wanted = outputs(model, batch())
    with pytest.warns(UserWarning, match="OwnAttention"):
        folded = keras_cond.fold(model)
    folded.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    for other in (folded, loaded):
        np.testing.assert_allclose(outputs(other, batch()), wanted, atol=1e-5)


def test_what_is_dropped_or_cannot_be_compiled_is_said():
    inputs = keras.Input((6, D))
    dense = keras.layers.Dense(
        D, kernel_constraint=keras_cond.constraints.MaxConditionNumber(5.0)
    )
    model = keras.Model(inputs, dense(inputs))
    model.compile("sgd", lambda y, p: ops.mean(ops.square(y - p)))
    with pytest.warns(UserWarning) as caught:
        folded = keras_cond.fold(model)
    message = next(m for m in map(str, (w.message for w in caught)) if "dropped" in m)
    assert "MaxConditionNumber of 'dense" in message and "was dropped" in message
    assert "is not compiled" in message and not folded.compiled
    assert not any("keras_cond" in name for name in classes(folded))


def test_inside_another_model():
    inner = keras_cond.apply(text(), tokens="table")
    ids = keras.Input((None,), dtype="int32")
    model = keras.Model(ids, keras.layers.Dense(2)(inner(ids)))
    assert_folded(model, IDS)
    lookup = keras.Model(inner.input, keras.layers.Dense(2)(inner.output))
    assert_folded(lookup, IDS)


def test_lora_is_merged_and_the_correction_added_once():
    model = plain(1, keras_cond.SpectralAttention, correction_scale=1.0)
    dense = model.get_layer("attention_0").query_dense
    dense.enable_lora(2)
    rng = np.random.default_rng(0)
    dense.lora_kernel_a.assign(rng.normal(size=dense.lora_kernel_a.shape))
    dense.lora_kernel_b.assign(rng.normal(size=dense.lora_kernel_b.shape))
    folded = keras_cond.fold(model)
    np.testing.assert_allclose(
        outputs(folded, batch()), outputs(model, batch()), atol=1e-4
    )


def test_what_depends_on_the_sequence_is_named_and_the_rest_folded():
    inputs = keras.Input((6, D))
    x = keras_cond.TokenConditioning(name="conditioning")(inputs)
    x = keras_cond.SVDTokenGraying(name="graying")(x)
    layer = keras_cond.SpectralAttention(HEADS, WIDTH, name="attention")
    model = keras.Model(inputs, layer(x, x))
    with pytest.warns(UserWarning, match="Not folded") as caught:
        folded = keras_cond.fold(model)
    message = str(next(w for w in caught if "Not folded" in str(w.message)).message)
    assert "'conditioning' (TokenConditioning); 'graying' (SVDTokenGraying)" in message
    assert type(folded.get_layer("attention")) is keras.layers.MultiHeadAttention
    np.testing.assert_allclose(
        outputs(folded, batch()), outputs(model, batch()), atol=1e-4
    )


def test_a_file_of_a_partly_folded_model_keeps_the_correction_once(tmp_path):
    ids = keras.Input((5,), dtype="int32")
    x = keras.layers.Embedding(20, D, name="embedding")(ids)
    x = keras_cond.SpectralAttention(HEADS, WIDTH, correction_scale=1.0)(x, x)
    graying = keras_cond.DCTTokenGraying(0.9)
    model = keras_cond.apply(keras.Model(ids, x), tokens=graying, causal=False)
    graying.epsilon.assign(0.6)
    with pytest.warns(UserWarning, match="DCTTokenGraying"):
        folded = keras_cond.fold(model)
    np.testing.assert_allclose(outputs(folded, IDS), outputs(model, IDS), atol=1e-5)
    folded.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(outputs(loaded, IDS), outputs(model, IDS), atol=1e-5)
    kinds = [type(layer).__name__ for layer in loaded.layers]
    assert "MultiHeadAttention" in kinds and "SpectralAttention" not in kinds


def test_files_load_where_the_package_is_missing(tmp_path):
    # The demo's spectral model, a conditioned table, a polar correction.
    images = np.random.default_rng(0).uniform(0, 255, (2, 8, 8, 1)).astype("float32")
    demo = build_vit((8, 8, 1), 10, "mini", "spectral_attention")
    polar = plain(1, keras_cond.SpectralAttention, correction="polar")
    table = keras_cond.apply(text(), tokens="table")
    paths = [tmp_path / name for name in ("demo", "polar", "table")]
    for model, x, path in zip(
        (demo, polar, table), (images, batch(), IDS), paths, strict=True
    ):
        store(assert_folded(model, x), x, path)
    printed = in_fresh_process(CHECK_FILES, *paths, without=["keras_cond"])
    assert max(differences(printed)) <= 1e-5, printed


def test_int8_of_a_folded_model():
    model = plain(1, keras_cond.SpectralAttention, correction_scale=1.0)
    folded = keras_cond.fold(model)
    wanted = outputs(model, batch())
    folded.quantize("int8")
    mode = folded.get_layer("attention_0").query_dense.quantization_mode
    assert mode == "int8"
    error = np.abs(outputs(folded, batch()) - wanted).max()
    plain_model = plain(1)
    plain_model.set_weights(model.get_weights())
    lost = np.abs(outputs(plain_model, batch()) - wanted).max()
    assert 0 < error < 0.05 * np.abs(wanted).max() < lost


def test_int8_of_a_conditioned_lookup_refuses():
    new = keras_cond.apply(text(), tokens="table")
    new.quantize("int8")
    with pytest.raises(ValueError, match=r"Call `keras_cond.fold` first"):
        new(IDS)


@pytest.mark.parametrize(
    "model", [3, keras.layers.Dense(2), keras.Sequential([keras.layers.Dense(2)])]
)
def test_wrong_arguments(model):
    with pytest.raises(ValueError, match="takes a built Keras model"):
        keras_cond.fold(model)


def test_a_model_that_cannot_be_copied():
    class Own(keras.Model):
        def __init__(self, width):
            super().__init__()
            self.dense = keras.layers.Dense(width)

        def call(self, x):
            return self.dense(x)

    model = Own(3)
    model(batch())
    with pytest.raises(ValueError, match="complete `get_config`"):
        keras_cond.fold(model)
