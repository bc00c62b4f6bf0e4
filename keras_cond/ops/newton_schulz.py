"""The polar factor by matrix products, with its derivative written out.

Differentiated operation by operation, each step would keep three matrices for the way
back, on XLA their transposes too: in all some forty times the input. The polar factor
with a floor is an odd function of the singular values, and the derivative of such a
function is its own adjoint: what takes a change of the input to one of the result also
takes a gradient back. So it runs from the first step to the last, beside the iteration
itself, which need not be kept; and since changes of Gram matrices are symmetric, it
takes half their products. Each matrix that is kept after all saves the product that
makes it: those of the first step and of the last two are, eight in all.
"""

from functools import cache

from keras import ops

from keras_cond.backends import accumulate, add_product, own_gradient
from keras_cond.ops.quintics import monic_chain
from keras_cond.ops.scale import (
    gram,
    inner,
    measured,
    peak_and_inverse,
    safe,
    transposed,
    with_transpose,
)


def newton_schulz(x, chain, conditioned=False):
    """Returns polar(X), or X + σ_max(X) · polar(X) if `conditioned`.

    Args:
        x: Float tensor of shape (..., r, c), r <= c for least work, of any unit.
        chain: From `quintics.quintic_chain` for singular values relative to the
            largest.
        conditioned: bool.

    Returns:
        Tensor of the shape of `x`. It has a first derivative only: one of second order
        takes the matrices of the iteration as constants. On JAX there is none in
        forward mode.
    """
    return _differentiable(chain, conditioned)(x)


@cache
def _differentiable(chain, conditioned):
    unit, _ = monic_chain(chain)

    def value_and_gradient(x):
        peak, inverse = peak_and_inverse(x)
        a = x * inverse
        square, fourth, size, norm, vector = measured(a, unit)
        value, kept = _iterate(a / size, square, fourth, chain)
        if conditioned:
            value = x + (norm * peak) * value
        # On PyTorch the result leads back here: a circle, which waits to be collected.
        same = ops.stop_gradient(value)

        def gradient(given):
            # XLA would start the iteration before it is needed, and keep all of it.
            late = 0 * given[..., :1, :1]
            a = x * ((inverse + late) / size)
            result = _change(a, given, kept, chain)
            # What p(a / size) loses as σ_max and with it the size grow, relatively.
            growth = -inner(result, a)
            if conditioned:  # And what σ_max · p gains.
                growth = growth + inner(given, (same - x) / (safe(norm) * peak))
            weight = norm if conditioned else inverse
            result = (weight / size) * result
            if conditioned:
                result = given + result
            row = transposed(vector) @ a
            row = row * (weight * size * growth / safe(norm) ** 2)
            return accumulate(result, vector, row)

        return value, gradient

    return own_gradient(value_and_gradient)


def _iterate(a, square, fourth, chain):
    """The last iterate, and what `_change` needs of the way there.

    Args:
        a: The matrix over the unit of `monic_chain`.
        square: Its Gram matrix.
        fourth: The square of that.
        chain: From `quintics.quintic_chain`.

    Returns:
        The iterate, whose rows are equal to the last bit where those of `a` are; and a
        dict from the index of a step to its iterate (None for the first), Gram matrix
        and factor.
    """
    _, steps = monic_chain(chain)
    kept = {}
    for index, (first, third) in enumerate(steps):
        if index:
            square, factor = _gram_and_factor(a, third)
        else:
            factor = third * square + fourth
        if index in (0, len(steps) - 2, len(steps) - 1):
            kept[index] = (a if index else None, square, factor)
        a = add_product(a, factor, a, first)
    return a, kept


def _change(a, change, kept, chain):
    """The change of the last iterate for a change of `a`."""
    _, steps = monic_chain(chain)
    for index, (first, third) in enumerate(steps):
        if index in kept:
            known, square, factor = kept[index]
            a = a if known is None else known
        else:
            square, factor = _gram_and_factor(a, third)
        bent = with_transpose(change @ transposed(a))
        turn = with_transpose(add_product(bent, bent, square, third / 2))
        change = accumulate(add_product(change, factor, change, first), turn, a)
        if index + 1 not in kept and index + 1 < len(steps):
            a = add_product(a, factor, a, first)
    return change


def _gram_and_factor(a, third):
    """The Gram matrix S of `a`, and third · S + S²; the step adds first · I to that."""
    square = gram(a)
    return square, add_product(square, square, square, third)
