"""The written-out derivative of the polar factor by matrix products."""

import gc
import weakref

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keras import ops

from keras_cond.ops import condition, polar
from keras_cond.ops.quintics import monic_chain, quintic_chain
from tests import matrices
from tests.autodiff import BACKEND, float64, gradient, to_numpy, weighted_sum


def gradients(function, x, weight):
    """Gradients of the function by products and by the SVD, whose formula differs."""

    def by(method):
        return gradient(lambda t: weighted_sum(weight, function(t, method=method)), x)

    return by("newton_schulz"), by("svd")


@pytest.mark.parametrize("function", [polar, condition])
@given(
    matrix=matrices.matrices(max_kappa=1e5, shapes=matrices.SHAPES[:3]),
    seed=st.integers(0, 99),
)
def test_it_is_that_of_the_function_of_singular_values(function, matrix, seed):
    x = matrix.value / np.linalg.norm(matrix.value, 2)
    weight = np.random.default_rng(seed).standard_normal(x.shape)
    with float64():
        products, svd = gradients(function, x, weight)
    scale = np.linalg.norm(svd) + np.linalg.norm(weight)
    assert np.linalg.norm(products - svd) < 1e-5 * scale


@pytest.mark.parametrize("values", [[1.0, 0.4, 3e-4], [1.0, 1.0, 0.2], [1.0, 1.0, 1.0]])
def test_below_the_floor_and_tied(values):
    x = (matrices.orthonormal(3, 3, 1) * values) @ matrices.orthonormal(5, 3, 2).T
    weight = np.random.default_rng(0).standard_normal(x.shape)
    with float64():
        for function in (polar, condition):
            products, svd = gradients(function, x, weight)
            np.testing.assert_allclose(
                products, svd, atol=1e-5 * np.abs(svd).max(), err_msg=function.__name__
            )


def test_equal_rows_stay_equal_to_the_last_bit():
    x = np.random.default_rng(0).standard_normal((3, 20, 40)).astype("float32")
    x[:, 7] = x[:, 3]
    got = to_numpy(condition(ops.convert_to_tensor(x)))
    np.testing.assert_array_equal(got[:, 7], got[:, 3])


def test_monic_quintics_are_the_same_chain():
    chain = quintic_chain(1e-3, 0.02)
    unit, steps = monic_chain(chain)
    expected = np.linspace(0, 1, 101)
    got = expected / unit
    for (a, b, c), (first, third) in zip(chain, steps, strict=True):
        expected = a * expected + b * expected**3 + c * expected**5
        got = first * got + third * got**3 + got**5
    np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.skipif(BACKEND != "torch", reason="Others count no references.")
@pytest.mark.parametrize("function", [polar, condition])
@pytest.mark.parametrize("shape", [(2, 6, 5), (2, 20, 5)])
def test_result_is_forgotten_at_once(function, shape):
    """A circle of references would keep all of a step until the next collection."""
    x = np.random.default_rng(0).standard_normal(shape).astype("float32")
    x = ops.convert_to_tensor(x).requires_grad_()
    gc.disable()
    try:
        result = function(x)
        result.sum().backward()
        node = result.grad_fn
        while "CustomGradient" not in node.name():
            node = node.next_functions[0][0]
        alive = weakref.ref(node)
        del result, node
        assert alive() is None
    finally:
        gc.enable()


@pytest.mark.skipif(BACKEND != "jax", reason="Only JAX tells what a program needs.")
def test_little_of_the_iteration_is_kept_while_later_layers_run():
    import jax

    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 48, 48)).astype("float32")
    weights = [rng.standard_normal((48, n)).astype("float32") for n in (48, 96)]

    def loss(weights, conditioned):
        first, second = weights
        y = x @ first
        y = condition(y) if conditioned else y
        for _ in range(12):
            y = ops.tanh(y + ops.relu(y @ second) @ second.T)
        return ops.sum(ops.square(y))

    def size(conditioned):
        gradient = jax.jit(jax.grad(loss), static_argnums=1)
        program = gradient.lower(weights, conditioned).compile()
        return program.memory_analysis().temp_size_in_bytes

    assert size(True) - size(False) < 11 * x.nbytes
