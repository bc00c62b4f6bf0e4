"""ListOps of the Long Range Arena, read by a small encoder."""

import functools

import keras
from common.listops import TOKENS, generate_listops
from common.rows import ShuffledRows
from common.training import adamw
from models.bert import build_bert, build_classifier

from .sizes import take_size
from .task import Task, split

_NUM_DIGITS = 10
_HELD_OUT_BATCH = 200


class LabelledRows(keras.utils.PyDataset):
    """Rows and labels in their own order, the last batch as long as it comes out.

    Args:
        ids: int32 array `(n, length)`.
        labels: Array `(n,)`.
        batch_size: Rows in a batch.
    """

    def __init__(self, ids, labels, batch_size):
        super().__init__()
        self._ids = ids
        self._labels = labels
        self._batch_size = batch_size

    def __len__(self):
        return -(-len(self._ids) // self._batch_size)

    def __getitem__(self, index):
        rows = slice(index * self._batch_size, (index + 1) * self._batch_size)
        return self._ids[rows], self._labels[rows]


def load(configuration):
    """Generate the expressions of a configuration; see `loading.load_task`."""
    task, training = configuration["task"], configuration["training"]
    splits = _expressions(
        task["train_size"],
        task["held_out_size"],
        task["min_length"],
        task["max_length"],
    )
    rows = {name: part.tokens.astype("int32") for name, part in splits.items()}
    train = ShuffledRows(
        rows["train"],
        splits["train"].labels,
        training["batch_size"],
        configuration["seed"],
    )
    held_out = LabelledRows(rows["test"], splits["test"].labels, _HELD_OUT_BATCH)
    validation, test = split(held_out, task["validation_fraction"])

    def compile_model(model):
        model.compile(
            optimizer=adamw(
                configuration["learning_rate"],
                training["weight_decay"],
                num_steps=training["epochs"] * len(train),
            ),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
        )

    return Task(
        train=train,
        validation=validation,
        test=test,
        probes=rows["test"][: task["num_probes"]],
        facts={"train_expressions": task["train_size"]},
        build=functools.partial(_build, configuration["model"]),
        compile=compile_model,
    )


@functools.lru_cache(maxsize=1)
def _expressions(train_size, held_out_size, min_length, max_length):
    """The same expressions for every seed, as the benchmark has it."""
    sizes = {"test": held_out_size, "train": train_size}
    return generate_listops(sizes, min_length, max_length)


def _build(settings, conditioning):
    size, others = take_size(settings)
    return build_classifier(
        build_bert(len(TOKENS), size, conditioning, **others), _NUM_DIGITS
    )
