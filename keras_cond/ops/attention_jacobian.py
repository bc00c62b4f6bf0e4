"""The Jacobian of attention with respect to its weights, through its Gram matrix.

For one head with q = X W_Q, k = X W_K, v = X W_V, P = softmax(c q kᵀ) and A = P v, let
Λ_i = Diag(P_i) − P_i P_iᵀ, M_i = c vᵀ Λ_i k and R_i = c vᵀ Λ_i X. Then
  dA_i = M_i dW_Qᵀ x_i + R_i dW_K q_i + dW_Vᵀ (PX)_i,
so that the Gram matrix of the Jacobian J (rows: the entries of A; columns: those of the
three weights) has the d_v × d_v blocks
  (J Jᵀ)_ij = (x_i·x_j) M_i M_jᵀ + (q_i·q_j) R_i R_jᵀ + ((PX)_i·(PX)_j) I.
It has (N d_v)² entries where J has N d_v · D (2 d + d_v).
"""

from math import sqrt
from typing import NamedTuple

import numpy as np
from keras import ops

from keras_cond.ops.attention import masked_softmax
from keras_cond.ops.validation import float_tensor

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


def attention_jacobian_gram(x, wq, wk, wv, mask=None, scale=None):
    """Gram matrix J Jᵀ of the Jacobian of one attention head.

    J holds the derivatives of A = softmax(c X W_Q (X W_K)ᵀ) X W_V with respect to W_Q,
    W_K and W_V. The closed form is in the description of this module.

    Args:
        x: Float tensor of shape (N, D), the tokens.
        wq: Float tensor of shape (D, d), query weights.
        wk: Float tensor of shape (D, d), key weights.
        wv: Float tensor of shape (D, d_v), value weights.
        mask: None, or booleans of shape (N, N), true where row i may attend to column
            j; `np.tri(N, dtype=bool)` for a causal model.
        scale: float c; 1/√d if None. The papers' theory has 1.

    Returns:
        Tensor of shape (N · d_v, N · d_v), row i · d_v + a for entry (i, a) of A.
        Computed in float32, or in float64 for float64.

    Raises:
        ValueError: If the shapes do not fit together, or a tensor holds integers.

    Example:

    >>> rng = np.random.default_rng(0)
    >>> x, w = rng.normal(size=(4, 6)), rng.normal(size=(3, 6, 2))
    >>> keras_cond.ops.attention_jacobian_gram(x, *w).shape
    (8, 8)

    Reference: derived from "Conditioned Initialization for Attention", ICLR 2026, whose
    section 3 gives J in Kronecker form.
    """
    tensors = [float_tensor(a)[0] for a in (x, wq, wk, wv)]
    check_shapes(*tensors)
    if mask is not None:
        mask = ops.convert_to_tensor(mask)
    x, q, px, m, r, _ = _parts(*tensors, mask, scale, ops)
    tokens, width = m.shape[:2]
    identity = ops.eye(width, dtype=x.dtype)
    gram = _expand(x @ ops.transpose(x)) * _products(m, ops)
    gram = gram + _expand(q @ ops.transpose(q)) * _products(r, ops)
    gram = gram + _expand(px @ ops.transpose(px)) * identity[None, :, None, :]
    return ops.reshape(gram, (tokens * width, tokens * width))


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
    parts = _parts(*arrays, mask, scale, np)
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


def check_shapes(x, wq, wk, wv):
    """Raises ValueError unless the arrays are (N, D), (D, d), (D, d) and (D, d_v)."""
    shapes = [tuple(a.shape) for a in (x, wq, wk, wv)]
    if (
        any(len(shape) != 2 for shape in shapes)
        or any(shape[0] != shapes[0][1] for shape in shapes[1:])
        or shapes[1] != shapes[2]
    ):
        raise ValueError(
            "The Jacobian is that of one head on one sequence. Received: x, wq, wk, wv "
            f"of shapes {shapes}. Expected (N, D), (D, d), (D, d), (D, d_v)."
        )


def _parts(x, wq, wk, wv, mask, scale, xp):
    """Returns X, q, PX, M of shape (N, d_v, d), R of shape (N, d_v, D), and P."""
    scale = 1 / sqrt(wq.shape[1]) if scale is None else scale
    q, k, v = x @ wq, x @ wk, x @ wv
    p = masked_softmax(scale * (q @ xp.transpose(k)), mask, xp)
    a, tokens, width = p @ v, v.shape[0], v.shape[1]

    def covariance(y):
        # vᵀ Λ_i y = Σ_n P_in v_n y_nᵀ − A_i (Py)_iᵀ
        outer = xp.reshape(v[:, :, None] * y[:, None, :], (tokens, -1))
        mean = xp.reshape(p @ outer, (tokens, width, y.shape[1]))
        return scale * (mean - a[:, :, None] * (p @ y)[:, None, :])

    return x, q, p @ x, covariance(k), covariance(x), p


def _products(m, xp):
    """All M_i M_jᵀ, as an array of shape (N, d_v, N, d_v)."""
    tokens, width, inner = m.shape
    flat = xp.reshape(m, (tokens * width, inner))
    return xp.reshape(flat @ xp.transpose(flat), (tokens, width, tokens, width))


def _expand(scalars):
    """Shapes an (N, N) array so that it multiplies blocks (N, d_v, N, d_v)."""
    return scalars[:, None, :, None]


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
        block *= _expand(x[rows] @ x.T)
        second = (r[rows].reshape(-1, r.shape[2]) @ flat_r.T).reshape(shape)
        second *= _expand(q[rows] @ q.T)
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
