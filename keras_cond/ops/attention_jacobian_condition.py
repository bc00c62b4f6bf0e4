"""Condition number of the Jacobian of attention with respect to its weights."""

from math import sqrt
from typing import NamedTuple

import numpy as np
from keras import ops

from keras_cond.ops.attention_jacobian import check_shapes, expand_scalars, head_parts

# Up to this size all eigenvalues are computed; above it, the extreme ones from a
# Cholesky factor, which takes a tenth of the time.
FULL_SPECTRUM = 3000


class JacobianCondition(NamedTuple):
    """Result of `attention_jacobian_condition`.

    Attributes:
        value: float, κ(J) = √κ(J Jᵀ), dimensionless.
        residual: float, the larger of ‖J Jᵀ u − μ u‖ / μ over the two eigenpairs
            (μ, u); 0 where the whole spectrum was computed.
        method: str, `"exact"` or `"iterative"`.
    """

    value: float
    residual: float
    method: str


def attention_jacobian_condition(x, wq, wk, wv, mask=None, scale=None, method="exact"):
    """Condition number of the Jacobian of one attention head, κ(J) = √κ(J Jᵀ).

    Works in float64 NumPy whatever the backend, outside of any graph. Needs SciPy.

    Args:
        x: Array or tensor of shape (N, D), the tokens.
        wq: Array or tensor of shape (D, d), query weights.
        wk: Array or tensor of shape (D, d), key weights.
        wv: Array or tensor of shape (D, d_v), value weights.
        mask: None, or booleans of shape (N, N), true where row i may attend to j.
        scale: float; 1/√d if None.
        method: `"exact"` (default) makes the Gram matrix, 8 (N · d_v)² bytes, and takes
            its extreme eigenvalues: all of them up to 3,000 rows, above by ARPACK on
            the matrix and on its Cholesky factor. `"iterative"` never makes it: ARPACK
            and LOBPCG on products with J and Jᵀ. The smallest eigenvalue converges
            slowly then; what it reached is the residual, and κ is a lower bound.

    Returns:
        A `JacobianCondition` of Python floats. κ is inf where J is singular to working
        precision: squaring J leaves κ up to about 1e6 to be told from that.

    Raises:
        ValueError: If the shapes do not fit together or `method` is unknown.
        ImportError: If SciPy is missing.

    Example:

    >>> rng = np.random.default_rng(0)
    >>> x, w = rng.normal(size=(4, 6)), rng.normal(size=(3, 6, 2))
    >>> keras_cond.ops.attention_jacobian_condition(x, *w).residual
    0.0

    Reference: "Spectral Conditioning of Attention", NeurIPS 2025, arXiv:2603.07162,
    theorem 3.4 bounds this number.
    """
    if method not in ("exact", "iterative"):
        raise ValueError(
            f"Unknown `method`. Received: method={method!r}. Expected 'exact' or "
            "'iterative'."
        )
    arrays = [np.asarray(ops.convert_to_numpy(a), "float64") for a in (x, wq, wk, wv)]
    check_shapes(*arrays)
    if mask is not None:
        mask = np.asarray(ops.convert_to_numpy(mask)).astype(bool)
    parts = head_parts(*arrays, mask, scale, np)
    if not all(np.isfinite(part).all() for part in parts):
        return JacobianCondition(float("nan"), float("nan"), method)
    if method == "iterative":
        smallest, largest, residual = _matrix_free_extremes(parts)
    else:
        smallest, largest, residual = _dense_extremes(_dense_gram(parts))
    size = parts[3].shape[0] * parts[3].shape[1]
    if not smallest > size * np.finfo("float64").eps * largest:
        return JacobianCondition(float("inf"), residual, method)
    return JacobianCondition(sqrt(largest / smallest), residual, method)


def _dense_gram(parts):
    """The Gram matrix, filled a few rows of blocks at a time: no second copy of it."""
    x, q, px, m, r, _ = parts
    tokens, width = m.shape[:2]
    gram = np.empty((tokens, width, tokens, width))
    flat_m, flat_r = m.reshape(tokens * width, -1), r.reshape(tokens * width, -1)
    diagonal = np.arange(width)
    for start in range(0, tokens, 8):
        rows = slice(start, min(start + 8, tokens))
        shape = (-1, width, tokens, width)
        block = (m[rows].reshape(-1, m.shape[2]) @ flat_m.T).reshape(shape)
        block *= expand_scalars(x[rows] @ x.T)
        second = (r[rows].reshape(-1, r.shape[2]) @ flat_r.T).reshape(shape)
        second *= expand_scalars(q[rows] @ q.T)
        block += second
        block[:, diagonal, :, diagonal] += (px[rows] @ px.T)[None]
        gram[rows] = block
    return gram.reshape(tokens * width, tokens * width)


def _dense_extremes(gram):
    """Smallest and largest eigenvalue, and residual; overwrites a large matrix."""
    if len(gram) <= FULL_SPECTRUM:
        values = np.linalg.eigvalsh(gram)
        return float(values[0]), float(values[-1]), 0.0
    from scipy.linalg import LinAlgError, cholesky, solve_triangular
    from scipy.sparse.linalg import LinearOperator, eigsh

    largest, residual = _ritz(gram.dot, *eigsh(gram, k=1, which="LA", tol=1e-8))
    try:
        factor = cholesky(gram.T, lower=False, overwrite_a=True, check_finite=False)
    except LinAlgError:
        return 0.0, largest, residual

    def solve(b):
        half = solve_triangular(factor, b, trans="T", check_finite=False)
        return solve_triangular(factor, half, check_finite=False)

    inverse = LinearOperator(gram.shape, matvec=solve, dtype="float64")
    value, error = _ritz(solve, *eigsh(inverse, k=1, which="LA", tol=1e-8))
    return 1 / value, largest, max(residual, error)


def _matrix_free_extremes(parts):
    """The same from products with J and Jᵀ alone."""
    from scipy.sparse.linalg import LinearOperator, eigsh, lobpcg

    x, q, px, m, r, _ = parts
    tokens, width = m.shape[:2]

    def multiply(u):
        u = u.reshape(tokens, width)
        wq = x.T @ np.einsum("iab,ia->ib", m, u)
        wk = np.einsum("iab,ia->ib", r, u).T @ q
        wv = px.T @ u
        result = np.einsum("iab,ib->ia", m, x @ wq)
        result += np.einsum("iab,ib->ia", r, q @ wk.T)
        return (result + px @ wv).ravel()

    size = tokens * width
    operator = LinearOperator((size, size), matvec=multiply, dtype="float64")
    start = np.random.default_rng(0).normal(size=(size, min(4, size // 5 or 1)))
    largest, residual = _ritz(multiply, *eigsh(operator, k=1, which="LA", tol=1e-8))
    values, vectors = lobpcg(operator, start, largest=False, tol=1e-8, maxiter=500)
    best = int(np.argmin(values))
    smallest, error = _ritz(multiply, values[[best]], vectors[:, [best]])
    return smallest, largest, max(residual, error)


def _ritz(multiply, values, vectors):
    """Returns an eigenvalue as a float, and the relative residual of its pair."""
    value, vector = float(values[0]), vectors[:, 0]
    difference = multiply(vector) - value * vector
    return value, float(np.linalg.norm(difference) / abs(value))
