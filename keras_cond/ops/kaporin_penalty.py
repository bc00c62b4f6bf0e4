"""Logarithm of Kaporin's condition number, a smooth measure of a spectrum's spread."""

from keras import ops

from keras_cond.ops.scale import gram, norm_and_bound, unit_peak
from keras_cond.ops.spectrum import finite_or_zero
from keras_cond.ops.validation import (
    float_tensor,
    is_empty,
    penalty_floor,
)


def kaporin_penalty(x, floor=1e-2):
    """Penalty on unequal singular values, 0 exactly where all of them are equal.

    For the r × r Gram matrix G on the smaller side of X, divided by σ_max², and
    Gδ = G + floor² · I,
      β = log(tr(Gδ)/r) − (1/r) log det Gδ,
    the logarithm of the arithmetic over the geometric mean of (s_i/σ_max)² + floor².
    It does not depend on the scale of X. exp(r β) is Kaporin's condition number of Gδ.
    With κδ = √((1 + floor²) / ((s_min/σ_max)² + floor²)), which is κ(X) as long as that
    is well below 1/floor,
      (2/r) · log((κδ + 1/κδ)/2) ≤ β ≤ 2 · log κδ.
    So β bounds κ from both sides, but unlike κ it counts every singular value, and has
    a derivative where they coincide: 0 where all do, and at most 3/floor for X with
    σ_max = 1. At a null direction the derivative is 0 in that direction: a penalty
    cannot turn a matrix of exactly deficient rank into a regular one
    (`limit_condition` can).

    Args:
        x: Float tensor of shape (..., N, D), of any unit.
        floor: float in [2e-3, 1), a fraction of σ_max: singular values below it count
            as about equal. The default, 1e-2, tells κ up to 100 apart; float32 carries
            no less than 2e-3.

    Returns:
        Tensor of shape (...), dimensionless: float64 for float64, else float32. 0 for
        a zero matrix (with a zero derivative), NaN for one with a NaN or an infinity.

    Raises:
        ValueError: If `x` holds integers or has fewer than two dimensions, or `floor`
            is not as above.

    Example:

    >>> keras_cond.ops.kaporin_penalty(3 * np.eye(4))  # 0
    >>> keras_cond.ops.kaporin_penalty(np.diag([1.0, 0.5]))  # log(1.25) = 0.22

    Reference: I. Kaporin, "New convergence results and preconditioning strategies for
    the conjugate gradient method", 1994.
    """
    floor = penalty_floor(floor)
    x, _ = float_tensor(x)
    if is_empty(x):  # Backends refuse the maximum of nothing.
        return ops.zeros(x.shape[:-2], dtype=x.dtype)
    x, finite = finite_or_zero(x)
    if x.shape[-2] > x.shape[-1]:
        x = ops.swapaxes(x, -1, -2)
    rows, columns = x.shape[-2:]
    x, _ = unit_peak(x)
    # A zero matrix has equal singular values: the identity stands in for it.
    zero = ops.all(ops.equal(x, 0), axis=(-2, -1), keepdims=True)
    x = ops.where(zero, ops.eye(rows, columns, dtype=x.dtype), x)
    square = gram(x)
    norm, _ = norm_and_bound(x, square, square @ square)
    raised = gram(x / norm) + floor**2 * ops.eye(rows, dtype=x.dtype)
    mean = ops.mean(ops.diagonal(raised, axis1=-2, axis2=-1), axis=-1)
    root = ops.diagonal(ops.cholesky(raised), axis1=-2, axis2=-1)
    penalty = ops.log(mean) - 2 * ops.mean(ops.log(root), axis=-1)
    return ops.where(finite[..., 0, 0], penalty, float("nan"))
