"""A chain of quintics by products of small Gram matrices, for long matrices.

For a of shape (r, c) the iterates p(S) are M a, where M of shape (r, r) is a product of
polynomials of Gram matrices. Within a stage the Gram matrix of the next iterate follows
from that of the last one; at the start of a stage it is taken anew from M a, because
what rounding did to it has grown by then. Its changes have not.
"""

import numpy as np
from keras import ops

from keras_cond.backends import add_product
from keras_cond.ops.quintics import monic_chain
from keras_cond.ops.scale import gram

# Rounding in a Gram matrix grows by the square of this within a stage. So even products
# rounded to bfloat16 cannot make the iteration explode (at 130 they do), and those
# rounded to TF32 give what the iteration on the long matrix itself does.
GROWTH = 32


def lift(a, square, fourth, chain):
    """Returns the last iterate, and what `change` needs of the others.

    Args:
        a: Float tensor of shape (..., r, c), over the unit of `monic_chain`.
        square: Its Gram matrix a aᵀ.
        fourth: The square of that.
        chain: From `quintics.quintic_chain`.

    Returns:
        Tuple of a tensor of the shape of `a` and a list of pairs of tensors of shape
        (..., r, r), one for each quintic.
    """
    eye = ops.eye(a.shape[-2], dtype=a.dtype)
    _, steps = monic_chain(chain)
    steps, kept = iter(steps), []
    factor = step = None
    for stage in _stages(chain):
        if kept:
            a = factor @ a
            square = gram(a)
        factor = None
        for _ in stage:
            first, third = next(steps)
            if factor is not None:
                square = step @ square @ step
            step = first * eye + third * square
            step = add_product(step, square, square) if kept else step + fourth
            kept.append((square, step))
            factor = step if factor is None else step @ factor
    return factor @ a, kept


def change(a, changed, kept, chain):
    """The change of the last iterate of `lift` for a change of `a`.

    Args:
        a: As in `lift`.
        changed: Tensor of the shape of `a`.
        kept: From `lift`.
        chain: As in `lift`.

    Returns:
        Tensor of the shape of `a`.
    """
    _, steps = monic_chain(chain)
    # Changes of the Gram matrix (bent), of step (turn) and of the product of all steps.
    bent = with_transpose(changed @ ops.swapaxes(a, -1, -2))
    gain = slope = None
    for (square, step), (_, third) in zip(kept, steps, strict=True):
        turn = with_transpose(bent @ square) + third * bent
        if gain is None:
            gain, slope = step, turn
        else:
            gain, slope = step @ gain, add_product(turn @ gain, step, slope)
        if step is not kept[-1][1]:
            bent = with_transpose(add_product(turn @ square, step, bent / 2) @ step)
    return add_product(gain @ changed, slope, a)


def with_transpose(x):
    """Returns x + xᵀ."""
    return x + ops.swapaxes(x, -1, -2)


def gram_matrices(a, square, fourth, chain):
    """Returns the Gram matrix of each iterate and its square.

    Args:
        a: Float tensor of shape (..., r, c).
        square: Its Gram matrix a aᵀ.
        fourth: The square of that.
        chain: From `quintics.quintic_chain`.

    Returns:
        List of pairs of tensors of shape (..., r, r), one more than quintics: before
        the first, ..., after the last.
    """
    eye = ops.eye(square.shape[-1], dtype=a.dtype)
    pairs, start, lifted = [], square, ops.stop_gradient(a)
    gain = factor = step = None
    for quintics in _stages(chain):
        if gain is not None:
            lifted = ops.stop_gradient(factor) @ lifted
            square = gain @ start @ ops.swapaxes(gain, -1, -2)
            # The value of the second with the derivative of the first.
            square = square + ops.stop_gradient(gram(lifted) - square)
        factor = None
        for first, third, fifth in quintics:
            if factor is not None:
                square = step @ square @ step
            fourth = square @ square if pairs else fourth
            pairs.append((square, fourth))
            step = first * eye + third * square + fifth * fourth
            factor = step if factor is None else step @ factor
        gain = factor if gain is None else factor @ gain
    last = step @ pairs[-1][0] @ step
    return [*pairs, (last, last @ last)]


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
