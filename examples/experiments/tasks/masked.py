"""Prediction of masked tokens by a BERT, then classification of texts by it."""

import functools

import keras
from common.corpora import load_dataset
from common.labelled import load_labelled
from common.masking import mask_text
from common.metrics import scores
from common.sentences import prepare_sentences
from common.text import prepare_text
from common.tokenization import MASKED_MODEL_TOKENS
from common.training import adamw, fit
from models.bert import build_bert, build_classifier

from .sizes import take_size
from .task import Task, split

# Crammed BERT's.
_OPTIMIZER = {"beta_2": 0.98, "global_clipnorm": 0.5}


def load(configuration):
    """Load the texts of a configuration; see `loading.load_task`."""
    task, training = configuration["task"], configuration["training"]
    text, labelled = _data(
        task["dataset"],
        task["vocabulary_size"],
        task["context"],
        training["batch_size"],
        configuration["seed"],
        task.get("held_out_windows"),
        task.get("epoch_windows"),
        tuple(map(tuple, task["classifications"])),
    )
    validation, test = split(text.validation, task["validation_fraction"])
    count = task["num_probes"]

    def compile_model(model):
        loss = {"from_logits": True, "name": "masked_loss"}
        model.compile(
            optimizer=adamw(
                configuration["learning_rate"],
                training["weight_decay"],
                num_steps=training["epochs"] * len(text.train),
                **_OPTIMIZER,
            ),
            loss=keras.losses.SparseCategoricalCrossentropy(
                **loss, reduction="mean_with_sample_weight"
            ),
            # Batches differ in their number of masked tokens: this is over tokens.
            weighted_metrics=[keras.metrics.SparseCategoricalCrossentropy(**loss)],
        )

    return Task(
        train=text.train,
        validation=validation,
        test=test,
        probes={name: rows[:count] for name, rows in text.probes.items()},
        facts={
            "train_windows": text.num_train,
            "held_out_windows": text.num_validation,
            "unigram_entropy": text.unigram_entropy,
            "majority": {one.name: one.majority for one in labelled},
        },
        build=functools.partial(_build, text, configuration["model"]),
        compile=compile_model,
        finish=lambda model: _classify(model, labelled, configuration),
    )


@functools.lru_cache(maxsize=1)
def _data(
    dataset,
    vocabulary_size,
    context,
    batch_size,
    seed,
    held_out_windows,
    epoch_windows,
    classifications,
):
    """The windows of a text with masks, and the texts with labels."""
    text = prepare_text(
        load_dataset(dataset, None),
        vocabulary_size,
        context,
        batch_size,
        seed,
        validation_size=held_out_windows,
        epoch_size=epoch_windows,
        special_tokens=MASKED_MODEL_TOKENS,
    )
    labelled = [
        prepare_sentences(
            load_labelled(name, None),
            text.tokenizer,
            length,
            batch_size,
            seed,
            epoch_size=epoch_size or None,
            validation_size=held_out or None,
        )
        for name, length, epoch_size, held_out in classifications
    ]
    return mask_text(text, batch_size, seed), labelled


def _build(text, settings, conditioning):
    size, others = take_size(settings)
    return build_bert(text.vocabulary_size, size, conditioning, **others)


def _classify(bert, labelled, configuration):
    """Fine-tune a classifier for each data set, and judge it."""
    training = configuration["training"]
    start = bert.get_weights()
    judged = {}
    for task in labelled:
        bert.set_weights(start)
        keras.utils.set_random_seed(configuration["seed"])
        classifier = build_classifier(bert, task.num_labels)
        loss = keras.losses.MeanSquaredError()
        if task.num_labels > 1:
            loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        epochs = training["classification_epochs"]
        classifier.compile(
            optimizer=adamw(
                training["classification_learning_rate"],
                training["weight_decay"],
                num_steps=epochs * len(task.train),
                **_OPTIMIZER,
            ),
            loss=loss,
        )
        fit(
            classifier,
            task.train,
            None,
            epochs,
            [keras.callbacks.TerminateOnNaN()],
            verbose=0,
        )
        judged.update(_judge(classifier, task))
    return judged


def _judge(classifier, task):
    """Metric -> value; NaN where fine-tuning diverged."""
    judged = {}
    for part, (batches, labels) in task.validation.items():
        outputs = classifier.predict(batches, verbose=0)[: len(labels)]
        name = task.name if part == "validation" else f"{task.name}_{part}"
        if keras.ops.all(keras.ops.isfinite(outputs)):
            values = scores(task.metrics, labels, outputs)
        else:
            values = dict.fromkeys(task.metrics, float("nan"))
        judged.update({f"{name}_{metric}": v for metric, v in values.items()})
    return judged
