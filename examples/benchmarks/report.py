"""Tables of what the benchmarks measured.

    python examples/benchmarks/report.py runs/overhead-*.json

prints a Markdown table from the JSON files of overhead.py (and of gpu.py), one column
for each backend, mode and precision, and below it the command, versions and machine of
each file. `--table memory` has their memory in place of their times, `--table growth`
is that of growth.py's files. `--document docs/benchmarks.md --block NAME` puts the
table into the block of that name in a document.
"""

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from common.document import fill_blocks
from common.tables import format_number, format_table

# The table of growth has the exponents along these, and times at that many tokens.
SWEEPS = ("N", "D", "batch")
SHOWN = 64


def main(argv=None):
    """Run the script.

    Args:
        argv: Command-line arguments; `None` takes those of the process.
    """
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", help="JSON files of one benchmark")
    parser.add_argument("--table", choices=TABLES, default="steps", help="what it has")
    parser.add_argument("--document", help="Markdown file with a block for the table")
    parser.add_argument("--block", default="overhead", help="name of that block")
    arguments = parser.parse_args(argv)
    text = markdown(arguments.files, arguments.table)
    if arguments.document is None:
        print(text)
        return
    document = Path(arguments.document)
    filled = fill_blocks(document.read_text(encoding="utf-8"), {arguments.block: text})
    document.write_text(filled, encoding="utf-8")


def markdown(files, table="steps"):
    """One Markdown table of several runs, and their conditions.

    Args:
        files: Paths of the JSON files.
        table: `"steps"`: a row for each case, a column for each backend, mode and
            precision, with the median ratio of the training steps, its quartiles and
            the floor; `"memory"`: the same of the memory; `"growth"`: a row for each op
            and backend.

    Returns:
        The text.

    Raises:
        ValueError: If a file is not there, or has no such numbers.
    """
    key, make = TABLES[table]
    runs = [_read(file, key) for file in files]
    lines = make(runs)
    lines.insert(1, ["---"] * len(lines[0]))
    text = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return "\n\n".join([text, *map(_conditions, runs)])


def _read(file, key):
    path = Path(file)
    if not path.is_file():
        raise ValueError(f"files: {path} does not exist. Run the benchmark first.")
    results = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(results, dict) or key not in results:
        raise ValueError(
            f"files: {path} has no {key!r}, expected a JSON file of "
            f"{'growth' if key == 'ops' else 'overhead'}.py. Choose another --table."
        )
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


def _steps_table(runs):
    return _table_of_cases("Training step, ours / stock", runs, _steps)


def _memory_table(runs):
    return _table_of_cases("Memory, ours above stock", runs, _memory)


def _table_of_cases(title, runs, show):
    """Header and rows: a row for each case, a column for each way to run."""
    columns, rows = [], {}
    for run in runs:
        for case in run["cases"]:
            column = f"{run['machine']['backend']}, {run['mode']}, {case['precision']}"
            if column not in columns:
                columns.append(column)
            batch_size, cell = show(case)
            name = f"{case['preset']}, batch {batch_size}: {case['title']}"
            rows.setdefault(name, {})[column] = cell
    return [
        [title, *columns],
        *([name, *(cells.get(c, "") for c in columns)] for name, cells in rows.items()),
    ]


def _growth_table(runs):
    """Header and rows: a row for each op and run."""
    header = ["op", "", f"ms at N = {SHOWN}", "with the gradient"]
    header += [f"time ~ {size}^" for size in SWEEPS]
    header += [f"memory ~ {size}^" for size in SWEEPS]
    rows = [
        [op, f"{run['machine']['backend']}, {run['mode']}", *_growth_cells(curves)]
        for run in runs
        for op, curves in run["ops"].items()
    ]
    return [header, *sorted(rows)]


def _growth_cells(curves):
    along = curves.get("N", {"sizes": []})
    place = along["sizes"].index(SHOWN) if SHOWN in along["sizes"] else None
    cells = [
        "" if place is None else format_number(1e3 * along[quantity][place])
        for quantity in ("seconds", "gradient_seconds")
    ]
    for quantity in ("gradient_seconds", "bytes"):
        for size in SWEEPS:
            exponent = curves.get(size, {}).get("exponents", {}).get(quantity)
            cells.append("" if exponent is None else f"{exponent:.2f}")
    return cells


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


def _steps(case):
    """Batch size and cell of a case."""
    training = case["training"]
    low, high = training["quartiles"]
    return case["batch_size"], (
        f"**{training['ratio']:.2f}** ({low:.2f} to {high:.2f}), "
        f"floor {training['floor']:.2f}"
    )


def _memory(case):
    """As `_steps`; on a CPU the batch is a larger one."""
    memory = case["memory"]
    if memory is None:
        return case["batch_size"], ""
    return memory["batch_size"], (
        f"**{memory['token_tensors']:+.1f}** token tensors; between steps "
        f"{memory['between_steps_bytes'] / 1e6:+.0f} MB"
    )


def _conditions(run):
    machine = run["machine"]
    pairs = sorted({case["training"]["pairs"] for case in run.get("cases", ())})
    pairs = f"; {', '.join(map(str, pairs))} pairs" if pairs else ""
    return (
        f"`{run['command']}`: {machine['backend']} {machine['backend_version']}, Keras "
        f"{machine['keras']}, Python {machine['python']}; {machine['device']}, "
        f"{machine['processor']}, {machine['cores']} cores, OMP_NUM_THREADS="
        f"{machine['omp_num_threads'] or 'unset'}{pairs}."
    )


TABLES = {
    "steps": ("cases", _steps_table),
    "memory": ("cases", _memory_table),
    "growth": ("ops", _growth_table),
}


if __name__ == "__main__":
    main()
