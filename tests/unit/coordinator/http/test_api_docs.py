"""The coordinator's pages say what the code does."""

from __future__ import annotations

from pathlib import Path

import pytest

from coordinator.config import load_config
from coordinator.engine.table import TABLE
from coordinator.http.api import make_app
from coordinator.journal import MemoryJournal
from coordinator.main import build
from coordinator.runs.view import run_document
from coordinator.specification.run import RoundPolicy, RunSpec
from tests.support.engine_bench import TOY_ENGINE, Play, toy_spec

DOCS = Path(__file__).parents[4] / "docs"


def test_rounds_page_shows_the_transition_table_of_the_engine() -> None:
    page = (DOCS / "explanation" / "rounds.md").read_text(encoding="utf-8")
    assert TABLE.as_markdown() in page
    assert TABLE.as_mermaid() in page


def test_api_page_lists_every_address(tmp_path: Path) -> None:
    page = (DOCS / "reference" / "http-api.md").read_text(encoding="utf-8")
    service = build(load_config(state_dir=tmp_path), journal=MemoryJournal())
    schema = make_app(service, "token").openapi()
    addresses = {f"`{method.upper()} {path}`" for path, methods in schema["paths"].items() for method in methods}
    assert len(addresses) > 8
    assert [address for address in sorted(addresses) if address not in page] == []


@pytest.mark.parametrize("name", [*RunSpec.model_fields, *RoundPolicy.model_fields])
def test_api_page_shows_every_field_of_a_spec(name: str) -> None:
    assert f'"{name}"' in (DOCS / "reference" / "http-api.md").read_text(encoding="utf-8")


def test_api_page_shows_every_field_of_a_run() -> None:
    page = (DOCS / "reference" / "http-api.md").read_text(encoding="utf-8")
    play = Play(toy_spec())
    play.answer("a", "b", "c")
    document = run_document(TOY_ENGINE, play.state, started=0.0, ended=None, model=None)
    assert [name for name in document if f'"{name}"' not in page] == []
    assert [name for name in document["rounds"][0] if name not in page] == []
