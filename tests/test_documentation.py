"""Code in the documentation runs, and every public name is documented."""

import doctest
import re
from pathlib import Path

import keras
import numpy as np
import pytest

import keras_cond

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def code_blocks():
    for page in PAGES:
        for number, code in enumerate(PYTHON_BLOCK.findall(page.read_text()), start=1):
            name = f"{page.relative_to(ROOT)}, block {number}"
            yield pytest.param(name, code, id=name)


def public_names():
    for module in (keras_cond.ops, keras_cond.initializers, keras_cond.layers):
        for name in module.__all__:
            path = f"{module.__name__}.{name}"
            yield pytest.param(getattr(module, name), id=path)


@pytest.mark.parametrize("name, code", code_blocks())
def test_code_block_runs(name, code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(code, name, "exec"), {"__name__": "__main__"})


def test_readme_has_code_blocks():
    assert PYTHON_BLOCK.search(PAGES[0].read_text())


@pytest.mark.parametrize("thing", public_names())
def test_docstring_says_arguments_result_and_source(thing):
    for part in ("Args:", "Example:", "Raises:", "Reference:"):
        assert part in thing.__doc__, part


@pytest.mark.parametrize("thing", public_names())
def test_docstring_example_runs(thing, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    examples = doctest.DocTestParser().get_examples(thing.__doc__)
    assert examples
    names = {"keras": keras, "keras_cond": keras_cond, "np": np}
    for example in examples:
        exec(compile(example.source, thing.__name__, "single"), names)
