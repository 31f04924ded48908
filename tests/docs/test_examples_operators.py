"""Examples of pages for those who keep a fleet running: real commands, processes and brokers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.docs.groups import PARTS, check, parameters

pytestmark = pytest.mark.acceptance


@pytest.mark.parametrize("group", parameters(PARTS["operators"]))
def test_example_runs_as_its_page_says(group: str, tmp_path: Path):
    check(group, tmp_path / "reader")
