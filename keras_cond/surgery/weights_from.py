"""Weight selection: a model starts with weights of a larger, trained one."""

import numpy as np

from keras_cond.projections import find_attention
from keras_cond.surgery.changes import ROLES


def weights_from(larger_model):
    """Makes a scheme for `initialize` that selects weights of a larger model.

    Layer i of the model gets those of layer i of the larger one (its first layers), and
    of each matrix evenly spaced heads, rows and columns: entry j of n out of m is the
    one at ⌊j m / n⌋. The effective matrices are selected, corrections and LoRA
    included; into a `SpectralAttention` they go as W, and its C acts on top. Only
    attention kernels are: no biases, embeddings or other layers.

    Args:
        larger_model: A built Keras model with at least as many attention layers, heads
            and channels.

    Returns:
        A scheme, to be passed to `keras_cond.initialize`.

    Raises:
        ValueError: If the model is not built or has no attention. The scheme raises one
            if the larger model is smaller anywhere.

    Example:

    >>> def block(width):
    ...     inputs = keras.Input((4, width))
    ...     layer = keras.layers.MultiHeadAttention(num_heads=2, key_dim=width // 2)
    ...     return keras.Model(inputs, layer(inputs, inputs))
    >>> model = block(4)
    >>> report = keras_cond.initialize(model, keras_cond.weights_from(block(8)))

    Reference: Z. Xu et al., "Initializing Models with Larger Ones", ICLR 2024,
    arXiv:2311.18823, uniform element selection from the first layers.
    """
    sources = find_attention(larger_model)
    name = larger_model.name
    if not sources:
        raise ValueError(
            "Weights are selected from attention layers. Received: the model "
            f"{name!r} without any that can be read."
        )

    def scheme(attention, index, rng):
        if index >= len(sources):
            raise ValueError(
                "Weight selection takes the first layers of a larger model. Received: "
                f"{name!r} with {len(sources)} attention layers, for layer number "
                f"{index + 1}. Pass a model with as many layers or more."
            )
        matrices = {}
        for role in ROLES:
            target, source = getattr(attention, role), getattr(sources[index], role)
            if target is not None and source is not None:
                matrices[role] = _selected(source.effective(), target.shape, role, name)
        return matrices

    return scheme


def _selected(matrices, shape, role, name):
    for axis, (count, total) in enumerate(zip(shape, matrices.shape, strict=True)):
        if count > total:
            raise ValueError(
                "Weight selection needs a model that is larger in every dimension. "
                f"Received: {role} matrices (heads, rows, columns) of shape "
                f"{matrices.shape} in {name!r}. Expected: at least {tuple(shape)}."
            )
        matrices = np.take(matrices, np.arange(count) * total // count, axis=axis)
    return matrices
