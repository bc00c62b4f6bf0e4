r"""Cost of each op against the number of tokens N, of channels D, and the batch.

    python examples/benchmarks/growth.py --backend jax

times each op of `keras_cond.ops` that acts on tokens, and its gradient, along one size
at a time, and fits the exponent of a power law through the larger half of the sizes:
cost ~ size^exponent. Memory is the growth of the peak during the gradient over what was
in use before, in a process of its own. The numbers go into a JSON file and a picture
with log axes beside it.
"""

import json
import shlex
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.arguments import (
    benchmark_parser,
    check_choice,
    picture_of,
    start,
)
from common.arguments import parse_list

OPS = ("condition", "condition_svd", "polar", "dct_graying", "svd_graying")
OPS += ("svd_graying_svd",)
# Where the other two sizes stay while one moves: near ViT-Ti/16 at 224 pixels.
BASE = {"N": 196, "D": 192, "batch": 8}
SWEEPS = {
    "N": (32, 64, 128, 256, 512, 1024),
    "D": (32, 64, 128, 256, 512, 1024),
    "batch": (1, 2, 4, 8, 16, 32),
}
SMOKE_BASE = {"N": 8, "D": 8, "batch": 2}
SMOKE_SWEEPS = {"N": (4, 8, 16), "D": (4, 8, 16), "batch": (1, 2, 4)}
EPSILON = 0.95
MEMORY_CALLS = 4


def main(argv=None):
    """Run the script.

    Args:
        argv: Command-line arguments; `None` takes those of the process.

    Returns:
        Path of the JSON file.
    """
    arguments = parse_arguments(argv)
    base, sweeps = sizes_of(arguments)
    start(arguments, "growth")
    import keras
    from benchmarks.backends import machine
    from benchmarks.pictures import plot_growth
    from common.runs import write_results
    from common.tables import format_table

    names = parse_list("--ops", arguments.ops, OPS)
    words = sys.argv[1:] if argv is None else argv
    results = {
        "command": shlex.join(["python", "examples/benchmarks/growth.py", *words]),
        "machine": machine(),
        "mode": arguments.mode,
        "base": base,
        "sweeps": sweeps,
        "quantities": {
            "seconds": "seconds",
            "gradient_seconds": "seconds with the gradient",
        },
        "ops": {},
    }
    if not arguments.without_memory:
        results["quantities"]["bytes"] = "bytes at the peak of the gradient"
    bar = keras.utils.Progbar(len(names) * len(sweeps), unit_name="sweep")
    for name in names:
        curves = results["ops"][name] = {}
        for size in sweeps:
            curves[size] = measure(name, size, arguments)
            bar.add(1)
    write_results(arguments.json, results)
    plot_growth(picture_of(arguments.json), results)
    print(f"\n{format_table(*exponent_table(results))}")
    print(f"\nNumbers: {arguments.json}\nPicture: {picture_of(arguments.json)}")
    return arguments.json


def parse_arguments(argv):
    """Read the command line."""
    parser = benchmark_parser(__doc__.splitlines()[0], pairs=7)
    parser.add_argument("--ops", default=",".join(OPS), help="what to time")
    parser.add_argument("--along", default="N,D,batch", help="sizes that move")
    parser.add_argument("--largest", type=int, help="leave out larger sizes")
    arguments = parser.parse_args(argv)
    check_choice("--mixed-precision", arguments.mixed_precision, ("float32",))
    if arguments.smoke:
        arguments.pairs, arguments.ops = 2, "dct_graying"
    return arguments


def sizes_of(arguments):
    """The sizes that stay, and those that move."""
    base, sweeps = (SMOKE_BASE, SMOKE_SWEEPS) if arguments.smoke else (BASE, SWEEPS)
    sweeps = {
        name: sweeps[name] for name in parse_list("--along", arguments.along, sweeps)
    }
    if arguments.largest is None:
        return base, sweeps
    kept = {
        name: tuple(size for size in sizes if size <= arguments.largest)
        for name, sizes in sweeps.items()
    }
    if min(map(len, kept.values())) < 2:
        raise ValueError(
            f"--largest: got {arguments.largest}, which leaves fewer than two sizes, "
            f"expected {max(sizes[1] for sizes in sweeps.values())} or more."
        )
    return base, kept


def function_of(name):
    """The op of that name, as a function of one tensor `(batch, N, D)`."""
    from keras_cond import ops

    return {
        "condition": ops.condition,
        "condition_svd": lambda x: ops.condition(x, method="svd"),
        "polar": ops.polar,
        "dct_graying": lambda x: ops.dct_graying(x, EPSILON),
        "svd_graying": lambda x: ops.svd_graying(x, EPSILON),
        "svd_graying_svd": lambda x: ops.svd_graying(x, EPSILON, method="svd"),
    }[name]


def measure(name, size, arguments):
    """Times, memory and exponents of one op along one size.

    Args:
        name: One of `OPS`.
        size: `"N"`, `"D"` or `"batch"`.
        arguments: The command line.

    Returns:
        Dictionary of `sizes`, a list for each quantity, and `exponents`.
    """
    import keras
    import numpy as np
    from benchmarks.backends import compiled, gradient
    from benchmarks.fits import fit_exponent
    from benchmarks.memory import in_child
    from benchmarks.timing import interleave

    base, sweeps = sizes_of(arguments)
    shapes = [_shape({**base, size: value}) for value in sweeps[size]]
    forward = compiled(function_of(name), arguments.mode)
    backward = compiled(gradient(function_of(name)), arguments.mode)
    curve = {"sizes": list(sweeps[size]), "seconds": [], "gradient_seconds": []}
    for shape in shapes:
        x = random_tokens(shape)
        pair = (lambda x=x: forward(x)), (lambda x=x: backward(x))
        interleave(*pair, 1)  # compiles
        seconds, gradient_seconds = interleave(*pair, arguments.pairs)
        curve["seconds"].append(float(np.median(seconds)))
        curve["gradient_seconds"].append(float(np.median(gradient_seconds)))
    if not arguments.without_memory:
        request = {"op": name, "shapes": shapes, "mode": arguments.mode}
        request["backend"] = keras.backend.backend()
        curve["bytes"] = in_child(__file__, request)
    curve["exponents"] = {
        quantity: fit_exponent(curve["sizes"], values)
        for quantity, values in curve.items()
        if quantity != "sizes"
    }
    return curve


def random_tokens(shape):
    """Normal tokens `(batch, N, D)`, float32."""
    import numpy as np
    from keras import ops

    values = np.random.default_rng(0).normal(size=shape).astype("float32")
    return ops.convert_to_tensor(values)


def exponent_table(results):
    """Header and rows of the exponents."""
    columns = [(s, q) for s in results["sweeps"] for q in results["quantities"]]
    header = ["exponent of", *(f"{size}: {q}" for size, q in columns)]
    rows = [
        [op, *(f"{curves[s]['exponents'][q]:.2f}" for s, q in columns)]
        for op, curves in results["ops"].items()
    ]
    return header, rows


def _shape(sizes):
    return [sizes["batch"], sizes["N"], sizes["D"]]


def _answer(request):
    """Growth of the peak during the gradient, in bytes, for each shape."""
    from benchmarks.backends import compiled, gradient
    from benchmarks.memory import peak_bytes, reset_peak, used_bytes

    function = compiled(gradient(function_of(request["op"])), request["mode"])
    growth = []
    for shape in request["shapes"]:
        x = random_tokens(shape)
        function(x)
        found = []
        for _ in range(MEMORY_CALLS):
            if not reset_peak():
                raise SystemExit(
                    "This system or backend cannot forget an earlier peak of memory, "
                    "so the shapes cannot be told apart. Pass --without-memory."
                )
            before = used_bytes()
            function(x)
            found.append(peak_bytes() - before)
        # Some backends free the result of the call before only during the next one.
        growth.append(max(found))
    return growth


if __name__ == "__main__":
    if len(sys.argv) == 2 and sys.argv[1].startswith("{"):
        print(json.dumps(_answer(json.loads(sys.argv[1]))))
    else:
        main()
