"""κ and attention entropy of a model, as they go into the lines."""

import keras
import numpy as np

import keras_cond


def measure(model, probes):
    """Measure a model on a few inputs.

    Args:
        model: Functional `keras.Model` whose blocks are layers named `block_0_...`.
        probes: Inputs of the model.

    Returns:
        Dict of floats, medians over layers, heads and inputs: `entropy` (nats; and
        `entropy_min`, the least of any head and input), κ of the matrices of the heads
        (`kappa_head_query`) and of all heads (`kappa_joint_query`), of the tokens that
        enter attention (`kappa_tokens`) and of attention matrices
        (`kappa_attention`); the median over inputs of κ of what leaves each block
        (`kappa_block_0`). A model without attention has only the last.
    """
    report = keras_cond.diagnostics.inspect(model, probes)
    numbers = {}
    if report.layers:
        for role in ("query", "key", "value"):
            spectra = [getattr(layer, role) for layer in report.layers]
            numbers[f"kappa_head_{role}"] = _median([s.per_head for s in spectra])
            numbers[f"kappa_joint_{role}"] = _median([s.joint for s in spectra])
        entropies = [layer.entropy for layer in report.layers]
        numbers["entropy"] = _median(entropies)
        numbers["entropy_min"] = float(np.min(entropies))
        for what in ("tokens", "attention"):
            values = [getattr(layer, what) for layer in report.layers]
            numbers[f"kappa_{what}"] = _median(values)
    for index, tokens in enumerate(_block_outputs(model, probes)):
        numbers[f"kappa_block_{index}"] = _median([_kappa(one) for one in tokens])
    return numbers


def _block_outputs(model, probes):
    """What leaves each block, as arrays (inputs, tokens, channels)."""
    outputs = keras.Model(model.input, _block_tensors(model))(probes, training=False)
    arrays = [keras.ops.convert_to_numpy(tokens) for tokens in outputs]
    return [array.reshape(len(array), -1, array.shape[-1]) for array in arrays]


def _block_tensors(model):
    """The inputs of the first layer of each next block, and of the head."""
    starts = {}
    for layer in model.layers:
        part = "_".join(layer.name.split("_")[:2])
        if part.startswith("block_") or part.startswith("head_"):
            starts.setdefault("head" if part.startswith("head_") else part, layer)
    return [keras.tree.flatten(layer.input)[0] for layer in [*starts.values()][1:]]


def _kappa(tokens):
    values = np.linalg.svd(tokens.astype("float64"), compute_uv=False)
    smallest = values[0] * np.finfo("float32").eps
    return float(values[0] / values[-1]) if values[-1] > smallest else float("inf")


def _median(values):
    return float(np.median(np.concatenate([np.ravel(value) for value in values])))
