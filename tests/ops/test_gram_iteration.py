"""Chains of quintics through Gram matrices, against the singular values."""

import numpy as np
import pytest
from keras import ops

from keras_cond.ops import gram_iteration
from keras_cond.ops.quintics import monic_chain, quintic_chain
from keras_cond.ops.scale import gram
from tests import matrices
from tests.autodiff import float64, to_numpy

TOLERANCE = {"float32": 4e-4, "float64": 1e-9}
CHAIN = quintic_chain(1e-3, 0.02)


def lifted(a, chain=CHAIN):
    return lift(ops.convert_to_tensor(a), chain)[0]


def lift(a, chain):
    a = a / monic_chain(chain)[0]
    return gram_iteration.lift(a, *powers(a), chain)


def powers(a):
    """The Gram matrix and its square."""
    return gram(a), gram(a) @ gram(a)


def iterated(s, chain=CHAIN):
    for first, third, fifth in chain:
        s = s * (first + third * s**2 + fifth * s**4)
    return s


def oracle(x, chain=CHAIN):
    u, s, vt = np.linalg.svd(x, full_matrices=False)
    return (u * iterated(s, chain)) @ vt


@pytest.mark.parametrize("kappa", [1.0, 30.0, 1e3, 1e5])
def test_the_last_iterate(kappa):
    x = matrices.with_kappa((5, 24), kappa) / 1.01
    for dtype in ("float32", "float64"):  # JAX makes float32 of both.
        got = to_numpy(lifted(x.astype(dtype)))
        np.testing.assert_allclose(got, oracle(x), atol=TOLERANCE[str(got.dtype)])


def test_one_gram_matrix_would_not_do():
    """Why there are stages: rounding near the floor, seen without them."""
    x = (matrices.with_kappa((40, 400), 1e3) / 1.01).astype("float32")
    want = oracle(x.astype("float64"))

    def worst():
        return np.linalg.norm(to_numpy(lifted(x)) - want, 2)

    assert worst() < 5e-4
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gram_iteration, "GROWTH", 1e9)
        assert worst() > 2e-3


def test_even_bfloat16_does_not_make_it_explode():
    x = ops.convert_to_tensor(matrices.with_rank((40, 400), 9) / 1.01, "bfloat16")

    def largest():
        return np.linalg.norm(to_numpy(ops.cast(lifted(x), "float32")), 2)

    assert largest() < 10
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gram_iteration, "GROWTH", 130)
        assert not largest() < 10


def test_the_derivative_is_that_of_the_iteration():
    x = matrices.with_kappa((3, 14), 50.0) / 1.01
    rng = np.random.default_rng(0)
    weight, step = rng.standard_normal((2, *x.shape))
    with float64():
        a, unit = ops.convert_to_tensor(x), monic_chain(CHAIN)[0]
        _, kept = lift(a, CHAIN)
        got = gram_iteration.change(
            a / unit, ops.convert_to_tensor(weight / unit), kept, CHAIN
        )
    got, change = to_numpy(got), 1e-6
    slope = np.sum(weight * (oracle(x + change * step) - oracle(x - change * step)))
    np.testing.assert_allclose(np.sum(got * step), slope / (2 * change), rtol=1e-5)


def test_the_gram_matrices_of_all_iterates():
    x = matrices.with_kappa((4, 17), 1e3) / 1.01
    a = ops.convert_to_tensor(x)
    pairs = gram_iteration.gram_matrices(a, *powers(a), CHAIN)
    assert len(pairs) == len(CHAIN) + 1
    for count, (square, fourth) in enumerate(pairs):
        iterate = oracle(x, CHAIN[:count])
        want = iterate @ iterate.T
        atol = 10 * TOLERANCE[str(to_numpy(square).dtype)]
        np.testing.assert_allclose(to_numpy(square), want, atol=atol)
        np.testing.assert_allclose(to_numpy(fourth), want @ want, atol=atol)


def test_a_stage_lifts_no_more_than_its_limit():
    stages = gram_iteration._stages(CHAIN)
    assert tuple(quintic for stage in stages for quintic in stage) == CHAIN
    for stage in stages:
        assert np.prod([first for first, _, _ in stage]) <= gram_iteration.GROWTH
    assert len(stages) == 3
