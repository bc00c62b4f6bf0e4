"""ConvMixer in plain Keras, for contrast with attention.

Patches are embedded by a convolution; a block is a depthwise convolution, which mixes
the tokens as attention does, inside a skip connection, and a pointwise one
(https://arxiv.org/abs/2201.09792).
"""

import keras


def build_convmixer(
    image_shape, num_classes, width, num_layers, patch_size, kernel_size, skip=True
):
    """Build a ConvMixer that maps images to logits.

    Args:
        image_shape: `(height, width, channels)` in pixels.
        num_classes: Number of logits.
        width: Channels of a token.
        num_layers: Number of blocks.
        patch_size: Side of a patch in pixels, a divisor of height and width.
        kernel_size: Side of the depthwise kernels in patches.
        skip: Whether a block adds its input to what the depthwise convolution says.

    Returns:
        A functional `keras.Model`: float images `(batch, *image_shape)` with values 0
        to 255 in, float32 logits `(batch, num_classes)` out.
    """
    images = keras.Input(image_shape, name="images")
    x = keras.layers.Rescaling(1 / 127.5, offset=-1.0, name="rescaling")(images)
    x = keras.layers.Conv2D(width, patch_size, patch_size, name="patch_embedding")(x)
    x = _activate(x, "embedding")
    for index in range(num_layers):
        y = keras.layers.DepthwiseConv2D(
            kernel_size, padding="same", name=f"block_{index}_depthwise"
        )(x)
        y = _activate(y, f"block_{index}_depthwise")
        x = keras.layers.Add(name=f"block_{index}_skip")([x, y]) if skip else y
        x = keras.layers.Conv2D(width, 1, name=f"block_{index}_pointwise")(x)
        x = _activate(x, f"block_{index}_pointwise")
    x = keras.layers.GlobalAveragePooling2D(name="head_pooling")(x)
    logits = keras.layers.Dense(num_classes, dtype="float32", name="head")(x)
    return keras.Model(images, logits, name=f"convmixer_{num_layers}x{width}")


def _activate(x, name):
    """GELU, then normalization over the batch, with a memory of ten steps.

    Keras' own default, 0.99, still holds the starting values after 300 steps.
    """
    x = keras.layers.Activation("gelu", name=f"{name}_gelu")(x)
    return keras.layers.BatchNormalization(momentum=0.9, name=f"{name}_norm")(x)
