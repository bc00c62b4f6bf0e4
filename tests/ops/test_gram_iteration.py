"""Chains of quintics through Gram matrices, against the singular values."""

import numpy as np
import pytest
from keras import ops

from keras_cond.ops import gram_iteration, quintics
from keras_cond.ops.gram_matrices import gram_matrices
from keras_cond.ops.quintics import monic_chain, quintic_chain, stages
from tests import matrices
from tests.autodiff import float64, to_numpy

TOLERANCE = {"float32": 4e-4, "float64": 1e-9}
CHAIN = quintic_chain(1e-3, 0.02)


def lifted(a, chain=CHAIN):
    last, factor, _ = lift(ops.convert_to_tensor(a), chain)
    return last @ factor


def lift(a, chain):
    size = monic_chain(chain)[0]
    square, fourth = powers(ops.swapaxes(a, -1, -2))
    return gram_iteration.lift(a, size, square / size**2, fourth / size**4, chain)


def powers(a):
    """The Gram matrix of the rows and its square."""
    square = a @ ops.swapaxes(a, -1, -2)
    return square, square @ square


def iterated(s, chain=CHAIN):
    for first, third, fifth in chain:
        s = s * (first + third * s**2 + fifth * s**4)
    return s


def oracle(x, chain=CHAIN):
    u, s, vt = np.linalg.svd(x, full_matrices=False)
    return (u * iterated(s, chain)) @ vt


@pytest.mark.parametrize("kappa", [1.0, 30.0, 1e3, 1e5])
def test_the_last_iterate(kappa):
    x = matrices.with_kappa((24, 5), kappa) / 1.01
    for dtype in ("float32", "float64"):  # JAX makes float32 of both.
        got = to_numpy(lifted(x.astype(dtype)))
        np.testing.assert_allclose(got, oracle(x), atol=TOLERANCE[str(got.dtype)])


def test_one_gram_matrix_would_not_do():
    """Why there are stages: rounding near the floor, seen without them."""
    x = (matrices.with_kappa((400, 40), 1e3) / 1.01).astype("float32")
    want = oracle(x.astype("float64"))

    def worst():
        return np.linalg.norm(to_numpy(lifted(x)) - want, 2)

    assert worst() < 5e-4
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quintics, "GROWTH", 1e9)
        assert worst() > 2e-3


def test_even_bfloat16_does_not_make_it_explode():
    x = ops.convert_to_tensor(matrices.with_rank((400, 40), 9) / 1.01, "bfloat16")

    def largest():
        return np.linalg.norm(to_numpy(ops.cast(lifted(x), "float32")), 2)

    assert largest() < 10
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quintics, "GROWTH", 130)
        assert not largest() < 10


def test_the_derivative_is_that_of_the_iteration():
    x = matrices.with_kappa((14, 3), 50.0) / 1.01
    rng = np.random.default_rng(0)
    weight, step = rng.standard_normal((2, *x.shape))
    with float64():
        a, unit = ops.convert_to_tensor(x), monic_chain(CHAIN)[0]
        given = ops.convert_to_tensor(weight)
        cross = ops.swapaxes(a / unit, -1, -2) @ given
        gain, slope = gram_iteration.change(cross, lift(a, CHAIN)[2], CHAIN)
        got = (given @ gain + (a / unit) @ slope) / unit
    got, change = to_numpy(got), 1e-6
    slope = np.sum(weight * (oracle(x + change * step) - oracle(x - change * step)))
    np.testing.assert_allclose(np.sum(got * step), slope / (2 * change), rtol=1e-5)


def test_the_gram_matrices_of_all_iterates():
    x = matrices.with_kappa((4, 17), 1e3) / 1.01
    a = ops.convert_to_tensor(x)
    pairs = gram_matrices(a, *powers(a), CHAIN)
    assert len(pairs) == len(CHAIN) + 1
    for count, (square, fourth) in enumerate(pairs):
        iterate = oracle(x, CHAIN[:count])
        want = iterate @ iterate.T
        atol = 10 * TOLERANCE[str(to_numpy(square).dtype)]
        np.testing.assert_allclose(to_numpy(square), want, atol=atol)
        np.testing.assert_allclose(to_numpy(fourth), want @ want, atol=atol)


def test_a_stage_lifts_no_more_than_its_limit():
    parts = stages(CHAIN)
    assert tuple(quintic for stage in parts for quintic in stage) == CHAIN
    for stage in parts:
        assert np.prod([first for first, _, _ in stage]) <= quintics.GROWTH
    assert len(parts) == 3
