"""The example GPT: it never reads the future, and its text is what it says."""

import json
from pathlib import Path

import gpt
import keras
import matplotlib.image
import numpy as np
import pytest
import tokenizers
from common import corpora, text_files, wordnet
from common.runs import new_run_folder
from common.splits import split_by_text
from common.text import entropy, prepare_text
from common.tokenization import NUM_BYTE_TOKENS, train_tokenizer
from common.windows import EvaluationWindows, TrainingWindows, encode
from hypothesis import given
from hypothesis import strategies as st
from keras import ops
from models.generation import CachedReader, choose, generate, generate_ids
from models.gpt import CONDITIONINGS, SEQUENCE_CONDITIONINGS, build_gpt

import keras_cond
from tests.autodiff import gradient, to_numpy, weighted_sum
from tests.wordnet_files import write_wordnet

VOCABULARY_SIZE = 40
CONTEXT = 80
# Every conditioning, with each choice of head and of positions somewhere.
VARIANTS = [
    *({"conditioning": conditioning} for conditioning in CONDITIONINGS),
    {"conditioning": "conditioned_embedding", "head_table": "conditioned"},
    {"conditioning": "spectral_attention", "rotary": True},
    {"conditioning": "baseline", "rotary": True},
]
NAMES = ["-".join(map(str, variant.values())) for variant in VARIANTS]


def lively_gpt(**variant):
    """A tiny GPT whose tokens differ enough for attention to matter."""
    keras.utils.set_random_seed(1)
    model = build_gpt(VOCABULARY_SIZE, CONTEXT, "smoke", **variant)
    conditioning = variant.get("conditioning")
    # Attention that starts with large kernels would read one token alone.
    starts_large = conditioning in ("conditioned_init", "spectral_attention")
    for weight in model.trainable_weights:
        in_attention = "block_0_attention/" in weight.path
        if len(weight.shape) > 1 and not (starts_large and in_attention):
            weight.assign(6.0 * weight)
    if conditioning == "spectral_attention":
        model.get_layer("block_0_attention").correction_scale = 0.5
    return model


def random_ids(batch, tokens, seed=0):
    rng = np.random.default_rng(seed)
    return rng.integers(0, VOCABULARY_SIZE, (batch, tokens), dtype="int32")


def with_another_end(ids, place):
    """The ids, all of them changed after `place`."""
    changed = ids.copy()
    changed[:, place + 1 :] = (changed[:, place + 1 :] + 7) % VOCABULARY_SIZE
    return changed


# The model reads the past alone.


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
@pytest.mark.parametrize("variant", VARIANTS, ids=NAMES)
def test_later_tokens_change_no_bit_of_an_output(variant, policy):
    keras.config.set_dtype_policy(policy)
    model = lively_gpt(**variant)
    ids = random_ids(2, 12)
    before = to_numpy(model(ids))
    for place in (0, 6, 10):
        after = to_numpy(model(with_another_end(ids, place)))
        np.testing.assert_array_equal(
            after[:, : place + 1], before[:, : place + 1], strict=True
        )
        assert np.abs(after[:, place + 1 :] - before[:, place + 1 :]).min() > 0
    # An output does depend on its own past.
    first_changed = ids.copy()
    first_changed[:, 0] += 1
    last = to_numpy(model(first_changed % VOCABULARY_SIZE))[:, -1]
    assert np.abs(last - before[:, -1]).max() > 1e-3


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
@pytest.mark.parametrize("variant", VARIANTS[1:6:2], ids=NAMES[1:6:2])
def test_later_tokens_change_no_output_of_predict(variant, policy):
    keras.config.set_dtype_policy(policy)
    model = lively_gpt(**variant)
    ids = random_ids(2, 12)
    before = model.predict(ids, verbose=0)
    after = model.predict(with_another_end(ids, 6), verbose=0)
    np.testing.assert_allclose(after[:, :7], before[:, :7], atol=1e-6, rtol=0)


@pytest.mark.parametrize("variant", VARIANTS, ids=NAMES)
def test_gradient_in_a_later_embedding_is_zero(variant):
    # Dropout, off here, puts a layer between a token and block 0 in every variant.
    model = lively_gpt(**variant, dropout=0.1)
    ids = ops.convert_to_tensor(random_ids(1, 8))
    tokens = model.get_layer("embedding_dropout").output
    from_tokens = keras.Model([tokens, model.input], model.output)
    values = to_numpy(keras.Model(model.input, tokens)(ids))
    weight = np.random.default_rng(0).normal(size=VOCABULARY_SIZE)
    place = 4
    slope = gradient(
        lambda x: weighted_sum(weight, from_tokens([x, ids])[0, place]), values
    )
    norms = np.linalg.norm(slope[0], axis=-1)
    assert np.all(norms[: place + 1] > 0)
    np.testing.assert_array_equal(norms[place + 1 :], 0)


@pytest.mark.parametrize("conditioning", SEQUENCE_CONDITIONINGS)
def test_conditioning_of_a_sequence_is_refused(conditioning):
    with pytest.raises(ValueError, match=r"would show a token the later ones.*table"):
        build_gpt(VOCABULARY_SIZE, CONTEXT, "smoke", conditioning)


def test_a_causal_model_takes_no_layer_that_conditions_a_sequence():
    model = lively_gpt()
    for tokens in (
        "sequence",
        keras_cond.TokenConditioning(),
        keras_cond.SVDTokenGraying(),
        keras_cond.DCTTokenGraying(),
    ):
        with pytest.raises(ValueError, match=r"causal|later"):
            keras_cond.apply(model, tokens=tokens)


# What the conditionings and options are.


def test_conditionings_change_the_output_but_no_weight_outside_attention():
    ids = random_ids(2, 12)
    weights, outputs = {}, {}
    for conditioning in CONDITIONINGS:
        keras.utils.set_random_seed(1)
        model = build_gpt(VOCABULARY_SIZE, CONTEXT, "smoke", conditioning)
        weights[conditioning] = {
            weight.path: to_numpy(weight) for weight in model.weights
        }
        outputs[conditioning] = to_numpy(model(ids))
    baseline, baseline_output = weights.pop("baseline"), outputs.pop("baseline")
    attention = {"query", "key", "value", "attention_output"}
    for conditioning, others in weights.items():
        changed = {
            path.split("/")[-2]
            for path in baseline
            if not np.array_equal(baseline[path], others[path])
        }
        acts_in_attention = conditioning in ("spectral_attention", "conditioned_init")
        assert changed <= (attention if acts_in_attention else set())
        assert np.abs(outputs[conditioning] - baseline_output).max() > 1e-4


def test_head_multiplies_by_the_table_that_is_asked_for():
    ids = random_ids(1, 5)
    for head_table in ("raw", "conditioned"):
        model = lively_gpt(conditioning="conditioned_embedding", head_table=head_table)
        norm = model.get_layer("head_norm").output
        x, logits = map(to_numpy, keras.Model(model.input, [norm, model.output])(ids))
        table = to_numpy(model.get_layer("token_embedding").embeddings)
        if head_table == "conditioned":
            u, s, vt = np.linalg.svd(table.astype("float64"), full_matrices=False)
            table = (u * (s + s[0])) @ vt
        np.testing.assert_allclose(logits, x @ table.T, rtol=1e-3, atol=1e-4)


def test_conditioned_table_is_what_apply_makes_and_fold_takes_away():
    ids = random_ids(2, 12)
    expected = to_numpy(lively_gpt(conditioning="conditioned_embedding")(ids))
    applied = keras_cond.apply(lively_gpt(), tokens="table")
    np.testing.assert_allclose(to_numpy(applied(ids)), expected, atol=1e-5)
    folded = keras_cond.fold(applied)
    assert not [
        layer.name
        for layer in folded.layers
        if type(layer).__module__.startswith("keras_cond")
    ]
    np.testing.assert_allclose(to_numpy(folded(ids)), expected, atol=1e-5)


def test_model_has_the_size_of_gpt2():
    assert gpt.CONTEXTS["gpt2"] == 1024 and gpt.VOCABULARY_SIZES["gpt2"] == 50257

    def num_parameters(size, vocabulary_size, context):
        width, hidden = size.width, size.width * size.mlp_ratio
        block = 4 * width**2 + 2 * width * hidden + 9 * width + hidden
        tables = (vocabulary_size + context) * width
        return tables + size.num_layers * block + 2 * width

    assert num_parameters(gpt.PRESETS["gpt2"], 50257, 1024) == 124_439_808
    for rotary in (False, True):
        model = build_gpt(VOCABULARY_SIZE, CONTEXT, "smoke", rotary=rotary)
        assert model.count_params() == num_parameters(
            gpt.PRESETS["smoke"], VOCABULARY_SIZE, 0 if rotary else CONTEXT
        )


def test_dropout_acts_in_training_alone():
    model = lively_gpt(dropout=0.5)
    ids = random_ids(1, 8)
    np.testing.assert_array_equal(to_numpy(model(ids)), to_numpy(model(ids)))
    trained = [to_numpy(model(ids, training=True)) for _ in range(2)]
    assert np.abs(trained[0] - trained[1]).max() > 1e-2


def test_rotary_attention_depends_on_distances_alone():
    model = lively_gpt(rotary=True)
    attention = model.get_layer("block_0_attention")
    x = np.random.default_rng(0).normal(size=(1, 6, 16)).astype("float32")
    shifted = np.concatenate([np.zeros((1, 3, 16), "float32"), x], axis=1)
    mask = np.ones((9, 9), bool)
    mask[:, :3] = False
    y = to_numpy(attention(x, x))
    moved = to_numpy(attention(shifted, shifted, attention_mask=mask[None]))
    np.testing.assert_allclose(moved[:, 3:], y, atol=1e-5)
    reversed_y = to_numpy(attention(x[:, ::-1], x[:, ::-1]))[:, ::-1]
    assert np.abs(reversed_y - y).max() > 1e-3  # and on their sign


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"preset": "huge"}, "preset: got 'huge'"),
        ({"conditioning": "none"}, "conditioning: got 'none'"),
        ({"head_table": "both"}, "head_table: got 'both'"),
        ({"vocabulary_size": 0}, "vocabulary_size: got 0"),
        ({"context": 0}, "context: got 0"),
        ({"dropout": 1.0}, "dropout: got 1.0"),
    ],
)
def test_model_refuses_what_it_cannot_build(arguments, message):
    with pytest.raises(ValueError, match=message):
        build_gpt(**({"vocabulary_size": 10, "context": 4} | arguments))


# Generation.


@pytest.mark.parametrize("variant", VARIANTS, ids=NAMES)
def test_cached_generation_equals_the_full_forward_pass(variant):
    model = lively_gpt(**variant)
    prompt = [3, 1, 4, 1, 5]
    reader = CachedReader(model, len(prompt) + 64)
    logits = [reader(prompt)]
    ids = list(prompt)
    for _ in range(64):
        ids.append(int(logits[-1][-1].argmax()))
        logits.append(reader([ids[-1]]))
    full = to_numpy(model(np.array([ids], "int32")))[0]
    np.testing.assert_allclose(np.concatenate(logits), full, atol=2e-5, rtol=1e-4)
    if variant in VARIANTS[:2]:
        assert generate_ids(model, prompt, 64) == ids[len(prompt) :]


def test_drawn_tokens_follow_the_seed_and_the_temperature():
    model = lively_gpt()

    def draw(**arguments):
        return generate_ids(model, [1, 2], 20, **arguments)

    assert draw(temperature=1.0, seed=3) == draw(temperature=1.0, seed=3)
    assert draw(temperature=1.0, seed=3) != draw(temperature=1.0, seed=4)
    assert draw(temperature=1e-6, seed=3) == draw()


def test_tokens_are_drawn_from_the_softmax_at_the_temperature():
    logits, rng = np.array([0.0, 1.0, 3.0, -2.0]), np.random.default_rng(0)
    drawn = [choose(logits, 2.0, rng) for _ in range(4000)]
    frequencies = np.bincount(drawn, minlength=4) / 4000
    expected = np.exp(logits / 2) / np.exp(logits / 2).sum()
    np.testing.assert_allclose(frequencies, expected, atol=0.03)
    assert choose(logits, 0, rng) == 2


def test_generation_begins_with_the_prompt_and_stops_at_the_end_of_the_text():
    tokenizer = train_tokenizer([], NUM_BYTE_TOKENS)
    keras.utils.set_random_seed(0)
    model = build_gpt(NUM_BYTE_TOKENS, 20, "smoke")
    assert generate(model, tokenizer, "ab", num_tokens=5).startswith("ab")
    head_norm = model.get_layer("head_norm")
    head_norm.gamma.assign(np.zeros(16))
    table = model.get_layer("token_embedding").embeddings
    head_norm.beta.assign(100 * to_numpy(table)[0])  # only the end is likely
    assert generate(model, tokenizer, "ab", num_tokens=5) == "ab"


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"num_tokens": 0}, "num_tokens: got 0"),
        ({"temperature": -1}, "temperature: got -1"),
        ({"num_tokens": CONTEXT}, f"got {CONTEXT + 2}, expected at most the {CONTEXT}"),
    ],
)
def test_generation_refuses_what_it_cannot_do(arguments, message):
    arguments = {"num_tokens": 3} | arguments
    with pytest.raises(ValueError, match=message):
        generate_ids(lively_gpt(), [1, 2], **arguments)


# WordNet.


def test_synsets_have_words_label_and_gloss(tmp_path):
    glosses = write_wordnet(tmp_path)
    synsets = wordnet.read_wordnet(tmp_path)
    assert [synset.gloss for synset in synsets] == glosses
    assert {synset.words for synset in synsets} == {("new word", "b")}
    assert [synset.label for synset in synsets[:4]] == [3, 3, 3, 4]
    corpus = corpora.load_dataset("wordnet", str(tmp_path))
    documents = [*corpus.train, *corpus.validation]
    assert sorted(documents) == sorted(f"new word: {gloss}" for gloss in glosses)


@pytest.mark.parametrize(
    "damage, message",
    [
        (lambda content: content[:-50], "ends within a line"),
        (lambda content: content.replace(b" | ", b" ", 1), "not a synset"),
        (lambda content: content.replace(b"000", b"00", 1), "not a synset"),
        (lambda content: content.replace(b" 02 new", b" 09 new"), "not a synset"),
        (lambda content: content.replace(b"meaning", b"\xff", 1), "not a synset"),
        (lambda content: content[: content.index(b" 43 v", 200)], "lexicographer|ends"),
    ],
)
def test_damaged_wordnet_is_named(damage, message, tmp_path):
    write_wordnet(tmp_path)
    path = tmp_path / "data.verb"
    content = path.read_bytes().replace(b" n 02", b" v 02")
    path.write_bytes(damage(content))
    with pytest.raises(ValueError, match=f"{tmp_path}.*({message})"):
        wordnet.read_wordnet(tmp_path)


def test_missing_wordnet_names_the_package(tmp_path):
    with pytest.raises(ValueError, match=r"lacks data.noun.*package wordnet-base"):
        corpora.load_dataset("wordnet", str(tmp_path))


@pytest.mark.skipif(
    not Path(wordnet.DEBIAN_FOLDER, "data.noun").is_file(),
    reason="the Debian package wordnet-base is not installed",
)
def test_no_definition_of_wordnet_is_in_both_splits():
    synsets = wordnet.read_wordnet()
    assert len(synsets) == 117_659
    train, validation = split_by_text([synset.gloss for synset in synsets])
    assert sorted([*train, *validation]) == list(range(len(synsets)))
    assert 0.09 < len(validation) / len(synsets) < 0.11
    assert {synsets[i].label for i in validation} == set(range(wordnet.NUM_LABELS))
    seen = {synsets[i].gloss.lower() for i in train}
    assert not seen & {synsets[i].gloss.lower() for i in validation}
    # The split is the same on every machine.
    assert synsets[validation[0]].words[:2] == ("fusty", "standpat")


# Splits, files and prepared data sets.


@given(st.lists(st.sampled_from(["a b", "A  b ", "c", "d", "e", "f"]), min_size=1))
def test_equal_texts_stay_on_one_side_of_a_split(texts):
    train, validation = split_by_text(texts, fraction=0.4)
    assert sorted([*train, *validation]) == list(range(len(texts)))
    assert len(validation) > 0

    def side(indices):
        return {" ".join(texts[i].lower().split()) for i in indices}

    assert not side(train) & side(validation)
    for first, second in zip(
        (train, validation), split_by_text(texts, fraction=0.4), strict=True
    ):
        np.testing.assert_array_equal(first, second)


def test_text_files_are_split_into_documents(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b.txt").write_text("Zwölf.\n<|endoftext|>\nDrei.\n", "utf-8")
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfOne\n\ntwo\n")
    (tmp_path / ".hidden").write_bytes(b"\xff")
    documents = text_files.read_text(tmp_path, "--text")
    assert documents == ["One\n\ntwo", "Zwölf.", "Drei."]
    corpus = corpora.load_text_files(tmp_path / "a.txt", tmp_path / "sub")
    assert (corpus.name, corpus.train) == ("a", ["One\n\ntwo"])
    assert corpus.validation == ["Zwölf.", "Drei."]


def test_few_documents_are_cut_near_the_end_and_many_are_split(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("\n".join(f"line {i}" for i in range(100)))
    corpus = corpora.load_text_files(path)
    assert "".join([*corpus.train, *corpus.validation]) == path.read_text()
    assert corpus.train[0].endswith("\n") and 70 < len(corpus.validation[0]) < 90

    stories = [f"story {i // 2}" for i in range(100)]  # each of them twice
    path.write_text("<|endoftext|>".join(stories))
    corpus = corpora.load_text_files(path)
    assert (len(corpus.train), len(corpus.validation)) == (90, 10)
    assert not set(corpus.train) & set(corpus.validation)


@pytest.mark.parametrize(
    "content, message",
    [
        (None, "does not exist"),
        (b"", "holds no text"),
        (b" \n<|endoftext|>\n", "holds no text"),
        (b"caf\xe9 au lait", "is not UTF-8 .byte 3"),
    ],
)
@pytest.mark.parametrize("in_folder", [False, True])
def test_unusable_text_is_named(content, message, in_folder, tmp_path):
    path = tmp_path / "folder" / "text.txt"
    if content is not None:
        path.parent.mkdir()
        path.write_bytes(content)
    source = path.parent if in_folder else path
    with pytest.raises(ValueError, match=f"--text: {source}.*{message}"):
        gpt.main(["--text", str(source), "--output", str(tmp_path / "run")])
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "name, version, config",
    [
        ("tiny_shakespeare", "1.0.0", None),
        ("lm1b", "1.1.0", None),
        ("imdb_reviews", "1.0.0", "plain_text"),
    ],
)
def test_prepared_text_is_read_as_it_was_written(name, version, config, tmp_path):
    import tensorflow_datasets as tfds

    features = {"text": tfds.features.Text()}
    if config:
        features["label"] = tfds.features.ClassLabel(num_classes=2)
    splits = {
        split: [
            (i, {"text": f"{split} Ä {i}"} | ({"label": 0} if config else {}))
            for i in range(5)
        ]
        for split in ("train", "validation", "test")
    }
    tfds.dataset_builders.store_as_tfds_dataset(
        name=name,
        version=version,
        config=config,
        features=tfds.features.FeaturesDict(features),
        split_datasets=splits,
        data_dir=tmp_path,
    )
    corpus = corpora.load_dataset(name, str(tmp_path))
    held_out = "validation" if name == "tiny_shakespeare" else "test"
    for _ in range(2):  # once to train the tokenizer, once to encode
        assert sorted(corpus.train) == [f"train Ä {i}" for i in range(5)]
        assert sorted(corpus.validation) == [f"{held_out} Ä {i}" for i in range(5)]

    record = next(tmp_path.rglob("*train.tfrecord*"))
    whole = record.read_bytes()
    record.write_bytes(whole[:20] + bytes(8) + whole[28:])
    with pytest.raises(ValueError, match=r"split 'train' cannot be read"):
        prepare_text(corpus, 300, 8, 1, 0)


@pytest.mark.parametrize("name", corpora.DATASETS[1:])
def test_missing_data_set_says_how_to_prepare_it(name, tmp_path):
    with pytest.raises(ValueError, match=f"'{name}': not found, .*tfds build {name}"):
        corpora.load_dataset(name, str(tmp_path))


# Tokenizer and windows.


def test_tokenizer_learns_from_the_training_split_alone():
    train, validation = ["abab " * 50, "caca " * 50], ["zqzq " * 50]
    corpus = corpora.Corpus("letters", train, validation, "letters")
    task = prepare_text(corpus, 280, 8, batch_size=2, seed=0)
    assert task.tokenizer.to_str() == train_tokenizer(train, 280).to_str()
    vocabulary = task.tokenizer.get_vocab()
    assert "abab" in vocabulary and not any("zq" in token for token in vocabulary)


@given(st.text())
def test_any_text_survives_encoding(text):
    for tokenizer in (BPE, BYTES):
        assert tokenizer.decode(tokenizer.encode(text).ids) == text
    assert len(BYTES.encode(text).ids) == len(text.encode())


BPE = train_tokenizer(["the cat sat on the mat"] * 3, 270)
BYTES = train_tokenizer([], NUM_BYTE_TOKENS)


def test_vocabulary_holds_the_bytes():
    assert BYTES.get_vocab_size() == NUM_BYTE_TOKENS < BPE.get_vocab_size() <= 270
    with pytest.raises(ValueError, match="got 256, expected at least 257"):
        train_tokenizer([], 256)


def test_each_text_is_followed_by_its_end():
    assert BYTES.decode(encode(BYTES, ["ab", "c"])[[0, 1, 3]]) == "abc"
    assert encode(BYTES, ["ab", "c"])[[2, 4]].tolist() == [0, 0]
    assert len(encode(BYTES, ["ab"] * 5000)) == 15000
    assert len(encode(BYTES, iter(["ab"] * 5000), num_tokens=7)) == 7
    long = "line of text\n" * 40_000
    tokens = encode(BYTES, [long, "x"])
    assert (tokens == 0).sum() == 2 and tokens[-1] == 0
    assert BYTES.decode(tokens[: len(long)].tolist()) == long


def test_windows_cover_the_row_once_an_epoch():
    tokens = np.arange(43)
    train = TrainingWindows(tokens, context=4, batch_size=5, seed=1)
    assert len(train) == 2
    epochs = []
    for epoch in range(2):
        train.epoch = epoch
        windows, following = (np.concatenate(part) for part in zip(*train, strict=True))
        np.testing.assert_array_equal(following, (windows + 1) % 43)
        assert windows.shape == (10, 4) and len(np.unique(windows)) == 40
        np.testing.assert_array_equal(train[1][0], windows[5:])
        epochs.append(windows)
    assert not np.array_equal(*epochs)
    some = TrainingWindows(tokens, context=4, batch_size=5, seed=1, epoch_size=7)
    some.epoch = 1
    assert len(some) == 1 and np.array_equal(some[0][0], train[0][0])

    evaluation = EvaluationWindows(tokens, context=4, batch_size=4)
    pairs = [evaluation[index] for index in range(len(evaluation))]
    windows, following = (np.concatenate(part) for part in zip(*pairs, strict=True))
    np.testing.assert_array_equal(windows.ravel(), tokens[:40])
    np.testing.assert_array_equal(following.ravel(), tokens[1:41])


def test_entropy_is_that_of_the_frequencies():
    assert entropy(np.array([5, 5, 5])) == 0
    assert entropy(np.array([1, 2, 1, 2, 7, 7, 9, 9])) == pytest.approx(np.log(4))


# The script.


def write_story(path, sentences=300):
    """Text that is easy to learn: three sentences in a random order."""
    rng = np.random.default_rng(0)
    chosen = rng.choice(
        ["the cat sat. ", "a dog ran off. ", "we all sing. "], sentences
    )
    path.write_text("\n".join(chosen))
    return path


def test_run_learns_more_than_frequencies_and_writes_what_it_promises(tmp_path, capsys):
    story, output = write_story(tmp_path / "story.txt"), tmp_path / "run"
    methods = "baseline,conditioned_embedding"
    arguments = ["--preset", "smoke", "--epochs", "10", "--learning-rate", "0.02"]
    arguments += ["--batch-size", "4", "--method", methods, "--prompt", "the"]
    gpt.main(["--text", str(story), *arguments, "--output", str(output)])
    printed = capsys.readouterr().out
    results = json.loads((output / "results.json").read_text())
    assert list(results["methods"]) == methods.split(",")
    assert f"{results['unigram_entropy']:.4f}" in printed

    tokenizer = tokenizers.Tokenizer.from_file(str(output / "tokenizer.json"))
    corpus = corpora.load_text_files(story)
    task = prepare_text(corpus, 300, gpt.CONTEXTS["smoke"], 4, 0)
    assert tokenizer.to_str() == task.tokenizer.to_str()
    assert results["unigram_entropy"] == pytest.approx(task.unigram_entropy)
    windows, following = map(np.concatenate, zip(*task.validation, strict=True))
    for method, result in results["methods"].items():
        assert result["loss"] < 0.7 * results["unigram_entropy"]
        assert result["perplexity"] == pytest.approx(np.exp(result["loss"]))
        model = keras.models.load_model(output / f"{method}.keras")
        losses = keras.losses.sparse_categorical_crossentropy(
            following, model(windows), from_logits=True
        )
        assert to_numpy(losses).mean() == pytest.approx(result["loss"], abs=1e-3)
        sample = generate(
            model, tokenizer, "the", 31 - len(tokenizer.encode("the").ids), 0.8
        )
        assert sample == result["sample"] and result["sample"] in printed
        picture = matplotlib.image.imread(output / f"{method}-kappa.png")
        assert picture.shape[0] > 200
    table = results["methods"]["conditioned_embedding"]["condition_numbers"]
    assert table["start"]["table"] <= 2.01 and table["end"]["table"] <= 2.01
    assert matplotlib.image.imread(output / "curves.png").shape[1] > 1000


def test_smoke_run_keeps_earlier_results(tmp_path):
    story, output = write_story(tmp_path / "story.txt"), tmp_path / "run"
    arguments = ["--smoke", "--text", str(story), "--method", "conditioned_init"]
    arguments += ["--tokenizer", "bytes", "--output", str(output)]
    gpt.main(arguments)
    results = json.loads((output / "results.json").read_text())
    assert results["vocabulary_size"] == NUM_BYTE_TOKENS
    assert (results["train_windows"], results["validation_windows"]) == (64, 13)
    with pytest.raises(ValueError, match=r"not empty.*--overwrite"):
        gpt.main(arguments)
    assert json.loads((output / "results.json").read_text()) == results
    new_run_folder(output, overwrite=True)
    assert not any(output.iterdir())


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--method", "baseline,magic"], "--method: got 'magic', expected one of base"),
        (["--method", "conditioned_tokens"], "--method: got 'conditioned_tokens'"),
        (["--dataset", "wikitext"], "dataset: got 'wikitext', expected one of"),
        (["--preset", "huge"], "--preset: got 'huge', expected one of"),
        (["--tokenizer", "words"], "--tokenizer: got 'words', expected one of bpe"),
        (["--head-table", "both"], "--head-table: got 'both', expected one of raw"),
        (["--dropout", "1"], "--dropout: got 1.0"),
        (["--temperature", "nan"], "--temperature: got nan"),
        (["--validation-text", "x"], "--validation-text: got one without --text"),
        (["--epochs", "0"], "--epochs: got 0, expected a whole number from 1"),
        (
            ["--batch-size", "4", "--train-size", "9000"],
            "got 9000, expected at most the .* training windows",
        ),
        (
            ["--batch-size", "9000"],
            "got 9000, expected at most the .* training windows",
        ),
        (
            ["--batch-size", "2", "--prompt", "we? " * 60],
            "--prompt: got .* tokens, expected at most 62",
        ),
    ],
)
def test_bad_arguments_are_refused_before_anything_trains(
    arguments, message, tmp_path, monkeypatch
):
    monkeypatch.setattr(gpt, "train_methods", pytest.fail)
    output = tmp_path / "run"
    if "--dataset" not in arguments and "--validation-text" not in arguments:
        arguments = [*arguments, "--text", str(write_story(tmp_path / "story.txt"))]
    with pytest.raises(ValueError, match=message):
        gpt.main([*arguments, "--output", str(output)])
    assert not output.exists()


def test_text_that_is_too_short_is_refused(tmp_path):
    path = tmp_path / "short.txt"
    path.write_text("a few words")
    with pytest.raises(
        ValueError, match=r"short.txt: got .* tokens, expected at least"
    ):
        gpt.main(["--text", str(path), "--output", str(tmp_path / "run")])
