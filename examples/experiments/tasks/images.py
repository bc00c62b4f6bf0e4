"""Classification of images by a ViT, or by a ConvMixer for contrast."""

import functools

import keras
from common.images import load_images
from common.training import adamw
from models.convmixer import build_convmixer
from models.vit import build_vit

from .sizes import take_size
from .task import Task, split

# Debian's package dataset-fashion-mnist.
_FOLDERS = {"fashion_mnist": "/usr/share/datasets/fashion-mnist"}
_CONVMIXER = ("width", "num_layers", "patch_size", "kernel_size", "skip")


def load(configuration):
    """Load the images of a configuration; see `loading.load_task`."""
    task, training = configuration["task"], configuration["training"]
    data = _images(
        task["dataset"],
        task.get("train_size"),
        task.get("image_size"),
        training["batch_size"],
        configuration["seed"],
        task.get("held_out_batch", 500),
    )
    validation, test = split(data.validation, task["validation_fraction"])

    def compile_model(model):
        model.compile(
            optimizer=adamw(
                configuration["learning_rate"],
                training["weight_decay"],
                num_steps=training["epochs"] * len(data.train),
            ),
            loss=keras.losses.CategoricalCrossentropy(
                from_logits=True, label_smoothing=training["label_smoothing"]
            ),
            metrics=["accuracy"],
        )

    return Task(
        train=data.train,
        validation=validation,
        test=test,
        probes=data.probes[: task["num_probes"]],
        facts={"train_images": data.num_train, "held_out_images": data.num_validation},
        build=functools.partial(_build, data, configuration["model"]),
        compile=compile_model,
    )


@functools.lru_cache(maxsize=1)
def _images(dataset, train_size, image_size, batch_size, seed, held_out_batch):
    return load_images(
        dataset,
        _FOLDERS.get(dataset),
        batch_size,
        image_size,
        seed,
        train_size,
        evaluation_batch_size=held_out_batch,
    )


def _build(data, settings, conditioning):
    settings = dict(settings)
    kind = settings.pop("kind")
    shape = data.image_shape, data.num_classes
    if kind == "convmixer":
        return build_convmixer(*shape, **{name: settings[name] for name in _CONVMIXER})
    if kind != "vit":
        raise ValueError(f"model: got the kind {kind!r}, expected vit or convmixer.")
    size, others = take_size(settings)
    return build_vit(*shape, size, conditioning, **others)
