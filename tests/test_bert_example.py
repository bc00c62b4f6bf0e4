"""The example BERT: no token sees padding, no validation text is trained on."""

import json

import bert
import keras
import matplotlib.image
import numpy as np
import pytest
import tokenizers
from common import corpora
from common.fine_tuning import fine_tune
from common.labelled import LABELLED, Examples, LabelledTexts, load_labelled
from common.masking import MaskedWindows, mask_text, mask_tokens
from common.rows import FilledRows, ShuffledRows
from common.sentences import encode_sentences, prepare_sentences
from common.text import entropy, prepare_text
from common.tokenization import MASKED_MODEL_TOKENS, train_tokenizer
from common.windows import TrainingWindows
from keras import ops
from models.bert import CONDITIONINGS, PRESETS, build_bert, build_classifier
from models.sinusoidal_positions import ScaledSinusoidalPositions
from scipy import special, stats

import keras_cond
from tests.autodiff import dtype_of, to_numpy, weight_gradients
from tests.test_gpt_example import write_wordnet

VOCABULARY_SIZE = 40
VARIANTS = [
    *({"conditioning": conditioning} for conditioning in CONDITIONINGS),
    {"conditioning": "conditioned_embedding", "condition": "table"},
]
NAMES = ["-".join(variant.values()) for variant in VARIANTS]
NUM_BYTE_TOKENS = 256 + len(MASKED_MODEL_TOKENS)
BYTES = train_tokenizer([], NUM_BYTE_TOKENS, MASKED_MODEL_TOKENS)


def lively_bert(**variant):
    """A tiny BERT whose attention reads several tokens."""
    keras.utils.set_random_seed(1)
    model = build_bert(VOCABULARY_SIZE, "smoke", **variant)
    if variant.get("conditioning") == "spectral_attention":
        model.get_layer("block_0_attention").correction_scale = 0.5
    return model


def random_ids(batch, tokens, seed=0):
    rng = np.random.default_rng(seed)
    return rng.integers(1, VOCABULARY_SIZE, (batch, tokens), dtype="int32")


def inputs_of(ids):
    """Inputs that ask for the logits of every token."""
    places = np.broadcast_to(np.arange(ids.shape[1], dtype="int32"), ids.shape)
    return {"ids": ids, "places": np.array(places)}


def spread(row, places, length):
    """A row with the tokens of `row` at the given places, padding elsewhere."""
    padded = np.zeros(length, "int32")
    padded[places] = row
    return padded


# Padding.


@pytest.mark.parametrize("variant", VARIANTS, ids=NAMES)
def test_no_token_depends_on_padding_or_batch_mates(variant):
    model = lively_bert(**variant)
    for num_tokens in (5, 20):  # fewer than channels, and more
        row = random_ids(1, num_tokens, seed=num_tokens)
        expected = model.predict(inputs_of(row), verbose=0)[0]
        assert np.abs(expected[0] - expected[1]).max() > 1e-2
        length = num_tokens + 7
        middle = np.delete(np.arange(length), np.arange(1, 8))
        layouts = [
            np.arange(num_tokens),  # on the right
            np.arange(num_tokens) + 7,  # on the left
            np.arange(num_tokens) + 3,  # on both sides
            middle,
        ]
        batch = np.stack(
            [
                *(spread(row[0], places, length) for places in layouts),
                np.zeros(length, "int32"),
                random_ids(1, length, seed=9)[0],
            ]
        )
        logits = model.predict(inputs_of(batch), verbose=0)
        for one, places in zip(logits, layouts, strict=False):
            np.testing.assert_allclose(one[places], expected, atol=1e-5)
        assert np.isfinite(logits).all()


@pytest.mark.parametrize("conditioning", ["baseline", "conditioned_embedding"])
def test_token_of_padding_reaches_no_output_by_any_route(conditioning, tmp_path):
    model = lively_bert(conditioning=conditioning)
    classifier = build_classifier(model, 3)
    ids = np.pad(random_ids(2, 7), ((0, 0), (2, 3)))
    outer_ids = keras.Input((None,), dtype="int32")
    outer = keras.Model(outer_ids, classifier(ops.cast(outer_ids + 0, "int32")))

    def outputs():
        model.save(tmp_path / "model.keras")
        loaded = keras.models.load_model(tmp_path / "model.keras")
        every_logit = (
            to_numpy(model(inputs_of(ids))),
            model.predict(inputs_of(ids), verbose=0),
            to_numpy(loaded(inputs_of(ids))),
        )
        # The first logit is that of padding itself.
        of_tokens = [logits[:, 2:9, 1:] for logits in every_logit]
        return [*of_tokens, to_numpy(classifier(ids)), to_numpy(outer(ids))]

    before = outputs()
    table = to_numpy(model.get_layer("token_embedding").embeddings)
    table[0] = 3 * table[7]
    model.get_layer("token_embedding").embeddings.assign(table)
    after = outputs()
    for outputs_by_route in (before, after):
        for expected, places in ((before[0], range(3)), (before[3], (3, 4))):
            for place in places:
                np.testing.assert_allclose(outputs_by_route[place], expected, atol=1e-5)


@pytest.mark.parametrize(
    "conditioning", ["baseline", "conditioned_embedding", "dct_graying", "svd_graying"]
)
def test_rows_of_padding_alone_train_without_nan(conditioning):
    model = lively_bert(conditioning=conditioning)
    ids = np.concatenate([np.zeros((1, 12), "int32"), random_ids(1, 12)])
    gradients = weight_gradients(
        model, lambda: ops.sum(ops.square(model(inputs_of(ids))))
    )
    assert all(np.isfinite(slope).all() for slope in gradients)
    assert max(np.abs(slope).max() for slope in gradients) > 1e-3
    outputs = to_numpy(build_classifier(model, 2)(ids))
    assert np.isfinite(outputs).all()


def test_text_is_read_as_the_mean_of_its_tokens():
    model = lively_bert()
    classifier = build_classifier(model, 3)
    ids = np.pad(random_ids(2, 9), ((0, 0), (1, 2)))
    tokens = keras.Model(model.input, model.get_layer("head_norm").output)
    mean = to_numpy(tokens(inputs_of(ids)))[:, 1:10].mean(axis=1)
    kernel, bias = map(to_numpy, classifier.get_layer("classifier").weights)
    np.testing.assert_allclose(
        to_numpy(classifier(ids)), mean @ kernel + bias, atol=1e-5
    )
    shared = {weight.path for weight in model.weights}
    own = {weight.path for weight in classifier.weights} - shared
    assert own == {"classifier/kernel", "classifier/bias"}


# What the model computes.


def normalized(x, layer):
    gamma, beta = map(to_numpy, layer.weights)
    x = x - x.mean(axis=-1, keepdims=True)
    return gamma * x / np.sqrt(np.square(x).mean(axis=-1, keepdims=True)) + beta


def test_logits_are_those_of_crammed_bert():
    """A NumPy replica: no biases, gated MLP, scaled sinusoids, tied head."""
    model = lively_bert()
    ids = random_ids(1, 7)

    def kernel(name):
        return to_numpy(model.get_layer(name).kernel)

    table = to_numpy(model.get_layer("token_embedding").embeddings)
    width, half = 16, 8
    angles = np.arange(7)[:, None] / 10_000.0 ** (2 * np.arange(half) / width)
    waves = np.empty((7, width))
    waves[:, ::2], waves[:, 1::2] = np.sin(angles), np.cos(angles)
    positions = model.get_layer("positions")
    assert float(to_numpy(positions.scale)) == pytest.approx(0.25)
    positions.scale.assign(0.7)
    x = normalized(table[ids[0]] + 0.7 * waves, model.get_layer("embedding_norm"))

    attention = model.get_layer("block_0_attention")
    assert len(attention.weights) == 4
    query, key, value, output = map(to_numpy, attention.weights)
    y = normalized(x, model.get_layer("block_0_attention_norm"))
    q, k, v = (np.einsum("td,dhe->hte", y, w) for w in (query, key, value))
    weights = special.softmax(q @ k.transpose(0, 2, 1) / np.sqrt(8), axis=-1)
    x = x + np.einsum("hte,hed->td", weights @ v, output)

    y = normalized(x, model.get_layer("block_0_mlp_norm"))
    gate = y @ kernel("block_0_mlp_gate")
    gate = gate * special.ndtr(gate)
    x = x + (gate * (y @ kernel("block_0_mlp_in"))) @ kernel("block_0_mlp_out")
    x = normalized(x, model.get_layer("head_norm"))
    logits = to_numpy(model({"ids": ids, "places": np.array([[4, 1]], "int32")}))
    np.testing.assert_allclose(logits[0], (x @ table.T)[[4, 1]], atol=2e-5)


def test_model_has_the_size_of_crammed_bert():
    assert bert.CONTEXTS["crammed"] == 128 and bert.VOCABULARY_SIZES["crammed"] == 32768

    def num_parameters(size, vocabulary_size):
        width, hidden = size.width, size.width * size.mlp_ratio
        block = 4 * width**2 + 3 * width * hidden // 2 + 4 * width
        # Two more norms and the scale of the positions.
        return vocabulary_size * width + size.num_layers * block + 4 * width + 1

    assert 119e6 < num_parameters(PRESETS["crammed"], 32768) < 120e6
    model = build_bert(VOCABULARY_SIZE, "smoke")
    assert model.count_params() == num_parameters(PRESETS["smoke"], VOCABULARY_SIZE)
    norms = [layer for layer in model.layers if layer.name.endswith("norm")]
    assert {layer.epsilon for layer in norms} == {1e-12} and len(norms) == 4
    keras.utils.set_random_seed(0)
    table = to_numpy(build_bert(2000, "smoke").get_layer("token_embedding").embeddings)
    stddev = 0.02 * np.sqrt(768 / 16)
    assert table.std() == pytest.approx(stddev, rel=0.02)
    assert np.abs(table).max() > 3 * stddev  # not truncated


def test_conditionings_change_the_output_but_no_weight_outside_attention():
    inputs = inputs_of(random_ids(2, 12))
    weights, outputs = {}, {}
    for variant, name in zip(VARIANTS, NAMES, strict=True):
        keras.utils.set_random_seed(1)
        model = build_bert(VOCABULARY_SIZE, "smoke", **variant)
        weights[name] = {weight.path: to_numpy(weight) for weight in model.weights}
        outputs[name] = to_numpy(model(inputs))
    baseline, baseline_output = weights.pop("baseline"), outputs.pop("baseline")
    attention = {"query", "key", "value", "attention_output"}
    for name, others in weights.items():
        changed = {
            path.split("/")[-2]
            for path in baseline
            if not np.array_equal(baseline[path], others[path])
        }
        acts_in_attention = name in ("spectral_attention", "conditioned_init")
        assert changed <= (attention if acts_in_attention else set())
        assert np.abs(outputs[name] - baseline_output).max() > 1e-4


@pytest.mark.parametrize("condition", ["sequence", "table"])
def test_embedding_is_the_conditioned_one_and_the_head_is_raw(condition):
    model = lively_bert(conditioning="conditioned_embedding", condition=condition)
    ids = np.pad(random_ids(2, 9), ((0, 0), (1, 2)))
    outputs = [
        model.get_layer("positions").input[0],
        model.get_layer("head_norm").output,
        model.output,
    ]
    tokens, x, logits = map(to_numpy, keras.Model(model.input, outputs)(inputs_of(ids)))
    table = to_numpy(model.get_layer("token_embedding").embeddings)
    layer = keras_cond.ConditionedEmbedding(
        VOCABULARY_SIZE, 16, condition=condition, mask_zero=True
    )
    layer.build()
    layer.set_weights([table])
    np.testing.assert_allclose(tokens, to_numpy(layer(ids)), atol=1e-5)
    np.testing.assert_allclose(logits, x @ table.T, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    "variant, policy",
    [
        *((variant, "mixed_bfloat16") for variant in VARIANTS),
        *((variant, "mixed_float16") for variant in VARIANTS[:2]),
    ],
)
def test_mixed_precision_is_float32_but_for_rounding(variant, policy):
    ids = np.pad(random_ids(1, 9), ((0, 0), (0, 3)))
    ids = np.concatenate([ids, random_ids(1, 12)])
    expected = lively_bert(**variant)
    keras.config.set_dtype_policy(policy)
    model = lively_bert(**variant)
    model.set_weights(expected.get_weights())
    logits = model(inputs_of(ids))
    assert dtype_of(logits) == "float32"
    # The first row has nine tokens; what stands at padding means nothing.
    error = to_numpy(logits)[0, :9] - to_numpy(expected(inputs_of(ids)))[0, :9]
    assert np.abs(error).max() < (0.15 if policy == "mixed_bfloat16" else 0.03)
    assert {weight.dtype for weight in model.trainable_weights} == {"float32"}


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"preset": "huge"}, "preset: got 'huge', expected one of smoke, mini"),
        ({"conditioning": "none"}, "conditioning: got 'none'"),
        ({"condition": "row"}, "condition: got 'row', expected one of sequence, table"),
        ({"vocabulary_size": 1}, "vocabulary_size: got 1"),
    ],
)
def test_model_refuses_what_it_cannot_build(arguments, message):
    with pytest.raises(ValueError, match=message):
        build_bert(**({"vocabulary_size": 10} | arguments))


def test_classifier_and_positions_refuse_what_they_cannot_do():
    with pytest.raises(ValueError, match="num_outputs: got 0, expected at least 1"):
        build_classifier(build_bert(10, "smoke"), 0)
    with pytest.raises(ValueError, match="got a width of 5, expected an even number"):
        ScaledSinusoidalPositions()(np.zeros((1, 2, 5), "float32"), np.ones((1, 2)))


# Masked tokens.


def test_a_quarter_is_chosen_and_most_of_it_replaced():
    rng = np.random.default_rng(0)
    ids = rng.integers(0, 500, (4000, 32), dtype="int32")
    ids[:4] = [[0] * 32, [1] * 32, [2] * 32, [9, 1] + [0] * 30]
    ids[4:8, 16:] = 1  # half of it ends of texts
    original = ids.copy()
    inputs, targets, weights = mask_tokens(ids, 500, np.random.default_rng(1))
    np.testing.assert_array_equal(ids, original)
    places = inputs["places"]
    assert places.shape == targets.shape == weights.shape == (4000, 8)
    assert {part.dtype.name for part in (inputs["ids"], places, targets)} == {"int32"}
    num_text = (ids >= 3).sum(axis=1)
    np.testing.assert_array_equal(weights.sum(axis=1), np.rint(num_text / 4))
    assert weights[:3].sum() == 0 and (weights[4:8].sum(axis=1) <= 4).all()

    chosen = weights == 1
    assert set(np.unique(weights)) == {0, 1}
    rows = np.broadcast_to(np.arange(4000)[:, None], places.shape)
    for row in range(4000):  # no place twice
        used = places[row][chosen[row]]
        assert len(set(used)) == len(used)
    assert (ids[rows, places][chosen] >= 3).all()
    np.testing.assert_array_equal(targets[chosen], ids[rows, places][chosen])
    assert (targets[~chosen] == 0).all() and (places[~chosen] == 0).all()
    untouched = np.ones(ids.shape, bool)
    untouched[rows[chosen], places[chosen]] = False
    np.testing.assert_array_equal(inputs["ids"][untouched], ids[untouched])

    seen, truth = inputs["ids"][rows, places][chosen], targets[chosen]
    masked, same = (seen == 2).mean(), (seen == truth).mean()
    assert masked == pytest.approx(0.8, abs=0.01)
    assert same == pytest.approx(0.1, abs=0.01)
    drawn = seen[(seen != 2) & (seen != truth)]
    assert drawn.min() == 3 and drawn.max() == 499
    # Every place of a window is as likely.
    counts = np.bincount(places[chosen], minlength=32)
    assert counts.min() > 0.85 * counts.mean() and counts.max() < 1.15 * counts.mean()


def test_masks_of_training_follow_the_epoch_and_those_of_validation_stay():
    tokens = np.random.default_rng(0).integers(3, 100, 401)

    def batches(seed):
        train = TrainingWindows(tokens, 16, 4, seed=0)
        return MaskedWindows(train, 4, 100, seed)

    def read(masked, epoch):
        masked.epoch = epoch
        return [masked[index] for index in range(len(masked))]

    def equal(first, second):
        pairs = zip(keras.tree.flatten(first), keras.tree.flatten(second), strict=True)
        return all(np.array_equal(a, b) for a, b in pairs)

    train = batches(seed=5)
    first, second = read(train, 0), read(train, 1)
    assert len(first) == 6 and not equal(first, second)
    assert equal(first, read(train, 0)) and equal(first, read(batches(5), 0))
    assert not equal(first, read(batches(6), 0))
    # The windows are those of the epoch.
    plain = TrainingWindows(tokens, 16, 4, seed=0)
    plain.epoch = 1
    for index, (inputs, targets, _) in enumerate(second):
        restored = inputs["ids"].copy()
        np.put_along_axis(restored, inputs["places"], targets, axis=1)
        np.testing.assert_array_equal(restored, plain[index][0])


def write_topics(path):
    """Text whose masked words the others tell: documents of one word each."""
    rng = np.random.default_rng(0)
    words = rng.choice(["cat", "dog", "sun", "rain", "tree"], 120)
    documents = [f"{i} " + f"{word} " * 40 for i, word in enumerate(words)]
    path.write_text("<|endoftext|>".join(documents))
    return path


def topics_task(tmp_path, seed, batch_size=8, validation_size=None):
    corpus = corpora.load_text_files(write_topics(tmp_path / "topics.txt"))
    task = prepare_text(
        corpus,
        300,
        32,
        batch_size,
        seed,
        validation_size=validation_size,
        special_tokens=MASKED_MODEL_TOKENS,
    )
    return task, mask_text(task, batch_size, seed)


def test_validation_is_the_same_for_every_seed_and_loses_no_window(tmp_path):
    (plain, masked), (_, other) = (topics_task(tmp_path, seed, 7) for seed in (0, 1))
    assert plain.num_validation % 7
    targets, weights = [], []
    for index in range(len(masked.validation)):
        for one, same in zip(
            keras.tree.flatten(masked.validation[index]),
            keras.tree.flatten(other.validation[index]),
            strict=True,
        ):
            np.testing.assert_array_equal(one, same)
        inputs, target, weight = masked.validation[index]
        assert inputs["ids"].shape == (7, 32) and target.shape == weight.shape == (7, 8)
        targets.append(target[weight > 0])
        weights.append(weight)
    weights = np.concatenate(weights)
    assert (weights[: plain.num_validation].sum(axis=1) > 0).all()
    assert weights[plain.num_validation :].sum() == 0
    assert masked.unigram_entropy == pytest.approx(entropy(np.concatenate(targets)))
    assert masked.probes["ids"].shape[0] == len(plain.probes)
    assert not np.array_equal(masked.train[0][0]["ids"], other.train[0][0]["ids"])


def test_text_without_a_token_to_predict_is_refused(tmp_path):
    (tmp_path / "train.txt").write_text("some words to train on. " * 50)
    (tmp_path / "empty.txt").write_text(".<|endoftext|>" * 60)
    corpus = corpora.load_text_files(tmp_path / "train.txt", tmp_path / "empty.txt")
    corpus = corpora.Corpus("x", corpus.train, [""] * 60, "x")
    task = prepare_text(corpus, 300, 16, 2, 0, special_tokens=MASKED_MODEL_TOKENS)
    with pytest.raises(ValueError, match="got no text to predict in 3 validation"):
        mask_text(task, 2, 0)


# Labelled texts.


def ids_of(text):
    """Bytes as the ids that the tokenizer of bytes gives to them."""
    return BYTES.encode(text).ids


def test_texts_are_cut_or_padded_to_one_length_and_end_with_a_separator():
    texts = [("ab",), ("abcdefgh",), ("",), ("[MASK]",)]
    rows = encode_sentences(BYTES, texts, 8)
    assert rows.dtype == "int32" and rows.shape == (4, 8)
    assert rows[0].tolist() == [*ids_of("ab"), 1, 0, 0, 0, 0, 0]
    assert rows[1].tolist() == [*ids_of("abcdefg"), 1]
    assert rows[2].tolist() == [1, 0, 0, 0, 0, 0, 0, 0]
    assert rows[3].tolist() == [*ids_of("[MASK]"), 1, 0] and rows[3].min() == 0
    assert 2 not in rows[3]

    pairs = [("ab", "cd"), ("abcdefgh", "ij"), ("", "b")]
    rows = encode_sentences(BYTES, pairs, 8)
    assert rows[0].tolist() == [*ids_of("ab"), 1, *ids_of("cd"), 1, 0, 0]
    assert rows[1].tolist() == [*ids_of("abcd"), 1, *ids_of("ij"), 1]
    assert rows[2].tolist() == [1, *ids_of("b"), 1, 0, 0, 0, 0, 0]
    # The tokenizer itself is left as it was.
    assert BYTES.encode("ab").ids == ids_of("ab") and len(ids_of("ab")) == 2


def test_rows_are_shuffled_in_training_and_all_there_in_validation():
    ids = np.arange(1, 24, dtype="int32")[:, None] * np.ones(3, "int32")
    labels = np.arange(1, 24)
    train = ShuffledRows(ids, labels, 5, seed=0)
    epochs = []
    for epoch in range(2):
        train.epoch = epoch
        rows, targets = map(np.concatenate, zip(*train, strict=True))
        np.testing.assert_array_equal(rows[:, 0], targets)
        assert len(set(targets)) == len(targets) == 20
        np.testing.assert_array_equal(train[1][0], rows[5:10])
        epochs.append(targets)
    assert not np.array_equal(*epochs)
    assert len(ShuffledRows(ids, labels, 5, seed=0, epoch_size=14)) == 2

    filled = np.concatenate([batch for (batch,) in FilledRows(ids, 5)])
    np.testing.assert_array_equal(filled, np.pad(ids, ((0, 2), (0, 0))))


def labelled_pairs(num_labels, metrics, number=90):
    """Pairs whose label is how often the second text holds an "a"."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, max(num_labels, 4), number)
    texts = [("word", "a" * label + "b" * (4 - label)) for label in labels]
    labels = labels.astype("float32" if num_labels == 1 else "int32")
    train = Examples(texts[:60], labels[:60])
    validation = {
        "matched": Examples(texts[60:73], labels[60:73]),
        "mismatched": Examples(texts[73:], labels[73:]),
    }
    return LabelledTexts("pairs", train, validation, num_labels, metrics, "pairs")


@pytest.mark.parametrize(
    "num_labels, metrics", [(4, ("accuracy",)), (1, ("pearson", "spearman"))]
)
def test_one_loop_trains_classes_and_regressions_of_pairs(num_labels, metrics):
    labelled = labelled_pairs(num_labels, metrics)
    task = prepare_sentences(labelled, BYTES, 16, batch_size=10, seed=0)
    assert (task.num_train, task.num_validation) == (60, 30)
    keras.utils.set_random_seed(0)
    ids = keras.Input((16,), dtype="int32")
    x = keras.layers.Embedding(NUM_BYTE_TOKENS, 8)(ids)
    x = keras.layers.GlobalAveragePooling1D()(x)
    classifier = keras.Model(ids, keras.layers.Dense(num_labels)(x))
    result = fine_tune(classifier, task, keras.optimizers.Adam(0.1), epochs=12)
    assert list(result["scores"]) == ["matched", "mismatched"]
    assert result["loss"][-1] < 0.2 * result["loss"][0] and len(result["seconds"]) == 12
    for name, part in labelled.validation.items():
        outputs = classifier.predict(encode_sentences(BYTES, part.texts, 16), verbose=0)
        if num_labels == 1:
            expected = {
                "pearson": np.corrcoef(part.labels, outputs[:, 0])[0, 1],
                "spearman": stats.spearmanr(part.labels, outputs[:, 0])[0],
            }
            assert task.majority is None
        else:
            expected = {"accuracy": np.mean(outputs.argmax(axis=1) == part.labels)}
            label = np.bincount(labelled.train.labels).argmax()
            assert task.majority[name] == {"accuracy": np.mean(part.labels == label)}
        assert result["scores"][name] == pytest.approx(expected, abs=1e-6)
        assert min(expected.values()) > 0.8


def test_texts_are_limited_to_what_is_asked_for():
    labelled = labelled_pairs(4, ("accuracy",))
    task = prepare_sentences(
        labelled, BYTES, 16, 5, 0, train_size=20, epoch_size=10, validation_size=4
    )
    assert (task.num_train, task.num_validation, len(task.train)) == (20, 8, 2)
    with pytest.raises(ValueError, match="got 61, expected at most the 60 training te"):
        prepare_sentences(labelled, BYTES, 16, 5, 0, train_size=61)
    with pytest.raises(ValueError, match="batch size: got 61, expected at most the 60"):
        prepare_sentences(labelled, BYTES, 16, 61, 0)


def test_no_validation_text_was_pre_trained_on(tmp_path):
    write_wordnet(tmp_path, copies=9)
    corpus = corpora.load_dataset("wordnet", str(tmp_path))
    labelled = load_labelled("wordnet", str(tmp_path))
    (validation,) = labelled.validation.values()
    glosses = [document.split(": ", 1)[1] for document in corpus.train]
    seen = {gloss.split('"')[0].rstrip(" ;") for gloss in glosses}
    assert len(validation.texts) > 0
    assert not seen & {text for (text,) in validation.texts}
    assert {text for (text,) in labelled.train.texts} == seen


# The script.


def test_run_learns_more_than_frequencies_and_writes_what_it_promises(tmp_path, capsys):
    text, output = write_topics(tmp_path / "topics.txt"), tmp_path / "run"
    write_wordnet(tmp_path / "wordnet", copies=9)
    methods = ["conditioned_embedding"]
    arguments = ["--preset", "smoke", "--epochs", "4", "--learning-rate", "0.02"]
    arguments += ["--batch-size", "8", "--method", ",".join(methods)]
    arguments += ["--task-data-dir", str(tmp_path / "wordnet"), "--task-epochs", "1"]
    bert.main(["--text", str(text), *arguments, "--output", str(output)])
    printed = capsys.readouterr().out
    results = json.loads((output / "results.json").read_text())
    assert list(results["methods"]) == methods
    assert f"{results['unigram_entropy']:.4f}" in printed

    tokenizer = tokenizers.Tokenizer.from_file(str(output / "tokenizer.json"))
    _, task = topics_task(tmp_path, 0, validation_size=32)
    assert tokenizer.to_str() == task.tokenizer.to_str()
    assert results["unigram_entropy"] == pytest.approx(task.unigram_entropy)
    labelled = load_labelled("wordnet", str(tmp_path / "wordnet"))
    (held_out,) = labelled.validation.values()
    rows = encode_sentences(task.tokenizer, held_out.texts[:40], 32)
    labels = held_out.labels[:40]
    majority = results["majority"]["wordnet"]["validation"]["accuracy"]
    for method, result in results["methods"].items():
        assert result["loss"] < 0.8 * results["unigram_entropy"]
        model = keras.models.load_model(output / f"{method}.keras")
        total = 0.0
        for inputs, targets, weights in task.validation:
            losses = keras.losses.sparse_categorical_crossentropy(
                targets, model(inputs), from_logits=True
            )
            total += np.array([(to_numpy(losses) * weights).sum(), weights.sum()])
        assert total[0] / total[1] == pytest.approx(result["loss"], abs=1e-3)
        assert matplotlib.image.imread(output / f"{method}-kappa.png").shape[0] > 200

        classifier = keras.models.load_model(output / f"{method}-wordnet.keras")
        accuracy = np.mean(to_numpy(classifier(rows)).argmax(axis=1) == labels)
        scores = result["tasks"]["wordnet"]["scores"]["validation"]
        assert accuracy == pytest.approx(scores["accuracy"], abs=1e-6)
        assert f"{scores['accuracy']:.4f}" in printed and f"{majority:.4f}" in printed
        # Fine-tuning started from what was pre-trained, and left the file alone.
        trained = to_numpy(model.get_layer("token_embedding").embeddings)
        tuned = to_numpy(classifier.get_layer("token_embedding").embeddings)
        assert 0 < np.abs(tuned - trained).max() < np.abs(trained).max()
    start = results["methods"]["conditioned_embedding"]["condition_numbers"]["start"]
    assert start["tokens"] <= 2.02
    assert matplotlib.image.imread(output / "curves.png").shape[1] > 1000


def test_smoke_run_keeps_earlier_results(tmp_path):
    write_wordnet(tmp_path / "wordnet", copies=9)
    arguments = ["--smoke", "--data-dir", str(tmp_path / "wordnet")]
    arguments += ["--tokenizer", "bytes", "--method", "conditioned_embedding"]
    arguments += ["--condition", "table", "--output", str(tmp_path / "run")]
    bert.main(arguments)
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert results["vocabulary_size"] == NUM_BYTE_TOKENS
    assert (results["train_windows"], results["validation_windows"]) == (64, 32)
    with pytest.raises(ValueError, match=r"not empty.*--overwrite"):
        bert.main(arguments)
    assert json.loads((tmp_path / "run" / "results.json").read_text()) == results


def test_glue_is_its_eight_tasks_and_their_averages(tmp_path, monkeypatch, capsys):
    rng = np.random.default_rng(0)
    asked, scores = [], {}

    def load(name, data_dir):
        asked.append((name, data_dir))
        num_labels = {"glue/stsb": 1, "glue/mnli": 3}.get(name, 2)
        metrics = {
            "glue/stsb": ("pearson", "spearman"),
            "glue/cola": ("matthews",),
            "glue/qqp": ("f1", "accuracy"),
            "glue/mrpc": ("f1", "accuracy"),
        }.get(name, ("accuracy",))
        labelled = labelled_pairs(num_labels, metrics)
        validation = labelled.validation
        if name != "glue/mnli":
            validation = {"validation": validation["matched"]}
        train = Examples(labelled.train.texts * 2, np.tile(labelled.train.labels, 2))
        if num_labels in (2, 3):
            train = Examples(train.texts, train.labels % num_labels)
            validation = {
                split: Examples(part.texts, part.labels % num_labels)
                for split, part in validation.items()
            }
        return LabelledTexts(name, train, validation, num_labels, metrics, name)

    def run_task(task, method, arguments, folder):
        splits = {
            split: {metric: rng.random() for metric in task.metrics}
            for split in task.validation
        }
        scores[task.name] = splits
        return {"scores": splits, "loss": [], "seconds": []}

    monkeypatch.setattr(bert, "train_methods", lambda *_: {"baseline": {}})
    monkeypatch.setattr(bert, "report", lambda *_: None)
    monkeypatch.setattr(bert, "load_labelled", load)
    monkeypatch.setattr(bert, "run_task", run_task)
    arguments = ["--smoke", "--method", "baseline", "--task", "glue,imdb_reviews"]
    arguments += ["--text", str(write_topics(tmp_path / "topics.txt"))]
    bert.main(
        [*arguments, "--task-data-dir", "there", "--output", str(tmp_path / "run")]
    )
    assert sorted(asked) == sorted(
        (name, "there") for name in LABELLED if name != "wordnet"
    )
    glue = [splits for name, splits in scores.items() if name.startswith("glue/")]
    assert len(glue) == 8
    average = np.mean(
        [
            np.mean([value for split in splits.values() for value in split.values()])
            for splits in glue
        ]
    )
    printed = capsys.readouterr().out
    assert f"GLUE: average of tasks {average:.4f}" in " ".join(
        printed.replace(" - ", " ").split()
    )
    assert "glue/mnli mismatched: accuracy" in printed


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--method", "baseline,magic"], "--method: got 'magic', expected one of base"),
        (["--method", "conditioned_tokens"], "--method: got 'conditioned_tokens'"),
        (["--dataset", "wikitext"], "dataset: got 'wikitext', expected one of"),
        (["--preset", "huge"], "--preset: got 'huge', expected one of"),
        (["--tokenizer", "words"], "--tokenizer: got 'words', expected one of bpe"),
        (["--condition", "row"], "--condition: got 'row', expected one of sequence"),
        (["--task", "glue/wnli"], "--task: got 'glue/wnli', expected one of wordnet"),
        (["--task", "none,wordnet"], "--task: got 'none,wordnet', expected none alone"),
        (["--task-epochs", "0"], "--task-epochs: got 0, expected a whole number"),
        (["--task-train-size", "-1"], "--task-train-size: got -1, expected a whole"),
        (["--task-learning-rate", "inf"], "--task-learning-rate: got inf, expected a"),
        (["--validation-text", "x"], "--validation-text: got one without --text"),
        (["--train-size", "9000"], "got 9000, expected at most the .* training window"),
        (["--task-train-size", "9000"], "got 9000, expected at most the .* training t"),
    ],
)
def test_bad_arguments_are_refused_before_anything_trains(
    arguments, message, tmp_path, monkeypatch
):
    monkeypatch.setattr(bert, "train_methods", pytest.fail)
    output = tmp_path / "run"
    write_wordnet(tmp_path / "wordnet", copies=9)
    if "--dataset" not in arguments and "--validation-text" not in arguments:
        arguments = [*arguments, "--text", str(write_topics(tmp_path / "topics.txt"))]
    arguments += ["--task-data-dir", str(tmp_path / "wordnet"), "--batch-size", "4"]
    with pytest.raises(ValueError, match=message):
        bert.main([*arguments, "--output", str(output)])
    assert not output.exists()
