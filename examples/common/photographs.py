"""Batches of photographs that are too many or too large to hold in memory.

TensorFlow reads, crops and resizes them in the background, whatever backend trains.
Order and crops follow from the seed, the epoch and the place in the epoch alone.
"""

import keras

_SPLITS = {
    "oxford_iiit_pet": ("train", "test"),
    "oxford_flowers102": ("train+validation", "test"),
    "imagenet2012": ("train", "validation"),
}
_SHUFFLE_BUFFER = 4096
# Evaluation takes the central 7/8 of the shorter side: 224 of 256 pixels.
_CENTRAL_FRACTION = 224 / 256


class PhotographBatches(keras.utils.PyDataset):
    """Batches read from a stream that starts anew with each epoch.

    Args:
        stream: Function of the epoch that returns a `tf.data.Dataset` of batches.
        num_batches: Number of batches in an epoch.
    """

    def __init__(self, stream, num_batches):
        super().__init__()
        self.epoch = 0
        self._num_batches = num_batches
        self._stream = stream
        self._iterator = None

    def __len__(self):
        return self._num_batches

    def __getitem__(self, index):
        if index == 0:
            self._iterator = self._stream(self.epoch).as_numpy_iterator()
        return next(self._iterator)


class Photographs:
    """The training and the validation images of one data set.

    Args:
        builder: From `prepared.prepared_builder`, for one of the data sets above.
        image_size: Side in pixels to which images are brought.
        batch_size: Images in a batch.
    """

    def __init__(self, builder, image_size, batch_size):
        self._builder = builder
        self._features = builder.info.features
        self._image_size = image_size
        self._batch_size = batch_size
        self._train, self._validation = _SPLITS[builder.name]

    @property
    def num_classes(self):
        """Number of classes, as the data set states it."""
        return self._features["label"].num_classes

    @property
    def num_train(self):
        """Number of training images there are."""
        return self._num_images(self._train)

    @property
    def num_validation(self):
        """Number of validation images there are."""
        return self._num_images(self._validation)

    def training_batches(self, num_images, seed):
        """Shuffled batches of random crops, half of them mirrored.

        A crop covers 8 to 100 % of the area at an aspect ratio from 3/4 to 4/3
        (https://arxiv.org/abs/1409.4842). An incomplete last batch is dropped.

        Args:
            num_images: Number of images, the first ones of the split.
            seed: Integer; fixes order and crops.

        Returns:
            `PhotographBatches` of float images (0 to 255) and one-hot labels.
        """
        import tensorflow as tf
        import tensorflow_datasets as tfds

        split = self._first(self._train, num_images)

        def stream(epoch):
            epoch_seed = seed + 1000 * epoch

            def example(index, encoded):
                image = self._decode(encoded["image"])
                image = _random_crop(image, self._image_size, (epoch_seed, index))
                return image, tf.one_hot(encoded["label"], self.num_classes)

            dataset = self._builder.as_dataset(
                split=split,
                shuffle_files=True,
                read_config=tfds.ReadConfig(shuffle_seed=epoch_seed),
                decoders={"image": tfds.decode.SkipDecoding()},
            )
            dataset = dataset.shuffle(_SHUFFLE_BUFFER, seed=epoch_seed).enumerate()
            dataset = dataset.map(example, tf.data.AUTOTUNE)
            return dataset.batch(self._batch_size, drop_remainder=True).prefetch(1)

        return PhotographBatches(stream, num_images // self._batch_size)

    def validation_batches(self, num_images):
        """Batches of central crops in the order of the files.

        Args:
            num_images: Number of images, the first ones of the split.

        Returns:
            `PhotographBatches` of float images (0 to 255) and one-hot labels.
        """
        import tensorflow as tf
        import tensorflow_datasets as tfds

        split = self._first(self._validation, num_images)

        def example(encoded):
            image = _central_crop(self._decode(encoded["image"]), self._image_size)
            return image, tf.one_hot(encoded["label"], self.num_classes)

        def stream(epoch):
            dataset = self._builder.as_dataset(
                split=split, decoders={"image": tfds.decode.SkipDecoding()}
            )
            dataset = dataset.map(example, tf.data.AUTOTUNE)
            return dataset.batch(self._batch_size).prefetch(1)

        return PhotographBatches(stream, -(-num_images // self._batch_size))

    def _num_images(self, split):
        return self._builder.info.splits[split].num_examples

    def _first(self, split, num_images):
        """The first images of a split such as `"train+validation"`."""
        parts = []
        for part in split.split("+"):
            taken = min(num_images, self._num_images(part))
            parts.append(f"{part}[:{taken}]")
            num_images -= taken
        return "+".join(parts)

    def _decode(self, encoded):
        return self._features["image"].decode_example(encoded)


def _random_crop(image, image_size, seed):
    import tensorflow as tf

    begin, size, _ = tf.image.stateless_sample_distorted_bounding_box(
        tf.shape(image),
        tf.zeros((1, 0, 4)),
        seed,
        aspect_ratio_range=(3 / 4, 4 / 3),
        area_range=(0.08, 1.0),
        use_image_if_no_bounding_boxes=True,
    )
    image = tf.slice(image, begin, size)
    image = tf.image.resize(image, (image_size, image_size))
    image.set_shape((image_size, image_size, 3))
    return tf.image.stateless_random_flip_left_right(image, seed)


def _central_crop(image, image_size):
    import tensorflow as tf

    shape = tf.shape(image)[:2]
    side = tf.cast(
        _CENTRAL_FRACTION * tf.cast(tf.reduce_min(shape), "float32"), "int32"
    )
    top, left = tf.unstack((shape - side) // 2)
    image = tf.image.crop_to_bounding_box(image, top, left, side, side)
    return tf.image.resize(image, (image_size, image_size))
