"""The polar factor of tall matrices, by products of small Gram matrices.

For a of shape (N, D) the iterates p(S) are a M, where M of shape (D, D) is a product of
polynomials of Gram matrices. Within a stage the Gram matrix of the next iterate follows
from that of the last one; at the start of a stage it is taken anew from a M, because
what rounding did to it has grown by then. Its changes have not, so the derivative needs
no stages: `newton_schulz` says why it is written out.

Whatever can be done to a small matrix is done there: of operations on N × D there are
nine products, and the scaling of X to unit size.
"""

from functools import cache

from keras import ops

from keras_cond.backends import accumulate, add_product, own_gradient
from keras_cond.ops.quintics import monic_chain, stages
from keras_cond.ops.scale import (
    inner,
    measured,
    peak_and_inverse,
    safe,
    transposed,
    with_transpose,
)


def tall_newton_schulz(x, chain, conditioned=False):
    """Returns polar(X), or X + σ_max(X) · polar(X) if `conditioned`.

    Args:
        x: Float tensor of shape (..., N, D), of any unit; cheap where N is far above D.
        chain: From `quintics.quintic_chain` for singular values relative to the
            largest.
        conditioned: bool.

    Returns:
        Tensor of the shape of `x`, with the derivative that `newton_schulz` has.
    """
    return _differentiable(chain, conditioned)(x)


@cache
def _differentiable(chain, conditioned):
    unit, _ = monic_chain(chain)

    def value_and_gradient(x):
        peak, inverse = peak_and_inverse(x)
        a = x * inverse
        square, fourth, size, norm, vector = measured(transposed(a), unit)
        last, factor, kept = lift(a, size, square, fourth, chain)
        if conditioned:
            value = add_product(x, last, factor * (norm * peak))
        else:
            value = last @ factor

        def gradient(given):
            # Later than the value: XLA would keep `a` from there.
            a = x * (inverse + 0 * given[..., :1, :1])
            cross = (transposed(a) @ given) / size
            gain, slope = change(cross, kept, chain)
            # What p(a / size) loses as σ_max and with it the size grow, relatively.
            growth = -inner(slope, square)
            if not conditioned:  # σ_max · p gains as much from the factor.
                growth = growth - inner(gain, cross)
            weight = norm if conditioned else inverse
            growth = (vector * (growth / safe(norm) ** 2)) @ transposed(vector)
            slope = weight * (slope / size**2 + growth)
            gain = (weight / size) * gain
            if conditioned:
                result = add_product(given, given, gain)
            else:
                result = given @ gain
            return accumulate(result, a, slope)

        return value, gradient

    return own_gradient(value_and_gradient)


def lift(a, size, square, fourth, chain):
    """The last iterate p(S / size), as a product of two matrices.

    Args:
        a: Float tensor of shape (..., N, D).
        size: Tensor of shape (..., 1, 1), over the unit of `monic_chain`.
        square: Gram matrix of a / size, (..., D, D).
        fourth: The square of that.
        chain: From `quintics.quintic_chain`.

    Returns:
        Tensors of shape (..., N, D) and (..., D, D), and a list of pairs of tensors
        (..., D, D), one for each quintic, which `change` needs.
    """
    eye = ops.eye(a.shape[-1], dtype=a.dtype)
    _, steps = monic_chain(chain)
    steps, kept = iter(steps), []
    factor = step = None
    for stage in stages(chain):
        if kept:
            a = a @ factor
            square = transposed(a) @ a
        factor = None
        for _ in stage:
            first, third = next(steps)
            if factor is not None:
                square = step @ square @ step
            step = first * eye + third * square
            step = accumulate(step, square, square) if kept else step + fourth
            factor = step if factor is None else factor @ step
            kept.append((square, step))
        if len(kept) == len(stage):  # The first one takes a / size.
            factor = factor / size
    return a, factor, kept


def change(cross, kept, chain):
    """How the last iterate of `lift` follows a change of `a`.

    Args:
        cross: Tensor (..., D, D): (a / size)ᵀ times the change of a / size.
        kept: From `lift`.
        chain: As there.

    Returns:
        Tensors `gain` and `slope` of shape (..., D, D): the change of the iterate is
        that of a / size times `gain`, and (a / size) · `slope`.
    """
    _, steps = monic_chain(chain)
    # Changes of the Gram matrix (bent), of step (turn) and of the product of all steps.
    bent = with_transpose(cross)
    gain = slope = None
    for (square, step), (_, third) in zip(kept, steps, strict=True):
        turn = with_transpose(add_product(bent, bent, square, third / 2))
        if gain is None:
            gain, slope = step, turn
        else:
            slope = accumulate(gain @ turn, slope, step)
            gain = gain @ step
        if step is not kept[-1][1]:
            bent = with_transpose(step @ accumulate(square @ turn, bent / 2, step))
    return gain, slope
