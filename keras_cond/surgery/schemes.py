"""Values for the projections of an attention layer, by the name of their scheme.

A scheme is a function (attention, index, rng) → dict from "query", "key", "value" or
"output" to matrices of the shape of that projection. `index` counts the layers of the
model and `rng` is a `numpy.random.Generator` of the layer's own, so that a seed gives
the same values on every backend. One that cannot do a layer raises `UnreadableError`.
"""

import numpy as np

from keras_cond.ops.dct import constant_basis
from keras_cond.projections.unreadable import UnreadableError

# Mimetic initialization: weights of the noise and the identity, for W_Q W_Kᵀ and
# W_V W_O, as in the authors' code.
QUERY_KEY, VALUE_OUTPUT = 0.7, 0.4


def identities(shape, per_head):
    """Returns the rectangular identity as matrices.

    Args:
        shape: (heads, D, d).
        per_head: bool; False for that of the D × (heads · d) matrix.
    """
    heads, size, width = shape
    if per_head:
        return np.broadcast_to(np.eye(size, width), shape)
    return side_by_side(np.eye(size, heads * width), heads)


def side_by_side(joint, heads):
    """Returns the (heads, D, d) matrices of a D × (heads · d) one."""
    size, columns = joint.shape
    return joint.reshape(size, heads, columns // heads).transpose(1, 0, 2)


def conditioned(per_head):
    """Semi-orthogonal queries and keys head by head, an identity for the values."""

    def scheme(attention, index, rng):
        return {
            "query": _semi_orthogonal(rng, attention.query.shape),
            "key": _semi_orthogonal(rng, attention.key.shape),
            "value": identities(attention.value.shape, per_head),
        }

    return scheme


def gaussian(per_head):
    """Noise with the Frobenius norms of `conditioned`, head by head: its control."""

    def scheme(attention, index, rng):
        matrices = {}
        for role, joint in (("query", False), ("key", False), ("value", not per_head)):
            heads, size, width = shape = getattr(attention, role).shape
            noise = rng.standard_normal(shape)
            if joint:
                norm = np.sqrt(min(size, heads * width))
                matrices[role] = noise * (norm / np.linalg.norm(noise))
            else:
                norms = np.linalg.norm(noise, axis=(1, 2), keepdims=True)
                matrices[role] = noise * (np.sqrt(min(size, width)) / norms)
        return matrices

    return scheme


def mimetic(attention, index, rng):
    """Mimetic initialization: W_Q W_Kᵀ ≈ 0.7 (Z + I) and W_V W_O ≈ 0.4 (Z − I)."""
    if attention.output is None:
        raise UnreadableError("its output projection is not one matrix a head")
    queries, keys = _mimetic_queries_and_keys(attention, rng)
    values, outputs = _mimetic_values_and_outputs(attention, rng)
    return {"query": queries, "key": keys, "value": values, "output": outputs}


def dct(attention, index, rng):
    """The orthonormal DCT basis as the D × (heads · d) matrix."""
    matrices = {}
    for role in ("query", "key", "value"):
        heads, size, width = getattr(attention, role).shape
        columns = heads * width
        basis = constant_basis(max(size, columns))[: min(size, columns)]
        matrices[role] = side_by_side(basis.T if size >= columns else basis, heads)
    return matrices


def spectral(correction_scale, per_head):
    """The kernels there are, plus λ times the rectangular identity."""

    def scheme(attention, index, rng):
        return {
            role: projection.read()
            + correction_scale * identities(projection.shape, per_head)
            for role, projection in (
                ("query", attention.query),
                ("key", attention.key),
                ("value", attention.value),
            )
        }

    return scheme


def _semi_orthogonal(rng, shape):
    u, _, vt = np.linalg.svd(rng.standard_normal(shape), full_matrices=False)
    return u @ vt


def _mimetic_queries_and_keys(attention, rng):
    """Heads that share a key fit their queries to it, each to noise of its own."""
    heads, rows, width = attention.query.shape
    groups, columns, _ = attention.key.shape
    queries = np.zeros((heads, rows, width))
    keys = np.zeros((groups, columns, width))
    for head in range(heads):
        product = QUERY_KEY * (_noise(rng, rows, columns) + np.eye(rows, columns))
        group, first = divmod(head, heads // groups)
        if first == 0:
            keys[group] = _factors(product, width, rng)[1].T
        queries[head] = product @ np.linalg.pinv(keys[group]).T
    return queries, keys


def _mimetic_values_and_outputs(attention, rng):
    """Heads that share a value divide its part of the product among them."""
    groups, rows, width = attention.value.shape
    heads, _, columns = attention.output.shape
    product = VALUE_OUTPUT * (_noise(rng, rows, columns) - np.eye(rows, columns))
    left, right = _factors(product, groups * width, rng)
    outputs = right.reshape(groups, width, columns) * (groups / heads)
    return side_by_side(left, groups), np.repeat(outputs, heads // groups, axis=0)


def _noise(rng, rows, columns):
    return rng.standard_normal((rows, columns)) / np.sqrt(columns)


def _factors(product, width, rng):
    """L (rows × width) and R (width × columns), with L R the best such product.

    With more columns than the product has rank, both factors are spread over all of
    them by a random semi-orthogonal matrix: none is dead.
    """
    u, s, vt = np.linalg.svd(product, full_matrices=False)
    u, s, vt = u[:, :width], np.sqrt(s[:width]), vt[:width]
    left, right = u * s, s[:, None] * vt
    if width > len(s):
        spread = _semi_orthogonal(rng, (len(s), width))
        left, right = left @ spread, spread.T @ right
    return left, right
