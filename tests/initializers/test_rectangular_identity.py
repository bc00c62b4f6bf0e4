"""`RectangularIdentity`: eye(D, d) for each head, or eye(D, heads d) for all."""

import keras
import numpy as np
import pytest

from keras_cond.initializers import RectangularIdentity
from tests.autodiff import dtype_of, to_numpy
from tests.initializers.layouts import attention_kernels, input_heads, output_heads


def eyes(count, *shape):
    return np.stack([np.eye(*shape)] * count)


@pytest.mark.parametrize("shape", [(12, 3, 4), (12, 4, 2), (5, 2, 8), (8, 1, 8)])
def test_per_head_every_head_reads_the_first_coordinates(shape):
    kernel = to_numpy(RectangularIdentity(gain=0.5)(shape))
    expected = 0.5 * eyes(shape[1], shape[0], shape[2])
    np.testing.assert_array_equal(input_heads(kernel), expected)


@pytest.mark.parametrize("shape", [(12, 3, 4), (12, 4, 2), (5, 2, 8), (8, 1, 8)])
def test_joint_each_head_reads_its_own_slice(shape):
    kernel = to_numpy(RectangularIdentity(gain=0.5, per_head=False)(shape))
    expected = 0.5 * np.eye(shape[0], shape[1] * shape[2])
    np.testing.assert_array_equal(kernel.reshape(shape[0], -1), expected)


def test_joint_on_a_square_kernel_splits_the_channels_over_the_heads():
    x = np.arange(12.0, dtype="float32")
    kernel = to_numpy(RectangularIdentity(per_head=False)((12, 3, 4)))
    np.testing.assert_array_equal(np.einsum("d,dhk->hk", x, kernel), x.reshape(3, 4))


@pytest.mark.parametrize("shape", [(4, 3, 12), (4, 3, 10), (2, 8, 5)])
def test_with_num_heads_an_output_kernel_is_one_identity_a_head(shape):
    kernel = to_numpy(RectangularIdentity(num_heads=shape[0])(shape))
    np.testing.assert_array_equal(output_heads(kernel), eyes(*shape))


@pytest.mark.parametrize("shape", [(4, 3, 12), (4, 3, 10), (2, 8, 5)])
def test_with_num_heads_a_joint_output_kernel_is_one_identity(shape):
    kernel = to_numpy(RectangularIdentity(per_head=False, num_heads=shape[0])(shape))
    heads, size, width = shape
    np.testing.assert_array_equal(
        kernel.reshape(heads * size, width), np.eye(heads * size, width)
    )


def test_an_output_kernel_is_recognized_without_num_heads_where_it_is_plain():
    shape = (3, 4, 12)
    kernel = to_numpy(RectangularIdentity()(shape))
    np.testing.assert_array_equal(output_heads(kernel), eyes(*shape))
    joint = to_numpy(RectangularIdentity(per_head=False)(shape))
    np.testing.assert_array_equal(joint.reshape(12, 12), np.eye(12))


@pytest.mark.parametrize("shape", [(12, 8), (8, 12), (6, 6)])
def test_a_matrix_is_the_rectangular_identity(shape):
    kernel = to_numpy(RectangularIdentity(gain=2.0)(shape))
    np.testing.assert_array_equal(kernel, 2.0 * np.eye(*shape))


def test_with_num_heads_each_column_block_of_a_matrix_is_an_identity():
    kernel = to_numpy(RectangularIdentity(num_heads=4)((12, 8)))
    np.testing.assert_array_equal(np.split(kernel, 4, axis=1), eyes(4, 12, 2))
    joint = to_numpy(RectangularIdentity(per_head=False, num_heads=4)((12, 8)))
    np.testing.assert_array_equal(joint, np.eye(12, 8))


def test_stock_attention_gets_identities_in_every_role():
    kernels = attention_kernels(RectangularIdentity(per_head=False))
    for role in ("query", "key", "value"):
        np.testing.assert_array_equal(kernels[role].reshape(12, 12), np.eye(12))
    np.testing.assert_array_equal(kernels["output"].reshape(12, 12), np.eye(12))
    # Value and output undo each other: a copy, whatever the scores.
    layer = keras.layers.MultiHeadAttention(
        3, 4, kernel_initializer=RectangularIdentity(per_head=False)
    )
    x = np.random.default_rng(0).standard_normal((1, 1, 12)).astype("float32")
    np.testing.assert_allclose(to_numpy(layer(x, x)), x, atol=1e-6)


def test_stock_grouped_query_attention_gets_identities():
    layer = keras.layers.GroupQueryAttention(
        3, 4, 2, kernel_initializer=RectangularIdentity()
    )
    layer.build((None, 5, 12), (None, 5, 12))
    query, key, value, _ = (w for w in layer.get_weights() if w.ndim == 3)
    np.testing.assert_array_equal(input_heads(query), eyes(4, 12, 3))
    np.testing.assert_array_equal(input_heads(key), eyes(2, 12, 3))
    np.testing.assert_array_equal(input_heads(value), eyes(2, 12, 3))


def test_stock_dense_layers_get_identities():
    dense = keras.layers.Dense(6, kernel_initializer=RectangularIdentity())
    dense.build((None, 10))
    np.testing.assert_array_equal(dense.get_weights()[0], np.eye(10, 6))
    einsum = keras.layers.EinsumDense(
        "btd,dhk->bthk", (None, 2, 3), kernel_initializer=RectangularIdentity()
    )
    einsum.build((None, 5, 10))
    np.testing.assert_array_equal(input_heads(einsum.get_weights()[0]), eyes(2, 10, 3))


def test_every_argument_survives_config_and_clone():
    initializer = RectangularIdentity(gain=0.7, per_head=False, num_heads=4)
    assert initializer.get_config() == {
        "gain": 0.7,
        "per_head": False,
        "num_heads": 4,
    }
    serialized = keras.saving.serialize_keras_object(initializer)
    assert serialized["registered_name"] == "keras_cond>RectangularIdentity"
    again = keras.saving.deserialize_keras_object(serialized)
    np.testing.assert_array_equal(
        to_numpy(again((4, 3, 12))), to_numpy(initializer((4, 3, 12)))
    )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_dtype_is_the_one_asked_for(dtype):
    kernel = RectangularIdentity()((12, 3, 4), dtype=dtype)
    assert dtype_of(kernel) == dtype
    np.testing.assert_array_equal(input_heads(to_numpy(kernel)), eyes(3, 12, 4))


@pytest.mark.parametrize("shape", [(4,), (2, 3, 4, 5)])
def test_ranks_that_are_no_projection_are_refused(shape):
    with pytest.raises(ValueError, match=r"shape|rank") as error:
        RectangularIdentity()(shape)
    assert str(shape) in str(error.value)


@pytest.mark.parametrize(("shape", "heads"), [((12, 8), 3), ((12, 3, 4), 5)])
def test_num_heads_that_fits_no_axis_is_refused(shape, heads):
    with pytest.raises(ValueError, match="num_heads") as error:
        RectangularIdentity(num_heads=heads)(shape)
    assert str(heads) in str(error.value) and str(shape) in str(error.value)
