"""`ConditionedReversibleEmbedding`: the tied head, and the table that is kept."""

from typing import ClassVar

import keras
import numpy as np
import pytest
from keras import ops

from keras_cond.layers import ConditionedReversibleEmbedding
from tests import oracles
from tests.autodiff import to_numpy, weight_gradients, weighted_sum
from tests.layer_contract import VOCABULARY, LayerContract

IDS = np.array([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]], "int32")


class TestContract(LayerContract):
    layer_class = ConditionedReversibleEmbedding
    arguments: ClassVar[dict] = {
        "input_dim": VOCABULARY,
        "output_dim": 6,
        "head_table": "conditioned",
        "method": "svd",
        "floor": 1e-2,
        "stop_gradient": True,
        "reverse_dtype": "float32",
        "logit_soft_cap": 30.0,
    }
    reads = "ids"


def built(**arguments):
    layer = ConditionedReversibleEmbedding(12, 6, **arguments)
    layer.build((None, None))
    layer.set_weights(
        [np.random.default_rng(0).standard_normal((12, 6)).astype("float32")]
    )
    return layer, layer.get_weights()[0].astype("float64")


@pytest.mark.parametrize("soft_cap", [None, 2.0])
@pytest.mark.parametrize("head_table", ["raw", "conditioned"])
def test_tokens_and_logits_equal_numpy(head_table, soft_cap):
    layer, table = built(head_table=head_table, logit_soft_cap=soft_cap)
    conditioned = oracles.condition(table)
    np.testing.assert_allclose(to_numpy(layer(IDS)), conditioned[IDS], atol=1e-4)
    x = np.random.default_rng(1).standard_normal((2, 5, 6)).astype("float32")
    logits = x @ (table if head_table == "raw" else conditioned).T
    if soft_cap is not None:
        logits = soft_cap * np.tanh(logits / soft_cap)
    got = to_numpy(layer(ops.convert_to_tensor(x), reverse=True))
    np.testing.assert_allclose(got, logits, atol=1e-3)


def test_the_head_is_raw_unless_it_is_asked_to_be_conditioned():
    assert ConditionedReversibleEmbedding(12, 6).head_table == "raw"


def test_both_uses_of_the_table_have_a_gradient():
    layer, table = built()
    ids = keras.Input((None,), dtype="int32")
    model = keras.Model(ids, layer(layer(ids), reverse=True))
    weight = np.random.default_rng(2).standard_normal((2, 5, 12))
    (got,) = weight_gradients(model, lambda: weighted_sum(weight, model(IDS)))

    def value(table):
        return np.sum(weight * (oracles.condition(table)[IDS] @ table.T))

    step = np.random.default_rng(3).standard_normal(table.shape)
    slope = (value(table + 1e-5 * step) - value(table - 1e-5 * step)) / 2e-5
    np.testing.assert_allclose(np.sum(got * step), slope, rtol=1e-3)


def test_logits_are_in_the_dtype_asked_for():
    x = ops.ones((1, 2, 6), "bfloat16")
    for head_table in ("raw", "conditioned"):
        layer, _ = built(
            head_table=head_table, reverse_dtype="float32", dtype="mixed_bfloat16"
        )
        assert keras.backend.standardize_dtype(layer(IDS).dtype) == "bfloat16"
        logits = layer(x, reverse=True)
        assert keras.backend.standardize_dtype(logits.dtype) == "float32"


def test_zero_is_masked_on_the_way_in_alone():
    ids = np.array([[3, 0, 1]])
    layer, _ = built(mask_zero=True)
    assert to_numpy(layer.compute_mask(ops.convert_to_tensor(ids))).tolist() == [
        [True, False, True]
    ]
    assert layer.compute_mask(ops.ones((1, 3, 6))) is None


def test_the_kept_table_is_computed_once_until_the_weight_changes(monkeypatch):
    layer, table = built()
    first = layer.conditioned_table()
    np.testing.assert_allclose(to_numpy(first), oracles.condition(table), atol=1e-4)
    computed = []
    compute = layer._conditioned
    monkeypatch.setattr(
        layer, "_conditioned", lambda x: computed.append(x) or compute(x)
    )
    assert layer.conditioned_table() is first
    assert not computed
    other = np.ascontiguousarray(table[::-1])
    layer.embeddings.assign(other)
    np.testing.assert_allclose(
        to_numpy(layer.conditioned_table()), oracles.condition(other), atol=1e-4
    )
    assert len(computed) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"head_table": "both"}, r"head_table='both'.*'raw', 'conditioned'"),
        ({"tie_weights": False}, r"tie_weights=False.*Dense"),
        ({"condition": "sequence"}, "condition"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(arguments, message):
    with pytest.raises((TypeError, ValueError), match=message):
        ConditionedReversibleEmbedding(12, 6, **arguments)
