"""docs/reference/vectors is what the code makes; ``python -m lab.conformance.vectors`` renews it."""

from __future__ import annotations

import base64
import json
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


def test_parts_join_to_the_message() -> None:
    from schemas.envelope import Envelope
    from schemas.messages import Part
    from schemas.trust.joining import Assembler

    case = json.loads((FOLDER / "vectors.json").read_text())["parts"][0]
    assembler = Assembler(total_bytes=10**6, per_sender=2)
    whole = None
    for part in case["parts"]:
        envelope = Envelope.from_bytes(unpack(base64.b64decode(part)), fleet="fleet")
        assert isinstance(envelope.body, Part)
        whole = assembler.add(envelope)
    assert whole is not None
    assert whole.to_bytes() == unpack(base64.b64decode(case["encoded"]))
