"""Tables of what the benchmarks measured.

    python examples/benchmarks/report.py runs/overhead-*.json

prints the Markdown table of the documentation from the JSON files of overhead.py (and
of gpu.py), one column for each backend, mode and precision, and below it the command,
versions and machine of each file. `--document docs/benchmarks.md --block NAME` puts it
into the block of that name in a document.
"""

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from common.document import fill_blocks
from common.tables import format_table


def main(argv=None):
    """Run the script.

    Args:
        argv: Command-line arguments; `None` takes those of the process.
    """
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", help="JSON files of overhead.py")
    parser.add_argument("--document", help="Markdown file with a block for the table")
    parser.add_argument("--block", default="overhead", help="name of that block")
    arguments = parser.parse_args(argv)
    text = markdown([read_results(file) for file in arguments.files])
    if arguments.document is None:
        print(text)
        return
    document = Path(arguments.document)
    filled = fill_blocks(document.read_text(encoding="utf-8"), {arguments.block: text})
    document.write_text(filled, encoding="utf-8")


def read_results(file):
    """Numbers of one run of overhead.py.

    Args:
        file: Path of the JSON file.

    Raises:
        ValueError: If there is no such file, or it is not one of overhead.py.
    """
    path = Path(file)
    if not path.is_file():
        raise ValueError(f"files: {path} does not exist. Run overhead.py --json first.")
    results = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(results, dict) or "cases" not in results:
        raise ValueError(f"files: {path} is not a JSON file of overhead.py.")
    return results


def format_overhead(results):
    """The numbers of one run as a table in plain text."""
    header = ["case (batch)", "training", "quartiles", "floor", "inference", "floor"]
    header += ["stock ms", "ours ms", "first step s", "token tensors", "held MB"]
    return format_table(header, [_row(case) for case in results["cases"]])


def name_of(case):
    """Short name of a case, with its batch and its precision if that is not float32."""
    precision = case["precision"].replace("mixed_", "")
    precision = "" if precision == "float32" else f", {precision}"
    return f"{case['preset']}/{case['method']} ({case['batch_size']}{precision})"


def markdown(runs):
    """One Markdown table of the training steps of several runs, and their conditions.

    Args:
        runs: Dictionaries that `read_results` returned.

    Returns:
        The text: a row for each case; a column for each backend, mode and precision,
        with the median ratio, its quartiles and the floor.
    """
    columns, rows = [], {}
    for run in runs:
        for case in run["cases"]:
            column = f"{run['machine']['backend']}, {run['mode']}, {case['precision']}"
            if column not in columns:
                columns.append(column)
            rows.setdefault(_key(case), {})[column] = _cell(case)
    lines = [["Training step, ours / stock", *columns], ["---"] * (1 + len(columns))]
    lines += [
        [title, *(cells.get(column, "") for column in columns)]
        for title, cells in rows.items()
    ]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return "\n\n".join([table, *map(_conditions, runs)])


def _row(case):
    training, inference = case["training"], case["inference"]
    first, memory = case["first_step_seconds"], case["memory"]
    low, high = training["quartiles"]
    return [
        name_of(case),
        f"{training['ratio']:.3f}",
        f"{low:.3f}-{high:.3f}",
        f"{training['floor']:.3f}",
        f"{inference['ratio']:.3f}",
        f"{inference['floor']:.3f}",
        f"{training['stock_ms']:.1f}",
        f"{training['ours_ms']:.1f}",
        f"{first['stock']:.1f} > {first['ours']:.1f}",
        f"{memory['token_tensors']:+.1f}" if memory else "-",
        f"{memory['between_steps_bytes'] / 1e6:+.1f}" if memory else "-",
    ]


def _key(case):
    return f"{case['preset']}, batch {case['batch_size']}: {case['title']}"


def _cell(case):
    training, memory = case["training"], case["memory"]
    low, high = training["quartiles"]
    text = f"**{training['ratio']:.2f}** ({low:.2f} to {high:.2f}), "
    text += f"floor {training['floor']:.2f}"
    if memory:
        text += f", {memory['token_tensors']:+.1f} token tensors"
    return text


def _conditions(run):
    machine = run["machine"]
    pairs = sorted({case["training"]["pairs"] for case in run["cases"]})
    return (
        f"`{run['command']}`: {machine['backend']} {machine['backend_version']}, Keras "
        f"{machine['keras']}, Python {machine['python']}; {machine['device']}, "
        f"{machine['processor']}, {machine['cores']} cores, OMP_NUM_THREADS="
        f"{machine['omp_num_threads'] or 'unset'}; "
        f"{', '.join(map(str, pairs))} pairs."
    )


if __name__ == "__main__":
    main()
