"""Imports go one way, without cycles and without Keras' private modules."""

import ast
import pathlib
import re

import pytest

import keras_cond

PACKAGE = pathlib.Path(keras_cond.__file__).parent

# A module may import from its own subpackage and from those of lower rank. Modules
# beside the subpackages are shared helpers below all of them.
RANKS = {
    "ops": 0,
    "initializers": 1,
    "constraints": 1,
    "regularizers": 1,
    "layers": 2,
    "projections": 3,
    "diagnostics": 4,
    "callbacks": 5,
    "surgery": 6,
}
HELPER = -1


def modules(root):
    """Name -> path of every module under the package folder `root`."""
    found = {}
    for path in sorted(root.rglob("*.py")):
        parts = [root.name, *path.relative_to(root).with_suffix("").parts]
        if parts[-1] == "__init__":
            parts.pop()
        found[".".join(parts)] = path
    return found


def imports(name, path):
    """The dotted names that a module imports, wherever in its text."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                up = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*up, base] if base else up)
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and node.args:
            # importlib.import_module("...") and __import__("...")
            called = ast.unparse(node.func)
            first = node.args[0]
            if called.endswith("import_module") or called == "__import__":
                if isinstance(first, ast.Constant) and isinstance(first.value, str):
                    yield first.value


def subpackage(name):
    return name.split(".")[1] if "." in name else None


def rank(name, found):
    part = subpackage(name)
    if part in RANKS:
        return RANKS[part]
    return HELPER


def violations(root):
    """What is wrong with the imports under `root`, as sentences."""
    found = modules(root)
    problems, edges = [], {}
    for name, path in found.items():
        if name.count(".") == 1 and path.name == "__init__.py":
            if subpackage(name) not in RANKS:
                problems.append(f"{name} is a subpackage without a rank")
        edges[name] = set()
        for target in imports(name, path):
            if target == "keras.src" or target.startswith("keras.src."):
                problems.append(f"{name} imports {target}")
            if target.split(".")[0] != root.name:
                continue
            while target not in found:  # a name inside a module: the module
                target = target.rpartition(".")[0]
            if name == root.name:  # the top level re-exports everything
                continue
            if target == root.name:
                # `from keras_cond import ops` shows up as keras_cond.ops as well.
                continue
            edges[name].add(target)
            same = subpackage(name) == subpackage(target)
            if not same and rank(target, found) >= rank(name, found):
                problems.append(f"{name} imports {target}, which is not below it")
        if re.search(r"keras\.src\b", path.read_text(encoding="utf-8")):
            problems.append(f"{name} mentions keras.src")
    problems.extend(f"cycle through {name}" for name in cycles(edges))
    return sorted(set(problems))


def cycles(edges):
    """Modules that reach themselves. A package's own re-exports do not count."""
    inner = {
        a: {
            b
            for b in targets
            if not a.startswith(f"{b}.") and not b.startswith(f"{a}.")
        }
        for a, targets in edges.items()
    }

    def reachable(start):
        seen, stack = set(), [start]
        while stack:
            for target in inner.get(stack.pop(), ()):
                if target not in seen:
                    seen.add(target)
                    stack.append(target)
        return seen

    return [name for name in inner if name in reachable(name)]


def write_tree(folder, files):
    root = folder / "pkg"
    for name in ("ops", "initializers", "layers", "surgery"):
        (root / name).mkdir(parents=True, exist_ok=True)
        (root / name / "__init__.py").write_text("")
    (root / "__init__.py").write_text("from pkg import ops, layers\n")
    for name, text in files.items():
        (root / name).write_text(text)
    return root


# -- the package -----------------------------------------------------------------


def test_the_package_has_no_violation():
    assert violations(PACKAGE) == []


def test_the_checker_reads_the_whole_package():
    found = modules(PACKAGE)
    for name in ("keras_cond.ops", "keras_cond.layers", "keras_cond.initializers"):
        assert name in found
        assert any(other.startswith(name + ".") for other in found)
    # Layers do import from ops: the checker sees real edges.
    seen = {
        target
        for name, path in found.items()
        if name.startswith("keras_cond.layers.")
        for target in imports(name, path)
    }
    assert any(target.startswith("keras_cond.ops") for target in seen)


def test_the_backend_is_asked_for_in_one_file_at_most():
    asks = re.compile(
        r"backend\.backend\(|config\.backend\(|^\s*(import|from) "
        r"(jax|torch|tensorflow)\b",
        re.MULTILINE,
    )
    files = [
        path.name
        for path in modules(PACKAGE).values()
        if asks.search(path.read_text(encoding="utf-8"))
    ]
    assert len(files) <= 1, files


def snake_case(name):
    name = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower()


@pytest.mark.parametrize("part", ["initializers", "layers"])
def test_each_public_class_lives_in_the_file_of_its_name(part):
    module = getattr(keras_cond, part)
    for name in module.__all__:
        value = getattr(module, name)
        assert value.__module__ == f"keras_cond.{part}.{snake_case(name)}"


def test_no_file_is_longer_than_250_lines():
    lengths = {
        name: len(path.read_text(encoding="utf-8").splitlines())
        for name, path in modules(PACKAGE).items()
    }
    assert {k: v for k, v in lengths.items() if v > 250} == {}


# -- the checker -----------------------------------------------------------------


def test_a_tree_whose_imports_go_down_passes(tmp_path):
    root = write_tree(
        tmp_path,
        {
            "checks.py": "import keras\n",
            "ops/a.py": "from pkg.checks import x\nfrom pkg.ops import b\n",
            "ops/b.py": "import keras\nfrom keras import ops\n",
            "layers/c.py": "from pkg import ops\nfrom pkg.initializers import d\n",
            "initializers/d.py": "from ..ops.a import x\n",
        },
    )
    assert violations(root) == []


@pytest.mark.parametrize(
    ("file", "text", "problem"),
    [
        ("ops/a.py", "import pkg.layers\n", "not below"),
        ("ops/a.py", "from pkg import layers\n", "not below"),
        ("ops/a.py", "from pkg.layers import x\n", "not below"),
        ("ops/a.py", "from ..layers.c import x\n", "not below"),
        ("ops/a.py", "from .. import layers\n", "not below"),
        ("ops/__init__.py", "from ..layers import x\n", "not below"),
        ("layers/c.py", "def f():\n    from pkg.surgery import x\n", "not below"),
        (
            "ops/a.py",
            "import importlib\nimportlib.import_module('pkg.layers')\n",
            "not",
        ),
        ("checks.py", "from pkg.ops import a\n", "not below"),
        ("ops/a.py", "from keras.src import backend\n", "keras.src"),
        ("ops/a.py", "import keras.src.ops as o\n", "keras.src"),
        ("ops/a.py", "import keras\nkeras.src.backend.shape\n", "keras.src"),
    ],
)
def test_an_import_that_goes_up_or_inside_keras_fails(tmp_path, file, text, problem):
    root = write_tree(
        tmp_path, {"ops/a.py": "", "layers/c.py": "", "checks.py": "", file: text}
    )
    assert any(problem in sentence for sentence in violations(root)), violations(root)


def test_a_cycle_inside_one_subpackage_fails(tmp_path):
    root = write_tree(
        tmp_path,
        {
            "ops/a.py": "from pkg.ops.b import x\n",
            "ops/b.py": "from pkg.ops.c import x\n",
            "ops/c.py": "def f():\n    from pkg.ops import a\n",
        },
    )
    assert any("cycle" in sentence for sentence in violations(root))


def test_a_subpackage_without_a_rank_fails(tmp_path):
    root = write_tree(tmp_path, {})
    (root / "extras").mkdir()
    (root / "extras" / "__init__.py").write_text("")
    assert violations(root) == ["pkg.extras is a subpackage without a rank"]
