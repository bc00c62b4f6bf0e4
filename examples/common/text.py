"""Text to train a language model on, checked before anything trains on it."""

import dataclasses

import keras
import numpy as np
import tokenizers

from .checks import check_train_size
from .corpora import load_corpus
from .text_files import END_OF_TEXT
from .tokenization import NUM_BYTES, train_tokenizer
from .windows import EvaluationWindows, TrainingWindows, encode

_NUM_PROBES = 64


@dataclasses.dataclass(frozen=True)
class TextTask:
    """Windows of text to train and to validate on.

    Attributes:
        name: Name of the corpus.
        context: Tokens in a window.
        tokenizer: What turns text into tokens and back.
        num_train: Number of windows that epochs draw from.
        num_validation: Number of windows validation reads.
        train: Batches of int32 windows and, for each token, the next one; has an
            `epoch` that fixes starts and order.
        validation: Batches in a fixed order.
        unigram_entropy: Entropy of the validation tokens in nats, which is the
            smallest loss of a model that knows how frequent they are and nothing else.
        probes: Validation windows on which condition numbers are measured.
    """

    name: str
    context: int
    tokenizer: tokenizers.Tokenizer
    num_train: int
    num_validation: int
    train: keras.utils.PyDataset
    validation: keras.utils.PyDataset
    unigram_entropy: float
    probes: np.ndarray

    @property
    def vocabulary_size(self):
        """Number of tokens the tokenizer knows."""
        return self.tokenizer.get_vocab_size()


def load_text(
    arguments,
    context,
    vocabulary_size,
    validation_size,
    epoch_size,
    special_tokens=(END_OF_TEXT,),
):
    """Load the text that a command line asks for.

    Args:
        arguments: Has what `arguments.training_parser` and `add_text_arguments` add.
        context: Tokens in a window.
        vocabulary_size: Largest number of tokens, unless they are plain bytes.
        validation_size: See `prepare_text`.
        epoch_size: See `prepare_text`; where the command line says from how many
            windows to draw, an epoch draws them all.
        special_tokens: See `tokenization.train_tokenizer`.

    Returns:
        A `TextTask`.

    Raises:
        ValueError: If the text cannot be had, or there is less than is asked for.
    """
    corpus = load_corpus(arguments)
    if arguments.tokenizer == "bytes":
        vocabulary_size = NUM_BYTES + len(special_tokens)
    task = prepare_text(
        corpus,
        vocabulary_size,
        context,
        arguments.batch_size,
        arguments.seed,
        arguments.train_size,
        validation_size,
        None if arguments.train_size else epoch_size,
        special_tokens,
    )
    check_train_size(
        arguments.train_size,
        task.num_train,
        arguments.batch_size,
        corpus.where,
        what="windows",
    )
    return task


def prepare_text(
    corpus,
    vocabulary_size,
    context,
    batch_size,
    seed,
    train_size=None,
    validation_size=None,
    epoch_size=None,
    special_tokens=(END_OF_TEXT,),
):
    """Turn a corpus into a `TextTask`.

    Args:
        corpus: A `corpora.Corpus`.
        vocabulary_size: Largest number of tokens of the tokenizer, which learns from
            the training documents alone.
        context: Tokens in a window.
        batch_size: Windows in a batch.
        seed: Integer; fixes the order of training windows.
        train_size: Largest number of training windows, from the first documents; `None`
            takes all.
        validation_size: The same for validation.
        epoch_size: Largest number of training windows that one epoch draws; `None`
            draws all.
        special_tokens: See `tokenization.train_tokenizer`.

    Returns:
        A `TextTask`.

    Raises:
        ValueError: If the text is too short for what is asked.
    """
    tokenizer = train_tokenizer(corpus.train, vocabulary_size, special_tokens)
    train = encode(tokenizer, corpus.train, train_size and train_size * context)
    held_out = encode(
        tokenizer, corpus.validation, validation_size and validation_size * context + 1
    )
    if len(held_out) <= context:
        raise ValueError(
            f"{corpus.where}: got {len(held_out)} validation tokens, expected at least "
            f"{context + 1} for one window of {context}. Add text."
        )
    num_train = check_train_size(
        None, len(train) // context, batch_size, corpus.where, what="windows"
    )
    validation = EvaluationWindows(held_out, context, batch_size)
    num_validation = validation.num_windows
    return TextTask(
        name=corpus.name,
        context=context,
        tokenizer=tokenizer,
        num_train=num_train,
        num_validation=num_validation,
        train=TrainingWindows(train, context, batch_size, seed, epoch_size),
        validation=validation,
        unigram_entropy=entropy(held_out[1 : num_validation * context + 1]),
        probes=validation[0][0][:_NUM_PROBES],
    )


def entropy(tokens):
    """Entropy of the frequencies of tokens.

    Args:
        tokens: Integer array `(n,)`, n >= 1.

    Returns:
        Float, in nats.
    """
    counts = np.unique(tokens, return_counts=True)[1]
    frequencies = counts / counts.sum()
    return float(-np.sum(frequencies * np.log(frequencies)))
