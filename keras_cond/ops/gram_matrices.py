"""The Gram matrices of the iterates of a chain of quintics.

Within a stage each follows from the last one. At the start of a stage it is taken anew
from the iterate itself, because what rounding did to it has grown by then.
"""

from keras import ops

from keras_cond.ops.quintics import stages
from keras_cond.ops.scale import gram


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
    for quintics in stages(chain):
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
