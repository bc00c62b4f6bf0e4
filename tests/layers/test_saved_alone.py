"""Every layer, saved, loads in a fresh process that imports `keras_cond` only.

One process for all layers, because importing a backend takes seconds.
"""

import json
import pickle
import subprocess
import sys
import textwrap

import keras
import numpy as np
import pytest

from tests.layers import (
    test_conditioned_embedding,
    test_conditioned_reversible_embedding,
    test_dct_token_graying,
    test_spectral_attention,
    test_spectral_grouped_query_attention,
    test_svd_token_graying,
    test_token_conditioning,
)

CONTRACTS = {
    "ConditionedEmbedding-sequence": test_conditioned_embedding.TestContractOfSequences,
    "ConditionedEmbedding-table": test_conditioned_embedding.TestContractOfTheTable,
    "ConditionedReversibleEmbedding": (
        test_conditioned_reversible_embedding.TestContract
    ),
    "DCTTokenGraying": test_dct_token_graying.TestContract,
    "SVDTokenGraying": test_svd_token_graying.TestContract,
    "SpectralAttention-identity": test_spectral_attention.TestContractWithIdentity,
    "SpectralAttention-polar": test_spectral_attention.TestContractWithPolar,
    "SpectralGroupedQueryAttention": test_spectral_grouped_query_attention.TestContract,
    "TokenConditioning": test_token_conditioning.TestContract,
}

PROGRAM = """
    import json, pickle, sys, traceback
    import numpy as np
    import keras_cond
    import keras

    def check(name, what, function):
        try:
            difference = float(np.abs(function() - expected).max())
            found[name + " " + what] = difference
        except Exception:
            found[name + " " + what] = traceback.format_exc()[-1500:]

    folder, *names = sys.argv[1:]
    found = {}
    for name in names:
        path = folder + "/" + name
        x, expected = np.load(path + ".x.npy"), np.load(path + ".y.npy")

        def from_file():
            return keras.models.load_model(path + ".keras").predict(x, verbose=0)

        def from_pickle():
            with open(path + ".pickle", "rb") as file:
                return pickle.load(file).predict(x, verbose=0)

        def from_layer_config():
            with open(path + ".json") as file:
                keras.saving.deserialize_keras_object(json.load(file))
            return expected

        for function in (from_file, from_pickle, from_layer_config):
            check(name, function.__name__, function)
    print(json.dumps(found))
"""


@keras.saving.register_keras_serializable(package="keras_cond_tests")
class Block(keras.layers.Layer):
    """A layer that holds another one, as blocks of transformers do."""

    def __init__(self, inner, **kwargs):
        super().__init__(**kwargs)
        self.inner = inner

    def build(self, input_shape):
        if not self.inner.built:  # A loaded one is; building twice is an error.
            self.inner.build(input_shape, input_shape)

    def call(self, x):
        return x + self.inner(x, x)

    def get_config(self):
        inner = keras.saving.serialize_keras_object(self.inner)
        return {**super().get_config(), "inner": inner}

    @classmethod
    def from_config(cls, config):
        config["inner"] = keras.saving.deserialize_keras_object(config["inner"])
        return cls(**config)


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What the fresh process found: a difference, or a traceback, by name."""
    folder = tmp_path_factory.mktemp("saved")
    for name, contract in CONTRACTS.items():
        case = contract()
        model, x = case.model(), case.example()
        model.save(folder / f"{name}.keras")
        (folder / f"{name}.pickle").write_bytes(pickle.dumps(model))
        layer = model.get_layer("layer_under_test")
        serialized = keras.saving.serialize_keras_object(layer)
        (folder / f"{name}.json").write_text(json.dumps(serialized))
        np.save(folder / f"{name}.x.npy", x)
        np.save(folder / f"{name}.y.npy", model.predict(x, verbose=0))
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM), str(folder), *CONTRACTS],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-2000:]
    return json.loads(result.stdout.strip().split("\n")[-1])


@pytest.mark.parametrize("how", ["from_file", "from_pickle", "from_layer_config"])
@pytest.mark.parametrize("name", CONTRACTS)
def test_a_fresh_process_loads_it_by_importing_the_package_alone(found, name, how):
    difference = found[f"{name} {how}"]
    assert not isinstance(difference, str), difference
    # The same float32 program, compiled anew.
    assert difference <= 1e-5


@pytest.mark.parametrize(
    "name", ["SpectralAttention-identity", "SpectralAttention-polar"]
)
def test_it_is_saved_inside_a_layer_of_the_user(name, tmp_path):
    case = CONTRACTS[name]()
    inputs = keras.Input((5, 6))
    model = keras.Model(inputs, Block(case.build_layer())(inputs))
    x = case.example()
    expected = model.predict(x, verbose=0)
    for _ in range(2):  # a correction added by saving or loading would add up
        model.save(tmp_path / "m.keras")
        model = keras.models.load_model(tmp_path / "m.keras")
        np.testing.assert_allclose(model.predict(x, verbose=0), expected, atol=1e-5)
