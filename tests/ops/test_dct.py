"""The orthonormal DCT-II and its inverse against scipy.fft."""

import numpy as np
import pytest
import scipy.fft
from keras import ops

from keras_cond.ops import dct, idct
from keras_cond.ops.dct import dct_of_channels, idct_of_channels
from tests.autodiff import compiled, dtype_of, float64, gradient, to_numpy, weighted_sum

LENGTHS = (1, 2, 3, 5, 7, 8, 64, 197)


def noise(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype("float32")


def tensor(x, dtype="float32"):
    return ops.convert_to_tensor(np.asarray(x, dtype))


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -2, -3])
@pytest.mark.parametrize("length", LENGTHS)
def test_dct_is_scipys_on_any_axis(length, axis):
    shape = [2, 3, 4]
    shape[axis] = length
    x = noise(*shape)
    expected = scipy.fft.dct(x, type=2, norm="ortho", axis=axis)
    # A sum of up to 197 products of order 1 in float32.
    np.testing.assert_allclose(to_numpy(dct(tensor(x), axis=axis)), expected, atol=2e-5)


@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.parametrize("length", LENGTHS)
def test_idct_is_scipys_and_undoes_dct(length, axis):
    x = noise(3, length) if axis == -1 else noise(length, 3)
    expected = scipy.fft.idct(x, type=2, norm="ortho", axis=axis)
    np.testing.assert_allclose(
        to_numpy(idct(tensor(x), axis=axis)), expected, atol=2e-5
    )
    back = idct(dct(tensor(x), axis=axis), axis=axis)
    np.testing.assert_allclose(to_numpy(back), x, atol=3e-5)


@pytest.mark.parametrize("shape", [(3,), (2, 3), (2, 1, 3)])
@pytest.mark.parametrize("length", LENGTHS)
def test_dct_of_channels_is_scipys_with_even_frequencies_first(length, shape):
    x = noise(*shape, length)
    expected = scipy.fft.dct(x, norm="ortho")
    if length % 2 == 0:
        expected = np.concatenate([expected[..., 0::2], expected[..., 1::2]], axis=-1)
    got = dct_of_channels(tensor(x))
    np.testing.assert_allclose(to_numpy(got), expected, atol=2e-5)
    np.testing.assert_allclose(to_numpy(idct_of_channels(got)), x, atol=3e-5)


def test_dct_of_channels_keeps_float64():
    x = np.random.default_rng(0).standard_normal((2, 8))
    expected = scipy.fft.dct(x, norm="ortho").reshape(2, 4, 2).swapaxes(1, 2)
    with float64():
        got = dct_of_channels(tensor(x, "float64"))
        back = to_numpy(idct_of_channels(got))
    np.testing.assert_allclose(to_numpy(got), expected.reshape(2, 8), atol=1e-12)
    np.testing.assert_allclose(back, x, atol=1e-12)


@pytest.mark.parametrize("length", [5, 197])
def test_float64_is_kept(length):
    x = np.random.default_rng(0).standard_normal((2, length))
    with float64():
        got = to_numpy(dct(tensor(x, "float64")))
    np.testing.assert_allclose(
        got, scipy.fft.dct(x, type=2, norm="ortho"), atol=1e-12, rtol=0
    )


def test_default_axis_is_the_last():
    x = tensor(noise(4, 7))
    np.testing.assert_array_equal(to_numpy(dct(x)), to_numpy(dct(x, axis=-1)))
    np.testing.assert_array_equal(to_numpy(idct(x)), to_numpy(idct(x, axis=-1)))


def test_vectors_are_transformed_as_well():
    x = noise(7)
    np.testing.assert_allclose(
        to_numpy(dct(tensor(x))), scipy.fft.dct(x, norm="ortho"), atol=1e-5
    )


def test_lengths_do_not_remember_each_other():
    for length in (5, 6, 7, 6, 5):
        x = noise(2, length)
        np.testing.assert_allclose(
            to_numpy(dct(tensor(x))), scipy.fft.dct(x, norm="ortho"), atol=1e-5
        )


def test_gradient_of_dct_is_idct():
    x, weight = noise(2, 3, 7)
    got = gradient(lambda t: weighted_sum(weight, dct(t)), x)
    np.testing.assert_allclose(got, scipy.fft.idct(weight, norm="ortho"), atol=1e-5)


def test_compiled_equals_eager():
    x = tensor(noise(3, 7))
    for function in (dct, idct):
        np.testing.assert_allclose(
            to_numpy(compiled(function)(x)), to_numpy(function(x)), atol=1e-6
        )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_in_half_precision_out(dtype):
    x = ops.cast(tensor(noise(3, 64)), dtype)
    got = dct(x)
    assert dtype_of(got) == dtype
    expected = scipy.fft.dct(to_numpy(x).astype("float64"), norm="ortho")
    # Rounded once at the end: relative 2^-9 for bfloat16, 2^-12 for float16.
    np.testing.assert_allclose(to_numpy(got), expected, rtol=4e-3, atol=1e-5)


def test_an_empty_batch_stays_empty():
    assert tuple(dct(ops.zeros((0, 5))).shape) == (0, 5)


@pytest.mark.parametrize("function", [dct, idct])
def test_bad_tensors_are_refused(function):
    with pytest.raises(ValueError, match=r"(?s)float.*int32"):
        function(ops.ones((3, 4), dtype="int32"))
    for axis in (2, -3):
        with pytest.raises(ValueError, match=rf"(?s)axis.*{axis}"):
            function(ops.ones((3, 4)), axis=axis)
