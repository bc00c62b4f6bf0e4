"""Several leading axes give what one gives, also where one has size 1.

TensorFlow's own products write outside of their result where they spread a matrix over
such axes.
"""

import numpy as np
import pytest
from keras import ops

import keras_cond
from tests.autodiff import to_numpy

FUNCTIONS = {
    "condition": keras_cond.ops.condition,
    "condition by svd": lambda x: keras_cond.ops.condition(x, method="svd"),
    "polar": keras_cond.ops.polar,
    "dct": lambda x: keras_cond.ops.dct(keras_cond.ops.dct(x, axis=-2)),
    "dct_graying": lambda x: keras_cond.ops.dct_graying(x, 0.9),
    "svd_graying": lambda x: keras_cond.ops.svd_graying(x, 0.9),
    "limit_condition": lambda x: keras_cond.ops.limit_condition(x, 2.0),
    "kaporin_penalty": keras_cond.ops.kaporin_penalty,
    "condition_number": keras_cond.ops.condition_number,
}


@pytest.mark.parametrize("shape", [(4, 1, 16, 16), (3, 1, 6, 8), (1, 2, 30, 4)])
@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_leading_axes(function, shape):
    x = np.random.default_rng(0).normal(size=shape).astype("float32")
    flat = to_numpy(function(ops.convert_to_tensor(x.reshape(-1, *shape[-2:]))))
    result = to_numpy(function(ops.convert_to_tensor(x)))
    expected = flat.reshape(*shape[:2], *flat.shape[1:])
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)
