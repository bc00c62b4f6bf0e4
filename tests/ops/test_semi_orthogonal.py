"""Random semi-orthogonal matrices: spectrum, batches, seeds, precision."""

import keras
import numpy as np
import pytest

from keras_cond.ops import semi_orthogonal
from tests.autodiff import dtype_of, to_numpy


def draw(*args, **kwargs):
    return to_numpy(semi_orthogonal(*args, **kwargs))


@pytest.mark.parametrize("shape", [(5, 12), (12, 5), (7, 7), (1, 6), (6, 1), (1, 1)])
def test_every_singular_value_is_one(shape):
    x = draw(shape, seed=1)
    assert x.shape == shape
    values = np.linalg.svd(x.astype("float64"), compute_uv=False)
    np.testing.assert_allclose(values, 1.0, atol=1e-5)


@pytest.mark.parametrize("shape", [(3, 5, 12), (2, 3, 12, 5), (4, 1, 6)])
def test_leading_dimensions_are_independent_matrices(shape):
    x = draw(shape, seed=1)
    values = np.linalg.svd(x.astype("float64"), compute_uv=False)
    np.testing.assert_allclose(values, 1.0, atol=1e-5)
    flat = x.reshape(-1, *shape[-2:])
    for i in range(1, len(flat)):
        assert np.abs(flat[0] - flat[i]).max() > 0.05
        assert np.abs(flat[0] + flat[i]).max() > 0.05


def test_one_seed_gives_one_matrix_and_two_give_two():
    np.testing.assert_array_equal(draw((5, 12), seed=3), draw((5, 12), seed=3))
    assert np.abs(draw((5, 12), seed=3) - draw((5, 12), seed=4)).max() > 0.05


def test_without_a_seed_every_call_differs():
    assert np.abs(draw((5, 12)) - draw((5, 12))).max() > 0.05


def test_a_seed_generator_moves_on_and_can_be_repeated():
    seed = keras.random.SeedGenerator(5)
    first, second = draw((5, 12), seed=seed), draw((5, 12), seed=seed)
    assert np.abs(first - second).max() > 0.05
    again = keras.random.SeedGenerator(5)
    np.testing.assert_array_equal(draw((5, 12), seed=again), first)


def test_directions_are_uniform():
    # Entries of a uniform orthogonal matrix have mean 0 and variance 1/D. 2,000
    # matrices of 3 x 3: the standard error of the mean is 0.013, 5 of them allowed.
    x = draw((2000, 3, 3), seed=0).astype("float64")
    assert np.abs(x.mean(0)).max() < 0.065
    np.testing.assert_allclose((x**2).mean(0), 1 / 3, atol=0.04)
    assert 0.4 < np.mean(np.linalg.det(x) > 0) < 0.6


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_dtype_is_the_one_asked_for(dtype):
    x = semi_orthogonal((16, 8), seed=0, dtype=dtype)
    assert dtype_of(x) == dtype
    # Made in float32 and rounded: 1e-2 for bfloat16's 8 bits.
    values = np.linalg.svd(to_numpy(x).astype("float64"), compute_uv=False)
    np.testing.assert_allclose(values, 1.0, atol=1e-5 if dtype == "float32" else 1e-2)


def test_default_dtype_is_floatx():
    keras.config.set_floatx("float16")
    assert dtype_of(semi_orthogonal((4, 3), seed=0)) == "float16"


@pytest.mark.parametrize("shape", [(), (4,), (0, 4), (3, -1), (3, 2.5)])
def test_bad_shapes_are_refused(shape):
    with pytest.raises(ValueError, match=r"(?s)shape") as error:
        semi_orthogonal(shape)
    assert str(shape) in str(error.value)
