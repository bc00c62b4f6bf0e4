"""`SpectralGroupedQueryAttention`: a `GroupedQueryAttention` with corrections."""

from typing import ClassVar

import keras
import pytest

from keras_cond.layers import SpectralGroupedQueryAttention
from tests.layers.attention_laws import AttentionContract, SpectralAttentionLaws


class TestContract(AttentionContract):
    layer_class = SpectralGroupedQueryAttention
    arguments: ClassVar[dict] = {
        "head_dim": 3,
        "num_query_heads": 4,
        "num_key_value_heads": 2,
        "correction": "polar",
        "per_head": False,
    }


class TestLaws(SpectralAttentionLaws):
    layer_class = SpectralGroupedQueryAttention
    stock_class = keras.layers.GroupQueryAttention
    sizes: ClassVar[dict] = {
        "head_dim": 4,
        "num_query_heads": 4,
        "num_key_value_heads": 2,
    }


def test_query_heads_that_do_not_divide_are_refused():
    with pytest.raises(ValueError, match="divisible"):
        SpectralGroupedQueryAttention(
            head_dim=4, num_query_heads=3, num_key_value_heads=2
        )
