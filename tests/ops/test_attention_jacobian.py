"""The closed form of the Jacobian's Gram matrix against automatic differentiation.

The oracle is torch's reverse mode in float64, on whatever backend is under test.
"""

import math
import sys

import numpy as np
import pytest
import torch

import keras_cond
from keras_cond.ops import attention_jacobian_condition as jacobian_condition
from tests.autodiff import float64, to_numpy

CASES = [
    # tokens, D, d, d_v, causal, scale
    (5, 6, 3, 3, False, None),
    (4, 7, 2, 5, False, 1.0),
    (6, 8, 4, 4, True, None),
    (3, 3, 3, 1, True, 0.3),
]


def head(tokens, size, width, value_width, seed=0):
    rng = np.random.default_rng(seed)
    shapes = ((tokens, size), (size, width), (size, width), (size, value_width))
    return [rng.normal(size=shape) for shape in shapes]


def autodiff_jacobian(x, wq, wk, wv, mask, scale):
    x, *weights = (torch.tensor(a) for a in (x, wq, wk, wv))
    scale = 1 / math.sqrt(wq.shape[1]) if scale is None else scale
    mask = torch.tensor(mask)

    def attention(wq, wk, wv):
        scores = scale * (x @ wq) @ (x @ wk).T
        return torch.softmax(scores.masked_fill(~mask, -math.inf), -1) @ (x @ wv)

    parts = torch.autograd.functional.jacobian(attention, tuple(weights))
    rows = x.shape[0] * wv.shape[1]
    return np.concatenate([part.reshape(rows, -1).numpy() for part in parts], axis=1)


@pytest.mark.parametrize("tokens, size, width, value_width, causal, scale", CASES)
def test_gram_matrix_equals_automatic_differentiation(
    tokens, size, width, value_width, causal, scale
):
    inputs = head(tokens, size, width, value_width)
    mask = np.tri(tokens, dtype=bool) if causal else np.ones((tokens, tokens), bool)
    jacobian = autodiff_jacobian(*inputs, mask, scale)
    with float64():
        gram = keras_cond.ops.attention_jacobian_gram(
            *inputs, mask=mask if causal else None, scale=scale
        )
    expected = jacobian @ jacobian.T
    np.testing.assert_allclose(
        to_numpy(gram), expected, atol=1e-10 * np.abs(expected).max()
    )


@pytest.mark.parametrize("method, rtol", [("exact", 1e-8), ("iterative", 1e-4)])
def test_condition_is_that_of_the_jacobian(method, rtol):
    inputs = head(5, 6, 3, 3)
    jacobian = autodiff_jacobian(*inputs, np.ones((5, 5), bool), None)
    result = jacobian_condition(*inputs, method=method)
    assert result.method == method
    assert result.residual < 1e-4
    np.testing.assert_allclose(result.value, np.linalg.cond(jacobian), rtol=rtol)


def test_extreme_eigenvalues_equal_the_full_spectrum(monkeypatch):
    """The path of large heads, forced on a small one."""
    module = sys.modules["keras_cond.ops.attention_jacobian_condition"]
    inputs = head(8, 12, 4, 4)
    expected = jacobian_condition(*inputs)
    monkeypatch.setattr(module, "FULL_SPECTRUM", 1)
    result = jacobian_condition(*inputs)
    np.testing.assert_allclose(result.value, expected.value, rtol=1e-6)
    assert expected.residual == 0 < result.residual < 1e-6


def test_a_singular_jacobian_has_infinite_condition():
    x, wq, wk, wv = head(6, 4, 2, 2)
    x[3] = x[2]  # Equal tokens have equal outputs, so two rows of J are equal.
    assert jacobian_condition(x, wq, wk, wv).value == math.inf


def test_nan_is_reported_as_nan():
    x, wq, wk, wv = head(4, 4, 2, 2)
    wq[0, 0] = np.nan
    assert math.isnan(jacobian_condition(x, wq, wk, wv).value)


@pytest.mark.parametrize(
    "change, text",
    [
        ({"wk": np.ones((6, 2))}, "Expected \\(N, D\\), \\(D, d\\)"),
        ({"x": np.ones((2, 5, 6))}, "one head on one sequence"),
        ({"method": "guess"}, "Expected 'exact' or 'iterative'"),
    ],
)
def test_bad_arguments_raise(change, text):
    arguments = dict(zip(("x", "wq", "wk", "wv"), head(5, 6, 3, 3), strict=True))
    with pytest.raises(ValueError, match=text):
        jacobian_condition(**{**arguments, **change})
