"""Examples of pages about models, schemes and the published results: real commands and processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.docs.groups import PARTS, check, parameters

pytestmark = pytest.mark.acceptance


@pytest.mark.parametrize("group", parameters(PARTS["models"]))
def test_example_runs_as_its_page_says(group: str, tmp_path: Path):
    check(group, tmp_path / "reader")
