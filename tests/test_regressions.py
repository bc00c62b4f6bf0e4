"""Faults that were once found here, each as the input that showed it."""

import copy

import keras
import numpy as np
import pytest

import keras_cond
from keras_cond.initializers.seeds import with_derived_seed
from tests.autodiff import dtype_of, to_numpy

X = np.random.default_rng(0).normal(size=(2, 5, 6)).astype("float32")


def test_a_table_quantized_by_force_refuses_rather_than_leaks_the_future():
    layer = keras_cond.ConditionedEmbedding(9, 4, condition="table")
    layer(np.array([[1, 2, 3]]))
    layer.quantize("int8", type_check=False)
    with pytest.raises(ValueError, match="table needs it in floating point"):
        layer(np.array([[1, 2, 3]]))


@pytest.mark.parametrize("condition", ["sequence", "table"])
@pytest.mark.parametrize("shape", [(5,), (1, 5), (2, 4), (2, 5, 1)])
def test_a_mask_of_another_shape_is_not_broadcast(condition, shape):
    layer = keras_cond.ConditionedEmbedding(9, 4, condition, mask_zero=True)
    with pytest.raises(ValueError, match="one entry a token"):
        layer(np.ones((2, 5), int), mask=np.ones(shape))


def test_polar_correction_with_lora_stays_in_full_precision():
    layer = keras_cond.SpectralAttention(
        2, 8, correction="polar", dtype="mixed_float16"
    )
    layer.build((2, 5, 16), (2, 5, 16))
    dense = layer.query_dense
    before = to_numpy(dense.corrected_kernel())
    dense.enable_lora(2)
    assert dtype_of(dense.corrected_kernel()) == "float32"
    np.testing.assert_array_equal(to_numpy(dense.corrected_kernel()), before)


def test_layers_that_share_a_seed_generator_differ():
    generator = keras.random.SeedGenerator(1)
    layers = [
        keras_cond.SpectralAttention(
            2, 4, kernel_initializer=keras_cond.SemiOrthogonalQK(seed=generator)
        )
        for _ in range(2)
    ]
    for layer in layers:
        layer.build(X.shape, X.shape)
    first, second = (to_numpy(layer.query_dense.kernel) for layer in layers)
    assert np.abs(first - second).max() > 0.01


def test_numpy_scalars_do_not_leak_their_precision():
    layer = keras_cond.SpectralAttention(
        2, 4, correction_scale=np.float32(2), dtype="mixed_bfloat16"
    )
    layer.build(X.shape, X.shape)
    half = keras.ops.cast(X, "bfloat16")
    assert dtype_of(layer.query_dense(half)) == "bfloat16"
    initializer = keras_cond.RectangularIdentity(gain=np.float64(2))
    assert dtype_of(initializer((6, 2, 3), dtype="float16")) == "float16"


def test_a_corrected_projection_is_copied_alone():
    layer = keras_cond.SpectralAttention(2, 4, correction_scale=3.0, per_head=False)
    layer.build(X.shape, X.shape)
    twin = copy.deepcopy(layer.query_dense)
    np.testing.assert_array_equal(to_numpy(twin(X)), to_numpy(layer.query_dense(X)))


@pytest.mark.parametrize("epsilon", [np.array(7.0), [0.5], np.True_, 0.5j, {}])
def test_an_epsilon_that_is_no_number_in_range_is_refused(epsilon):
    with pytest.raises(ValueError, match="exponent of the graying"):
        keras_cond.DCTTokenGraying(epsilon=epsilon)
    with pytest.raises(ValueError, match="exponent of the graying"):
        keras_cond.ops.svd_graying(X, epsilon)


def test_seeds_of_opposite_sign_differ():
    derived = [
        with_derived_seed(keras.initializers.RandomNormal(seed=seed), 1)
        for seed in (5, -5)
    ]
    first, second = (initializer.get_config()["seed"] for initializer in derived)
    assert first != second
