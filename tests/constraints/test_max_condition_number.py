import keras
import numpy as np
import pytest

from keras_cond import MaxConditionNumber, RectangularIdentity
from tests import oracles
from tests.autodiff import dtype_of, to_numpy
from tests.matrices import with_kappa

# Heads, channels of a head, channels: the output projection is told by its shape.
HEADS, SIZE, WIDTH = 2, 4, 8
TOKENS = np.random.default_rng(0).normal(size=(8, 5, WIDTH)).astype("float32")


def kappa(x):
    values = oracles.singular_values(x)
    return values[0] / values[-1]


def ill_conditioned(shape, seed=0):
    """A kernel whose joint matrix has κ = 1e4, and its heads some large one."""
    rows = shape[0] if len(shape) < 3 or shape[0] != HEADS else HEADS * SIZE
    columns = int(np.prod(shape)) // rows
    return with_kappa((rows, columns), 1e4, seed).reshape(shape).astype("float32")


def read(kernel, axis, per_head):
    """The matrices of a kernel (D, heads, d), or (heads, d, D) for axis 0."""
    kernel = np.asarray(kernel, "float64")
    if per_head:
        return list(np.moveaxis(kernel, axis, 0))
    shape = (HEADS * SIZE, WIDTH) if axis == 0 else (WIDTH, HEADS * SIZE)
    return [kernel.reshape(shape)]


def lifted(x, limit):
    u, s, vt = np.linalg.svd(x, full_matrices=False)
    return (u * np.maximum(s, s[0] / limit)) @ vt


@pytest.mark.parametrize("per_head", [True, False])
@pytest.mark.parametrize("axis", [0, 1])
def test_each_layout_is_lifted_as_by_an_svd(axis, per_head):
    shape = (HEADS, SIZE, WIDTH) if axis == 0 else (WIDTH, HEADS, SIZE)
    kernel = ill_conditioned(shape)
    kernel = kernel + 0.1 * np.random.default_rng(1).normal(size=shape)
    constraint = MaxConditionNumber(2.0, per_head)
    result = to_numpy(constraint(kernel.astype("float32")))
    pairs = zip(read(result, axis, per_head), read(kernel, axis, per_head), strict=True)
    for got, matrix in pairs:
        np.testing.assert_allclose(got, lifted(matrix, 2.0), atol=1e-4)


def test_a_dense_kernel_is_one_matrix_or_has_blocks_of_columns():
    kernel = ill_conditioned((WIDTH, HEADS * SIZE))
    whole = to_numpy(MaxConditionNumber(5.0)(kernel))
    np.testing.assert_allclose(whole, lifted(kernel, 5.0), atol=1e-5)
    blocks = to_numpy(MaxConditionNumber(5.0, num_heads=HEADS)(kernel))
    for head in np.split(blocks, HEADS, axis=1):
        assert kappa(head) <= 5.005
    joint = to_numpy(MaxConditionNumber(5.0, False, HEADS)(kernel))
    # One matrix and a batch of one are multiplied in different orders.
    np.testing.assert_allclose(whole, joint, atol=1e-6)


def test_heads_that_are_all_alike_are_completed():
    kernel = RectangularIdentity()((WIDTH, HEADS, SIZE))
    result = to_numpy(MaxConditionNumber(4.0, per_head=False)(kernel))
    assert kappa(oracles.joint_matrix(result)) <= 4.004


def fit(per_head, policy=None):
    """Fits a stock layer with ill-conditioned kernels for a few steps."""
    layer = keras.layers.MultiHeadAttention(
        HEADS,
        SIZE,
        kernel_constraint=MaxConditionNumber(20.0, per_head),
        dtype=policy,
    )
    inputs = keras.Input(TOKENS.shape[1:])
    model = keras.Model(inputs, layer(inputs, inputs))
    model.compile(keras.optimizers.SGD(0.1), "mse")
    for weight in layer.weights:
        if len(weight.shape) == 3:
            weight.assign(ill_conditioned(weight.shape))
    model.fit(TOKENS, TOKENS, batch_size=4, epochs=1, verbose=0)
    return model, layer


def test_stock_attention_keeps_the_limit_in_fit(tmp_path):
    model, layer = fit(per_head=False)
    projections = [(layer.query_dense, 1), (layer.key_dense, 1), (layer.value_dense, 1)]
    for dense, axis in [*projections, (layer.output_dense, 0)]:
        for matrix in read(to_numpy(dense.kernel), axis, per_head=False):
            assert kappa(matrix) <= 20.02
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    constraint = loaded.layers[1].query_dense.kernel_constraint
    assert constraint.get_config() == {
        "limit": 20.0,
        "per_head": False,
        "num_heads": None,
    }


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "bfloat16"])
def test_it_works_under_half_precision(policy):
    _, layer = fit(per_head=True, policy=policy)
    kernel = layer.query_dense.kernel
    assert dtype_of(kernel) == ("float32" if "mixed" in policy else "bfloat16")
    limit = 20.02 if "mixed" in policy else 24.0  # bfloat16 rounds the result.
    assert max(kappa(w) for w in read(to_numpy(kernel), 1, per_head=True)) <= limit


def test_grouped_attention_keeps_the_limit():
    layer = keras.layers.GroupQueryAttention(
        SIZE, HEADS, 1, kernel_constraint=MaxConditionNumber(20.0)
    )
    layer.build(TOKENS.shape, TOKENS.shape)
    for weight in layer.weights:
        if len(weight.shape) == 3:
            result = to_numpy(weight.constraint(ill_conditioned(weight.shape)))
            axis = 0 if weight.shape[0] == HEADS else 1
            assert max(kappa(w) for w in read(result, axis, True)) <= 20.02


def test_a_nan_stays_where_it_is():
    kernel = ill_conditioned((WIDTH, HEADS, SIZE))
    kernel[0, 1, 0] = np.nan
    result = to_numpy(MaxConditionNumber(2.0)(kernel))
    assert kappa(result[:, 0]) <= 2.002
    np.testing.assert_array_equal(result[:, 1], kernel[:, 1])


def test_a_zero_kernel_stays_zero():
    result = to_numpy(MaxConditionNumber(2.0)(np.zeros((WIDTH, HEADS, SIZE))))
    np.testing.assert_array_equal(result, 0)


def test_it_is_restored_from_its_configuration():
    constraint = MaxConditionNumber(7.0, per_head=False, num_heads=3)
    restored = keras.constraints.deserialize(keras.constraints.serialize(constraint))
    assert type(restored) is MaxConditionNumber
    assert restored.get_config() == constraint.get_config()


@pytest.mark.parametrize(
    ("kwargs", "text"),
    [
        ({"limit": 1.0}, "`limit` is the largest condition number"),
        ({"limit": "2"}, "`limit` must be a finite number"),
        ({"limit": 2.0, "per_head": 1}, "`per_head` must be True or False"),
        ({"limit": 2.0, "num_heads": 0}, "`num_heads` must be a positive integer"),
    ],
)
def test_wrong_arguments_are_refused(kwargs, text):
    with pytest.raises(ValueError, match=text):
        MaxConditionNumber(**kwargs)


@pytest.mark.parametrize("shape", [(8,), (3, 4, 4, 3)])
def test_a_kernel_of_another_rank_is_refused(shape):
    with pytest.raises(ValueError, match="`MaxConditionNumber` is for kernels"):
        MaxConditionNumber(2.0)(np.ones(shape, "float32"))


def test_a_kernel_without_the_heads_is_refused():
    with pytest.raises(ValueError, match="found no axis of heads"):
        MaxConditionNumber(2.0, num_heads=3)(np.ones((WIDTH, HEADS, SIZE), "float32"))
    with pytest.raises(ValueError, match="must divide its columns"):
        MaxConditionNumber(2.0, num_heads=3)(np.ones((WIDTH, WIDTH), "float32"))
