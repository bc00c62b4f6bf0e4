"""Singular values, condition number and spectral norm, exactly."""

import keras
import numpy as np
from keras import ops

from keras_cond.ops.validation import (
    finite_number,
    float_tensor,
    is_empty,
)


def finite_or_zero(x):
    """Returns `x` with each matrix that has a NaN or infinity put to zero, and where.

    An SVD of such a matrix raises on TensorFlow and torch, and takes the whole batch
    with it.

    Args:
        x: Float tensor of shape (..., N, D).

    Returns:
        Tuple of the tensor, and of booleans of shape (..., 1, 1), true at finite ones.
    """
    finite = ops.all(ops.isfinite(x), axis=(-2, -1), keepdims=True)
    return ops.where(finite, x, ops.zeros_like(x)), finite


def singular_values(x):
    """Singular values of each matrix, largest first.

    Args:
        x: Float tensor of shape (..., N, D), real.

    Returns:
        Tensor of shape (..., min(N, D)) and the unit of `x`: float64 for float64,
        else float32. A matrix that holds a NaN or an infinity has NaN for each value;
        the other matrices of the batch keep theirs.

    Raises:
        ValueError: If `x` holds integers or has fewer than two dimensions.

    Example:

    >>> keras_cond.ops.singular_values(np.diag([1.0, 4.0, 2.0]))  # 4, 2, 1

    Reference: G. Golub, C. Van Loan, "Matrix Computations", section 2.4.
    """
    x, _ = float_tensor(x)
    x, finite = finite_or_zero(x)
    values = ops.svd(x, full_matrices=False, compute_uv=False)
    return ops.where(finite[..., 0], values, float("nan"))


def spectral_norm(x):
    """Spectral norm σ_max of each matrix: its largest singular value.

    Args:
        x: Float tensor of shape (..., N, D), real.

    Returns:
        Tensor of shape (...) and the unit of `x`: float64 for float64, else float32.

    Raises:
        ValueError: If `x` holds integers or has fewer than two dimensions.

    Example:

    >>> keras_cond.ops.spectral_norm(np.diag([1.0, 4.0, 2.0]))  # 4

    Reference: G. Golub, C. Van Loan, "Matrix Computations", section 2.3.
    """
    values = singular_values(x)
    if not values.shape[-1]:
        return ops.zeros(values.shape[:-1], dtype=values.dtype)
    return values[..., 0]


def condition_number(x, tolerance=None):
    """Condition number κ = σ_max / σ_min of each matrix, dimensionless.

    σ_min is the last of the min(N, D) singular values. One that rounding cannot tell
    from zero counts as zero, and κ of a singular matrix is infinite.

    Args:
        x: Float tensor of shape (..., N, D), real.
        tolerance: None, or a number in [0, 1). None: a value of at most
            max(N, D) · eps · σ_max is zero (the usual rule for the rank, eps of the
            dtype computed in), and then κ = inf. A number: values of at most
            tolerance · σ_max are left out, and κ is that of the others.

    Returns:
        Tensor of shape (...): float64 for float64, else float32. 1 at the least, inf
        for singular matrices (a zero matrix among them), NaN for a matrix with a NaN
        or an infinity.

    Raises:
        ValueError: If `x` holds integers or has fewer than two dimensions, or
            `tolerance` is not in [0, 1).

    Example:

    >>> keras_cond.ops.condition_number(np.diag([1.0, 4.0, 2.0]))  # 4
    >>> keras_cond.ops.condition_number(np.diag([1.0, 4.0, 0.0]))  # inf
    >>> keras_cond.ops.condition_number(np.diag([1.0, 4.0, 0.0]), tolerance=1e-3)  # 4

    Reference: G. Golub, C. Van Loan, "Matrix Computations", sections 2.6 and 5.4.
    """
    if tolerance is not None:
        tolerance = finite_number(tolerance, "tolerance")
        if not 0 <= tolerance < 1:
            raise ValueError(
                "`tolerance` is a fraction of the largest singular value. Received: "
                f"tolerance={tolerance}. Expected 0 <= tolerance < 1, or None."
            )
    x, _ = float_tensor(x)
    values = singular_values(x)
    if tolerance is not None:
        return extremes_ratio(values, tolerance, leave_out=True)
    return extremes_ratio(values, max(x.shape[-2:]) * rounding(values), leave_out=False)


def rounding(x):
    """Returns eps, the relative rounding error of the dtype of a tensor, as a float."""
    return float(np.finfo(keras.backend.standardize_dtype(x.dtype)).eps)


def extremes_ratio(values, fraction, leave_out):
    """Ratio of the largest to the smallest of some values.

    Args:
        values: Tensor of shape (..., r), not negative.
        fraction: float. Values of at most this fraction of the largest count as zero.
        leave_out: bool, whether zeros are left out. If not, they make the ratio inf.

    Returns:
        Tensor of shape (...); inf where all values are zero, NaN where one is NaN.
    """
    if is_empty(values):  # Backends refuse the maximum of nothing.
        return ops.zeros(values.shape[:-1], dtype=values.dtype)
    largest = ops.max(values, axis=-1, keepdims=True)
    counts = values > fraction * largest
    smallest = ops.min(ops.where(counts, values, largest), axis=-1, keepdims=True)
    some = ops.any if leave_out else ops.all
    regular = some(counts, axis=-1, keepdims=True)
    ratio = largest / ops.where(regular, smallest, 1.0)
    ratio = ops.where(regular, ratio, float("inf"))
    return ops.where(ops.isnan(largest), float("nan"), ratio)[..., 0]


def effective_rank(x):
    """Effective rank of each matrix: exp of the entropy of its singular values.

    exp(−Σ p_i log p_i) with p_i = σ_i / Σ σ_j: r for r equal singular values, 1 for a
    matrix of rank one.

    Args:
        x: Float tensor of shape (..., N, D), real.

    Returns:
        Tensor of shape (...), dimensionless, between 1 and min(N, D); 0 for a zero
        matrix and NaN for one with a NaN. float64 for float64, else float32.

    Raises:
        ValueError: If `x` holds integers or has fewer than two dimensions.

    Example:

    >>> keras_cond.ops.effective_rank(np.eye(3))  # 3

    Reference: O. Roy, M. Vetterli, "The effective rank", 2007.
    """
    values = singular_values(x)
    total = ops.sum(values, axis=-1, keepdims=True)
    zero = ops.equal(total, 0)
    p = values / ops.where(zero, 1.0, total)
    logarithm = ops.log(ops.where(ops.equal(p, 0), 1.0, p))
    rank = ops.exp(-ops.sum(p * logarithm, axis=-1))
    return ops.where(zero[..., 0], 0.0, rank)


def stable_rank(x):
    """Stable rank of each matrix: ‖X‖_F² / ‖X‖₂², its energy over the largest one's.

    Args:
        x: Float tensor of shape (..., N, D), real.

    Returns:
        Tensor of shape (...), dimensionless, between 1 and the rank; 0 for a zero
        matrix and NaN for one with a NaN. float64 for float64, else float32.

    Raises:
        ValueError: If `x` holds integers or has fewer than two dimensions.

    Example:

    >>> keras_cond.ops.stable_rank(np.diag([2.0, 1.0]))  # 1.25

    Reference: M. Rudelson, R. Vershynin, "Sampling from large matrices", 2007.
    """
    values = singular_values(x)
    largest = values[..., :1]
    ratio = values / ops.where(ops.equal(largest, 0), 1.0, largest)
    return ops.sum(ops.square(ratio), axis=-1)
