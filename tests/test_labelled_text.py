"""Labelled texts are read as they were published."""

from pathlib import Path

import numpy as np
import pytest
from common import corpora, labelled, wordnet
from common.checks import check_labelled_texts
from common.labelled import LABELLED, load_labelled
from common.metrics import METRICS

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


def test_every_metric_has_a_task():
    assert {name for names in GLUE_METRICS.values() for name in names} == set(METRICS)
    assert set(GLUE_METRICS) == {n for n in LABELLED if n.startswith("glue/")}


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
    return task, len(corpus.validation) - len(validated)


def test_wordnet_holds_out_what_its_corpus_holds_out(tmp_path):
    write_wordnet(tmp_path)
    task, left_out = check_wordnet_laws(tmp_path)
    assert left_out == 0
    # "meaning 1 of 44" has the label 44.
    for examples in (task.train, task.validation["validation"]):
        expected = [int(text.split()[-1]) for (text,) in examples.texts]
        np.testing.assert_array_equal(examples.labels, np.array(expected, "int32"))
        assert examples.labels.dtype == "int32"


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
def test_no_validation_definition_of_wordnet_was_trained_on(monkeypatch):
    synsets = wordnet.read_wordnet()
    for module in (corpora, labelled):
        monkeypatch.setattr(module, "read_wordnet", lambda _: synsets)
    task, left_out = check_wordnet_laws(None)
    assert (len(task.train.texts), left_out) == (105_909, 56)
    shares = np.bincount(task.validation["validation"].labels, minlength=45)
    assert shares.min() > 0 and 0.12 < shares.max() / shares.sum() < 0.13
