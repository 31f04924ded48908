"""docs/reference/settings.md is what the code says."""

from __future__ import annotations

from pathlib import Path

from deploy.site.limits_page import PROCESSES, render
from schemas.settings import settings_of

ROOT = Path(__file__).resolve().parents[3]


def test_page_is_what_the_code_says() -> None:
    page = (ROOT / "docs/reference/settings.md").read_text(encoding="utf-8")
    assert page == render(), "renew it: python -m deploy.site.limits_page > docs/reference/settings.md"


def test_page_has_settings_of_groups_of_commands_and_of_policies_with_defaults_ranges_and_reasons() -> None:
    page = render()
    for process in PROCESSES:
        assert [key for key in settings_of(process) if f" | `{key}` | " not in page] == []
    assert "| agent, coordinator | `keepalive` | `30` | ≥ 1, ≤ 65535 | Seconds between signs of life" in page
    assert "| agent enrol | `--timeout` | `15.0` | > 0, ≤ 3600 |" in page
    assert "| run | `deadline` | `30.0` | > 0, ≤ 604800 |" in page
