"""The polar factor by matrix products, with its derivative written out.

Differentiated operation by operation, each step would keep three matrices for the way
back, on XLA their transposes too: in all some forty times the input. Here none is kept.
The polar factor with a floor is an odd function of the singular values, and the
derivative of such a function is its own adjoint: what takes a change of the input to
one of the result also takes a gradient back. So it runs from the first step to the
last, beside the iteration itself; and since changes of Gram matrices are symmetric, it
takes half their products. Together this costs as much as the usual way.
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
        value = _iterate(a / size, square, fourth, chain)
        if conditioned:
            value = x + (norm * peak) * value

        def gradient(given):
            # XLA would start the iteration before it is needed, and keep all of it.
            late = 0 * given[..., :1, :1]
            a = x * ((inverse + late) / size)
            result = _change(a, given, chain)
            # What p(a / size) loses as σ_max and with it the size grow, relatively.
            growth = -inner(result, a)
            if conditioned:  # And what σ_max · p gains.
                growth = growth + inner(given, (value - x) / (safe(norm) * peak))
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
    """Returns the last iterate, for a matrix over the unit of `monic_chain`.

    Equal rows of `a` have equal rows in every product, to the last bit.
    """
    _, steps = monic_chain(chain)
    for index, (first, third) in enumerate(steps):
        if index:
            square = gram(a)
            factor = add_product(square, square, square, third)
        else:
            factor = third * square + fourth
        a = add_product(a, factor, a, first)
    return a


def _change(a, change, chain):
    """The change of the last iterate for a change of `a`."""
    _, steps = monic_chain(chain)
    eye, last = _identity(a), len(steps) - 1
    for index, (first, third) in enumerate(steps):
        # first + third s² + s⁴ is a square and a constant.
        square = add_product(eye, a, transposed(a), third / 2)
        factor = add_product(eye, square, square, first - (third / 2) ** 2)
        changed = with_transpose(change @ transposed(a))
        changed = with_transpose(changed @ square)
        change = accumulate(factor @ change, changed, a)
        a = a if index == last else factor @ a
    return change


def _identity(a):
    size = a.shape[-2]
    return ops.eye(ops.shape(a)[-2] if size is None else size, dtype=a.dtype)
