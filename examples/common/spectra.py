"""Condition numbers of a model's tokens and of its attention matrices."""

import keras
import numpy as np

import keras_cond

# Blank patches and repeated words make the token matrix singular: directions below
# this part of the largest singular value are left out.
TOKEN_TOLERANCE = 1e-3


def token_condition_number(model, layer_name, inputs):
    """Median condition number of the tokens that enter a layer.

    Args:
        model: Functional `keras.Model`.
        layer_name: Name of a layer whose (first) input is tokens `(batch, N, D)`.
        inputs: Inputs of the model; the median is over them.

    Returns:
        Float (dimensionless), of the singular values above `TOKEN_TOLERANCE` times
        the largest.
    """
    entering = keras.tree.flatten(model.get_layer(layer_name).input)[0]
    to_tokens = keras.Model(model.input, entering)
    tokens = to_tokens(inputs, training=False)
    return _median(keras_cond.ops.condition_number(tokens, TOKEN_TOLERANCE))


def attention_condition_numbers(model):
    """Condition numbers of the query, key and value matrices that act.

    Args:
        model: Built `keras.Model`.

    Returns:
        `{"query" | "key" | "value": {"per_head": float, "joint": float}}`: the median
        over layers and heads for the D x d matrix of one head, and the median over
        layers for the D x (H d) matrix of all heads. `inf` is a singular matrix.
    """
    layers = keras_cond.diagnostics.inspect(model).layers
    numbers = {}
    for role in ("query", "key", "value"):
        spectra = [getattr(layer, role) for layer in layers]
        numbers[role] = {
            "per_head": _median([k for s in spectra for k in s.per_head]),
            "joint": _median([s.joint for s in spectra]),
        }
    return numbers


def _median(numbers):
    return float(np.median(keras.ops.convert_to_numpy(numbers)))
