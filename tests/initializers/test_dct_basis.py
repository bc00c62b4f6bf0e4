"""`DCTBasis`: the joint kernel's columns are orthonormal DCT-II basis vectors."""

import keras
import numpy as np
import pytest
import scipy.fft

from keras_cond.initializers import DCTBasis
from tests import oracles
from tests.autodiff import dtype_of, to_numpy
from tests.initializers.layouts import attention_kernels


def noise(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype("float32")


@pytest.mark.parametrize("shape", [(12, 8), (8, 8), (12, 1)])
def test_x_times_the_kernel_are_the_first_dct_coefficients(shape):
    x = noise(3, shape[0])
    kernel = to_numpy(DCTBasis(gain=0.5)(shape))
    expected = 0.5 * scipy.fft.dct(x, norm="ortho")[:, : shape[1]]
    np.testing.assert_allclose(x @ kernel, expected, atol=1e-5)


def test_a_wide_kernel_has_semi_orthogonal_rows():
    kernel = to_numpy(DCTBasis()((5, 12))).astype("float64")
    np.testing.assert_allclose(kernel @ kernel.T, np.eye(5), atol=1e-5)
    # The transpose of the kernel of shape (12, 5).
    np.testing.assert_allclose(kernel, oracles.dct_basis(12, 5).T, atol=1e-5)


@pytest.mark.parametrize("shape", [(12, 3, 4), (12, 4, 2), (12, 1, 6)])
def test_the_heads_of_a_query_kernel_share_one_basis(shape):
    kernel = to_numpy(DCTBasis()(shape)).reshape(shape[0], -1)
    np.testing.assert_allclose(kernel, oracles.dct_basis(*kernel.shape), atol=1e-5)


def test_stock_attention_projects_onto_the_basis():
    kernels = attention_kernels(DCTBasis(num_heads=3))
    for role in ("query", "key", "value"):
        np.testing.assert_allclose(
            kernels[role].reshape(12, 12), oracles.dct_basis(12, 12), atol=1e-5
        )
    output = kernels["output"].reshape(12, 12).astype("float64")
    np.testing.assert_allclose(output.T @ output, np.eye(12), atol=1e-5)


def test_with_num_heads_an_output_kernel_has_orthonormal_columns_or_rows():
    for shape in ((4, 3, 12), (4, 3, 10), (2, 3, 10)):
        kernel = to_numpy(DCTBasis(num_heads=shape[0])(shape)).reshape(-1, shape[-1])
        values = oracles.singular_values(kernel)
        np.testing.assert_allclose(values, 1.0, atol=1e-5)


def test_stock_dense_layers_get_the_basis():
    dense = keras.layers.Dense(6, kernel_initializer=DCTBasis())
    dense.build((None, 10))
    np.testing.assert_allclose(
        dense.get_weights()[0], oracles.dct_basis(10, 6), atol=1e-5
    )


def test_every_argument_survives_config_and_clone():
    initializer = DCTBasis(gain=0.7, num_heads=4)
    assert initializer.get_config() == {"gain": 0.7, "num_heads": 4}
    serialized = keras.saving.serialize_keras_object(initializer)
    assert serialized["registered_name"] == "keras_cond>DCTBasis"
    again = keras.saving.deserialize_keras_object(serialized)
    np.testing.assert_array_equal(
        to_numpy(again((12, 4, 3))), to_numpy(initializer((12, 4, 3)))
    )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_kernels_are_rounded_float32_ones(dtype):
    kernel = DCTBasis()((12, 8), dtype=dtype)
    assert dtype_of(kernel) == dtype
    np.testing.assert_allclose(to_numpy(kernel), oracles.dct_basis(12, 8), atol=4e-3)


@pytest.mark.parametrize("shape", [(4,), (2, 3, 4, 5)])
def test_ranks_that_are_no_projection_are_refused(shape):
    with pytest.raises(ValueError, match=r"shape|rank") as error:
        DCTBasis()(shape)
    assert str(shape) in str(error.value)


@pytest.mark.parametrize(("shape", "heads"), [((12, 3, 4), 5)])
def test_num_heads_that_fits_no_axis_is_refused(shape, heads):
    with pytest.raises(ValueError, match="num_heads") as error:
        DCTBasis(num_heads=heads)(shape)
    assert str(heads) in str(error.value) and str(shape) in str(error.value)
