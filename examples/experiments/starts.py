"""Starting values of attention that only the experiments need: controls.

Each function returns a scheme for `keras_cond.initialize`.
"""

import numpy as np
from keras import ops

import keras_cond

_ROLES = ("query", "key", "value")


def unit_spectral(correction_scale, per_head=True):
    """W + λI, scaled head by head to the norm of a semi-orthogonal matrix.

    Its norms are those of the `"gaussian"` control, so that what differs between the
    two is the shape alone.

    Args:
        correction_scale: λ.
        per_head: Whether each head's D × d matrix gets an identity, or all heads
            together one.
    """

    def scheme(attention, index, rng):
        matrices = {}
        for role in _ROLES:
            kernel = getattr(attention, role).read()
            kernel = kernel + correction_scale * _identity(kernel.shape, per_head)
            norms = np.linalg.norm(kernel, axis=(1, 2), keepdims=True)
            matrices[role] = kernel * (np.sqrt(min(kernel.shape[1:])) / norms)
        return matrices

    return scheme


def polar(per_head=True):
    """The exact correction as a start: W + C, where C is σ_max times the polar factor.

    Args:
        per_head: Whether W is each head's D × d matrix, or that of all heads.
    """

    def scheme(attention, index, rng):
        return {
            role: _corrected(getattr(attention, role).read(), per_head)
            for role in _ROLES
        }

    return scheme


def polar_norm(per_head=True):
    """W scaled to the norm of the exact correction W + C: the scale alone.

    Args:
        per_head: Whether W is each head's D × d matrix, or that of all heads.
    """

    def scheme(attention, index, rng):
        matrices = {}
        for role in _ROLES:
            kernel = getattr(attention, role).read()
            corrected = _corrected(kernel, per_head)
            axes = (1, 2) if per_head else (0, 1, 2)
            matrices[role] = kernel * np.sqrt(
                (corrected**2).sum(axes, keepdims=True)
                / (kernel**2).sum(axes, keepdims=True)
            )
        return matrices

    return scheme


STARTS = {"unit_spectral": unit_spectral, "polar": polar, "polar_norm": polar_norm}


def _identity(shape, per_head):
    """The rectangular identity as (heads, D, d) matrices."""
    heads, size, width = shape
    initializer = keras_cond.RectangularIdentity(per_head=per_head, num_heads=heads)
    kernel = ops.convert_to_numpy(initializer((size, heads, width)))
    return kernel.transpose(1, 0, 2)


def _corrected(kernel, per_head):
    heads, size, width = kernel.shape
    if per_head:
        return ops.convert_to_numpy(keras_cond.ops.condition(kernel))
    joint = kernel.transpose(1, 0, 2).reshape(size, heads * width)
    joint = ops.convert_to_numpy(keras_cond.ops.condition(joint))
    return joint.reshape(size, heads, width).transpose(1, 0, 2)
