"""The example that inspects models."""

import json

import inspect_model
import numpy as np
import pytest


def test_smoke_run_writes_figures_and_numbers_and_overwrites_nothing(tmp_path, capsys):
    arguments = ["--smoke", "--jacobian", "--output", str(tmp_path)]
    inspect_model.main(arguments)
    assert "block_0_attention" in capsys.readouterr().out
    files = {file.name for file in tmp_path.iterdir()}
    assert files == {
        "demo_layers.png",
        "demo_spectra.png",
        "demo_bars.png",
        "results.json",
    }
    (layer,) = json.loads((tmp_path / "results.json").read_text())["demo"]["layers"]
    assert len(layer["jacobian"]["heads"]) == layer["num_heads"] == 2
    with pytest.raises(ValueError, match="pass --overwrite"):
        inspect_model.main(arguments)


def test_word_pieces_are_the_longest_that_fit(tmp_path):
    pieces = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "un",
        "##related",
        "##rel",
        "rain",
        ".",
    ]
    vocabulary = tmp_path / "vocab.txt"
    vocabulary.write_text("\n".join(pieces), encoding="utf-8")
    ids = inspect_model.word_pieces(["Unrelated rain.", "snow"], vocabulary)
    np.testing.assert_array_equal(ids, [[2, 4, 5, 7, 8, 3], [2, 1, 3, 0, 0, 0]])
