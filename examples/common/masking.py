"""Windows of text with masked tokens, and which tokens they were.

As in Crammed BERT (https://arxiv.org/abs/2212.14034), a quarter of the tokens of a
window are to be predicted; of these, four fifths are replaced by the mask, a tenth by
random tokens, and a tenth stay as they are.
"""

import dataclasses

import keras
import numpy as np

from .rows import fill
from .text import entropy
from .tokenization import MASK, MASKED_MODEL_TOKENS

MASKED_FRACTION = 0.25
_REPLACED_BY_MASK, _REPLACED_AT_ALL = 0.8, 0.9
# Special tokens have the first ids. They are neither predicted nor drawn.
_FIRST_TEXT_ID = len(MASKED_MODEL_TOKENS)
_MASK_ID = MASKED_MODEL_TOKENS.index(MASK)


def mask_tokens(ids, vocabulary_size, rng):
    """Choose the tokens to predict, and replace most of them.

    Args:
        ids: int32 array `(n, T)`. The ids below 3 are special and never chosen.
        vocabulary_size: Number of token ids.
        rng: `numpy.random.Generator`.

    Returns:
        `(inputs, targets, weights)`: a dict of `ids` `(n, T)`, replaced, and int32
        `places` `(n, P)` of the chosen tokens; what stood there, int32 `(n, P)`; and
        float32 `(n, P)`, 1 at a chosen token. P is a quarter of T. A row with fewer
        text tokens than T has a quarter of those chosen; the rest of its places are 0
        and weigh 0.
    """
    num_places = round(MASKED_FRACTION * ids.shape[1])
    is_text = ids >= _FIRST_TEXT_ID
    num_chosen = np.rint(MASKED_FRACTION * is_text.sum(axis=1))
    order = np.argsort(np.where(is_text, rng.random(ids.shape), 2.0), axis=1)
    chosen = np.arange(num_places) < num_chosen[:, None]
    places = np.where(chosen, order[:, :num_places], 0)
    targets = np.where(chosen, np.take_along_axis(ids, places, axis=1), 0)

    lot = rng.random(places.shape)
    others = rng.integers(_FIRST_TEXT_ID, vocabulary_size, places.shape)
    others = np.where(lot < _REPLACED_BY_MASK, _MASK_ID, others)
    replaced = ids.copy()
    rows, columns = np.nonzero(chosen & (lot < _REPLACED_AT_ALL))
    replaced[rows, places[rows, columns]] = others[rows, columns]
    inputs = {"ids": replaced, "places": places.astype("int32")}
    return inputs, targets.astype("int32"), chosen.astype("float32")


class MaskedWindows(keras.utils.PyDataset):
    """Windows with masks that follow from the seed, the epoch and the index alone.

    An incomplete last batch is filled with padding of weight 0. Set `epoch` at the
    start of each epoch (`training.fit` does so for training); where it stays as it is,
    so do the masks.

    Args:
        windows: A `windows.TrainingWindows` or `EvaluationWindows`.
        batch_size: Windows in a batch.
        vocabulary_size: Number of token ids.
        seed: Integer.
    """

    def __init__(self, windows, batch_size, vocabulary_size, seed):
        super().__init__()
        self._windows = windows
        self._batch_size = batch_size
        self._vocabulary_size = vocabulary_size
        self._seed = seed
        self.epoch = 0

    def __len__(self):
        return len(self._windows)

    def __getitem__(self, index):
        self._windows.epoch = self.epoch
        ids, _ = self._windows[index]
        rng = np.random.default_rng((self._seed, self.epoch, index))
        ids = fill(ids, self._batch_size)
        return mask_tokens(ids, self._vocabulary_size, rng)


def mask_text(task, batch_size, seed):
    """Turn windows of text into windows with masked tokens.

    Args:
        task: A `text.TextTask` whose tokenizer has `MASKED_MODEL_TOKENS`.
        batch_size: Windows in a batch.
        seed: Integer; fixes the masks. Those of validation are the same for every
            seed.

    Returns:
        The task with batches of what `mask_tokens` returns, probes that are inputs of
        the validation, and the unigram entropy of the tokens that are to be predicted
        in it.

    Raises:
        ValueError: If the validation holds no token to predict.
    """
    train, validation = (
        MaskedWindows(windows, batch_size, task.vocabulary_size, masks)
        for windows, masks in ((task.train, seed), (task.validation, 0))
    )
    targets = np.concatenate(
        [targets[weights > 0] for _, targets, weights in validation]
    )
    if not len(targets):
        raise ValueError(
            f"{task.name}: got no text to predict in {task.num_validation} validation "
            "windows, only ends of texts. Add text."
        )
    num_probes = len(task.probes)
    probes = {name: rows[:num_probes] for name, rows in validation[0][0].items()}
    return dataclasses.replace(
        task,
        train=train,
        validation=validation,
        unigram_entropy=entropy(targets),
        probes=probes,
    )
