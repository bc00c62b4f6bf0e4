"""Windows of a long row of tokens: what a language model reads, and what comes next."""

import itertools

import keras
import numpy as np

from .text_files import END_OF_TEXT

# Texts are encoded so many at a time, and a long one in parts of so many characters.
_TEXTS_AT_A_TIME = 1000
_CHARACTERS_AT_A_TIME = 200_000


def encode(tokenizer, texts, num_tokens=None):
    """Encode texts into one row of tokens, each text followed by its end.

    Args:
        tokenizer: From `tokenization.train_tokenizer`.
        texts: Iterable of strings.
        num_tokens: Stop after so many tokens; `None` reads all texts.

    Returns:
        Array `(n,)` of the smallest unsigned integer type that holds the vocabulary.
    """
    end = tokenizer.token_to_id(END_OF_TEXT)
    dtype = np.min_scalar_type(tokenizer.get_vocab_size() - 1)
    arrays, total = [], 0
    parts = (part for text in texts for part in _parts(text))
    while num_tokens is None or total < num_tokens:
        some = list(itertools.islice(parts, _TEXTS_AT_A_TIME))
        if not some:
            break
        encodings = tokenizer.encode_batch_fast([part for part, _ in some])
        for encoding, (_, is_last) in zip(encodings, some, strict=True):
            arrays.append(np.array([*encoding.ids, *[end] * is_last], dtype))
            total += len(arrays[-1])
    tokens = np.concatenate([np.zeros(0, dtype), *arrays])
    return tokens[:num_tokens]


def _parts(text):
    """Parts of a text, cut after a line end, and whether it is the last one."""
    while len(text) > _CHARACTERS_AT_A_TIME:
        cut = text.rfind("\n", 0, _CHARACTERS_AT_A_TIME) + 1 or _CHARACTERS_AT_A_TIME
        yield text[:cut], False
        text = text[cut:]
    yield text, True


class TrainingWindows(keras.utils.PyDataset):
    """Shuffled windows that cut the row up, at other places in each epoch.

    The row is closed to a ring, so that every token is as frequent as any other. An
    incomplete last batch is dropped. Set `epoch` at the start of each epoch
    (`training.fit` does): the windows follow from it, the seed and the index alone.

    Args:
        tokens: Integer array `(n,)`.
        context: Tokens in a window, at most n - 1.
        batch_size: Windows in a batch.
        seed: Integer; fixes the starts and the order.
        epoch_size: Largest number of windows an epoch draws; `None` draws all.
    """

    def __init__(self, tokens, context, batch_size, seed, epoch_size=None):
        super().__init__()
        self._num_windows = len(tokens) // context
        self._epoch_size = min(epoch_size or self._num_windows, self._num_windows)
        self.epoch = 0
        self._tokens = tokens
        self._context = context
        self._batch_size = batch_size
        self._seed = seed

    def __len__(self):
        return self._epoch_size // self._batch_size

    def __getitem__(self, index):
        rng = np.random.default_rng((self._seed, self.epoch))
        first, order = rng.integers(self._context), rng.permutation(self._num_windows)
        chosen = order[index * self._batch_size : (index + 1) * self._batch_size]
        return _pairs(self._tokens, first + self._context * chosen, self._context)


class EvaluationWindows(keras.utils.PyDataset):
    """The windows of a row in their order; the tokens after the last one are left out.

    Args:
        tokens: Integer array `(n,)`.
        context: Tokens in a window, at most n - 1.
        batch_size: Windows in a batch; the last one is as long as it comes out.
    """

    def __init__(self, tokens, context, batch_size):
        super().__init__()
        self.num_windows = (len(tokens) - 1) // context
        self._tokens = tokens
        self._context = context
        self._batch_size = batch_size

    def __len__(self):
        return -(-self.num_windows // self._batch_size)

    def __getitem__(self, index):
        first = index * self._batch_size
        windows = np.arange(first, min(first + self._batch_size, self.num_windows))
        return _pairs(self._tokens, self._context * windows, self._context)


def _pairs(tokens, starts, context):
    """Windows that begin at `starts`, and for each token the one after it."""
    places = (starts[:, None] + np.arange(context + 1)) % len(tokens)
    windows = tokens[places].astype("int32")
    return windows[:, :-1], windows[:, 1:]
