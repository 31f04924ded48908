"""docs/reference/vectors is what the code makes; ``python -m lab.conformance.vectors`` renews it."""

from __future__ import annotations

import base64
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from lab.conformance import vectors
from lab.conformance.questions import FOLDER as VECTORS
from schemas.envelope import unpack

FOLDER = Path(__file__).parents[2] / VECTORS


def unpacked(case: dict[str, Any]) -> dict[str, Any]:
    """Return a case with what it has packed: how zlib compresses is not part of the protocol."""
    long = {"task", "answer"}
    return {name: unpack(base64.b64decode(each)) if name in long else each for name, each in case.items()}


@pytest.fixture(scope="module")
def files() -> dict[str, str]:
    return vectors.files()


@pytest.mark.parametrize("name", ["rows.csv", "mixed.csv", "masks.json"])
def test_files_are_those_of_the_code(files: dict[str, str], name: str) -> None:
    assert (FOLDER / name).read_text(encoding="utf-8") == files[name]


def test_vectors_are_those_of_the_code(files: dict[str, str]) -> None:
    kept, made = (json.loads(text) for text in ((FOLDER / "vectors.json").read_text(), files["vectors.json"]))
    assert kept.keys() == made.keys()
    for part in set(made) - {"questions", "parts"}:
        assert kept[part] == made[part], part
    for old, new in zip(kept["questions"], made["questions"], strict=True):
        assert unpacked(old) == unpacked(new), new["what"]


@pytest.mark.needs("node")
def test_masks_can_be_made_from_the_protocol_page_in_another_language() -> None:
    program = Path(__file__).with_name("private_vectors.mjs")
    done = subprocess.run(
        ["node", program, FOLDER / "masks.json"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "all equal\n"
