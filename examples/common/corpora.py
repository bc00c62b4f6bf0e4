"""Running text by name or by path, as documents to train and to validate on."""

import dataclasses
from collections.abc import Iterable

from .prepared import prepared_builder, read_texts
from .splits import split_by_text
from .text_files import cut_in_two, read_text
from .wordnet import read_wordnet

# Name -> training and validation split, as tensorflow-datasets publishes them.
_PREPARED = {
    "tiny_shakespeare": ("train", "validation"),
    "lm1b": ("train", "test"),
    "imdb_reviews": ("train", "test"),
}
DATASETS = ("wordnet", *_PREPARED)

# Fewer documents are joined and cut in two.
_FEWEST_DOCUMENTS_TO_SPLIT = 20


@dataclasses.dataclass(frozen=True)
class Corpus:
    """Text.

    Attributes:
        name: Name of the data set, or of the file or folder.
        train: Training documents, strings; can be iterated many times.
        validation: Validation documents, none of which is a training document unless
            the data set was published so.
        where: What a message calls the source.
    """

    name: str
    train: Iterable
    validation: Iterable
    where: str


def load_corpus(arguments):
    """Load the text that a command line asks for.

    Args:
        arguments: Has what `arguments.add_text_arguments` adds, and `data_dir`.

    Returns:
        A `Corpus`.

    Raises:
        ValueError: See `load_dataset` and `load_text_files`.
    """
    if arguments.text is None:
        return load_dataset(arguments.dataset, arguments.data_dir)
    return load_text_files(arguments.text, arguments.validation_text)


def load_dataset(name, data_dir):
    """Load one of `DATASETS`.

    Args:
        name: One of `DATASETS`. `"wordnet"` is read from the files of Debian's package
            wordnet-base, a document being a word and its definition, the same split
            for every seed; the others by tensorflow-datasets.
        data_dir: Folder of the data; `None` is that of the Debian package or the
            default of tensorflow-datasets.

    Returns:
        A `Corpus`.

    Raises:
        ValueError: If the name is unknown, or the data are missing or damaged.
    """
    if name not in DATASETS:
        raise ValueError(f"dataset: got {name!r}, expected one of {DATASETS}.")
    if name == "wordnet":
        synsets = read_wordnet(data_dir)
        documents = [f"{synset.words[0]}: {synset.gloss}" for synset in synsets]
        splits = split_by_text([synset.gloss for synset in synsets])
        train, validation = ([documents[i] for i in split] for split in splits)
        return Corpus(name, train, validation, "WordNet")
    builder = prepared_builder(name, data_dir)
    train, validation = (_Prepared(builder, split) for split in _PREPARED[name])
    return Corpus(name, train, validation, str(builder.data_dir))


def load_text_files(text, validation_text=None):
    """Load text by path.

    Args:
        text: A UTF-8 file or a folder of them; see `text_files.read_text`.
        validation_text: The same for validation. `None` holds out a tenth of `text`:
            of its documents, equal ones on one side, or the end of the text where it
            has fewer than 20.

    Returns:
        A `Corpus`.

    Raises:
        ValueError: If a file is missing, blank or not UTF-8.
    """
    documents = read_text(text, "--text")
    if validation_text is not None:
        train, validation = documents, read_text(validation_text, "--validation-text")
    elif len(documents) < _FEWEST_DOCUMENTS_TO_SPLIT:
        train, validation = ([part] for part in cut_in_two("\n".join(documents)))
    else:
        splits = split_by_text(documents)
        train, validation = ([documents[i] for i in split] for split in splits)
    return Corpus(_name(text), train, validation, str(text))


@dataclasses.dataclass(frozen=True)
class _Prepared:
    """The texts of a split, read again at each iteration."""

    builder: object
    split: str

    def __iter__(self):
        return read_texts(self.builder, self.split)


def _name(path):
    """The file or folder's name, fit to name the folder of a run."""
    stem = str(path).rstrip("/").rsplit("/", 1)[-1].split(".")[0]
    return stem or "text"
