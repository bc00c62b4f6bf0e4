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

from keras_cond.backends import add_product, own_gradient
from keras_cond.ops import gram_iteration
from keras_cond.ops.gram_iteration import with_transpose
from keras_cond.ops.quintics import monic_chain
from keras_cond.ops.scale import bound_of, first_vector, frobenius, gram, safe


def newton_schulz(a, chain, scaled=False, long=False):
    """Returns the polar factor of `a`, times its largest singular value if `scaled`.

    Args:
        a: Float tensor of shape (..., r, c), r <= c for least work, with max|a| = 1.
        chain: From `quintics.quintic_chain` for singular values relative to the
            largest.
        scaled: bool.
        long: Whether to work on Gram matrices, which is cheaper where c is far above r.

    Returns:
        Tensor of the shape of `a`. It has a first derivative only: one of second order
        takes the matrices of the iteration as constants. On JAX there is none in
        forward mode.
    """
    return _differentiable(chain, scaled, long)(a)


@cache
def _differentiable(chain, scaled, long):
    unit, _ = monic_chain(chain)
    iterate, change = (
        (gram_iteration.lift, gram_iteration.change) if long else (_iterate, _change)
    )

    def value_and_gradient(a):
        square = gram(a)
        fourth = square @ square
        vector, schatten = first_vector(a, square, fourth)
        row = ops.swapaxes(vector, -1, -2) @ a
        norm = frobenius(row)
        size = unit * bound_of(norm, schatten)
        factor, kept = iterate(a / size, square / size**2, fourth / size**4, chain)

        def gradient(given):
            # XLA would start the iteration before it is needed, and keep all of it.
            late = size + 0 * given[..., :1, :1]
            result = change(a / late, given, kept, chain)
            # σ_max · p(a / size), where size grows with σ_max.
            slope = -ops.sum(result * a, axis=(-2, -1), keepdims=True) / size
            if scaled:
                result = result * (norm / size)
                slope = slope + ops.sum(given * factor, axis=(-2, -1), keepdims=True)
            else:
                result, slope = result / size, slope / safe(norm)
            return result + vector @ (row * (slope / safe(norm)))

        return norm * factor if scaled else factor, gradient

    return own_gradient(value_and_gradient)


def _iterate(a, square, fourth, chain):
    """As `gram_iteration.lift`, with a Gram matrix of every iterate; keeps nothing.

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
    return a, None


def _change(a, change, kept, chain):
    """As `gram_iteration.change`."""
    _, steps = monic_chain(chain)
    eye, last = _identity(a), len(steps) - 1
    for index, (first, third) in enumerate(steps):
        # first + third s² + s⁴ is a square and a constant.
        transposed = ops.swapaxes(a, -1, -2)
        square = add_product(eye, a, transposed, third / 2)
        factor = add_product(eye, square, square, first - (third / 2) ** 2)
        changed = with_transpose(change @ transposed)
        changed = with_transpose(changed @ square)
        change = add_product(factor @ change, changed, a)
        a = a if index == last else factor @ a
    return change


def _identity(a):
    size = a.shape[-2]
    return ops.eye(ops.shape(a)[-2] if size is None else size, dtype=a.dtype)
