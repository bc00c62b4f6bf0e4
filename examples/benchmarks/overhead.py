r"""Time and memory of conditioned models beside stock ones, step by step.

    python examples/benchmarks/overhead.py --backend jax

builds, for each case, the stock model and the conditioned one with equal weights and
optimizer, runs their training steps in turn (A B, B A, ...) on one batch, likewise
their inference steps, and prints the median of the pairwise ratios with its quartiles.
Beside it stands the floor: 1 plus the time that plain matrix products with as many
floating-point operations take in the same process. The time of the first step has
compiling in it. Peak memory comes from processes of their own; on a CPU at four times
the batch, where a token tensor (batch × N × D × 4 bytes) stands out from the noise.

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

    Cases in a row with the same preset and batch size share the stock model.

    Args:
        cases: List of `Case`.
        arguments: The command line.
    """
    from benchmarks.cases import build_ours, build_stock
    from benchmarks.steps import steps_of
    from benchmarks.timing import seconds_of

    shared, stock_peaks = None, {}
    for case in cases:
        print(f"\n{case.name}, batch {case.batch_size}", flush=True)
        if shared != (case.preset, case.batch_size):
            shared = (case.preset, case.batch_size)
            stock = build_stock(case.preset)
            stock_steps = steps_of(stock, case, arguments.mode)
            stock_first = seconds_of(stock_steps[0])
        ours = build_ours(case, stock)
        our_steps = steps_of(ours, case, arguments.mode)
        first = {"stock": stock_first, "ours": seconds_of(our_steps[0])}
        yield {
            **describe(case),
            "precision": arguments.mixed_precision,
            "first_step_seconds": first,
            **time_steps(case, stock_steps, our_steps, arguments),
            "memory": None
            if arguments.without_memory
            else memory_of(case, stock_peaks, arguments),
        }


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


def time_steps(case, stock_steps, our_steps, arguments):
    """Time training and inference steps in turn, and the plain products.

    Args:
        case: A `Case`.
        stock_steps: Training and inference step of the stock model.
        our_steps: The same of the conditioned model.
        arguments: The command line.

    Returns:
        Dictionary of `training` and `inference`.
    """
    import keras
    from benchmarks import floors
    from benchmarks.cases import products_of
    from benchmarks.timing import interleave, ratio_statistics

    results = {}
    for kind, first, second in zip(
        ("training", "inference"), stock_steps, our_steps, strict=True
    ):
        for _ in range(WARM_UP):
            first()
            second()
        bar = keras.utils.Progbar(arguments.pairs, unit_name=f"{kind} pair")
        times = interleave(first, second, arguments.pairs, bar.update)
        statistics = ratio_statistics(*times)
        products = products_of(case, training=kind == "training")
        seconds = floors.seconds_of_products(products, arguments.mode)
        results[kind] = {
            **statistics,
            "floor": 1 + 1e3 * seconds / statistics["stock_ms"],
            "floor_ms": 1e3 * seconds,
            "floor_gflop": floors.total_operations(products) / 1e9,
        }
    return results


def memory_of(case, stock_peaks, arguments):
    """Peak memory of both models, and its growth in token tensors.

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
    growth = ours["bytes"] - stock["bytes"]
    return {
        "batch_size": batch_size,
        "stock_bytes": stock["bytes"],
        "ours_bytes": ours["bytes"],
        "growth_bytes": growth,
        "token_tensors": growth / tensor,
        "with_compiling": ours["with_compiling"],
    }


if __name__ == "__main__":
    main()
