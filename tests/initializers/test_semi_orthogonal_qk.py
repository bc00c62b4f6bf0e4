"""`SemiOrthogonalQK`: every head's singular values are the gain, in every layout."""

import itertools

import keras
import numpy as np
import pytest

from keras_cond.initializers import SemiOrthogonalQK
from tests import oracles
from tests.autodiff import dtype_of, to_numpy
from tests.initializers.layouts import attention_kernels, input_heads, output_heads


def assert_heads(heads, gain):
    for head in heads:
        np.testing.assert_allclose(oracles.singular_values(head), gain, atol=1e-5)
    for one, other in itertools.pairwise(heads):
        assert np.abs(one - other).max() > 0.02, "heads are not independent"


# -- layouts ---------------------------------------------------------------------


@pytest.mark.parametrize("gain", [1.0, 0.3])
@pytest.mark.parametrize(
    "shape",
    [
        (12, 3, 4),  # D = heads x d
        (12, 4, 2),  # heads != d, D != heads x d
        (5, 2, 8),  # d above D
        (9, 2, 3),
        (8, 1, 8),
    ],
)
def test_every_head_of_a_query_kernel_is_semi_orthogonal(shape, gain):
    kernel = to_numpy(SemiOrthogonalQK(gain=gain, seed=1)(shape))
    assert kernel.shape == shape
    assert_heads(input_heads(kernel), gain)


def test_keras_orthogonal_is_not_so_the_test_above_can_fail():
    kernel = to_numpy(keras.initializers.Orthogonal(seed=1)((12, 4, 2)))
    values = [oracles.singular_values(head) for head in input_heads(kernel)]
    assert np.abs(np.array(values) - 1).max() > 0.1


@pytest.mark.parametrize("shape", [(4, 3, 12), (4, 3, 10), (2, 8, 5)])
def test_with_num_heads_an_output_kernel_is_semi_orthogonal_by_head(shape):
    kernel = to_numpy(SemiOrthogonalQK(num_heads=shape[0], seed=1)(shape))
    assert_heads(output_heads(kernel), 1.0)


def test_num_heads_leaves_a_query_kernel_a_query_kernel():
    kernel = to_numpy(SemiOrthogonalQK(num_heads=4, seed=1)((12, 4, 2)))
    assert_heads(input_heads(kernel), 1.0)


@pytest.mark.parametrize("shape", [(4, 3, 12), (2, 3, 12)])
def test_without_num_heads_a_small_output_kernel_satisfies_both_readings(shape):
    kernel = to_numpy(SemiOrthogonalQK(seed=1)(shape))
    assert_heads(output_heads(kernel), 1.0)
    assert_heads(input_heads(kernel), 1.0)


@pytest.mark.parametrize("shape", [(12, 8), (8, 12), (6, 6), (5, 1)])
def test_a_matrix_is_semi_orthogonal_as_a_whole(shape):
    kernel = to_numpy(SemiOrthogonalQK(gain=2.0, seed=1)(shape))
    np.testing.assert_allclose(oracles.singular_values(kernel), 2.0, atol=2e-5)


@pytest.mark.parametrize(("shape", "heads"), [((12, 8), 4), ((6, 24), 3)])
def test_with_num_heads_each_column_block_of_a_matrix_is_semi_orthogonal(shape, heads):
    kernel = to_numpy(SemiOrthogonalQK(num_heads=heads, seed=1)(shape))
    assert_heads(np.split(kernel, heads, axis=1), 1.0)


# -- stock layers ----------------------------------------------------------------


def test_stock_multi_head_attention_gets_semi_orthogonal_heads_in_every_role():
    kernels = attention_kernels(SemiOrthogonalQK(seed=None))
    for role in ("query", "key", "value"):
        assert_heads(input_heads(kernels[role]), 1.0)
    assert_heads(output_heads(kernels["output"]), 1.0)


def test_stock_grouped_query_attention_gets_semi_orthogonal_heads():
    layer = keras.layers.GroupQueryAttention(
        3, 4, 2, kernel_initializer=SemiOrthogonalQK()
    )
    layer.build((None, 5, 12), (None, 5, 12))
    query, key, value, output = (w for w in layer.get_weights() if w.ndim == 3)
    for kernel in (query, key, value):
        assert_heads(input_heads(kernel), 1.0)
    assert_heads(output_heads(output), 1.0)


def test_stock_dense_layers_get_semi_orthogonal_kernels():
    dense = keras.layers.Dense(6, kernel_initializer=SemiOrthogonalQK())
    dense.build((None, 10))
    np.testing.assert_allclose(
        oracles.singular_values(dense.get_weights()[0]), 1.0, atol=1e-5
    )
    einsum = keras.layers.EinsumDense(
        "btd,dhk->bthk", (None, 2, 3), kernel_initializer=SemiOrthogonalQK()
    )
    einsum.build((None, 5, 10))
    assert_heads(input_heads(einsum.get_weights()[0]), 1.0)


# -- seeds -----------------------------------------------------------------------


def test_a_seed_repeats_and_another_differs():
    one = to_numpy(SemiOrthogonalQK(seed=1)((12, 3, 4)))
    np.testing.assert_array_equal(one, to_numpy(SemiOrthogonalQK(seed=1)((12, 3, 4))))
    other = to_numpy(SemiOrthogonalQK(seed=2)((12, 3, 4)))
    assert np.abs(one - other).max() > 0.05


def test_without_a_seed_the_roles_of_stock_attention_differ():
    kernels = attention_kernels(SemiOrthogonalQK())
    assert np.abs(kernels["query"] - kernels["key"]).max() > 0.05
    assert np.abs(kernels["key"] - kernels["value"]).max() > 0.05


def test_a_seed_generator_moves_on():
    initializer = SemiOrthogonalQK(seed=keras.random.SeedGenerator(3))
    one, other = to_numpy(initializer((12, 3, 4))), to_numpy(initializer((12, 3, 4)))
    assert np.abs(one - other).max() > 0.05
    again = SemiOrthogonalQK(seed=keras.random.SeedGenerator(3))
    np.testing.assert_array_equal(to_numpy(again((12, 3, 4))), one)


# -- config and precision --------------------------------------------------------


def test_every_argument_survives_config_and_clone():
    initializer = SemiOrthogonalQK(gain=0.7, num_heads=4, seed=11)
    config = initializer.get_config()
    assert (config["gain"], config["num_heads"], config["seed"]) == (0.7, 4, 11)
    again = SemiOrthogonalQK.from_config(config)
    np.testing.assert_array_equal(
        to_numpy(again((4, 3, 12))), to_numpy(initializer((4, 3, 12)))
    )


def test_it_is_registered_under_the_package_name():
    initializer = SemiOrthogonalQK(
        gain=0.7, num_heads=2, seed=keras.random.SeedGenerator(4)
    )
    serialized = keras.saving.serialize_keras_object(initializer)
    assert serialized["registered_name"] == "keras_cond>SemiOrthogonalQK"
    again = keras.saving.deserialize_keras_object(serialized)
    np.testing.assert_array_equal(
        to_numpy(again((2, 3, 8))), to_numpy(initializer((2, 3, 8)))
    )


def test_a_saved_model_keeps_the_initializer(tmp_path):
    inputs = keras.Input((5,))
    dense = keras.layers.Dense(4, kernel_initializer=SemiOrthogonalQK(0.7, 2, seed=3))
    keras.Model(inputs, dense(inputs)).save(tmp_path / "m.keras")
    loaded = keras.models.load_model(tmp_path / "m.keras").layers[-1]
    assert loaded.kernel_initializer.get_config() == {
        "gain": 0.7,
        "num_heads": 2,
        "seed": 3,
    }


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_kernels_are_rounded_float32_ones(dtype):
    kernel = SemiOrthogonalQK(seed=1)((12, 3, 4), dtype=dtype)
    assert dtype_of(kernel) == dtype
    for head in input_heads(to_numpy(kernel)):
        # Rounded to 8 (bfloat16) or 11 bits: orthonormal to about 1e-2.
        np.testing.assert_allclose(oracles.singular_values(head), 1.0, atol=1e-2)
    full = to_numpy(SemiOrthogonalQK(seed=1)((12, 3, 4), dtype="float32"))
    np.testing.assert_allclose(to_numpy(kernel), full, atol=4e-3)


def test_default_dtype_is_floatx():
    keras.config.set_floatx("float16")
    assert dtype_of(SemiOrthogonalQK(seed=1)((6, 4))) == "float16"


# -- bad input -------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(4,), (2, 3, 4, 5), ()])
def test_ranks_that_are_no_projection_are_refused(shape):
    with pytest.raises(ValueError, match=r"shape|rank") as error:
        SemiOrthogonalQK()(shape)
    assert str(shape) in str(error.value)


@pytest.mark.parametrize(
    ("shape", "heads"), [((12, 8), 3), ((12, 3, 4), 5), ((7, 8), 16)]
)
def test_num_heads_that_fits_no_axis_is_refused(shape, heads):
    with pytest.raises(ValueError, match="num_heads") as error:
        SemiOrthogonalQK(num_heads=heads)(shape)
    assert str(heads) in str(error.value) and str(shape) in str(error.value)


@pytest.mark.parametrize("heads", [0, -1, 2.5])
def test_num_heads_must_be_a_positive_integer(heads):
    with pytest.raises(ValueError, match=rf"(?s)num_heads.*{heads}"):
        SemiOrthogonalQK(num_heads=heads)


@pytest.mark.parametrize("gain", [float("nan"), float("inf")])
def test_a_gain_that_is_not_finite_is_refused(gain):
    with pytest.raises(ValueError, match=rf"(?s)gain.*{gain}"):
        SemiOrthogonalQK(gain=gain)
