"""Prediction of the next token of a text, by a GPT."""

import functools

import keras
from common.corpora import load_dataset, load_text_files
from common.text import prepare_text
from common.training import adamw
from models.gpt import build_gpt

from .sizes import take_size
from .task import Task, split


def load(configuration):
    """Load the text of a configuration; see `loading.load_task`."""
    task, training = configuration["task"], configuration["training"]
    text = _text(
        task.get("dataset"),
        task.get("text"),
        task.get("validation_text"),
        task["vocabulary_size"],
        task["context"],
        training["batch_size"],
        configuration["seed"],
        task.get("held_out_windows"),
        task.get("epoch_windows"),
    )
    validation, test = split(text.validation, task["validation_fraction"])

    def compile_model(model):
        model.compile(
            optimizer=adamw(
                configuration["learning_rate"],
                training["weight_decay"],
                num_steps=training["epochs"] * len(text.train),
            ),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        )

    return Task(
        train=text.train,
        validation=validation,
        test=test,
        probes=text.probes[: task["num_probes"]],
        facts={
            "train_windows": text.num_train,
            "held_out_windows": text.num_validation,
            "unigram_entropy": text.unigram_entropy,
        },
        build=functools.partial(_build, text, configuration["model"]),
        compile=compile_model,
    )


@functools.lru_cache(maxsize=1)
def _text(
    dataset,
    text,
    validation_text,
    vocabulary_size,
    context,
    batch_size,
    seed,
    held_out_windows,
    epoch_windows,
):
    """A data set by name, or text by the paths of its files."""
    if dataset is None:
        corpus = load_text_files(text, validation_text)
    else:
        corpus = load_dataset(dataset, None)
    return prepare_text(
        corpus,
        vocabulary_size,
        context,
        batch_size,
        seed,
        validation_size=held_out_windows,
        epoch_size=epoch_windows,
    )


def _build(text, settings, conditioning):
    size, others = take_size(settings)
    return build_gpt(text.vocabulary_size, text.context, size, conditioning, **others)
