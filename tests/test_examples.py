"""The example scripts and the helpers they share."""

import gzip
import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import keras
import matplotlib.image
import numpy as np
import prepare_fashion_mnist
import pytest
import vit
from common import idx, prepared
from common.batches import TrainingBatches, flip_some, pad_and_crop
from common.checks import check_images
from common.images import load_images
from common.runs import write_results
from common.tables import format_number
from common.training import adamw, fit
from models.vit import CONDITIONINGS, build_vit

ROOT = Path(__file__).parent.parent
DEBIAN_FILES = Path("/usr/share/datasets/fashion-mnist")


def random_images(number, shape=(28, 28, 1), num_classes=10):
    """Images whose labels run through all classes."""
    rng = np.random.default_rng(number)
    images = rng.integers(0, 256, (number, *shape), dtype="uint8")
    return images, (np.arange(number) % num_classes).astype("uint8")


def write_idx_folder(folder, train=200, test=40, opener=gzip.open, suffix=".gz"):
    """The four files of Fashion-MNIST, in small. Returns the arrays."""
    folder.mkdir(parents=True, exist_ok=True)
    splits = {"train": random_images(train), "test": random_images(test)}
    for prefix, (images, labels) in zip(
        ("train", "t10k"), splits.values(), strict=True
    ):
        for name, values in (
            ("images-idx3", images[..., 0]),
            ("labels-idx1", labels),
        ):
            header = struct.pack(
                f">4B{values.ndim}I", 0, 0, 8, values.ndim, *values.shape
            )
            with opener(folder / f"{prefix}-{name}-ubyte{suffix}", "wb") as file:
                file.write(header + values.tobytes())
    return splits


def load_fashion_mnist(data_dir, **kwargs):
    arguments = {"batch_size": 50, "image_size": None, "seed": 0} | kwargs
    return load_images("fashion_mnist", str(data_dir), **arguments)


# The script as a user runs it.


def test_smoke_run_compares_every_method_and_writes_what_it_promises(tmp_path):
    output = tmp_path / "run"
    run = subprocess.run(
        [sys.executable, "examples/vit.py", "--smoke", "--output", str(output)],
        cwd=ROOT,
        env={
            **os.environ,
            "KERAS_BACKEND": keras.backend.backend(),
            "PYTHONPATH": str(ROOT),
        },
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    results = json.loads((output / "results.json").read_text())
    assert tuple(results["methods"]) == CONDITIONINGS
    assert results["environment"]["backend"] == keras.backend.backend()

    task = load_images("digits", None, 16, None, 0, 64, vit.SMOKE_VALIDATION_SIZE)
    images, labels = task.validation[0]
    for method, result in results["methods"].items():
        assert method in run.stdout
        assert result["seconds_per_epoch"] > 0
        numbers = result["condition_numbers"]
        assert numbers["start"]["tokens"] > 1
        model = keras.models.load_model(output / f"{method}.keras")
        logits = keras.ops.convert_to_numpy(model(images, training=False))
        accuracy = np.mean(logits.argmax(axis=-1) == labels.argmax(axis=-1))
        assert accuracy == pytest.approx(result["accuracy"], abs=1e-6)
        loss = keras.losses.categorical_crossentropy(
            labels, logits, from_logits=True, label_smoothing=vit.LABEL_SMOOTHING
        )
        assert float(keras.ops.mean(loss)) == pytest.approx(result["loss"], abs=1e-4)

    methods = results["methods"]
    start = {name: methods[name]["condition_numbers"]["start"] for name in methods}
    assert start["conditioned_tokens"]["tokens"] <= 2.02 < start["baseline"]["tokens"]
    assert start["conditioned_init"]["query"]["per_head"] == pytest.approx(1, abs=1e-3)
    assert start["spectral_attention"]["query"]["per_head"] < 1.1

    picture = matplotlib.image.imread(output / "curves.png")[..., :3]
    height, width, _ = picture.shape
    assert height > 400 and width > 1000
    assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 100
    assert 0.001 < np.mean(picture < 0.5) < 0.2


def test_earlier_results_are_kept_unless_overwriting_is_asked_for(tmp_path):
    earlier = tmp_path / "results.json"
    earlier.write_text("{}")
    arguments = ["--smoke", "--method", "baseline", "--output", str(tmp_path)]
    with pytest.raises(ValueError, match=r"not empty.*--overwrite"):
        vit.main(arguments)
    assert earlier.read_text() == "{}"
    (tmp_path / "stale.keras").touch()
    (tmp_path / "notes.txt").touch()
    vit.main([*arguments, "--overwrite"])
    assert json.loads(earlier.read_text())["methods"].keys() == {"baseline"}
    assert not (tmp_path / "stale.keras").exists()
    assert (tmp_path / "notes.txt").exists()


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--method", "baseline,magic"], "--method: got 'magic', expected one of base"),
        (["--method", "baseline,baseline"], "expected each part once"),
        (["--dataset", "mnist"], "dataset: got 'mnist', expected one of"),
        (["--preset", "huge"], "--preset: got 'huge', expected one of"),
        (["--epochs", "0"], "--epochs: got 0, expected a whole number from 1"),
        (["--batch-size", "-1"], "--batch-size: got -1"),
        (["--train-size", "5000"], "got 5000, expected at most the 1437 training"),
        (["--batch-size", "2000"], "got 2000, expected at most the 1437 training"),
        (["--learning-rate", "nan"], "--learning-rate: got nan"),
        (["--weight-decay", "-0.1"], "--weight-decay: got -0.1"),
        (["--mixed-precision", "half"], "--mixed-precision: got 'half'"),
    ],
)
def test_bad_arguments_are_refused_before_anything_trains(
    arguments, message, tmp_path, monkeypatch
):
    monkeypatch.setattr(vit, "train_methods", pytest.fail)
    output = tmp_path / "run"
    with pytest.raises(ValueError, match=message):
        vit.main([*arguments, "--output", str(output)])
    assert not output.exists()


# The model.


def test_conditionings_change_the_output_but_no_weight_outside_attention():
    images = random_images(2, (8, 8, 1))[0].astype("float32")
    weights, outputs = {}, {}
    for conditioning in CONDITIONINGS:
        keras.utils.set_random_seed(1)
        model = build_vit((8, 8, 1), 10, "smoke", conditioning)
        weights[conditioning] = {
            weight.path: keras.ops.convert_to_numpy(weight) for weight in model.weights
        }
        outputs[conditioning] = keras.ops.convert_to_numpy(model(images))

    baseline, baseline_output = weights.pop("baseline"), outputs.pop("baseline")
    attention = {"query", "key", "value", "attention_output"}
    for conditioning, others in weights.items():
        changed = {
            path.split("/")[-2]
            for path in baseline
            if not np.array_equal(baseline[path], others[path])
        }
        if conditioning in ("spectral_attention", "conditioned_init"):
            assert changed <= attention
        else:
            assert not changed
        assert np.abs(outputs[conditioning] - baseline_output).max() > 1e-4


def test_without_its_skip_a_block_passes_on_the_branch_alone():
    images = random_images(2, (8, 8, 1))[0].astype("float32")
    model = build_vit((8, 8, 1), 10, "smoke", attention_skip=False, mlp_skip=False)
    model.get_layer("block_0_mlp_out").kernel.assign(np.zeros((16, 16)))
    assert np.ptp(keras.ops.convert_to_numpy(model(images)), axis=0).max() == 0
    with_skips = build_vit((8, 8, 1), 10, "smoke")
    with_skips.get_layer("block_0_mlp_out").kernel.assign(np.zeros((16, 16)))
    assert np.ptp(keras.ops.convert_to_numpy(with_skips(images)), axis=0).max() > 0


def test_patches_are_squares_of_the_image():
    images = random_images(2, (8, 8, 3))[0].astype("float32")
    model = build_vit((8, 8, 3), 10, "smoke")
    patches = keras.Model(model.input, model.get_layer("patches").output)(images)
    expected = images[:, 2:4, 4:6].reshape(2, 12) / 127.5 - 1  # row 1, column 2 of 4
    patch = keras.ops.convert_to_numpy(patches)[:, 6]
    np.testing.assert_allclose(patch, expected, atol=1e-6)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"image_shape": (30, 30, 1)}, "patch_size: got None"),
        ({"image_shape": (8, 8, 1), "patch_size": 3}, "expected a divisor of 8 and 8"),
        ({"image_shape": (8, 8, 1), "preset": "huge"}, "preset: got 'huge'"),
        (
            {"image_shape": (8, 8, 1), "conditioning": "none"},
            "conditioning: got 'none'",
        ),
    ],
)
def test_model_refuses_what_it_cannot_build(arguments, message):
    with pytest.raises(ValueError, match=message):
        build_vit(num_classes=10, **arguments)


# Batches.


def test_cropped_images_are_the_image_moved_over_black():
    images, _ = random_images(30, (6, 5, 2))
    cropped = pad_and_crop(images, 1, np.random.default_rng(0))
    assert cropped.shape == images.shape and cropped.dtype == images.dtype
    shifts = set()
    for before, after in zip(images, cropped, strict=True):
        canvas = np.zeros((8, 7, 2), "uint8")
        canvas[1:7, 1:6] = before
        fits = [
            (top, left)
            for top in range(3)
            for left in range(3)
            if np.array_equal(canvas[top : top + 6, left : left + 5], after)
        ]
        assert len(fits) == 1
        shifts.update(fits)
    assert len(shifts) == 9
    assert np.array_equal(pad_and_crop(images, 0, np.random.default_rng(0)), images)


def test_about_half_of_the_images_are_mirrored_left_to_right():
    images, _ = random_images(200, (4, 4, 1))
    flipped = flip_some(images, np.random.default_rng(0))
    same = [np.array_equal(a, b) for a, b in zip(images, flipped, strict=True)]
    mirrored = [
        np.array_equal(a[:, ::-1], b) for a, b in zip(images, flipped, strict=True)
    ]
    assert sum(same) + sum(mirrored) == 200
    assert 70 < sum(mirrored) < 130


def test_fit_sees_each_epochs_own_batches_on_every_backend():
    """The loss is the mean of the images, so the history tells which were seen."""
    images, labels = random_images(60, (4, 4, 1))
    images[:] = np.arange(60, dtype="uint8")[:, None, None, None]
    train = TrainingBatches(images, labels, 10, 16, seed=3, padding=1, flip=True)
    expected = []
    for epoch in range(3):
        train.epoch = epoch
        assert all(
            np.array_equal(x, y)
            for x, y in zip(train[0], train[0], strict=True)  # asked twice, seen twice
        )
        expected.append(
            np.mean([train[index][0].mean() for index in range(len(train))])
        )
    assert len(train) == 3 and len(set(expected)) == 3

    inputs = keras.Input((4, 4, 1))
    outputs = keras.layers.Flatten()(inputs)
    model = keras.Model(inputs, keras.layers.Dense(10, trainable=False)(outputs))
    model.layers[-1].set_weights([np.ones((16, 10)) / 16, np.zeros(10)])
    model.compile(
        optimizer=keras.optimizers.SGD(0.0),
        loss=lambda truth, prediction: keras.ops.mean(prediction, axis=-1),
    )
    history, seconds = fit(model, train, train, epochs=3)
    np.testing.assert_allclose(history["loss"], expected, rtol=1e-5)
    assert len(seconds) == 3


def test_rate_warms_up_then_decays_and_biases_keep_their_size():
    optimizer = adamw(learning_rate=0.1, weight_decay=0.5, num_steps=100)
    kernel = keras.Variable(np.ones(2), name="kernel")
    bias = keras.Variable(np.ones(2), name="bias")
    optimizer.build([kernel, bias])

    def rate(step):
        optimizer.iterations.assign(step)
        return float(optimizer.learning_rate)

    assert [rate(0), rate(5), rate(10)] == pytest.approx([0, 0.05, 0.1])
    assert rate(55) == pytest.approx(0.05)
    assert rate(100) == pytest.approx(0, abs=1e-6)

    rate(10)
    zero = keras.ops.zeros(2)
    optimizer.apply([zero, zero], [kernel, bias])
    np.testing.assert_array_equal(keras.ops.convert_to_numpy(bias), np.ones(2))
    decayed = keras.ops.convert_to_numpy(kernel)
    np.testing.assert_allclose(decayed, 1 - 0.1 * 0.5, rtol=1e-6)


# Fashion-MNIST from raw IDX files.


@pytest.mark.parametrize("opener, suffix", [(gzip.open, ".gz"), (open, "")])
@pytest.mark.parametrize("subfolder", [".", "fashion_mnist"])
def test_idx_files_are_read_as_they_lie(opener, suffix, subfolder, tmp_path):
    splits = write_idx_folder(tmp_path / subfolder, opener=opener, suffix=suffix)
    task = load_fashion_mnist(tmp_path, train_size=100)
    images, labels = task.validation[0]
    np.testing.assert_array_equal(images, splits["test"][0])
    np.testing.assert_array_equal(labels.argmax(axis=-1), splits["test"][1])
    assert (task.num_train, task.num_validation) == (100, 40)
    assert task.train[0][0].shape == (50, 28, 28, 1)


def test_debian_files_are_the_published_images():
    if not DEBIAN_FILES.is_dir():
        pytest.skip("the Debian package dataset-fashion-mnist is not installed")
    task = load_fashion_mnist(DEBIAN_FILES, batch_size=100, train_size=10_000)
    assert (task.num_train, task.num_validation) == (10_000, 10_000)
    labels = task.validation[0][1].argmax(axis=-1)
    # Ankle boot, pullover, trouser, trouser, shirt, trouser.
    assert labels[:6].tolist() == [9, 2, 1, 1, 6, 1]


@pytest.mark.parametrize(
    "damage, message",
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-400]), "cannot be read"),
        (lambda path: path.write_bytes(b"not gzip"), "cannot be read"),
        (lambda path: path.write_bytes(gzip.compress(b"")), "starts with , expected"),
        (
            lambda path: path.write_bytes(gzip.compress(bytes((0, 0, 8, 1)))),
            "starts with 00 00 08 01, expected 00 00 08 03",
        ),
        (
            lambda path: path.write_bytes(gzip.compress(bytes((0, 0, 8, 3, 0, 0)))),
            "holds 6 bytes, expected at least the 16 of an IDX header",
        ),
        (
            lambda path: path.write_bytes(
                gzip.compress(gzip.decompress(path.read_bytes())[:-1])
            ),
            r"holds 156799 values, expected 156800 for the shape \(200, 28, 28\)",
        ),
    ],
)
def test_damaged_idx_file_is_named(damage, message, tmp_path):
    write_idx_folder(tmp_path)
    path = tmp_path / "train-images-idx3-ubyte.gz"
    damage(path)
    with pytest.raises(ValueError, match=f"{path}: {message}"):
        load_fashion_mnist(tmp_path)


def test_missing_idx_file_is_named(tmp_path):
    write_idx_folder(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(ValueError, match=f"{tmp_path}: lacks t10k-labels-idx1-ubyte,"):
        load_fashion_mnist(tmp_path)
    assert idx.read_idx_folder(tmp_path / "elsewhere") is None


@pytest.mark.parametrize(
    "images, labels, message",
    [
        (np.zeros((3, 8, 9, 1), "uint8"), np.zeros(3, int), r"shape \(8, 9, 1\)"),
        (np.zeros((3, 8, 8, 1), "int64"), np.zeros(3, int), "dtype int64"),
        (np.full((3, 8, 8, 1), np.nan), np.zeros(3, int), "NaN or infinite pixels"),
        (np.zeros((3, 8, 8, 1)), np.zeros(2, int), r"labels of shape \(2,\)"),
        (np.zeros((3, 8, 8, 1)), np.zeros(3), "dtype float64"),
        (np.zeros((3, 8, 8, 1)), np.array([0, 4, 9]), "from 0 to 9, expected 0 to 4"),
        (np.zeros((0, 8, 8, 1)), np.zeros(0, int), "got no images"),
    ],
)
def test_wrong_data_are_named(images, labels, message):
    with pytest.raises(ValueError, match=f"place: .*{message}"):
        check_images(images, labels, (8, 8, 1), num_classes=5, where="place")


def test_missing_class_is_named(tmp_path):
    write_idx_folder(tmp_path, test=9)
    with pytest.raises(ValueError, match=f"{tmp_path}, test: got 9 classes, expected"):
        load_fashion_mnist(tmp_path)


# Data sets that tensorflow-datasets keeps.


def test_prepared_fashion_mnist_holds_the_images_of_the_raw_files(tmp_path):
    source, data_dir = tmp_path / "source", tmp_path / "data"
    splits = write_idx_folder(source)
    prepare_fashion_mnist.main(["--source", str(source), "--data-dir", str(data_dir)])
    builder = prepared.prepared_builder("fashion_mnist", str(data_dir))
    for split, (images, labels) in splits.items():
        read_images, read_labels = prepared.read_arrays(builder, split)
        order = [
            [tuple(image.ravel()) for image in read_images].index(tuple(image.ravel()))
            for image in images
        ]
        assert sorted(order) == list(range(len(images)))
        np.testing.assert_array_equal(read_labels[order], labels)
    assert load_fashion_mnist(data_dir).num_train == 200

    record = next((data_dir / "fashion_mnist" / "3.0.1").glob("*train.tfrecord*"))
    whole = record.read_bytes()
    record.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"3\.0\.1: split 'train' holds .* truncated"):
        load_fashion_mnist(data_dir)
    record.write_bytes(whole[:100] + bytes(8) + whole[108:])
    with pytest.raises(ValueError, match=r"3\.0\.1: split 'train' cannot be read"):
        load_fashion_mnist(data_dir)
    record.unlink()
    with pytest.raises(ValueError, match=f"{record}: not there, expected the 1 files"):
        load_fashion_mnist(data_dir)


@pytest.mark.parametrize("name", ["fashion_mnist", "cifar10", "imagenet2012"])
def test_missing_data_set_says_where_it_was_sought_and_how_to_prepare_it(
    name, tmp_path
):
    message = f"'{name}': not found, .*{tmp_path}.*tfds build {name} --data_dir"
    with pytest.raises(ValueError, match=message):
        load_images(name, str(tmp_path), 10, 64, 0)
    with pytest.raises(ValueError, match=f"{tmp_path} holds none of the four"):
        prepare_fashion_mnist.main(["--source", str(tmp_path), "--data-dir", "x"])


@pytest.fixture
def flowers(tmp_path):
    """A small Flowers-102 of photographs of several sizes, in a folder."""
    import tensorflow_datasets as tfds

    def photographs(number):
        rng = np.random.default_rng(number)
        for index in range(number):
            shape = (40 + index % 5, 50, 3)
            image = rng.integers(0, 256, shape, dtype="uint8")
            yield index, {"image": image, "label": index % 102, "file_name": str(index)}

    tfds.dataset_builders.store_as_tfds_dataset(
        name="oxford_flowers102",
        version="2.1.1",
        features=tfds.features.FeaturesDict(
            {
                "image": tfds.features.Image(shape=(None, None, 3)),
                "label": tfds.features.ClassLabel(num_classes=102),
                "file_name": tfds.features.Text(),
            }
        ),
        split_datasets={
            "train": list(photographs(30)),
            "validation": list(photographs(20)),
            "test": list(photographs(25)),
        },
        data_dir=tmp_path,
    )
    return tmp_path


def test_photographs_are_cropped_alike_whenever_an_epoch_is_read(flowers):
    def read(batches, epoch):
        batches.epoch = epoch
        return [batches[index] for index in range(len(batches))]

    task = load_images("oxford_flowers102", str(flowers), 10, 32, seed=0, train_size=40)
    first, again, next_epoch = (read(task.train, epoch) for epoch in (0, 0, 1))
    assert len(first) == 4
    for (images, labels), (same_images, same_labels) in zip(first, again, strict=True):
        assert images.shape == (10, 32, 32, 3) and images.dtype == "float32"
        assert images.min() >= 0 and images.max() <= 255 and np.ptp(images) > 50
        np.testing.assert_array_equal(images, same_images)
        np.testing.assert_array_equal(labels, same_labels)
    assert not np.array_equal(first[0][0], next_epoch[0][0])

    labels = np.concatenate([labels.argmax(axis=-1) for _, labels in first])
    later = np.concatenate([labels.argmax(axis=-1) for _, labels in next_epoch])
    assert not np.array_equal(labels, later)
    np.testing.assert_array_equal(np.sort(labels), np.sort(later))
    # 30 training images and 10 of the 20 of the validation split.
    assert len(labels) == 40 and (task.num_classes, task.num_validation) == (102, 25)

    validation = read(task.validation, 0)
    assert [len(labels) for _, labels in validation] == [10, 10, 5]
    assert task.probes.shape == (10, 32, 32, 3)
    with pytest.raises(ValueError, match="got 51, expected at most the 50 training"):
        load_images("oxford_flowers102", str(flowers), 10, 32, 0, train_size=51)


# Results.


def test_results_are_json_that_every_reader_understands(tmp_path):
    path = tmp_path / "results.json"
    write_results(path, {"a": [1.5, float("inf")], "b": {"c": (float("nan"), 2)}})
    text = path.read_text()
    assert "Infinity" not in text and "NaN" not in text
    assert json.loads(text) == {"a": [1.5, "inf"], "b": {"c": ["nan", 2]}}


@pytest.mark.parametrize(
    "value, text",
    [
        (1.0, "1.00"),
        (35.14, "35.1"),
        (412.3, "412"),
        (1.3e4, "1.3e+04"),
        (float("inf"), "inf"),
        (float("nan"), "nan"),
    ],
)
def test_numbers_have_three_digits(value, text):
    assert format_number(value) == text
