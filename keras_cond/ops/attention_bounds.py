"""The papers' upper bounds of the conditioning of attention.

They are upper bounds, often loose by orders of magnitude, and a method that lowers a
bound need not lower the true value. κ of a singular matrix is infinite, and so is a
bound that contains it.
"""

from keras import ops

from keras_cond.ops.spectrum import (
    condition_number,
    extremes_ratio,
    rounding,
    singular_values,
)
from keras_cond.ops.validation import float_tensor


def linear_attention_bound(x, wq, wk, wv):
    """Bound of κ of linear attention: κ(W_Q) κ(W_K) κ(W_V) κ(X)³.

    κ(X W_Q (X W_K)ᵀ X W_V) is at most this where X has N ≥ D tokens and the weights are
    square, d = d_v = D. (For d < D the product W_Q W_Kᵀ loses rank, and the result may
    be worse conditioned than the factors.)

    Args:
        x: Float tensor of shape (..., N, D), the tokens.
        wq: Float tensor of shape (..., D, d), query weights.
        wk: Float tensor of shape (..., D, d), key weights.
        wv: Float tensor of shape (..., D, d_v), value weights.

    Returns:
        Tensor of shape (...), dimensionless; float64 for float64, else float32.

    Raises:
        ValueError: If a tensor holds integers or has fewer than two dimensions.

    Example:

    >>> x = np.diag([1.0, 2.0])
    >>> keras_cond.ops.linear_attention_bound(x, np.eye(2), np.eye(2), np.eye(2))  # 8

    Reference: "Conditioned Embedded Tokens", ICCV 2025, arXiv:2505.12789, proposition
    4.2, linear attention.
    """
    weights = condition_number(wq) * condition_number(wk) * condition_number(wv)
    return weights * condition_number(x) ** 3


def softmax_attention_bound(probabilities, x, wv):
    """Bound of κ of softmax attention: κ(P) κ(X) κ(W_V).

    κ(P X W_V) is at most this where N ≥ D ≥ d_v, or where d_v = D. (Otherwise X W_V may
    lose rank although neither factor does.)

    Args:
        probabilities: Float tensor of shape (..., N, N), the attention matrix P.
        x: Float tensor of shape (..., N, D), the tokens.
        wv: Float tensor of shape (..., D, d_v), value weights.

    Returns:
        Tensor of shape (...), dimensionless; float64 for float64, else float32.

    Raises:
        ValueError: If a tensor holds integers or has fewer than two dimensions.

    Example:

    >>> x = np.diag([1.0, 2.0])
    >>> keras_cond.ops.softmax_attention_bound(np.eye(2), x, np.eye(2))  # 2

    Reference: "Conditioned Embedded Tokens", ICCV 2025, arXiv:2505.12789, proposition
    4.2, softmax attention.
    """
    kappa = condition_number(probabilities) * condition_number(x)
    return kappa * condition_number(wv)


def attention_jacobian_bound(x, probabilities, wq, wk, wv, tolerance=None):
    """Bound of κ of the Jacobian of attention in its weights.

    κ(X)³ κ(Λ) κ(W_V) (κ(W_Q) + κ(W_K)) + κ(X) κ(P), where Λ is the block-diagonal
    derivative of the softmax, with blocks Λ_i = Diag(P_i) − P_i P_iᵀ.

    Every Λ_i sends the vector of ones to zero, so κ(Λ) and the bound are infinite. The
    paper assumes full rank. With a `tolerance` the zero singular values of Λ are left
    out; the number is then finite, and no longer proven to be a bound.

    Args:
        x: Float tensor of shape (..., N, D), the tokens.
        probabilities: Float tensor of shape (..., N, N), the attention matrix P.
        wq: Float tensor of shape (..., D, d), query weights.
        wk: Float tensor of shape (..., D, d), key weights.
        wv: Float tensor of shape (..., D, d_v), value weights.
        tolerance: None, or a number in [0, 1): singular values of Λ of at most this
            fraction of the largest are left out.

    Returns:
        Tensor of shape (...), dimensionless; float64 for float64, else float32.

    Raises:
        ValueError: If a tensor holds integers or has fewer than two dimensions, or
            `tolerance` is out of range.

    Example:

    >>> p, one = np.full((2, 2), 0.5), np.eye(2)
    >>> keras_cond.ops.attention_jacobian_bound(one, p, one, one, one)  # inf

    Reference: "Spectral Conditioning of Attention", NeurIPS 2025, arXiv:2603.07162,
    theorem 3.4.
    """
    p, _ = float_tensor(probabilities)
    diagonal = p[..., :, None] * ops.eye(p.shape[-1], dtype=p.dtype)
    blocks = diagonal - p[..., :, None] * p[..., None, :]
    values = singular_values(blocks)
    # Λ is a matrix of N² rows; its singular values are those of the blocks.
    fraction = p.shape[-1] ** 2 * rounding(values)
    kappa_x, weights = condition_number(x), condition_number(wq) + condition_number(wk)
    softmax = extremes_ratio(
        ops.reshape(values, (*ops.shape(values)[:-2], -1)),
        fraction=fraction if tolerance is None else tolerance,
        leave_out=tolerance is not None,
    )
    first = kappa_x**3 * softmax * condition_number(wv) * weights
    return first + kappa_x * condition_number(p)
