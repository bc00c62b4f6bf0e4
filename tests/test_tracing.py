"""Compiled functions are traced once for a length, and nothing stays behind."""

import numpy as np
import pytest

from keras_cond.ops.dct import constant_basis
from tests.autodiff import BACKEND
from tests.routes.models import MODELS, example

traced_only = pytest.mark.skipif(BACKEND == "torch", reason="torch runs eagerly")


@traced_only
@pytest.mark.parametrize("name", MODELS)
def test_a_length_seen_before_is_not_traced_again(name):
    model = MODELS[name]()
    layer = model.get_layer("attention")
    calls, original = [], layer.call

    def call(*args, **kwargs):
        calls.append(args[0].shape)
        return original(*args, **kwargs)

    layer.call = call
    for length in (5, 6):
        model.predict_on_batch(example(model, length=length))
    traces = len(calls)
    assert 1 <= traces <= 4
    for length in (5, 6, 5, 6):
        model.predict_on_batch(example(model, length=length))
    assert len(calls) == traces


def trace(function, x):
    """Traces a function for one input without compiling it."""
    if BACKEND == "jax":
        import jax

        with jax.checking_leaks():
            jax.make_jaxpr(function)(x)
    else:
        import tensorflow as tf

        tf.function(function).get_concrete_function(tf.convert_to_tensor(x))


@traced_only
@pytest.mark.parametrize("name", MODELS)
def test_nothing_made_in_one_trace_is_used_outside(name):
    # A tensor kept from the first trace would be refused in the call.
    model = MODELS[name]()
    x = example(model, length=7)
    constant_basis.cache_clear()
    trace(lambda x: model(x, training=True), x)
    assert np.isfinite(model(x)).all()
    trace(lambda x: model(x, training=True), x)


def test_constants_are_made_once_and_outside_of_any_graph():
    assert isinstance(constant_basis(7), np.ndarray)
    assert constant_basis(7) is constant_basis(7)
