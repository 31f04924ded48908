"""The masks of private runs can be made from the protocol's page alone: a program in another language does."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

VECTORS = Path(__file__).parents[2] / "docs/reference/vectors/masks.json"


@pytest.mark.needs("node")
def test_masks_can_be_made_from_the_protocol_page_in_another_language() -> None:
    program = Path(__file__).with_name("private_vectors.mjs")
    done = subprocess.run(["node", program, VECTORS], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "all equal\n"
