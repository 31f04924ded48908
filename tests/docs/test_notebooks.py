"""Notebooks, docstrings and the page of refusals print what they show."""

from __future__ import annotations

import contextlib
import doctest
import importlib
import io
import json
from pathlib import Path

import pytest

from glassfleet.errors import REFUSALS
from tests.support.docs.pages import CODE, ROOT

NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_prints_what_it_shows(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] != "code":
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec("".join(cell["source"]), names)
        outputs = [output for output in cell["outputs"] if output["output_type"] == "stream"]
        assert printed.getvalue() == "".join(line for output in outputs for line in output["text"])


def test_examples_of_docstrings_give_what_they_show() -> None:
    files = [path for folder in CODE for path in (ROOT / folder).rglob("*.py") if ">>> " in path.read_text("utf-8")]
    names = [path.relative_to(ROOT).with_suffix("").as_posix() for path in files if path.name != Path(__file__).name]
    result: list[str] = []
    tried = 0
    for name in names:
        module = importlib.import_module(name.removesuffix("/__init__").replace("/", "."))
        runner = doctest.DocTestRunner(verbose=False)
        for test in doctest.DocTestFinder(exclude_empty=True).find(module):
            runner.run(test, out=result.append)
        tried += runner.summarize(verbose=False).attempted
    assert not result, "".join(result)
    assert tried


def test_page_has_each_code_with_its_reason() -> None:
    # Those of private runs have a page of their own.
    names = ("protocol.md", "protocol-private.md")
    page = "".join((ROOT / "docs" / "reference" / name).read_text(encoding="utf-8") for name in names)
    assert [code for code, why in REFUSALS.items() if f"- `{code}`: {why}\n" not in page] == []
