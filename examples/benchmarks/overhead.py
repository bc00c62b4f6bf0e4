r"""Time and memory of conditioned models beside stock ones, step by step.

    python examples/benchmarks/overhead.py --backend jax

builds, for each case, the stock model and the conditioned one with equal weights and
optimizer, runs their training steps in turn (A B, B A, ...) on one batch, likewise
their inference steps, and prints the median of the pairwise ratios with its quartiles.
Beside it stands the floor: 1 plus the time that plain matrix products with as many
floating-point operations take in the same process. The time of the first step has
compiling in it. Memory comes from processes of their own, a step's by itself and
what is held between steps; on a CPU at four times the batch, where a token tensor
(batch × N × D × 4 bytes) stands out from the noise.

The numbers go into a JSON file and a picture beside it; report.py makes tables of them.
The cases are the rows of the table in the documentation unless --preset and --cases say
otherwise. `--cases all` has each method, the SVD too; another run with `--mode eager`
or `--mixed-precision mixed_bfloat16` has the other columns:

    python examples/benchmarks/overhead.py --backend torch --preset vit-mini,gpt-mini \
        --cases all --json runs/mini-torch.json
"""

import shlex
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.arguments import (
    case_parser,
    picture_of,
    start,
)

# Steps after the first one that are not timed.
WARM_UP = 2
# Where a model lies in memory makes its steps up to a tenth faster or slower; where
# nothing is compiled, building is cheap and that is averaged out. An even number, so
# that each side is built first as often.
BUILDS = 4
# The batch of the memory's steps on a CPU, in batches of the preset.
MEMORY_BATCHES = 4
SMOKE = {"preset": "vit-smoke", "cases": "conditioned_tokens", "pairs": 2}


def main(argv=None):
    """Run the script.

    Args:
        argv: Command-line arguments; `None` takes those of the process.

    Returns:
        Path of the JSON file.
    """
    arguments = parse_arguments(argv)
    start(arguments, "overhead")
    from benchmarks.backends import machine
    from benchmarks.cases import select_cases
    from benchmarks.pictures import plot_overhead
    from benchmarks.report import format_overhead
    from common.runs import write_results

    cases = select_cases(arguments.preset, arguments.cases, arguments.batch_size)
    words = sys.argv[1:] if argv is None else argv
    results = {
        "command": shlex.join(["python", "examples/benchmarks/overhead.py", *words]),
        "machine": machine(),
        "mode": arguments.mode,
        "cases": [],
    }
    for result in measure(cases, arguments):
        results["cases"].append(result)
        write_results(arguments.json, results)
    plot_overhead(picture_of(arguments.json), results)
    print(f"\n{format_overhead(results)}")
    print(f"\nNumbers: {arguments.json}\nPicture: {picture_of(arguments.json)}")
    return arguments.json


def parse_arguments(argv):
    """Read the command line."""
    parser = case_parser(__doc__.splitlines()[0], "vit-ti,gpt-mini", batch_size=None)
    arguments = parser.parse_args(argv)
    if arguments.smoke:
        vars(arguments).update(SMOKE)
    return arguments


def measure(cases, arguments):
    """Yield the results of the cases, one after another.

    Where nothing is compiled, each case builds its models several times.

    Args:
        cases: List of `Case`.
        arguments: The command line.
    """
    stock_peaks = {}
    builds = BUILDS if arguments.mode == "eager" else 1
    for case in cases:
        print(f"\n{case.name}, batch {case.batch_size}", flush=True)
        firsts, times = [], {"training": ([], []), "inference": ([], [])}
        for build in range(builds):
            pairs = len(range(build, arguments.pairs, builds))
            first, steps = both_steps(case, arguments.mode, ours_first=build % 2 == 1)
            firsts.append(first)
            for kind, (stock, ours) in steps.items():
                for side, seconds in zip(
                    times[kind], time_steps(kind, stock, ours, pairs), strict=True
                ):
                    side.extend(seconds)
        yield {
            **describe(case),
            "precision": arguments.mixed_precision,
            "first_step_seconds": firsts[0],
            **{
                kind: statistics_of(case, kind, times[kind], arguments)
                for kind in times
            },
            "memory": None
            if arguments.without_memory
            else memory_of(case, stock_peaks, arguments),
        }


def both_steps(case, mode, ours_first=False):
    """Build both models of a case and take their first steps.

    Args:
        case: A `Case`.
        mode: `"jit"`, `"graph"` or `"eager"`.
        ours_first: Whether the conditioned model is built, and steps, before the stock
            one.

    Returns:
        Seconds of the first training step of each side, and kind -> the steps of the
        stock model and of the conditioned one.
    """
    from benchmarks.cases import build_ours, build_stock
    from benchmarks.steps import steps_of
    from benchmarks.timing import seconds_of

    stock = build_stock(case.preset)
    models = {"stock": stock, "ours": build_ours(case, stock)}
    if ours_first:
        # Built from the same seed, its weights are those that were lent.
        models = {"ours": models["ours"], "stock": build_stock(case.preset)}
    steps = {side: steps_of(model, case, mode) for side, model in models.items()}
    first = {side: seconds_of(train) for side, (train, _) in steps.items()}
    pairs = zip(*(steps[side] for side in ("stock", "ours")), strict=True)
    return first, dict(zip(("training", "inference"), pairs, strict=True))


def describe(case):
    """Name and sizes of a case."""
    from benchmarks.cases import FAMILIES, PRESETS

    preset = PRESETS[case.preset]
    return {
        "preset": case.preset,
        "method": case.method,
        "title": FAMILIES[preset.family].methods[case.method].title,
        "batch_size": case.batch_size,
        "num_tokens": preset.num_tokens,
        "width": preset.dimensions.width,
    }


def time_steps(kind, stock, ours, pairs):
    """Time two steps in turn, after a few that are not timed.

    Args:
        kind: `"training"` or `"inference"`, for the progress bar.
        stock: Function without arguments.
        ours: Function without arguments.
        pairs: Number of pairs of steps.

    Returns:
        Two lists of seconds.
    """
    import keras
    from benchmarks.timing import interleave

    for _ in range(WARM_UP):
        stock()
        ours()
    bar = keras.utils.Progbar(pairs, unit_name=f"{kind} pair")
    return interleave(stock, ours, pairs, bar.update)


def statistics_of(case, kind, times, arguments):
    """Ratios of the steps of a case, and the plain products beside them.

    Args:
        case: A `Case`.
        kind: `"training"` or `"inference"`.
        times: Seconds of the stock model's steps and of ours.
        arguments: The command line.
    """
    from benchmarks import floors
    from benchmarks.cases import products_of
    from benchmarks.timing import ratio_statistics

    statistics = ratio_statistics(*times)
    products = products_of(case, training=kind == "training")
    seconds = floors.seconds_of_products(products, arguments.mode)
    return {
        **statistics,
        "floor": 1 + 1e3 * seconds / statistics["stock_ms"],
        "floor_ms": 1e3 * seconds,
        "floor_gflop": floors.total_operations(products) / 1e9,
    }


def memory_of(case, stock_peaks, arguments):
    """Memory of both models: what a step needs, in token tensors, and between steps.

    Args:
        case: A `Case`.
        stock_peaks: Cache of the stock models' peaks; grows.
        arguments: The command line.
    """
    import keras
    from benchmarks.backends import accelerator
    from benchmarks.cases import PRESETS, Case
    from benchmarks.memory import peak_of_steps

    preset = PRESETS[case.preset]
    factor = 1 if accelerator() else MEMORY_BATCHES
    batch_size = (arguments.batch_size or preset.batch_size) * factor
    how = (arguments.mode, arguments.mixed_precision, keras.backend.backend())
    case = Case(case.preset, case.method, batch_size)
    if case.preset not in stock_peaks:
        stock_peaks[case.preset] = peak_of_steps(case, "stock", *how)
    stock, ours = stock_peaks[case.preset], peak_of_steps(case, "ours", *how)
    tensor = batch_size * preset.num_tokens * preset.dimensions.width * 4
    between = ours["between_steps"] - stock["between_steps"]
    growth = ours["peak"] - stock["peak"] - between
    return {
        "batch_size": batch_size,
        "stock": stock,
        "ours": ours,
        "growth_bytes": growth,
        "between_steps_bytes": between,
        "token_tensors": growth / tensor,
    }


if __name__ == "__main__":
    main()
