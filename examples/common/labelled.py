"""Labelled texts by name, checked before anything trains on them.

The tasks of GLUE (Wang et al., 2019, https://openreview.net/forum?id=rJ4km2R5t7) are
those that Crammed BERT averages over: all but WNLI. Their test splits are published
without labels, so results are those of the validation splits.
"""

import dataclasses

import numpy as np

from .checks import check_class_count, check_labelled_texts
from .prepared import prepared_builder, read_labelled_texts
from .splits import split_by_text, text_key
from .wordnet import NUM_LABELS, definition, read_wordnet


@dataclasses.dataclass(frozen=True)
class Examples:
    """Texts and their labels.

    Attributes:
        texts: List of tuples of one or two strings.
        labels: int32 array `(n,)`; float32 for regression.
    """

    texts: list
    labels: np.ndarray


@dataclasses.dataclass(frozen=True)
class LabelledTexts:
    """A classification or regression of texts.

    Attributes:
        name: Name of the data set.
        train: Training `Examples`.
        validation: Name -> `Examples`: `"matched"` and `"mismatched"` for MNLI,
            `"validation"` for the others.
        num_labels: Number of classes; 1 means regression.
        metrics: Names of the metrics it is judged by, of `metrics.METRICS`.
        where: What a message calls the source.
    """

    name: str
    train: Examples
    validation: dict
    num_labels: int
    metrics: tuple
    where: str


@dataclasses.dataclass(frozen=True)
class _Prepared:
    """A data set of tensorflow-datasets: its texts, labels, metrics and splits."""

    texts: tuple
    num_labels: int
    metrics: tuple = ("accuracy",)
    validation: dict = dataclasses.field(
        default_factory=lambda: {"validation": "validation"}
    )


# STS-B's scores of similarity start at 0.
_HIGHEST_SCORE = 5.0
_SENTENCES = ("sentence1", "sentence2")
_MNLI_SPLITS = {
    "matched": "validation_matched",
    "mismatched": "validation_mismatched",
}
_PREPARED = {
    "imdb_reviews": _Prepared(("text",), 2, validation={"validation": "test"}),
    "glue/mnli": _Prepared(("premise", "hypothesis"), 3, validation=_MNLI_SPLITS),
    "glue/sst2": _Prepared(("sentence",), 2),
    "glue/rte": _Prepared(_SENTENCES, 2),
    "glue/qnli": _Prepared(("question", "sentence"), 2),
    "glue/qqp": _Prepared(("question1", "question2"), 2, ("f1", "accuracy")),
    "glue/mrpc": _Prepared(_SENTENCES, 2, ("f1", "accuracy")),
    "glue/cola": _Prepared(("sentence",), 2, ("matthews",)),
    "glue/stsb": _Prepared(_SENTENCES, 1, ("pearson", "spearman")),
}
LABELLED = ("wordnet", *_PREPARED)


def load_labelled(name, data_dir):
    """Load one of `LABELLED`.

    Args:
        name: One of `LABELLED`. `"wordnet"` is read from the files of Debian's package
            wordnet-base: the definition of a synset and its lexicographer file. The
            others are read by tensorflow-datasets.
        data_dir: Folder of the data; `None` is that of the Debian package or the
            default of tensorflow-datasets.

    Returns:
        `LabelledTexts`, the same ones in the same order each time.

    Raises:
        ValueError: If the name is unknown, or the data are missing or damaged.
    """
    if name not in LABELLED:
        raise ValueError(f"dataset: got {name!r}, expected one of {LABELLED}.")
    if name == "wordnet":
        return _load_wordnet(data_dir)
    prepared = _PREPARED[name]
    builder = prepared_builder(name, data_dir)

    def read(split):
        texts, labels = read_labelled_texts(builder, split, prepared.texts)
        where = f"{builder.data_dir}, {split}"
        if prepared.num_labels == 1:
            check_labelled_texts(texts, labels, _HIGHEST_SCORE, where)
            return Examples(texts, labels.astype("float32"))
        check_labelled_texts(texts, labels, prepared.num_labels - 1, where)
        check_class_count(labels, prepared.num_labels, where)
        return Examples(texts, labels.astype("int32"))

    return LabelledTexts(
        name=name,
        train=read("train"),
        validation={part: read(split) for part, split in prepared.validation.items()},
        num_labels=prepared.num_labels,
        metrics=prepared.metrics,
        where=str(builder.data_dir),
    )


def _load_wordnet(data_dir):
    """The split of `corpora.load_dataset`.

    That one keeps equal glosses together. Definitions that are equal but for their
    examples may be on both sides; these are left out of the validation.
    """
    synsets = read_wordnet(data_dir)
    train, validation = split_by_text([synset.gloss for synset in synsets])
    texts = [definition(synset.gloss) for synset in synsets]
    seen = {text_key(texts[i]) for i in train}
    unseen = [i for i in validation if text_key(texts[i]) not in seen]

    def examples(split):
        labels = np.array([synsets[i].label for i in split], "int32")
        return Examples([(texts[i],) for i in split], labels)

    return LabelledTexts(
        name="wordnet",
        train=examples(train),
        validation={"validation": examples(unseen)},
        num_labels=NUM_LABELS,
        metrics=("accuracy",),
        where="WordNet",
    )
