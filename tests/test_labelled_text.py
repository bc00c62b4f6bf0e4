"""Labelled texts are read as they were published, and judged as GLUE judges."""

from pathlib import Path

import numpy as np
import pytest
from common import corpora, wordnet
from common.checks import check_labelled_texts
from common.labelled import LABELLED, load_labelled
from common.metrics import METRICS, average_score, crammed_average, scores
from hypothesis import given
from hypothesis import strategies as st

from tests.glue_files import NUM_OTHERS, NUM_TRAIN, prepare_glue
from tests.wordnet_files import write_wordnet

# -- GLUE and IMDB -------------------------------------------------------------------

GLUE_METRICS = {
    "glue/mnli": ("accuracy",),
    "glue/sst2": ("accuracy",),
    "glue/rte": ("accuracy",),
    "glue/qnli": ("accuracy",),
    "glue/qqp": ("f1", "accuracy"),
    "glue/mrpc": ("f1", "accuracy"),
    "glue/cola": ("matthews",),
    "glue/stsb": ("pearson", "spearman"),
}


@pytest.mark.parametrize("name", GLUE_METRICS)
def test_glue_is_read_as_tensorflow_datasets_prepares_it(name, tmp_path, monkeypatch):
    import tensorflow_datasets as tfds

    published = prepare_glue(name, tmp_path, monkeypatch)
    task = load_labelled(name, tmp_path / "data")

    label = tfds.builder(name, data_dir=tmp_path / "data").info.features["label"]
    regression = name == "glue/stsb"
    assert (task.name, task.metrics) == (name, GLUE_METRICS[name])
    assert task.num_labels == (1 if regression else label.num_classes)

    def number(text):
        return label.names.index(text) if text.isidentifier() else float(text)

    if name == "glue/mnli":
        files = {"matched": "dev_matched", "mismatched": "dev_mismatched"}
    else:
        files = {"validation": "dev"}
    assert set(task.validation) == set(files)
    splits = {"train": task.train} | {files[k]: v for k, v in task.validation.items()}
    for file, examples in splits.items():
        assert examples.labels.dtype == ("float32" if regression else "int32")
        read = zip(examples.texts, examples.labels.tolist(), strict=True)
        texts, labels = zip(*sorted(read), strict=True)
        expected = [number(str(label)) for _, label in published[file]]
        assert list(texts) == [texts for texts, _ in published[file]]
        np.testing.assert_allclose(labels, expected, rtol=1e-6)
        assert len(labels) == (NUM_TRAIN if file == "train" else NUM_OTHERS)


def test_reviews_are_read_with_their_labels(tmp_path):
    import tensorflow_datasets as tfds

    written = {
        split: [(f"{split} Ä {i}", i % 2) for i in range(4)]
        for split in ("train", "test", "unsupervised")
    }
    tfds.dataset_builders.store_as_tfds_dataset(
        name="imdb_reviews",
        version="1.0.0",
        config="plain_text",
        features=tfds.features.FeaturesDict(
            {
                "text": tfds.features.Text(),
                "label": tfds.features.ClassLabel(names=["neg", "pos"]),
            }
        ),
        split_datasets={
            split: [
                (i, {"text": text, "label": label})
                for i, (text, label) in enumerate(examples)
            ]
            for split, examples in written.items()
        },
        data_dir=tmp_path,
    )
    task = load_labelled("imdb_reviews", str(tmp_path))
    assert (task.num_labels, task.metrics) == (2, ("accuracy",))
    for split, examples in (
        ("train", task.train),
        ("test", task.validation["validation"]),
    ):
        texts = [text for (text,) in examples.texts]
        assert sorted(zip(texts, examples.labels, strict=True)) == written[split]


def test_damaged_files_are_named(tmp_path, monkeypatch):
    prepare_glue("glue/rte", tmp_path, monkeypatch)
    data = tmp_path / "data"
    record = next(data.rglob("*validation.tfrecord*"))
    whole = record.read_bytes()
    record.write_bytes(whole[:20] + bytes(8) + whole[28:])
    with pytest.raises(ValueError, match=r"2\.0\.0: split 'validation' cannot be read"):
        load_labelled("glue/rte", data)
    record.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"split 'validation' holds .* truncated"):
        load_labelled("glue/rte", data)


@pytest.mark.parametrize(
    "name, label_of, message",
    [
        ("glue/sst2", lambda i: -1, "train: got labels of .*from -1 to -1, expected"),
        ("glue/sst2", lambda i: 0, "train: got 1 classes, expected 2"),
        ("glue/stsb", lambda i: -1, "train: got labels .* from -1.0 .* 0 to 5.0"),
        ("glue/stsb", lambda i: "nan", "train: got labels .* from nan to nan"),
    ],
)
def test_labels_that_are_none_are_refused(
    name, label_of, message, tmp_path, monkeypatch
):
    prepare_glue(name, tmp_path, monkeypatch, label_of)
    with pytest.raises(ValueError, match=f"2.0.0, {message}"):
        load_labelled(name, tmp_path / "data")


@pytest.mark.parametrize(
    "texts, labels, highest, message",
    [
        ([], np.zeros(0, int), 1, "got no examples"),
        ([("a", " ")], np.array([0]), 1, "got 1 blank texts in place 2 of 1 example"),
        ([("a",)], np.array([2]), 1, "from 2 to 2, expected integers from 0 to 1"),
        ([("a",)], np.array([-1]), 1, "from -1 to -1, .*-1 marks a split without"),
        ([("a",)], np.array([0.5]), 1, "dtype float64 .*expected integers"),
        ([("a",)], np.array([5.5]), 5.0, "from 5.5 to 5.5, expected floats from 0 to"),
        ([("a",)], np.array([np.inf]), 5.0, "from inf to inf"),
        ([("a",)] * 2, np.array([1.0, np.nan]), 5.0, "from nan to nan"),
    ],
)
def test_unusable_examples_are_refused(texts, labels, highest, message):
    with pytest.raises(ValueError, match=f"here: .*{message}"):
        check_labelled_texts(texts, labels, highest, "here")


def test_two_blank_questions_of_many_are_taken_as_published():
    texts = [("a", "b")] * 2000
    texts[7] = texts[9] = ("a", "")
    check_labelled_texts(texts, np.ones(2000, int), 1, "here")
    texts[11] = ("a", "")
    with pytest.raises(ValueError, match="got 3 blank texts in place 2 of 2000"):
        check_labelled_texts(texts, np.ones(2000, int), 1, "here")


@pytest.mark.parametrize("name", LABELLED[1:])
def test_missing_data_set_says_how_to_prepare_it(name, tmp_path):
    with pytest.raises(ValueError, match=f"'{name}': not found, .*tfds build {name}"):
        load_labelled(name, tmp_path)


def test_unknown_data_set_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"'glue/wnli', expected one of .*'glue/cola'"):
        load_labelled("glue/wnli", tmp_path)


# -- WordNet -------------------------------------------------------------------------


def check_wordnet_laws(data_dir):
    """Returns the task, and how many validation documents it leaves out."""
    corpus = corpora.load_dataset("wordnet", data_dir)
    task = load_labelled("wordnet", data_dir)
    held_out = task.validation["validation"]
    assert (task.num_labels, task.metrics) == (45, ("accuracy",))

    def beginning(document):
        """A document is a word, a colon and a gloss."""
        return document.split(": ", 1)[1].split('"')[0].strip(" ;:,(")

    for (text,), document in zip(task.train.texts, corpus.train, strict=True):
        assert text.strip(" ;:,(") == beginning(document) and '"' not in text
    pretrained = {beginning(document).lower() for document in corpus.train}
    validated = [text.strip(" ;:,(") for (text,) in held_out.texts]
    assert not pretrained & {text.lower() for text in validated}
    expected = map(beginning, corpus.validation)
    assert validated == [text for text in expected if text.lower() not in pretrained]
    labels = {
        (s.label, s.gloss.split('"')[0].strip(" ;:,("))
        for s in wordnet.read_wordnet(data_dir)
    }
    for examples in (task.train, held_out):
        assert examples.labels.dtype == "int32"
        for label, (text,) in zip(examples.labels, examples.texts, strict=True):
            assert (label, text.strip(" ;:,(")) in labels
    return task, len(corpus.validation) - len(validated)


def test_wordnet_holds_out_what_its_corpus_holds_out(tmp_path):
    write_wordnet(tmp_path)
    _, left_out = check_wordnet_laws(tmp_path)
    assert left_out == 0


def test_definition_that_differs_in_its_example_alone_validates_nothing(tmp_path):
    write_wordnet(
        tmp_path,
        copies=6,
        gloss_of=lambda label, copy, _: f'Meaning {copy % 3} of {label}; "{copy}"',
    )
    task, left_out = check_wordnet_laws(tmp_path)
    assert left_out > 0
    assert task.train.texts[0][0].startswith("Meaning")


@pytest.mark.parametrize(
    "gloss, text",
    [
        ("a dog", "a dog"),
        ('hitch to; "hitch the trailer"; "hitch it"', "hitch to"),
        ('assail on all sides: "The zebra was beset"', "assail on all sides"),
        ('(of a ball) "a ball that is out"', "(of a ball)"),
        ('the exact words (e.g., "I am a fool")', "the exact words (e.g."),
    ],
)
def test_definition_ends_before_the_examples(gloss, text):
    assert wordnet.definition(gloss) == text


@pytest.mark.skipif(
    not Path(wordnet.DEBIAN_FOLDER, "data.noun").is_file(),
    reason="the Debian package wordnet-base is not installed",
)
def test_no_validation_definition_of_wordnet_was_trained_on():
    task, left_out = check_wordnet_laws(None)
    assert (len(task.train.texts), left_out) == (105_909, 56)
    shares = np.bincount(task.validation["validation"].labels, minlength=45)
    assert shares.min() > 0 and 0.12 < shares.max() / shares.sum() < 0.13


# -- metrics -------------------------------------------------------------------------


def counts(labels, predictions):
    """True positives, true negatives, false positives and false negatives."""
    return [
        float(np.sum((predictions == p) & (labels == l)))
        for p, l in ((1, 1), (0, 0), (1, 0), (0, 1))
    ]


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=30))
def test_binary_metrics_are_their_formulas(pairs):
    # Each of the four outcomes occurs: no formula divides by zero.
    pairs = [*pairs, (0, 0), (0, 1), (1, 0), (1, 1)]
    labels, predictions = np.array(pairs, int).T
    logits = np.random.default_rng(0).normal(size=(len(pairs), 2))
    logits.sort(axis=-1)
    logits[predictions == 0] = logits[predictions == 0, ::-1]
    tp, tn, fp, fn = counts(labels, predictions)
    product = (tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)
    assert scores(("accuracy", "f1", "matthews"), labels, logits) == pytest.approx(
        {
            "accuracy": (tp + tn) / len(pairs),
            "f1": 2 * tp / (2 * tp + fp + fn),
            "matthews": (tp * tn - fp * fn) / np.sqrt(product),
        }
    )


def correlation(x, y):
    x, y = x - x.mean(), y - y.mean()
    return (x @ y) / np.sqrt((x @ x) * (y @ y))


def ranks(x):
    """1 for the smallest; equal numbers share the mean of their places."""
    return np.array([np.sum(x < v) + (np.sum(x == v) + 1) / 2 for v in x])


def test_correlations_are_their_formulas():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 6, 40).astype("float32")  # many are equal
    predictions = (labels + rng.normal(0, 2, 40)).astype("float32")
    computed = scores(("pearson", "spearman"), labels, predictions[:, None])
    exact, guessed = labels.astype(float), predictions.astype(float)
    assert computed["pearson"] == pytest.approx(correlation(exact, guessed), rel=1e-5)
    expected = correlation(ranks(labels), ranks(predictions))
    assert computed["spearman"] == pytest.approx(expected)
    assert abs(computed["pearson"] - computed["spearman"]) > 1e-3


def test_a_prediction_is_the_largest_of_many_logits():
    logits = np.random.default_rng(0).normal(size=(9, 45))
    labels = np.argsort(logits)[:, -1]
    labels[:3] = np.argsort(logits)[:3, -2]
    assert scores(("accuracy",), labels, logits)["accuracy"] == pytest.approx(6 / 9)


def test_predictions_of_one_class_have_no_matthews_correlation():
    logits = np.array([[0.0, 1.0]] * 4)
    assert scores(("matthews",), [0, 1, 1, 1], logits) == {"matthews": 0}


@pytest.mark.parametrize(
    "metrics, labels, outputs, message",
    [
        (("bleu",), [0], [[0, 1]], "got 'bleu' for 2 labels, expected some of .*f1"),
        (("f1",), [0], [[0, 1, 2]], "got 'f1' for 3 labels"),
        (("accuracy",), [0], [[0]], "got 'accuracy' for 1 labels, .*pearson"),
        (("pearson",), [0], [[0, 1]], "got 'pearson' for 2 labels"),
        (("accuracy",), [0], [0], r"got shape \(1,\) for labels of shape \(1,\)"),
        (("accuracy",), [0, 1], [[0, 1]], r"got shape \(1, 2\) for .* \(2,\)"),
        (("accuracy",), [], np.zeros((0, 2)), "n at least 1"),
        (("accuracy",), [0], [[np.nan, 1]], "got 1 that are not finite.*diverged"),
    ],
)
def test_outputs_that_cannot_be_judged_are_refused(metrics, labels, outputs, message):
    with pytest.raises(ValueError, match=message):
        scores(metrics, labels, outputs)


def test_averages_are_those_of_the_papers():
    # BERT-base's row of its paper (arXiv:1810.04805, table 1), in per cent. The other
    # metrics of a task are made up.
    columns = {
        "glue/sst2": {"accuracy": 93.5},
        "glue/stsb": {"pearson": 85.8, "spearman": 80.8},
        "glue/rte": {"accuracy": 66.4},
        "glue/qnli": {"accuracy": 90.5},
        "glue/qqp": {"f1": 71.2, "accuracy": 89.2},
        "glue/mrpc": {"f1": 88.9, "accuracy": 84.9},
        "glue/cola": {"matthews": 52.1},
    }
    results = {name: {"validation": column} for name, column in columns.items()}
    results["glue/mnli"] = {
        "matched": {"accuracy": 84.6},
        "mismatched": {"accuracy": 83.4},
    }
    assert round(crammed_average(results), 1) == 79.6
    tasks = [84.0, 93.5, 83.3, 66.4, 90.5, 80.2, 86.9, 52.1]
    assert average_score(results) == pytest.approx(sum(tasks) / 8)
    del results["glue/rte"]
    assert average_score(results) == pytest.approx((sum(tasks) - 66.4) / 7)
    with pytest.raises(ValueError, match=r"got the tasks .*expected .*'glue/rte'"):
        crammed_average(results)
    with pytest.raises(ValueError, match="got no tasks"):
        average_score({})


def test_every_metric_has_a_task():
    assert {name for names in GLUE_METRICS.values() for name in names} == set(METRICS)
    assert set(GLUE_METRICS) == {n for n in LABELLED if n.startswith("glue/")}
