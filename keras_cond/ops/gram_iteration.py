"""A chain of quintics by products of small Gram matrices, for long matrices.

For a of shape (r, c) the iterates p(S) are M a, where M of shape (r, r) is a product of
polynomials of Gram matrices. Within a stage the Gram matrix of the next iterate follows
from that of the last one; at the start of a stage it is taken anew from M a, because
what rounding did to it has grown by then. Its derivative has not, so that comes from
M a aᵀ Mᵀ, in products of small matrices.
"""

import numpy as np
from keras import ops

from keras_cond.ops.scale import gram

# Rounding in a Gram matrix grows by the square of this within a stage. So even products
# rounded to bfloat16 cannot make the iteration explode (at 130 they do), and those
# rounded to TF32 give what the iteration on the long matrix itself does.
GROWTH = 32


def lift(a, square, chain):
    """Returns the last iterate, of shape (..., r, c).

    Args:
        a: Float tensor of shape (..., r, c).
        square: Its Gram matrix a aᵀ.
        chain: From `quintics.quintic_chain`.
    """
    *_, gain, factor, lifted = _iterate(a, square, chain)
    return _with_value(gain @ a, ops.stop_gradient(factor) @ lifted)


def gram_matrices(a, square, chain):
    """Returns the Gram matrix of each iterate and its square.

    Args:
        a: As in `lift`.
        square: As in `lift`.
        chain: As in `lift`.

    Returns:
        List of pairs of tensors of shape (..., r, r), one more than quintics: before
        the first, ..., after the last.
    """
    pairs, step, *_ = _iterate(a, square, chain)
    last = step @ pairs[-1][0] @ step
    return [*pairs, (last, last @ last)]


def _iterate(a, square, chain):
    eye = ops.eye(square.shape[-1], dtype=a.dtype)
    pairs, start, lifted = [], square, ops.stop_gradient(a)
    gain = factor = step = None
    for quintics in _stages(chain):
        if gain is not None:
            lifted = ops.stop_gradient(factor) @ lifted
            square = gain @ start @ ops.swapaxes(gain, -1, -2)
            square = _with_value(square, gram(lifted))
        factor = None
        for first, third, fifth in quintics:
            if factor is not None:
                square = step @ square @ step
            fourth = square @ square
            pairs.append((square, fourth))
            step = first * eye + third * square + fifth * fourth
            factor = step if factor is None else step @ factor
        gain = factor if gain is None else factor @ gain
    return pairs, step, gain, factor, lifted


def _stages(chain):
    """Cuts a chain into parts that lift small numbers by at most `GROWTH` each."""
    stages, growth = [], np.inf
    for coefficients in chain:
        growth *= coefficients[0]
        if growth > GROWTH:
            stages.append([])
            growth = coefficients[0]
        stages[-1].append(coefficients)
    return stages


def _with_value(x, value):
    """Returns `value` with the derivative of `x`."""
    return x + ops.stop_gradient(value - x)
