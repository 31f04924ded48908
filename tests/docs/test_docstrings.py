"""Examples in docstrings give what they show."""

from __future__ import annotations

import doctest
import importlib

from tests.docs.pages import ROOT
from tests.docs.test_names import CODE


def test_examples_of_docstrings_give_what_they_show() -> None:
    files = [path for folder in CODE for path in (ROOT / folder).rglob("*.py") if ">>> " in path.read_text("utf-8")]
    names = [path.relative_to(ROOT).with_suffix("").as_posix() for path in files if path.name != "test_docstrings.py"]
    told: list[str] = []
    tried = 0
    for name in names:
        module = importlib.import_module(name.removesuffix("/__init__").replace("/", "."))
        runner = doctest.DocTestRunner(verbose=False)
        for test in doctest.DocTestFinder(exclude_empty=True).find(module):
            runner.run(test, out=told.append)
        tried += runner.summarize(verbose=False).attempted
    assert not told, "".join(told)
    assert tried
