"""Every public name is documented, importable where it should be and serializable."""

import doctest
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
import textwrap

import keras
import numpy as np
import pytest

import keras_cond
from tests.autodiff import BACKEND

OPS = (
    "condition",
    "condition_number",
    "dct",
    "dct_graying",
    "idct",
    "kaporin_penalty",
    "limit_condition",
    "polar",
    "semi_orthogonal",
    "singular_values",
    "spectral_norm",
    "svd_graying",
)
INITIALIZERS = ("DCTBasis", "RectangularIdentity", "SemiOrthogonalQK")
CONSTRAINTS = ("MaxConditionNumber",)
REGULARIZERS = ("ConditionNumber",)
LAYERS = (
    "ConditionedEmbedding",
    "ConditionedReversibleEmbedding",
    "DCTTokenGraying",
    "SVDTokenGraying",
    "SpectralAttention",
    "SpectralGroupedQueryAttention",
    "TokenConditioning",
)
CALLBACKS = ("ConditionMonitor", "ConditioningSchedule")
CLASSES = {
    **{name: getattr(keras_cond.initializers, name) for name in INITIALIZERS},
    **{name: getattr(keras_cond.constraints, name) for name in CONSTRAINTS},
    **{name: getattr(keras_cond.regularizers, name) for name in REGULARIZERS},
    **{name: getattr(keras_cond.layers, name) for name in LAYERS},
}
FUNCTIONS = {name: getattr(keras_cond.ops, name) for name in OPS}
# Whatever else the subpackages export is held to the same rules.
PUBLIC = {
    name: getattr(module, name)
    for part in pkgutil.iter_modules(keras_cond.__path__)
    if part.ispkg
    for module in [importlib.import_module(f"keras_cond.{part.name}")]
    for name in module.__all__
}
# Functions that a paper defines; the others are textbook.
FROM_PAPERS = {"condition", "dct_graying", "svd_graying", *CLASSES}


# -- names -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("module", "names"),
    [
        (keras_cond.ops, OPS),
        (keras_cond.initializers, INITIALIZERS),
        (keras_cond.constraints, CONSTRAINTS),
        (keras_cond.regularizers, REGULARIZERS),
        (keras_cond.layers, LAYERS),
        (keras_cond.callbacks, CALLBACKS),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_subpackage_exports_what_the_issue_names(module, names):
    assert set(names) <= set(module.__all__)
    for name in module.__all__:
        assert hasattr(module, name)


def test_every_class_is_exported_again_at_the_top():
    for name in (*CLASSES, *CALLBACKS):
        assert getattr(keras_cond, name) is PUBLIC[name]
        assert name in keras_cond.__all__


def test_everything_at_the_top_is_a_subpackage_or_exported_by_one():
    for name in keras_cond.__all__:
        value = getattr(keras_cond, name)
        assert inspect.ismodule(value) or PUBLIC[name] is value
    assert {**CLASSES, **FUNCTIONS}.items() <= PUBLIC.items()


@pytest.mark.parametrize("name", CLASSES)
def test_every_class_is_registered_under_the_package_name(name):
    assert keras.saving.get_registered_name(CLASSES[name]) == f"keras_cond>{name}"
    registered = keras.saving.get_registered_object(f"keras_cond>{name}")
    assert registered is CLASSES[name]


# -- docstrings ------------------------------------------------------------------


def own_parameters(value):
    signature = inspect.signature(value.__init__ if inspect.isclass(value) else value)
    return [
        name
        for name, parameter in signature.parameters.items()
        if name != "self" and parameter.kind is not inspect.Parameter.VAR_KEYWORD
        if parameter.kind is not inspect.Parameter.VAR_POSITIONAL
    ]


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_has_a_complete_docstring(name):
    value = PUBLIC[name]
    doc = inspect.cleandoc(value.__doc__ or "")
    summary = doc.split("\n")[0]
    assert summary.endswith((".", ":", "κ.")) and len(summary) > 15, summary
    # The fields of a result are attributes; functions and layers take arguments.
    arguments = "Args:" if "Args:" in doc else "Attributes:"
    sections = [arguments]
    if name in FUNCTIONS or name in CLASSES:
        sections += ["Args:", "Raises:", "Example:"]
    if name in FUNCTIONS or name in LAYERS:
        sections.append("Returns:")
    if name in FROM_PAPERS:
        sections.append("Reference")
    for section in sections:
        assert section in doc, f"{name}: no {section} in its docstring"
    described = doc.split(arguments)[1]
    for parameter in own_parameters(value):
        assert re.search(rf"^\s*{parameter}: ", described, re.MULTILINE), (
            f"{name}: argument {parameter} is not documented"
        )


@pytest.mark.parametrize("name", PUBLIC)
def test_docstrings_state_no_argument_that_does_not_exist(name):
    value = PUBLIC[name]
    doc = inspect.cleandoc(value.__doc__)
    block = re.split(r"\n\S", re.split(r"(?:Args|Attributes):\n", doc)[1])[0]
    documented = re.findall(r"^    (\w+): ", block, re.MULTILINE)
    assert documented and set(documented) <= set(own_parameters(value))


@pytest.mark.parametrize("name", PUBLIC)
def test_the_examples_of_every_public_name_run(name):
    doc = inspect.cleandoc(PUBLIC[name].__doc__)
    examples = doctest.DocTestParser().get_examples(doc)
    blocks = re.findall(r"```(?:python)?\n(.*?)```", doc, re.DOTALL)
    assert examples or blocks or name not in {*FUNCTIONS, *CLASSES}
    namespace = {"keras": keras, "keras_cond": keras_cond, "np": np}
    for block in blocks:
        exec(compile(block, name, "exec"), namespace)
    for example in examples:
        if example.want:
            got = repr(eval(example.source, namespace))
            # A shape is a tuple here and torch.Size or TensorShape there.
            got = re.sub(r"(?:torch\.Size|TensorShape)\(\[(.*)\]\)", r"(\1)", got)
            assert got == example.want.strip()
        else:
            exec(compile(example.source, name, "single"), namespace)


def test_every_module_has_a_docstring():
    for module in (keras_cond, keras_cond.ops, keras_cond.initializers):
        assert module.__doc__
    assert keras_cond.layers.__doc__


# -- what an import brings -------------------------------------------------------


def run(program):
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-2000:]
    return result.stdout


def test_importing_the_package_brings_no_further_library():
    out = run(
        """
        import sys
        import keras
        before = {name.split(".")[0] for name in sys.modules}
        import keras_cond
        after = {name.split(".")[0] for name in sys.modules}
        standard = set(sys.stdlib_module_names)
        print(sorted(after - before - standard - {"keras_cond"}))
        """
    )
    assert out.strip() == "[]", "matplotlib, a second backend or another library"


def test_it_works_with_one_backend_installed_alone():
    others = sorted({"tensorflow", "jax", "torch"} - {BACKEND})
    out = run(
        f"""
        import sys

        class Without:
            "A finder that does not find the other backends: they look not installed."

            def __init__(self, finder):
                self.finder = finder

            def __getattr__(self, name):
                return getattr(self.finder, name)

            def find_spec(self, name, path=None, target=None):
                if name.split(".")[0] in {others}:
                    return None
                return self.finder.find_spec(name, path, target)

        sys.meta_path[:] = [Without(finder) for finder in sys.meta_path]
        import keras_cond
        import keras, numpy as np
        layer = keras_cond.SpectralAttention(2, 4, correction="polar")
        x = keras_cond.TokenConditioning()(np.eye(3, 8, dtype="float32")[None])
        assert tuple(layer(x, x).shape) == (1, 3, 8)
        print(keras.backend.backend(), [m in sys.modules for m in {others}])
        """
    )
    assert out.split("\n")[-2] == f"{BACKEND} [False, False]"
