"""Singular values lifted to a fraction of the largest, by matrix products alone."""

import numpy as np
from keras import ops

from keras_cond.backends import spread
from keras_cond.ops.polar import WIDEST, on_smaller_side
from keras_cond.ops.quintics import quintic_chain
from keras_cond.ops.scale import (
    LOOSENESS,
    frobenius,
    gram,
    norm_and_bound,
    safe,
    unit_peak,
)
from keras_cond.ops.validation import (
    check_limit,
    float_tensor,
    is_empty,
)

# Floors of the polar factors, as a fraction of the singular value aimed at. Directions
# below the floor may be paired wrongly, which shifts their value by twice their size.
FLOOR = 1e-3
# Floors no smaller than this: rounding errors have about this size.
LEAST_FLOOR = 1e-6
# A matrix that would have to be lifted by less than this fraction is left alone.
SLACK = 3e-4
# A prime whose square fits in 32 bits; see `completion`.
PRIME = 46_337


def limit_condition(x, limit):
    """Limits the condition number: singular values s_i become max(s_i, σ_max/limit).

    With the polar decomposition W = H P on the smaller side, P = U Vᵀ and H = U S Uᵀ,
      W' = W + σ_max · relu(I/limit − H/σ_max) P, relu(A) = (A + |A|)/2,
    where |A| = A polar(A), so that matrix products do for everything. The singular
    vectors stay. Where they are not unique (repeated columns, zero rows), P is
    completed by a fixed matrix without particular directions, so that κ is bounded
    whatever the rank.

    κ(W') ≤ limit · (1 + 1e-3) for a limit up to 1e3 (rounding in float32 makes it
    1e-2 at 1e4), as long as σ_max is known that well: many singular values crowding
    near the largest may cost another 0.3 %. A matrix that keeps the limit comes out
    unchanged, bit for bit. Storing the result in half precision rounds it again, which
    moves each singular value by about 4e-3 σ_max (bfloat16) or 5e-4 σ_max (float16):
    there the limit cannot hold much beyond 100 or 1000. The same goes for matrix
    products in reduced precision: GPUs round those of float32 to TF32 on TensorFlow and
    JAX by default, which counts as float16 here.

    Args:
        x: Float tensor of shape (..., N, D), of any unit.
        limit: float in (1, 1e4], dimensionless. float32 carries no more.

    Returns:
        Tensor of the shape, dtype and unit of `x`. Computed in float32, or in float64
        for float64. A zero matrix stays zero; one with a NaN or an infinity comes out
        as it is. The derivative is that of the identity: the correction is constant.

    Raises:
        ValueError: If `x` holds integers, has fewer than two dimensions or has a number
            of rows or columns that is not known yet, or `limit` is not as above.

    Example:

    >>> x = np.diag([1.0, 0.5, 0.01, 0.0])
    >>> keras_cond.ops.limit_condition(x, 10.0)  # 1, 0.5, 0.1, 0.1

    Reference: N. Higham, "Functions of Matrices", chapter 8.
    """
    limit = check_limit(limit)
    x, dtype = float_tensor(x)
    if None in x.shape[-2:]:
        raise ValueError(
            "The numbers of rows and columns must be known. Received: "
            f"shape={tuple(x.shape)}. Expected (..., N, D) with integers N and D, such "
            "as those of a built kernel."
        )
    if is_empty(x):  # Backends refuse the maximum of nothing.
        return ops.cast(x, dtype)
    fixed = ops.stop_gradient(x)
    lift = on_smaller_side(fixed, lambda w: _lift(w, limit))
    return ops.cast(x + ops.stop_gradient(lift), dtype)


def _lift(w, limit):
    """What is to be added to `w` of shape (..., r, c), r <= c."""
    least = 1 / limit
    floor = max(FLOOR * least, LEAST_FLOOR)
    w, peak = unit_peak(w)
    square = gram(w)
    norm, bound = norm_and_bound(w, square, square @ square)
    factor = _completed(_unit_values(w / bound, floor / LOOSENESS))
    symmetric = (w / safe(norm)) @ ops.swapaxes(factor, -1, -2)
    symmetric = (symmetric + ops.swapaxes(symmetric, -1, -2)) / 2
    missing = least * ops.eye(w.shape[-2], dtype=w.dtype) - symmetric
    # Its eigenvalues are between -1 and 1.
    sign = _unit_values(missing / LOOSENESS, floor)
    # Projecting from both sides squares the error of the sign where it is negative.
    projector = (ops.eye(w.shape[-2], dtype=w.dtype) + sign) / 2
    missing = projector @ missing @ projector
    lifts = frobenius(missing) > SLACK * least  # False for NaN.
    return ops.where(lifts, (peak * norm) * (missing @ factor), 0.0)


def _completed(partial):
    """Returns a matrix with orthonormal rows that continues a partial isometry.

    Args:
        partial: Tensor P of shape (..., r, c) with singular values in [0, 1]. Where
            they are 1 it stays.
    """
    rows, columns = partial.shape[-2:]
    fill = spread(ops.cast(completion(rows, columns), partial.dtype), partial)
    fill = fill - gram(partial) @ fill
    fill = fill - (fill @ ops.swapaxes(partial, -1, -2)) @ partial
    # Where P has the singular value p, the rest has (1 - p²)² at most: together less
    # than 1.14.
    return _unit_values((partial + fill) / 1.25, LEAST_FLOOR)


def _unit_values(a, floor):
    """Returns the polar factor with a floor, as `polar`, of a matrix of norm below 1.

    The steps are a loop, which compiles quickly: there may be a hundred kernels.

    Args:
        a: Tensor of shape (..., r, c), r <= c, with singular values of at most 1/1.01.
        floor: float, in the unit of `a`.
    """
    chain = quintic_chain(floor, WIDEST)
    coefficients = ops.convert_to_tensor(np.array(chain), dtype=a.dtype)

    def step(index, a):
        first, third, fifth = ops.unstack(ops.take(coefficients, index, axis=0), 3)
        square = gram(a)
        return first * a + (third * square + fifth * (square @ square)) @ a

    return ops.fori_loop(0, len(chain), step, a)


def completion(rows, columns):
    """A full-rank matrix without particular directions, the same on every backend.

    cas(2π a_i b_j / p), cas = cos + sin, for a large prime p and scattered integers a
    and b: some rows and columns of the orthogonal Hartley matrix of size p. It is
    computed where it is used; a stored one would go into every compiled step.

    Returns:
        Float32 tensor of shape (rows, columns), with a largest singular value of about
        1 and a smallest one mostly above 1e-4.
    """
    squares = np.arange(1, max(rows, columns) + 1, dtype="int64") ** 2
    a = (3_571 * squares[:rows] % PRIME).astype("int32")
    b = ((1_234 * squares[:columns] + 77) % PRIME).astype("int32")
    residue = ops.convert_to_tensor(a[:, None]) * ops.convert_to_tensor(b[None]) % PRIME
    angle = ops.cast(residue, "float32") * (2 * np.pi / PRIME)
    return (ops.cos(angle) + ops.sin(angle)) / (rows**0.5 + columns**0.5)
