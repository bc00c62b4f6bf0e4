"""The benchmarks: what they count and fit, and runs of them in small."""

import json
import sys
from pathlib import Path

import keras
import matplotlib.image
import numpy as np
import pytest
from benchmarks import floors, gpu, growth, memory, overhead, report, timing
from benchmarks.arguments import MODES, start
from benchmarks.backends import compiled, flush_denormals, gradient
from benchmarks.cases import (
    FAMILIES,
    PRESETS,
    Case,
    build_ours,
    build_stock,
    select_cases,
)
from benchmarks.fits import fit_exponent
from benchmarks.floors import Product
from common.document import read_blocks
from keras import ops

import keras_cond
from keras_cond.ops import condition, dct_graying, svd_graying
from tests.autodiff import BACKEND, to_numpy

# XLA takes minutes on TensorFlow to compile what runs once here.
MODE = "graph" if BACKEND == "tensorflow" else MODES[BACKEND][0]
# The blocks of docs/benchmarks.md, each made from the files of its name, and the kind
# of table.
BLOCKS = {
    "overhead": "steps",
    "widths": "steps",
    "bfloat16": "steps",
    "memory": "memory",
    "growth": "growth",
}


@pytest.fixture(autouse=True)
def denormals():
    """What `start` switches off for the process is on again for other tests."""
    yield
    if BACKEND == "torch":
        import torch

        torch.set_flush_denormal(False)


# Counts and statistics.


def product_operations(function, x):
    """Operations of the matrix products that a call runs, as the backend sees them."""
    if BACKEND == "torch":
        from torch.ops import aten
        from torch.utils.flop_counter import FlopCounterMode

        def operations(total, a, b, out_shape=None):
            return 2 * np.prod(a) * b[-1]

        # Unknown to the counter: those that write over their addend.
        own = {aten.addmm_: operations, aten.baddbmm_: operations}
        with FlopCounterMode(display=False, custom_mapping=own) as counter:
            function(ops.convert_to_tensor(x))
        return counter.get_total_flops()
    if BACKEND == "jax":
        import jax

        return sum(jax_products(jax.make_jaxpr(function)(x).jaxpr))
    import tensorflow as tf

    graph = tf.function(function).get_concrete_function(tf.constant(x)).graph
    return sum(
        2 * op.outputs[0].shape.num_elements() * inner_size(op)
        for op in operations_behind(graph.outputs)
        if op.type in ("MatMul", "BatchMatMulV2", "BatchMatMulV3")
    )


def operations_behind(tensors):
    """Those of a TensorFlow graph that the tensors need; others never run."""
    found, waiting = {}, [tensor.op for tensor in tensors]
    while waiting:
        op = waiting.pop()
        if op.name not in found:
            found[op.name] = op
            waiting.extend(tensor.op for tensor in op.inputs)
    return found.values()


def jax_products(jaxpr):
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            sizes = [equation.invars[0].aval.shape[axis] for axis in contracted]
            yield 2 * np.prod(sizes) * np.prod(equation.outvars[0].aval.shape)
        for value in equation.params.values():
            if hasattr(value, "jaxpr"):
                yield from jax_products(value.jaxpr)


def inner_size(op):
    transposed = "adj_x" if op.type.startswith("Batch") else "transpose_a"
    return op.inputs[0].shape[-2 if op.get_attr(transposed) else -1]


def gray_by_svd(x):
    return svd_graying(x, 0.9)


def gray_by_dct(x):
    return dct_graying(x, 0.9)


def condition_as_constant(x):
    return condition(x, stop_gradient=True)


@pytest.mark.parametrize("shape", [(2, 64, 96), (1, 300, 72)])
@pytest.mark.parametrize(
    "function, products, differentiated",
    [
        (condition, floors.polar_products, True),
        (condition_as_constant, floors.polar_products, False),
        (gray_by_svd, floors.graying_products, True),
        (gray_by_dct, floors.dct_products, True),
    ],
)
def test_counted_operations_are_those_that_run(
    function, products, differentiated, shape
):
    x = np.random.default_rng(0).normal(size=shape).astype("float32")
    # Products with a vector are left out of the count. Outside a graph a few small
    # products run whose result nothing needs.
    least = 0.93 if function is gray_by_svd else 0.96
    ran = product_operations(function, x)
    counted = floors.total_operations(products(*shape))
    assert least * ran < counted <= ran
    ran = product_operations(gradient(function), x)
    if differentiated:
        counted = floors.total_operations(products(*shape, gradient=True))
    assert least * ran < counted <= ran


def test_denormals_count_as_zero():
    """As XLA has it; the product of two small numbers is one."""
    flush_denormals()
    small = ops.convert_to_tensor(np.full(3, 1e-20, "float32"))
    function = compiled(lambda x: x * x * 1e30, MODES[BACKEND][0])
    assert to_numpy(function(small)).max() == 0


def test_operations_of_a_product():
    assert Product(2, 3, 4, 5, 6).operations == 2 * 2 * 3 * 4 * 5 * 6
    (svd,) = floors.svd_products(2, 30, 20)
    assert svd.operations == pytest.approx(2 * (6 * 30 * 20**2 + 20 * 20**3))


def test_time_of_products_adds_up(monkeypatch):
    monkeypatch.setattr(floors, "seconds_of", lambda function: 0.5)
    monkeypatch.setattr(floors, "LEAST_OPERATIONS", 1000)
    # 2 * 4 * 5 * 6 = 240 operations: five are timed at once.
    products = [Product(10, 1, 4, 5, 6), Product(3, 1, 10, 10, 10)]
    assert floors.seconds_of_products(products, "eager") == pytest.approx(1 + 1.5)


def test_ratio_is_the_median_of_the_pairs():
    rng = np.random.default_rng(0)
    stock, ours = rng.uniform(1, 2, (2, 21))
    found = timing.ratio_statistics(list(stock), list(ours))
    ratios = np.sort(ours / stock)
    assert found["ratio"] == ratios[10]
    assert found["quartiles"] == [ratios[5], ratios[15]]
    assert found["stock_ms"] == pytest.approx(1000 * np.sort(stock)[10])
    assert found["ours_ms"] == pytest.approx(1000 * np.sort(ours)[10])
    assert found["pairs"] == 21


def test_pairs_are_run_in_alternating_order():
    calls = []
    times = timing.interleave(
        lambda: calls.append("a"), lambda: calls.append("b"), 3, calls.append
    )
    assert calls == ["a", "b", 1, "b", "a", 2, "a", "b", 3]
    assert [len(side) for side in times] == [3, 3]


@pytest.mark.parametrize("exponent", [-1.0, 0.0, 0.5, 3.0])
def test_exponent_of_a_power_law_is_found(exponent):
    sizes = np.array([2, 4, 8, 16, 32, 64])
    costs = 7e-3 * sizes.astype(float) ** exponent
    assert fit_exponent(list(sizes), list(costs)) == pytest.approx(exponent, abs=1e-9)
    costs[:3] = 1.0  # What a call costs at any size.
    assert fit_exponent(list(sizes), list(costs)) == pytest.approx(exponent, abs=1e-9)
    assert np.isnan(fit_exponent([1, 2], [1.0, 0.0]))
    with pytest.raises(ValueError, match=r"sizes: got \[3\], expected two or more"):
        fit_exponent([3], [1.0])


# Models.


# What a method changes in a layer of the ViT.
CHANGES = {
    "conditioned_tokens": ("token_conditioning", {"method": "newton_schulz"}),
    "conditioned_tokens_stop_gradient": (
        "token_conditioning",
        {"stop_gradient": True, "method": "newton_schulz"},
    ),
    "conditioned_tokens_svd": (
        "token_conditioning",
        {"stop_gradient": False, "method": "svd"},
    ),
    "svd_graying_svd": ("patch_graying", {"method": "svd"}),
    "spectral_identity": ("block_0_attention", {"correction": "identity"}),
    "spectral_polar": ("block_0_attention", {"correction": "polar", "per_head": True}),
    "spectral_polar_joint": (
        "block_0_attention",
        {"correction": "polar", "per_head": False},
    ),
}


@pytest.mark.parametrize("preset", ["vit-smoke", "gpt-smoke", "bert-smoke"])
def test_every_method_changes_what_it_says_and_keeps_the_weights(preset):
    stock = build_stock(preset)
    family = FAMILIES[PRESETS[preset].family]
    inputs, _ = family.batch(PRESETS[preset], 2)
    for method, entry in family.methods.items():
        model = build_ours(Case(preset, method, 2), stock)
        theirs, ours = (m.get_layer("block_0_mlp_in").kernel for m in (stock, model))
        np.testing.assert_array_equal(to_numpy(ours), to_numpy(theirs))
        name, changes = CHANGES.get(method, ("head_norm", {}))
        config = model.get_layer(name).get_config()
        assert config | changes == config, method
        attention = model.get_layer("block_0_attention")
        spectral = entry.conditioning in ("spectral_attention", "conditioned_init")
        expected = (
            keras_cond.SpectralAttention
            if spectral and not entry.folded
            else keras.layers.MultiHeadAttention
        )
        assert type(attention) is expected, method
        if method == "conditioned_init":  # The layer at λ = 0, with equal weights.
            outputs = [to_numpy(m(inputs, training=False)) for m in (model, stock)]
            np.testing.assert_allclose(*outputs, atol=1e-6)


def test_vit_ti_has_the_sizes_of_the_paper():
    preset = PRESETS["vit-ti"]
    size = preset.dimensions
    assert (size.width, size.num_layers, size.num_heads, size.mlp_ratio) == (
        192,
        12,
        3,
        4,
    )
    assert (preset.num_tokens, preset.patch_numbers) == (14 * 14, 16 * 16 * 3)


def test_cases_of_the_table_and_of_names():
    table = select_cases("vit-ti,gpt-mini", "table")
    assert [(case.name, case.batch_size) for case in table] == [
        ("vit-ti/stock", 8),
        ("vit-ti/conditioned_tokens", 8),
        ("vit-ti/conditioned_tokens_stop_gradient", 8),
        ("vit-ti/spectral_identity", 8),
        ("vit-ti/dct_graying", 8),
        ("vit-ti/svd_graying", 8),
        ("vit-ti/folded", 8),
        ("vit-ti/spectral_polar", 32),
        ("gpt-mini/stock", 32),
        ("gpt-mini/conditioned_table", 32),
    ]
    (case,) = select_cases("vit-mini,gpt-mini", "conditioned_table", 3)
    assert case == Case("gpt-mini", "conditioned_table", 3)
    assert len(select_cases("vit-b", "all")) == len(FAMILIES["vit"].methods)


@pytest.mark.parametrize("ours_first", [False, True])
def test_both_models_start_from_the_same_weights(ours_first):
    case = Case("vit-smoke", "stock", 2)
    _, steps = overhead.both_steps(case, MODE, ours_first)
    (stock, ours), _ = steps.values()
    losses = [stock(), stock()]
    assert losses[0] != losses[1]
    assert [ours(), ours()] == pytest.approx(losses, rel=1e-5)


# Memory.


def test_peak_is_that_since_the_last_reset():
    np.ones(2**24)  # 128 MiB, gone at once
    if not memory.reset_peak():
        pytest.skip("This system cannot forget an earlier peak.")
    before = memory.used_bytes()
    np.ones(2**23)
    growth = memory.peak_bytes() - before
    assert 0.95 * 2**26 < growth < 1.5 * 2**26


def test_child_gets_the_request_and_its_failure_is_told(tmp_path):
    script = tmp_path / "child.py"
    script.write_text(
        "import json, os, sys\nrequest = json.loads(sys.argv[1])\n"
        "if request['case'] == 'bad': sys.exit('no such case')\n"
        "print('hello')\nprint(json.dumps([request, os.environ['KERAS_BACKEND']]))\n"
    )
    request = {"backend": "none", "case": "good"}
    assert memory.in_child(script, request) == [request, "none"]
    with pytest.raises(RuntimeError, match="ended with 1: no such case"):
        memory.in_child(script, request | {"case": "bad"})


# The scripts.


def run_overhead(monkeypatch, path, *arguments):
    """A smoke run whose memory is made up: three token tensors, 5 MB between steps."""
    between = {"stock": 1e6, "ours": 6e6}
    steps = {"stock": 1e6, "ours": 1e6 + 3 * 8 * 16 * 16 * 4}

    def peak_of_steps(case, side, *how):
        assert case.batch_size == 4 * 2 and how == (MODE, "float32", BACKEND)
        return {
            "between_steps": between[side],
            "peak": between[side] + steps[side],
            "with_compiling": False,
        }

    monkeypatch.setattr(memory, "peak_of_steps", peak_of_steps)
    return overhead.main(["--smoke", "--mode", MODE, "--json", str(path), *arguments])


def check_picture(path):
    picture = matplotlib.image.imread(path)[..., :3]
    assert picture.shape[1] > 800
    assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 50


def test_overhead_smoke_run_writes_table_numbers_and_picture(
    tmp_path, monkeypatch, capsys
):
    path = tmp_path / "new" / "overhead.json"
    assert run_overhead(monkeypatch, path) == path
    results = json.loads(path.read_text())
    assert results["machine"]["backend"] == BACKEND
    assert results["command"].endswith(f"--json {path}")
    (case,) = results["cases"]
    for kind in ("training", "inference"):
        numbers = case[kind]
        low, high = numbers["quartiles"]
        assert 0 < low <= numbers["ratio"] <= high
        floor = 1 + numbers["floor_ms"] / numbers["stock_ms"]
        assert numbers["floor"] == pytest.approx(floor) and floor > 1
        assert numbers["pairs"] == 2
    assert case["training"]["floor_gflop"] > case["inference"]["floor_gflop"] > 0
    assert case["memory"]["token_tensors"] == pytest.approx(3)
    assert min(case["first_step_seconds"].values()) > 0
    printed = capsys.readouterr().out
    assert f"{case['training']['ratio']:.3f}" in printed
    assert "+3.0" in printed and "+5.0" in printed
    check_picture(path.with_suffix(".png"))

    report.main([str(path), str(path)])
    table = capsys.readouterr().out
    assert f"| Training step, ours / stock | {BACKEND}, {MODE}, float32 |" in table
    ratio = f"**{case['training']['ratio']:.2f}**"
    assert f"vit-smoke, batch 2: conditioned tokens, with gradient | {ratio}" in table
    assert keras.version() in table
    document = tmp_path / "page.md"
    document.write_text("# Page\n<!-- begin costs -->\n<!-- end costs -->\nend\n")
    report.main([str(path), "--document", str(document), "--block", "costs"])
    text = document.read_text()
    assert text.startswith("# Page\n") and text.endswith("\nend\n")
    assert read_blocks(text)["costs"] == report.markdown([path])

    written = path.read_text()
    with pytest.raises(ValueError, match=r"overhead.json exists.*--overwrite"):
        run_overhead(monkeypatch, path)
    path.rename(tmp_path / "new" / "moved.json")
    with pytest.raises(ValueError, match=r"overhead.png exists.*--overwrite"):
        run_overhead(monkeypatch, path)
    assert (tmp_path / "new" / "moved.json").read_text() == written


def write_run(path, **numbers):
    machine = {"backend": "jax", "backend_version": "1", "keras": "3", "python": "3"}
    machine |= {"device": "CPU", "processor": "P", "cores": 2, "omp_num_threads": None}
    run = {"command": "run", "mode": "jit", "machine": machine, **numbers}
    path.write_text(json.dumps(run))
    return path


def test_report_has_a_column_for_each_precision_and_a_gap_where_nothing_ran(tmp_path):
    cases = [fake_case("float32"), fake_case("mixed_bfloat16", "b", 1.5)]
    path = write_run(tmp_path / "a.json", cases=cases)
    lines = report.markdown([path]).splitlines()
    assert lines[0].endswith("| jax, jit, float32 | jax, jit, mixed_bfloat16 |")
    assert lines[2] == (
        "| vit-ti, batch 8: A | **1.25** (1.00 to 2.00), floor 1.10 |  |"
    )
    assert lines[3].startswith("| vit-ti, batch 8: B |  | **1.50**")
    cases[1]["memory"] = None
    write_run(path, cases=cases)
    lines = report.markdown([path], "memory").splitlines()
    cell = "**+4.2** token tensors; between steps +1 MB"
    assert lines[2] == f"| vit-ti, batch 32: A | {cell} |  |"
    assert lines[3] == "| vit-ti, batch 8: B |  |  |"
    with pytest.raises(ValueError, match=r"has no 'ops', expected .* growth\.py"):
        report.markdown([path], "growth")
    with pytest.raises(ValueError, match="does not exist"):
        report.markdown([tmp_path / "b.json"])


def test_report_of_growth_has_gaps_where_a_size_did_not_move(tmp_path):
    exponents = {"seconds": 1.0, "gradient_seconds": 1.5, "bytes": 0.5}
    curve = {"sizes": [64, 128], "seconds": [0.002, 1], "gradient_seconds": [0.07, 1]}
    curve |= {"bytes": [1, 1], "exponents": exponents}
    other = {"sizes": [1, 2], "exponents": exponents | {"gradient_seconds": 0.9}}
    path = write_run(tmp_path / "a.json", ops={"polar": {"N": curve}})
    also = write_run(tmp_path / "b.json", ops={"polar": {"batch": other}})
    lines = report.markdown([path, also], "growth").splitlines()
    header = "| op |  | ms at N = 64 | with the gradient | time ~ N^ | time ~ D^ |"
    assert lines[0].startswith(header)
    assert "| polar | jax, jit | 2.00 | 70.0 | 1.50 |  |  | 0.50 |  |  |" in lines
    assert "| polar | jax, jit |  |  |  |  | 0.90 |  |  | 0.50 |" in lines


def test_growth_smoke_run_writes_exponents_and_picture(tmp_path, monkeypatch, capsys):
    path = tmp_path / "growth.json"
    monkeypatch.setattr(
        memory,
        "in_child",
        lambda script, request: [16.0 * np.prod(s) for s in request["shapes"]],
    )
    sweeps = {"N": (4, 8), "D": (4, 8), "batch": (1, 2)}
    monkeypatch.setattr(growth, "SMOKE_SWEEPS", sweeps)
    growth.main(["--smoke", "--mode", MODE, "--json", str(path)])
    results = json.loads(path.read_text())
    assert list(results["ops"]) == ["dct_graying"]
    for size, curve in results["ops"]["dct_graying"].items():
        assert curve["sizes"] == list(sweeps[size])
        assert curve["exponents"]["bytes"] == pytest.approx(1)
        assert min(curve["seconds"] + curve["gradient_seconds"]) > 0
    assert "1.00" in capsys.readouterr().out
    check_picture(path.with_suffix(".png"))
    with pytest.raises(ValueError, match="--overwrite"):
        growth.main(["--smoke", "--mode", MODE, "--json", str(path)])


def test_growth_leaves_out_larger_sizes_or_says_that_none_is_left():
    _, sweeps = growth.sizes_of(growth.parse_arguments(["--largest", "64"]))
    assert sweeps == {"N": (32, 64), "D": (32, 64), "batch": (1, 2, 4, 8, 16, 32)}
    with pytest.raises(ValueError, match=r"--largest: got 32, .* expected 64"):
        growth.sizes_of(growth.parse_arguments(["--largest", "32"]))


def test_without_a_path_the_file_has_the_name_of_the_benchmark(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments = growth.parse_arguments([])
    start(arguments, "growth")
    assert arguments.json.as_posix() == f"runs/growth-{BACKEND}.json"


def test_growth_measures_the_memory_of_each_shape():
    shapes = [[64, 256, 64], [128, 256, 64]]
    request = {"op": "dct_graying", "shapes": shapes, "mode": MODE, "backend": BACKEND}
    found = memory.in_child(growth.__file__, request)
    tensor = 64 * 256 * 64 * 4
    assert tensor < found[0] < 20 * tensor
    assert 1.5 < found[1] / found[0] < 2.5


def fake_case(precision, method="a", ratio=1.25):
    """What overhead.py would measure, made up."""
    numbers = {"ratio": ratio, "quartiles": [1.0, 2.0], "floor": 1.1, "pairs": 20}
    numbers |= {"stock_ms": 1.0, "ours_ms": 1.0}
    return {
        "preset": "vit-ti",
        "method": method,
        "title": method.upper(),
        "batch_size": 8,
        "precision": precision,
        "training": numbers,
        "inference": numbers,
        "first_step_seconds": {"stock": 1.0, "ours": 2.0},
        "memory": {
            "batch_size": 32,
            "token_tensors": 4.25,
            "between_steps_bytes": 1e6,
        },
    }


def fake_measure(cases, arguments):
    for _ in cases:
        precision = arguments.mixed_precision
        assert keras.config.dtype_policy().name == precision
        yield fake_case(precision)


def test_gpu_smoke_run_measures_both_precisions(tmp_path, monkeypatch, capsys):
    path = tmp_path / "gpu.json"
    monkeypatch.setattr(overhead, "measure", fake_measure)
    arguments = ["--smoke", "--json", str(path)]
    if BACKEND == "tensorflow":
        with pytest.raises(ValueError, match="pass --backend jax or torch"):
            gpu.main(arguments)
        return
    gpu.main(arguments)
    results = json.loads(path.read_text())
    precisions = [case["precision"] for case in results["cases"]]
    assert precisions == ["float32", "mixed_bfloat16"]
    assert results["left_out"] == []
    exact = [row for row in results["accuracy"] if row["products"] == "float32"]
    for row in exact:
        assert row["bound"] == pytest.approx(2 / (1 + 1 / row["kappa"]))
        assert row["largest"] == pytest.approx(row["bound"], rel=5e-3)
    assert "largest κ(X + C)" in capsys.readouterr().out
    check_picture(path.with_suffix(".png"))


def test_gpu_run_says_what_time_did_not_allow(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu, "accuracy", lambda shape: [])
    monkeypatch.setattr(overhead, "measure", fake_measure)
    monkeypatch.setattr(gpu.time, "monotonic", iter([0, 479, 481]).__next__)
    path = gpu.main(["--smoke", "--json", str(tmp_path / "gpu.json")])
    results = json.loads(path.read_text())
    assert [case["precision"] for case in results["cases"]] == ["float32"]
    assert results["left_out"] == ["vit-smoke/conditioned_tokens, mixed_bfloat16"]


def test_gpu_run_without_a_gpu_is_refused(tmp_path):
    with pytest.raises(ValueError, match="finds no GPU"):
        gpu.main(["--json", str(tmp_path / "gpu.json")])


def test_tokens_have_the_condition_number_asked_for():
    tokens = gpu.tokens_of_condition((2, 12, 16), 100.0).astype("float64")
    np.testing.assert_allclose(np.linalg.cond(tokens), 100, rtol=1e-3)


OTHER = next(name for name in MODES if name != BACKEND)


@pytest.mark.parametrize(
    "script, arguments, message",
    [
        (overhead, ["--backend", "mxnet"], "--backend: got 'mxnet', expected one of"),
        (overhead, ["--backend", OTHER], f"--backend: got '{OTHER}', but Keras runs"),
        (overhead, ["--mode", "xla"], f"--mode on {BACKEND}: got 'xla', expected"),
        (overhead, ["--mixed-precision", "half"], "--mixed-precision: got 'half'"),
        (overhead, ["--pairs", "0"], "--pairs: got 0, expected a whole number from 1"),
        (overhead, ["--batch-size", "0"], "--batch-size: got 0, expected a whole"),
        (overhead, ["--preset", "vit-huge"], "--preset: got 'vit-huge', expected one"),
        (overhead, ["--cases", "magic"], "--cases: got 'magic', expected one of"),
        (
            overhead,
            ["--preset", "vit-ti", "--cases", "conditioned_table"],
            "--cases: got 'conditioned_table', expected one of stock, conditioned",
        ),
        (growth, ["--ops", "sqrt"], "--ops: got 'sqrt', expected one of condition"),
        (growth, ["--mixed-precision", "mixed_float16"], "expected one of float32"),
        (gpu, ["--minutes", "0"], "--minutes: got 0, expected a whole number from 1"),
    ],
)
def test_bad_arguments_are_refused_before_anything_runs(
    script, arguments, message, tmp_path, monkeypatch
):
    monkeypatch.setattr(overhead, "measure", pytest.fail)
    monkeypatch.setattr(growth, "measure", pytest.fail)
    path = tmp_path / "new" / "numbers.json"
    with pytest.raises(ValueError, match=message):
        script.main([*arguments, "--json", str(path)])
    assert not path.exists()


def test_report_refuses_what_is_not_a_run(tmp_path):
    with pytest.raises(ValueError, match=r"does not exist\. Run the benchmark"):
        report.main([str(tmp_path / "none.json")])
    path = tmp_path / "other.json"
    path.write_text("[]")
    with pytest.raises(ValueError, match=r"expected a JSON file of overhead\.py"):
        report.main([str(path)])


def test_backend_is_chosen_before_keras_is_imported(monkeypatch):
    from benchmarks import arguments

    class FakeKeras:
        class backend:  # noqa: N801
            @staticmethod
            def backend():
                return arguments.os.environ["KERAS_BACKEND"]

    monkeypatch.delitem(sys.modules, "keras")
    monkeypatch.setenv("KERAS_BACKEND", BACKEND)
    monkeypatch.setattr(arguments.importlib, "import_module", lambda _: FakeKeras)
    assert arguments.choose_backend(OTHER) == OTHER


@pytest.mark.parametrize("block, table", BLOCKS.items())
def test_the_tables_of_the_documentation_are_those_of_the_numbers(block, table):
    root = Path(__file__).parent.parent
    results = root / "examples" / "benchmarks" / "results"
    files = sorted(results.glob(f"{block}-*.json"))
    text = (root / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    assert files and read_blocks(text)[block] == report.markdown(files, table)


def test_every_table_of_the_documentation_is_tested():
    root = Path(__file__).parent.parent
    text = (root / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    assert read_blocks(text).keys() == BLOCKS.keys()
