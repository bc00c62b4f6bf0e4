"""float64 references, written from the papers' formulas with NumPy and SciPy alone.

Slow and plain on purpose. Nothing here is shared with the package: neither code nor
constants. Functions take one matrix (tokens x channels) unless they say otherwise.
"""

import numpy as np
import scipy.fft
import scipy.linalg


def singular_values(x):
    """Singular values in descending order."""
    return scipy.linalg.svdvals(np.asarray(x, np.float64))


def condition_number(x, tolerance=None, eps=2.0**-23):
    """kappa = s_max / s_min; inf for a singular matrix.

    `eps` is that of the precision the value under test was computed in. With a
    relative tolerance: the kappa of what lies above it.
    """
    values = singular_values(x)
    if values[0] == 0:
        return np.inf
    if tolerance is not None:
        kept = values[values > tolerance * values[0]]
        return kept[0] / kept[-1]
    if values[-1] <= max(np.shape(x)) * eps * values[0]:
        return np.inf
    return values[0] / values[-1]


def polar(x, rank=None):
    """The polar factor U V^T; the partial isometry of a matrix of lower rank."""
    x = np.asarray(x, np.float64)
    if rank is None:
        return scipy.linalg.polar(x)[0]
    u, _, vt = scipy.linalg.svd(x, full_matrices=False)
    return u[:, :rank] @ vt[:rank]


def condition(x, mask=None, rank=None):
    """X + s_max polar(X) over the real rows; the other rows come back as they are."""
    x = np.asarray(x, np.float64)
    result = x.copy()
    real = np.ones(len(x), bool) if mask is None else np.asarray(mask, bool)
    if not real.any():
        return result
    tokens = x[real]
    largest = singular_values(tokens)[0]
    result[real] = tokens + largest * polar(tokens, rank)
    return result


def kappa_after_conditioning(x):
    """2 s_max / (s_max + s_min)."""
    values = singular_values(x)
    return 2 * values[0] / (values[0] + values[-1])


def svd_graying(x, epsilon, rescale=False):
    """U (S / max S)^epsilon V^T, times max S with `rescale`."""
    u, s, vt = scipy.linalg.svd(np.asarray(x, np.float64), full_matrices=False)
    grayed = (u * (s / s[0]) ** epsilon) @ vt
    return grayed * s[0] if rescale else grayed


def dct_graying(x, epsilon, rescale=False, mask=None):
    """Inverse DCT of sign(Y)(|Y| / max|Y|)^epsilon, Y the orthonormal 2-D DCT-II."""
    x = np.asarray(x, np.float64)
    result = x.copy()
    real = np.ones(len(x), bool) if mask is None else np.asarray(mask, bool)
    if not real.any():
        return result
    y = scipy.fft.dctn(x[real], type=2, norm="ortho")
    largest = np.abs(y).max()
    y = np.sign(y) * (np.abs(y) / largest) ** epsilon
    grayed = scipy.fft.idctn(y, type=2, norm="ortho")
    result[real] = grayed * largest if rescale else grayed
    return result


def head_matrices(kernel):
    """The heads' D x d matrices of a kernel (D, heads, d)."""
    return np.moveaxis(np.asarray(kernel, np.float64), 1, 0)


def joint_matrix(kernel):
    """The D x (heads d) matrix of a kernel (D, heads, d)."""
    kernel = np.asarray(kernel, np.float64)
    return kernel.reshape(kernel.shape[0], -1)


def identity_correction(kernel, scale, per_head):
    """W + scale I: one rectangular identity a head, or one for all heads together."""
    kernel = np.asarray(kernel, np.float64)
    inputs, heads, size = kernel.shape
    corrected = kernel.copy()
    for head in range(heads):
        for column in range(size):
            row = column if per_head else head * size + column
            if row < inputs:
                corrected[row, head, column] += scale
    return corrected


def polar_correction(kernel, per_head):
    """W + s_max(W) polar(W), for each head's matrix or for the joint one."""
    kernel = np.asarray(kernel, np.float64)
    if per_head:
        return np.stack([condition(w) for w in head_matrices(kernel)], axis=1)
    return condition(joint_matrix(kernel)).reshape(kernel.shape)


def correct_attention_weights(weights, correct, corrected_kernels=(0, 2, 4)):
    """Applies `correct` to the query, key and value kernels of a list of weights.

    The list is that of an attention layer with biases and without a gate: query
    kernel, bias, key kernel, bias, value kernel, bias, output kernel, bias.
    """
    return [
        correct(w) if index in corrected_kernels else np.asarray(w)
        for index, w in enumerate(weights)
    ]


def attention(query, value, weights, key=None, mask=None):
    """Multi-head attention of one sample; `weights` as above, mask (T, S) boolean."""
    key = value if key is None else key
    wq, bq, wk, bk, wv, bv, wo, bo = (np.asarray(w, np.float64) for w in weights)
    q = np.einsum("td,dhk->thk", query, wq) + bq
    k = np.einsum("sd,dhk->shk", key, wk) + bk
    v = np.einsum("sd,dhk->shk", value, wv) + bv
    repeats = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, repeats, axis=1), np.repeat(v, repeats, axis=1)
    scores = np.einsum("thk,shk->hts", q, k) / np.sqrt(q.shape[-1])
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    scores = np.exp(scores - scores.max(-1, keepdims=True))
    scores /= scores.sum(-1, keepdims=True)
    return np.einsum("hts,shk,hkd->td", scores, v, wo) + bo


def dct_basis(size, count):
    """The first `count` orthonormal DCT-II basis vectors of R^size, as columns.

    x @ basis are the first coefficients of scipy.fft.dct(x, norm="ortho").
    """
    return scipy.fft.dct(np.eye(size), axis=1, norm="ortho")[:, :count]


def directional_derivative(function, x, direction, step=1e-6):
    """Central difference of a scalar function of a float64 array."""
    return (function(x + step * direction) - function(x - step * direction)) / (
        2 * step
    )
