"""Labelled texts as rows of ids of one length, to fine-tune an encoder on."""

import dataclasses

import keras
import numpy as np
import tokenizers

from .checks import check_train_size
from .metrics import scores
from .rows import FilledRows, ShuffledRows
from .text_files import END_OF_TEXT
from .tokenization import PADDING

# An encoding takes many times the memory of its ids.
_TEXTS_AT_A_TIME = 1000


@dataclasses.dataclass(frozen=True)
class SentenceTask:
    """A classification or regression of texts.

    Attributes:
        name: Name of the data set.
        num_labels: Number of classes; 1 means regression.
        metrics: Names of its metrics, of `metrics.METRICS`.
        train: Batches of int32 ids and labels; has an `epoch` that fixes the order.
        validation: Name -> `(batches of ids, labels)`.
        num_train: Number of texts (or pairs) that epochs draw from.
        majority: Name -> metric -> what the most frequent training label reaches in
            validation; `None` for a regression.
    """

    name: str
    num_labels: int
    metrics: tuple
    train: keras.utils.PyDataset
    validation: dict
    num_train: int
    majority: dict | None

    @property
    def num_validation(self):
        """Number of texts (or pairs) that validate."""
        return sum(len(labels) for _, labels in self.validation.values())


def encode_sentences(tokenizer, texts, length):
    """Encode texts, or pairs of texts, each text followed by a separator.

    Args:
        tokenizer: From `tokenization.train_tokenizer`, with `MASKED_MODEL_TOKENS`.
        texts: List of tuples of one or two strings.
        length: Tokens in a row. What is longer loses its end, the longer text of a pair
            first; what is shorter is padded on the right.

    Returns:
        int32 array `(n, length)`.
    """
    encoder = tokenizers.Tokenizer.from_str(tokenizer.to_str())
    # Not kept in the string.
    encoder.encode_special_tokens = tokenizer.encode_special_tokens
    encoder.post_processor = tokenizers.processors.TemplateProcessing(
        single=f"$A {END_OF_TEXT}",
        pair=f"$A {END_OF_TEXT} $B {END_OF_TEXT}",
        special_tokens=[(END_OF_TEXT, encoder.token_to_id(END_OF_TEXT))],
    )
    encoder.enable_truncation(length)
    padding_id = encoder.token_to_id(PADDING)
    encoder.enable_padding(length=length, pad_id=padding_id, pad_token=PADDING)
    rows = [text if len(text) == 2 else text[0] for text in texts]
    ids = np.zeros((len(rows), length), "int32")
    for first in range(0, len(rows), _TEXTS_AT_A_TIME):
        some = slice(first, first + _TEXTS_AT_A_TIME)
        ids[some] = [one.ids for one in encoder.encode_batch_fast(rows[some])]
    return ids


def prepare_sentences(
    labelled,
    tokenizer,
    length,
    batch_size,
    seed,
    train_size=None,
    epoch_size=None,
    validation_size=None,
):
    """Turn labelled texts into a `SentenceTask`.

    Args:
        labelled: A `labelled.LabelledTexts`.
        tokenizer: See `encode_sentences`.
        length: Tokens in a row.
        batch_size: Rows in a batch.
        seed: Integer; fixes the order of training rows.
        train_size: Number of training texts, the first ones; `None` takes all.
        epoch_size: Largest number of training texts that one epoch draws; `None` draws
            all.
        validation_size: Largest number of texts of a validation split, the first ones;
            `None` takes all.

    Returns:
        A `SentenceTask`.

    Raises:
        ValueError: If there are fewer training texts than asked for or than a batch.
    """
    num_train = check_train_size(
        train_size, len(labelled.train.texts), batch_size, labelled.where, what="texts"
    )
    labels = labelled.train.labels[:num_train]
    ids = encode_sentences(tokenizer, labelled.train.texts[:num_train], length)
    validation = {
        name: (
            FilledRows(
                encode_sentences(tokenizer, part.texts[:validation_size], length),
                batch_size,
            ),
            part.labels[:validation_size],
        )
        for name, part in labelled.validation.items()
    }
    majority = None
    if labelled.num_labels > 1:
        frequencies = np.bincount(labels, minlength=labelled.num_labels)
        majority = {
            name: scores(
                labelled.metrics, held_out, np.tile(frequencies, (len(held_out), 1))
            )
            for name, (_, held_out) in validation.items()
        }
    return SentenceTask(
        name=labelled.name,
        num_labels=labelled.num_labels,
        metrics=labelled.metrics,
        train=ShuffledRows(ids, labels, batch_size, seed, epoch_size),
        validation=validation,
        num_train=num_train,
        majority=majority,
    )
