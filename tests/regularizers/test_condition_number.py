import keras
import numpy as np
import pytest

from keras_cond import ConditionNumber
from tests import oracles
from tests.autodiff import gradient, to_numpy
from tests.matrices import orthonormal, with_kappa

HEADS, SIZE, WIDTH = 2, 4, 8
TOKENS = np.random.default_rng(0).normal(size=(8, 5, WIDTH)).astype("float32")
KERNEL = np.random.default_rng(1).normal(size=(WIDTH, HEADS, SIZE))


def beta(x, floor=1e-2):
    """log of the arithmetic over the geometric mean of (s/s_max)² + floor²."""
    s = oracles.singular_values(x)
    values = (s / s[0]) ** 2 + floor**2
    return np.log(values.mean()) - np.log(values).mean()


def expected(kernel, per_head, floor=1e-2):
    if per_head:
        return np.mean([beta(w, floor) for w in oracles.head_matrices(kernel)])
    return beta(oracles.joint_matrix(kernel), floor)


@pytest.mark.parametrize("per_head", [True, False])
def test_the_penalty_is_the_mean_over_heads(per_head):
    regularizer = ConditionNumber(0.3, per_head)
    got = to_numpy(regularizer(KERNEL.astype("float32")))
    assert got.shape == ()
    np.testing.assert_allclose(got, 0.3 * expected(KERNEL, per_head), rtol=1e-4)


def test_other_layouts_are_read_as_matrices():
    joint = KERNEL.reshape(WIDTH, HEADS * SIZE).astype("float32")
    output = np.moveaxis(KERNEL, 1, 0).swapaxes(1, 2).astype("float32")
    value = ConditionNumber(1.0, num_heads=HEADS)
    np.testing.assert_allclose(
        to_numpy(value(joint)), expected(KERNEL, True), rtol=1e-4
    )
    # (heads, d, D): the transposed matrices have the same singular values.
    np.testing.assert_allclose(
        to_numpy(ConditionNumber(1.0)(output)), expected(KERNEL, True), rtol=1e-4
    )
    np.testing.assert_allclose(
        to_numpy(ConditionNumber(1.0)(joint)), beta(joint), rtol=1e-4
    )


@pytest.mark.parametrize("per_head", [True, False])
def test_the_gradient_agrees_with_finite_differences(per_head):
    direction = np.random.default_rng(2).normal(size=KERNEL.shape)
    slope = oracles.directional_derivative(
        lambda w: 0.3 * expected(w, per_head), KERNEL, direction
    )
    got = gradient(ConditionNumber(0.3, per_head), KERNEL.astype("float32"))
    np.testing.assert_allclose(np.sum(got * direction), slope, rtol=1e-3)


def test_an_orthogonal_kernel_is_not_moved():
    kernel = orthonormal(WIDTH, SIZE, 1).astype("float32")
    np.testing.assert_allclose(to_numpy(ConditionNumber(1.0)(kernel)), 0, atol=1e-6)
    np.testing.assert_allclose(gradient(ConditionNumber(1.0), kernel), 0, atol=1e-5)


@pytest.mark.parametrize("policy", ["float32", "bfloat16"])
def test_fit_lowers_kappa(policy):
    """A model whose other loss is 0: the penalty alone moves the kernels."""
    layer = keras.layers.MultiHeadAttention(
        HEADS,
        SIZE,
        kernel_regularizer=ConditionNumber(0.1, per_head=False),
        dtype=policy,
    )
    inputs = keras.Input(TOKENS.shape[1:])
    outputs = 0.0 * layer(inputs, inputs)
    model = keras.Model(inputs, outputs)
    model.compile(keras.optimizers.SGD(0.5), "mse")
    kernel = layer.query_dense.kernel
    kernel.assign(with_kappa((WIDTH, WIDTH), 30.0).reshape(kernel.shape))
    history = model.fit(
        TOKENS, np.zeros_like(TOKENS), batch_size=2, epochs=2, verbose=0
    ).history
    assert np.all(np.isfinite(history["loss"]))
    assert history["loss"][1] < history["loss"][0]
    assert oracles.condition_number(oracles.joint_matrix(to_numpy(kernel))) < 20


def test_a_nan_in_one_head_gives_nan():
    kernel = KERNEL.astype("float32")
    kernel[0, 0, 0] = np.nan
    assert np.isnan(to_numpy(ConditionNumber(1.0)(kernel)))


def test_a_zero_kernel_has_no_penalty():
    kernel = np.zeros((WIDTH, HEADS, SIZE), "float32")
    assert float(to_numpy(ConditionNumber(1.0)(kernel))) == pytest.approx(0, abs=1e-6)
    np.testing.assert_array_equal(gradient(ConditionNumber(1.0), kernel), 0)


def test_it_is_restored_from_its_configuration():
    regularizer = ConditionNumber(0.2, per_head=False, num_heads=3, floor=0.1)
    restored = keras.regularizers.deserialize(keras.regularizers.serialize(regularizer))
    assert type(restored) is ConditionNumber
    assert restored.get_config() == regularizer.get_config()


@pytest.mark.parametrize(
    ("kwargs", "text"),
    [
        ({"weight": -1.0}, "`weight` is the factor of the penalty"),
        ({"weight": "1"}, "`weight` must be a finite number"),
        ({"weight": 1.0, "per_head": 1}, "`per_head` must be True or False"),
        ({"weight": 1.0, "num_heads": 0}, "`num_heads` must be a positive integer"),
        ({"weight": 1.0, "floor": 2.0}, "`floor` is a fraction"),
        ({"weight": 1.0, "floor": 1e-4}, "`floor` is squared"),
    ],
)
def test_wrong_arguments_are_refused(kwargs, text):
    with pytest.raises(ValueError, match=text):
        ConditionNumber(**kwargs)


def test_a_kernel_of_another_rank_is_refused():
    with pytest.raises(ValueError, match="`ConditionNumber` is for kernels"):
        ConditionNumber(1.0)(np.ones(8, "float32"))
