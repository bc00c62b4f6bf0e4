r"""Train a GPT with and without conditioning on real text, compare, let each write.

    python examples/gpt.py --dataset wordnet --preset mini \
        --method baseline,conditioned_embedding,conditioned_init

trains every method of `--method` from the same seed on the same windows of text, then
prints their validation loss and perplexity beside the unigram entropy of the text,
their condition numbers and a text that each wrote, and writes results.json, curves.png,
tokenizer.json and, for each method, the .keras model and a picture of its condition
numbers into the folder of the run. The words and definitions of WordNet come with the
Debian package wordnet-base. Other text takes a path, or a data set of
tensorflow-datasets:

    python examples/gpt.py --text TinyStoriesV2-GPT4-train.txt \
        --validation-text TinyStoriesV2-GPT4-valid.txt --preset gpt2
    python examples/gpt.py --dataset tiny_shakespeare --data-dir DIR

An epoch of the mini preset is 6,000 windows of 64 tokens, drawn from all of them;
--train-size takes the first ones, and each epoch reads them all.

What to expect of the first command, with one torch thread on two CPU cores (one seed):
445 s, of which 430 s train; unigram entropy 6.36 nats per token; validation loss of the
baseline 4.61, of conditioned_embedding 4.22, of conditioned_init 4.96.
"""

import keras
import numpy as np
from common.arguments import (
    add_text_arguments,
    check_choice,
    check_text_arguments,
    check_training_arguments,
    parse_list,
    training_parser,
)
from common.comparison import Layout, report, train_methods
from common.data_parallel import use_all_devices
from common.runs import new_run_folder
from common.spectra import token_condition_number
from common.text import load_text
from common.training import adamw
from models.generation import generate, token_tables
from models.gpt import CONDITIONINGS, HEAD_TABLES, PRESETS, build_gpt

import keras_cond

CONTEXTS = {"smoke": 32, "mini": 64, "gpt2": 1024}
VOCABULARY_SIZES = {"smoke": 300, "mini": 2048, "gpt2": 50257}
# What keeps a run of the mini preset to minutes: windows of an epoch, drawn from all
# unless --train-size says from how many, and windows to validate on.
EPOCH_SIZES = {"mini": 6000}
VALIDATION_SIZES = {"smoke": 32, "mini": 2000}
# What --smoke replaces: one epoch of four batches through the smallest model.
SMOKE = {"preset": "smoke", "epochs": 1, "train_size": 64, "batch_size": 16}


def main(argv=None):
    """Run the script.

    Args:
        argv: Command-line arguments; `None` takes those of the process.

    Returns:
        The folder of the run.
    """
    arguments = parse_arguments(argv)
    methods = parse_list("--method", arguments.method, CONDITIONINGS)
    keras.config.set_dtype_policy(arguments.mixed_precision)
    use_all_devices(arguments)
    task = load_task(arguments)
    output = arguments.output or f"runs/gpt-{task.name}-{arguments.preset}"
    folder = new_run_folder(output, arguments.overwrite)
    task.tokenizer.save(str(folder / "tokenizer.json"))
    print(
        f"{task.name}: {task.num_train} training and {task.num_validation} validation "
        f"windows of {task.context} tokens, {task.vocabulary_size} different ones, "
        f"unigram entropy {task.unigram_entropy:.4f}; "
        f"{keras.backend.backend()}, {arguments.mixed_precision}"
    )

    results = train_methods(
        methods,
        lambda method: build_model(task, method, arguments),
        lambda model: token_condition_numbers(model, task.probes),
        lambda model, history: summarize(model, history, task, arguments),
        task,
        arguments.epochs,
        folder,
    )
    for method, result in results.items():
        print(f"\n{method} writes:\n{result['sample']}")
    facts = {
        "train_windows": task.num_train,
        "validation_windows": task.num_validation,
        "context": task.context,
        "vocabulary_size": task.vocabulary_size,
        "unigram_entropy": task.unigram_entropy,
    }
    layout = Layout(
        title=f"GPT-{arguments.preset} on {task.name}, seed {arguments.seed}",
        panels={
            "validation loss (nats per token)": "val_loss",
            "training loss (nats per token)": "loss",
        },
        table="Validation loss (nats per token; unigram entropy "
        f"{task.unigram_entropy:.4f}) and perplexity",
        columns={"loss": ".4f", "perplexity": ".2f"},
        token_columns={
            "table": "table",
            "before positions": "tokens",
            "into block 0": "block_input",
        },
    )
    report(folder, arguments, facts, results, layout)
    return folder


def parse_arguments(argv):
    """Read and check the command line."""
    parser = training_parser(
        __doc__.splitlines()[0],
        PRESETS,
        CONDITIONINGS,
        epochs=4,
        batch_size=32,
        learning_rate=3e-3,
        weight_decay=0.1,
    )
    add_text_arguments(parser)
    add = parser.add_argument
    add(
        "--head-table", default="raw", help="of conditioned_embedding: raw, conditioned"
    )
    add("--rotary", action="store_true", help="rotary in place of learned positions")
    add("--dropout", type=float, default=0.0)
    add("--prompt", default="", help="what the samples begin with")
    add("--temperature", type=float, default=0.8, help="of the samples; 0 is greedy")
    arguments = parser.parse_args(argv)
    check_training_arguments(arguments, PRESETS)
    check_text_arguments(arguments)
    check_choice("--head-table", arguments.head_table, HEAD_TABLES)
    if not 0 <= arguments.dropout < 1:
        raise ValueError(
            f"--dropout: got {arguments.dropout}, expected a rate in [0, 1)."
        )
    if not 0 <= arguments.temperature < float("inf"):
        raise ValueError(
            f"--temperature: got {arguments.temperature}, expected a finite number "
            "from 0. A usual one is 0.8."
        )
    if arguments.smoke:
        vars(arguments).update(SMOKE)
    return arguments


def load_task(arguments):
    """The text that the arguments ask for, in windows."""
    context = CONTEXTS[arguments.preset]
    task = load_text(
        arguments,
        context,
        VOCABULARY_SIZES[arguments.preset],
        VALIDATION_SIZES.get(arguments.preset),
        EPOCH_SIZES.get(arguments.preset),
    )
    prompt = len(task.tokenizer.encode(arguments.prompt).ids)
    if prompt + 2 > context:
        raise ValueError(
            f"--prompt: got {prompt} tokens, expected at most {context - 2}, two fewer "
            "than the model reads. Shorten it."
        )
    return task


def build_model(task, method, arguments):
    """Build and compile the model of one method; the seed fixes its weights."""
    keras.utils.set_random_seed(arguments.seed)
    model = build_gpt(
        task.vocabulary_size,
        task.context,
        arguments.preset,
        conditioning=method,
        head_table=arguments.head_table,
        rotary=arguments.rotary,
        dropout=arguments.dropout,
    )
    model.compile(
        optimizer=adamw(
            arguments.learning_rate,
            arguments.weight_decay,
            num_steps=arguments.epochs * len(task.train),
        ),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    return model


def token_condition_numbers(model, ids):
    """Condition numbers of the table, and of the tokens where they are read."""
    layers = {layer.name for layer in model.layers}
    block_input = "block_0_attention_norm"
    first = "position_embedding" if "position_embedding" in layers else block_input
    table, _ = token_tables(model.get_layer("token_embedding"))
    return {
        "table": float(keras_cond.ops.condition_number(table)),
        "tokens": token_condition_number(model, first, ids),
        "block_input": token_condition_number(model, block_input, ids),
    }


def summarize(model, history, task, arguments):
    """Loss, perplexity and a text as long as the model can read."""
    prompt = len(task.tokenizer.encode(arguments.prompt).ids)
    sample = generate(
        model,
        task.tokenizer,
        arguments.prompt,
        num_tokens=task.context - 1 - prompt,
        temperature=arguments.temperature,
        seed=arguments.seed,
    )
    loss = history["val_loss"][-1]
    return {"loss": loss, "perplexity": float(np.exp(loss)), "sample": sample}


if __name__ == "__main__":
    main()
