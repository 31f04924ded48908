"""The notebooks of the documentation say what their cells print."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path

import matplotlib as mpl
import pytest

from tests.docs.pages import ROOT

NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_prints_what_it_shows(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    mpl.use("agg")
    names: dict[str, object] = {}
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] != "code":
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec("".join(cell["source"]), names)
        outputs = [output for output in cell["outputs"] if output["output_type"] == "stream"]
        assert printed.getvalue() == "".join(line for output in outputs for line in output["text"])
