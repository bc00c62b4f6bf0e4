"""`ConditionedEmbedding`: sequence and table targets, masks, causality."""

from typing import ClassVar

import keras
import numpy as np
import pytest
from keras import ops

from keras_cond.layers import ConditionedEmbedding
from tests import oracles
from tests.autodiff import compiled, to_numpy, weight_gradients, weighted_sum
from tests.layer_contract import VOCABULARY, LayerContract

METHODS = ("newton_schulz", "svd")
IDS = np.array([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]], "int32")


class TestContractOfSequences(LayerContract):
    layer_class = ConditionedEmbedding
    arguments: ClassVar[dict] = {
        "input_dim": VOCABULARY,
        "output_dim": 6,
        "condition": "sequence",
        "floor": 1e-2,
    }
    reads = "ids"


class TestContractOfTheTable(LayerContract):
    layer_class = ConditionedEmbedding
    arguments: ClassVar[dict] = {
        "input_dim": VOCABULARY,
        "output_dim": 6,
        "condition": "table",
        "method": "svd",
        "floor": 1e-2,
        "stop_gradient": True,
    }
    reads = "ids"


def built(**arguments):
    layer = ConditionedEmbedding(12, 6, **arguments)
    layer.build((None, None))
    layer.set_weights(
        [np.random.default_rng(0).standard_normal((12, 6)).astype("float32")]
    )
    return layer, layer.get_weights()[0].astype("float64")


def call(layer, ids, **kwargs):
    return to_numpy(layer(ops.convert_to_tensor(ids), **kwargs))


# -- what it computes ------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_sequence_conditions_the_tokens_of_each_sample(method):
    layer, table = built(condition="sequence", method=method)
    # No repeated id in the second sample; the first has rank 4.
    expected = [
        oracles.condition(table[IDS[0]], rank=4),
        oracles.condition(table[IDS[1]]),
    ]
    np.testing.assert_allclose(call(layer, IDS), expected, atol=5e-3)
    np.testing.assert_allclose(call(layer, IDS)[1], expected[1], atol=1e-4)


@pytest.mark.parametrize("method", METHODS)
def test_table_equals_conditioning_the_table_in_numpy_and_looking_up(method):
    layer, table = built(condition="table", method=method)
    expected = oracles.condition(table)[IDS]
    np.testing.assert_allclose(call(layer, IDS), expected, atol=1e-4)
    # The issue's own formula: E + s_max E (E^T E)^(-1/2).
    values, vectors = np.linalg.eigh(table.T @ table)
    root = vectors @ np.diag(values**-0.5) @ vectors.T
    lifted = table + values[-1] ** 0.5 * table @ root
    np.testing.assert_allclose(call(layer, IDS), lifted[IDS], atol=1e-4)


def test_sequence_is_the_default():
    layer, _ = built()
    explicit, _ = built(condition="sequence")
    np.testing.assert_array_equal(call(layer, IDS), call(explicit, IDS))


@pytest.mark.parametrize("condition", ["sequence", "table"])
def test_the_weight_is_the_raw_table(condition):
    layer, table = built(condition=condition)
    call(layer, IDS)
    np.testing.assert_array_equal(layer.get_weights()[0], table.astype("float32"))
    stock = keras.layers.Embedding(12, 6)
    stock.build((None, None))
    stock.set_weights(layer.get_weights())
    np.testing.assert_array_equal(call(stock, IDS), table.astype("float32")[IDS])
    assert isinstance(layer, keras.layers.Embedding)


@pytest.mark.parametrize("condition", ["sequence", "table"])
def test_a_repeated_word_gets_one_vector(condition):
    layer, _ = built(condition=condition)
    got = call(layer, IDS)
    np.testing.assert_allclose(got[0, 1], got[0, 3], atol=1e-4)


# -- masks -----------------------------------------------------------------------


def test_mask_zero_leaves_padding_raw_and_out_of_the_correction():
    layer, table = built(mask_zero=True)
    ids = np.array([[0, 7, 2, 8, 0, 0], [1, 2, 3, 4, 5, 0]], "int32")
    got = call(layer, ids)
    expected = [oracles.condition(table[row], row != 0) for row in ids]
    np.testing.assert_allclose(got, expected, atol=1e-4)


def test_an_explicit_mask_acts_with_and_without_mask_zero():
    ids = np.array([[4, 7, 2, 8, 0, 3]], "int32")
    mask = np.array([[1, 1, 1, 0, 1, 1]], bool)
    for mask_zero in (False, True):
        layer, table = built(mask_zero=mask_zero)
        real = mask & (ids != 0) if mask_zero else mask
        expected = oracles.condition(table[ids[0]], real[0])
        got = call(layer, ids, mask=ops.convert_to_tensor(mask))
        np.testing.assert_allclose(got[0], expected, atol=1e-4)


def test_all_padding_is_finite_in_value_and_gradient():
    layer, table = built(mask_zero=True)
    ids = ops.zeros((2, 5), dtype="int32")
    np.testing.assert_allclose(to_numpy(layer(ids))[0, 0], table[0], rtol=1e-6)
    (got,) = weight_gradients(layer, lambda: ops.sum(layer(ids)))
    np.testing.assert_allclose(got[0], 10.0, rtol=1e-6)
    np.testing.assert_array_equal(got[1:], 0.0)


def test_an_all_zero_table_has_finite_gradients():
    for condition in ("sequence", "table"):
        layer = ConditionedEmbedding(
            12, 6, condition=condition, embeddings_initializer="zeros"
        )
        np.testing.assert_array_equal(call(layer, IDS), 0.0)
        weight = np.random.default_rng(0).standard_normal((2, 5, 6))
        (got,) = weight_gradients(
            layer, lambda layer=layer, weight=weight: weighted_sum(weight, layer(IDS))
        )
        assert np.isfinite(got).all() and np.abs(got).max() > 0


# -- causality -------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
@pytest.mark.parametrize("jit", [False, True])
def test_table_leaks_nothing_from_the_future(dtype, jit):
    layer, _ = built(condition="table", dtype=dtype)
    function = compiled(lambda ids: layer(ids)) if jit else layer
    changed = IDS.copy()
    changed[:, 3:] = [[7, 8], [1, 10]]
    one = to_numpy(function(ops.convert_to_tensor(IDS)))
    other = to_numpy(function(ops.convert_to_tensor(changed)))
    np.testing.assert_array_equal(one[:, :3], other[:, :3])
    assert np.abs(one[:, 3:] - other[:, 3:]).max() > 0.1


def test_sequence_does_see_the_future_so_the_test_above_can_fail():
    layer, _ = built(condition="sequence")
    changed = IDS.copy()
    changed[:, 3:] = [[7, 8], [1, 10]]
    assert np.abs(call(layer, IDS)[:, :3] - call(layer, changed)[:, :3]).max() > 1e-2


def test_table_serves_any_split_of_a_sequence_alike():
    # What cached generation does: one token at a time.
    layer, _ = built(condition="table")
    whole = call(layer, IDS)
    single = np.concatenate([call(layer, IDS[:, t : t + 1]) for t in range(5)], axis=1)
    np.testing.assert_allclose(single, whole, atol=1e-6)


# -- gradients -------------------------------------------------------------------


@pytest.mark.parametrize("condition", ["sequence", "table"])
def test_stop_gradient_gives_the_plain_embeddings_gradient(condition):
    weight = np.random.default_rng(1).standard_normal((2, 5, 6))
    plain = np.zeros((12, 6))
    for ids, rows in zip(IDS, weight, strict=True):
        np.add.at(plain, ids, rows)
    for stop in (True, False):
        layer, _ = built(condition=condition, stop_gradient=stop)
        (got,) = weight_gradients(
            layer, lambda layer=layer, weight=weight: weighted_sum(weight, layer(IDS))
        )
        assert np.allclose(got, plain, atol=1e-5) == stop


# -- nothing is lost silently ----------------------------------------------------


@pytest.mark.parametrize("condition", ["sequence", "table"])
def test_quantizing_keeps_the_correction_or_refuses(condition):
    layer, _ = built(condition=condition)
    ids = IDS[1:]
    before = call(layer, ids)
    try:
        layer.quantize("int8")
    except (ValueError, NotImplementedError) as error:
        assert "fold" in str(error) or "quantiz" in str(error)
        np.testing.assert_allclose(call(layer, ids), before, atol=1e-6)
        return
    # int8 keeps a row to half a step of 1/127 of its largest entry, and the
    # correction of weak directions amplifies that a few times.
    scale = np.abs(before).max()
    np.testing.assert_allclose(call(layer, ids) / scale, before / scale, atol=0.05)


@pytest.mark.parametrize("condition", ["sequence", "table"])
def test_lora_starts_unchanged_and_is_conditioned_after(condition):
    layer, table = built(condition=condition)
    before = call(layer, IDS[1:])
    layer.enable_lora(2)
    np.testing.assert_allclose(call(layer, IDS[1:]), before, atol=1e-5)
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((12, 2)), rng.standard_normal((2, 6))
    layer.lora_embeddings_a.assign(a)
    layer.lora_embeddings_b.assign(b)
    merged = table + a @ b
    ids = IDS[1]
    expected = (
        oracles.condition(merged)[ids]
        if condition == "table"
        else oracles.condition(merged[ids])
    )
    np.testing.assert_allclose(call(layer, IDS[1:])[0], expected, atol=1e-3)


# -- bad input -------------------------------------------------------------------


@pytest.mark.parametrize("condition", ["sequence", "table"])
@pytest.mark.parametrize("bad", [12, -1])
def test_ids_outside_the_table_are_refused(condition, bad):
    layer, _ = built(condition=condition)
    ids = IDS.copy()
    ids[1, 2] = bad
    with pytest.raises(ValueError, match=rf"(?s){bad}.*12"):
        layer(ops.convert_to_tensor(ids))


def test_unknown_target_is_refused_and_the_known_ones_are_named():
    with pytest.raises(ValueError, match="condition") as error:
        ConditionedEmbedding(12, 6, condition="batch")
    for word in ("batch", "sequence", "table"):
        assert word in str(error.value)


def test_unknown_method_is_refused_and_the_known_ones_are_named():
    with pytest.raises(ValueError, match="method") as error:
        ConditionedEmbedding(12, 6, method="eigh")
    for word in ("eigh", *METHODS):
        assert word in str(error.value)


@pytest.mark.parametrize("floor", [0.0, 1.0, -1.0, float("nan")])
def test_floor_outside_zero_to_one_is_refused(floor):
    with pytest.raises(ValueError, match=r"(?s)floor.*" + str(floor)):
        ConditionedEmbedding(12, 6, floor=floor)


def test_single_ids_cannot_be_conditioned_as_a_sequence():
    layer, _ = built(condition="sequence")
    with pytest.raises(ValueError, match=r"\(5,\)"):
        layer(ops.convert_to_tensor(IDS[0]))


@pytest.mark.parametrize("shape", [(2, 4), (2, 5, 6)])
def test_a_mask_of_the_wrong_shape_is_refused(shape):
    layer, _ = built(condition="sequence")
    with pytest.raises(ValueError, match=r"(?s)mask") as error:
        layer(ops.convert_to_tensor(IDS), mask=ops.ones(shape, dtype="bool"))
    assert str(shape) in str(error.value)
