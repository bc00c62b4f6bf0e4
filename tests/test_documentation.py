"""Every code block of the README and the documentation runs."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def code_blocks():
    for page in PAGES:
        for number, code in enumerate(PYTHON_BLOCK.findall(page.read_text()), start=1):
            name = f"{page.relative_to(ROOT)}, block {number}"
            yield pytest.param(name, code, id=name)


@pytest.mark.parametrize("name, code", list(code_blocks()))
def test_code_block_runs(name, code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(code, name, "exec"), {"__name__": "__main__"})


def test_readme_has_code_blocks():
    assert PYTHON_BLOCK.search(PAGES[0].read_text())
