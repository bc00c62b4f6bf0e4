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

from keras import ops

from keras_cond.ops.attention import masked_softmax
from keras_cond.ops.validation import float_tensor


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
    x, q, px, m, r, _ = head_parts(*tensors, mask, scale, ops)
    tokens, width = m.shape[:2]
    identity = ops.eye(width, dtype=x.dtype)
    gram = expand_scalars(x @ ops.transpose(x)) * _products(m, ops)
    gram = gram + expand_scalars(q @ ops.transpose(q)) * _products(r, ops)
    gram = gram + expand_scalars(px @ ops.transpose(px)) * identity[None, :, None, :]
    return ops.reshape(gram, (tokens * width, tokens * width))


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


def head_parts(x, wq, wk, wv, mask, scale, xp):
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


def expand_scalars(scalars):
    """Shapes an (N, N) array so that it multiplies blocks (N, d_v, N, d_v)."""
    return scalars[:, None, :, None]
