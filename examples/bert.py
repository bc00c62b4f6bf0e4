r"""Pre-train a BERT with and without conditioning on real text, fine-tune, compare.

    python examples/bert.py --dataset wordnet --preset mini \
        --method baseline,conditioned_embedding,conditioned_init

trains every method of `--method` from the same seed to tell masked tokens of the same
windows of text, fine-tunes each on the sentence classifications of `--task`, then
prints the validation loss of the masked tokens beside their unigram entropy, the scores
of the tasks beside those of the most frequent class, and condition numbers, and writes
results.json, curves.png, tokenizer.json and, for each method, the .keras models and a
picture of its condition numbers into the folder of the run.

The text is that of `gpt.py`: a data set or `--text`. The tasks are `wordnet` (which of
45 lexicographer files a definition belongs to), `imdb_reviews`, `glue/cola` and the
like; `glue` is all eight of GLUE and their averages, `none` skips this part. Both parts
hold out the same definitions of WordNet.

What to expect of the command above (one seed; PyTorch and JAX): ten minutes of one CPU
core; unigram entropy 5.25 nats per masked token; validation loss between 4.47 and 4.69,
and no method ahead on both backends.
"""

import keras
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
from common.fine_tuning import (
    add_task_arguments,
    check_task_arguments,
    fine_tune,
    print_scores,
    task_names,
)
from common.labelled import load_labelled
from common.masking import mask_text
from common.runs import new_run_folder
from common.sentences import prepare_sentences
from common.spectra import token_condition_number
from common.text import load_text
from common.tokenization import MASKED_MODEL_TOKENS
from common.training import adamw
from models.bert import (
    CONDITIONINGS,
    CONDITIONS,
    PRESETS,
    build_bert,
    build_classifier,
)

# Tokens of a window in pre-training; in a short one a small model finds sooner what a
# masked token stands beside. And tokens of a text in fine-tuning.
CONTEXTS = {"smoke": 32, "mini": 24, "crammed": 128}
TASK_CONTEXTS = {"smoke": 32, "mini": 48, "crammed": 128}
VOCABULARY_SIZES = {"smoke": 300, "mini": 512, "crammed": 32768}
# What keeps a run of the mini preset to minutes: windows (texts) of an epoch, drawn
# from all unless --train-size (--task-train-size) says from how many, and windows
# (texts of a split) to validate on.
EPOCH_SIZES = {"mini": 10000}
VALIDATION_SIZES = {"smoke": 32, "mini": 4000}
TASK_EPOCH_SIZES = {"mini": 4000}
TASK_VALIDATION_SIZES = {"smoke": 40, "mini": 4000}
# Crammed BERT's.
OPTIMIZER = {"beta_2": 0.98, "global_clipnorm": 0.5}
# What --smoke replaces: one epoch of four batches through the smallest model.
SMOKE = {
    "preset": "smoke",
    "epochs": 1,
    "train_size": 64,
    "task_epochs": 1,
    "task_train_size": 64,
    "batch_size": 16,
}


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
    text = load_masked_text(arguments)
    tasks = load_tasks(arguments, text.tokenizer)
    output = arguments.output or f"runs/bert-{text.name}-{arguments.preset}"
    folder = new_run_folder(output, arguments.overwrite)
    text.tokenizer.save(str(folder / "tokenizer.json"))
    print(
        f"{text.name}: {text.num_train} training and {text.num_validation} validation "
        f"windows of {text.context} tokens, {text.vocabulary_size} different ones, "
        f"unigram entropy of the masked ones {text.unigram_entropy:.4f}; "
        f"{keras.backend.backend()}, {arguments.mixed_precision}"
    )
    for task in tasks:
        print(
            f"{task.name}: {task.num_train} training and {task.num_validation} "
            f"validation texts, {task.num_labels} labels"
        )

    results = train_methods(
        methods,
        lambda method: build_model(text, method, arguments),
        lambda model: token_condition_numbers(model, text.probes),
        lambda model, history: {"loss": history["val_masked_loss"][-1]},
        text,
        arguments.epochs,
        folder,
    )
    for method in methods:
        results[method]["tasks"] = {
            task.name: run_task(task, method, arguments, folder) for task in tasks
        }
    if tasks:
        print_scores(results, tasks)
    facts = {
        "train_windows": text.num_train,
        "validation_windows": text.num_validation,
        "context": text.context,
        "vocabulary_size": text.vocabulary_size,
        "unigram_entropy": text.unigram_entropy,
        "majority": {task.name: task.majority for task in tasks},
    }
    layout = Layout(
        title=f"BERT-{arguments.preset} on {text.name}, seed {arguments.seed}",
        panels={
            "validation loss (nats per masked token)": "val_masked_loss",
            "training loss (nats per masked token)": "masked_loss",
        },
        table="Validation loss (nats per masked token; their unigram entropy "
        f"{text.unigram_entropy:.4f})",
        columns={"loss": ".4f"},
        token_columns={"before positions": "tokens", "into block 0": "block_input"},
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
        weight_decay=0.01,
    )
    add_text_arguments(parser)
    add_task_arguments(parser)
    parser.add_argument(
        "--condition",
        default="sequence",
        help=f"what conditioned_embedding conditions: {', '.join(CONDITIONS)}",
    )
    arguments = parser.parse_args(argv)
    check_training_arguments(arguments, PRESETS)
    check_text_arguments(arguments)
    check_choice("--condition", arguments.condition, CONDITIONS)
    check_task_arguments(arguments)
    if arguments.smoke:
        vars(arguments).update(SMOKE)
    return arguments


def load_masked_text(arguments):
    """The text that the arguments ask for, in windows with masked tokens."""
    text = load_text(
        arguments,
        CONTEXTS[arguments.preset],
        VOCABULARY_SIZES[arguments.preset],
        VALIDATION_SIZES.get(arguments.preset),
        EPOCH_SIZES.get(arguments.preset),
        MASKED_MODEL_TOKENS,
    )
    return mask_text(text, arguments.batch_size, arguments.seed)


def load_tasks(arguments, tokenizer):
    """The tasks that `--task` names, in rows of ids."""
    preset = arguments.preset
    return [
        prepare_sentences(
            load_labelled(name, arguments.task_data_dir or arguments.data_dir),
            tokenizer,
            TASK_CONTEXTS[preset],
            arguments.batch_size,
            arguments.seed,
            arguments.task_train_size,
            None if arguments.task_train_size else TASK_EPOCH_SIZES.get(preset),
            TASK_VALIDATION_SIZES.get(preset),
        )
        for name in task_names(arguments.task)
    ]


def build_model(text, method, arguments):
    """Build and compile the model of one method; the seed fixes its weights."""
    keras.utils.set_random_seed(arguments.seed)
    model = build_bert(
        text.vocabulary_size,
        arguments.preset,
        conditioning=method,
        condition=arguments.condition,
    )
    loss = {"from_logits": True, "name": "masked_loss"}
    model.compile(
        optimizer=adamw(
            arguments.learning_rate,
            arguments.weight_decay,
            num_steps=arguments.epochs * len(text.train),
            **OPTIMIZER,
        ),
        loss=keras.losses.SparseCategoricalCrossentropy(
            **loss, reduction="mean_with_sample_weight"
        ),
        # Batches differ in their number of masked tokens: this mean is over tokens.
        weighted_metrics=[keras.metrics.SparseCategoricalCrossentropy(**loss)],
    )
    return model


def token_condition_numbers(model, inputs):
    """Condition numbers of the tokens before the positions and into block 0."""
    return {
        "tokens": token_condition_number(model, "positions", inputs),
        "block_input": token_condition_number(model, "block_0_attention_norm", inputs),
    }


def run_task(task, method, arguments, folder):
    """Fine-tune the pre-trained model of a method, read from its file."""
    print(f"\n{method}, fine-tuned on {task.name}")
    keras.utils.set_random_seed(arguments.seed)
    bert = keras.models.load_model(folder / f"{method}.keras", compile=False)
    classifier = build_classifier(bert, task.num_labels)
    optimizer = adamw(
        arguments.task_learning_rate,
        arguments.weight_decay,
        num_steps=arguments.task_epochs * len(task.train),
        **OPTIMIZER,
    )
    result = fine_tune(classifier, task, optimizer, arguments.task_epochs)
    classifier.save(folder / f"{method}-{task.name.replace('/', '-')}.keras")
    return result


if __name__ == "__main__":
    main()
