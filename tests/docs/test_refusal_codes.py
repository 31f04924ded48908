"""The page of the protocol names every code by which a vehicle refuses in a private run."""

from __future__ import annotations

from glassfleet.errors import REFUSALS
from tests.docs.pages import ROOT


def test_page_has_each_code_with_its_reason() -> None:
    page = (ROOT / "docs" / "reference" / "protocol.md").read_text(encoding="utf-8")
    assert [code for code, why in REFUSALS.items() if f"| `{code}` | {why} |" not in page] == []
