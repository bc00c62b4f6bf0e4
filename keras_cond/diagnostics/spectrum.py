"""Singular values and condition numbers in float64 NumPy, whatever the backend."""

import numpy as np


def spectrum(matrices):
    """Singular values of each matrix, largest first, computed in float64.

    Args:
        matrices: NumPy array of shape (..., N, D) and any float dtype.

    Returns:
        Float64 array of shape (..., min(N, D)); NaN for a matrix that holds a NaN or
        an infinity.
    """
    matrices = np.asarray(matrices).astype("float64")
    finite = np.isfinite(matrices).all(axis=(-2, -1), keepdims=True)
    values = np.linalg.svd(np.where(finite, matrices, 0.0), compute_uv=False)
    return np.where(finite[..., 0], values, np.nan)


def tolerance(matrices):
    """The part of σ_max up to which a singular value counts as zero.

    Numbers kept in 32 bits or fewer carry eps = 1.2e-7: a matrix of lower rank, rounded
    to them, has singular values just below that in place of its zeros. For float64 it
    is the usual max(N, D) · eps of a float64 SVD.

    Args:
        matrices: NumPy array of shape (..., N, D).
    """
    rounding = max(matrices.shape[-2:]) * np.finfo("float64").eps
    if matrices.dtype == np.float64:
        return rounding
    return max(rounding, float(np.finfo("float32").eps))


def kappa_of_spectrum(values, zero):
    """κ = σ_max / σ_min from singular values, without a warning whatever they are.

    Args:
        values: Float64 array of shape (..., r), largest first.
        zero: float, see `tolerance`.

    Returns:
        Float64 array of shape (...): inf where σ_min ≤ zero · σ_max (a zero matrix is
        such a one), NaN where the values are.
    """
    largest, smallest = values[..., 0], values[..., -1]
    regular = smallest > zero * largest
    kappa = np.where(regular, largest / np.where(regular, smallest, 1.0), np.inf)
    return np.where(np.isnan(largest), np.nan, kappa)


def kappa(matrices):
    """κ of each matrix: float64 array of shape (...) for one of shape (..., N, D)."""
    matrices = np.asarray(matrices)
    return kappa_of_spectrum(spectrum(matrices), tolerance(matrices))
