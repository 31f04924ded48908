"""What pages and their form say of private runs."""

from __future__ import annotations

from pathlib import Path

from coordinator.config import load_config
from coordinator.engine.state import RunState
from coordinator.http.dashboard import show
from coordinator.http.dashboard.new_run import defaults, spec_of
from coordinator.http.dashboard.pages import Dashboard
from coordinator.journal import MemoryJournal
from coordinator.main import build
from coordinator.runs.view import run_document
from tests.support.engine_bench import TOY_ENGINE, Play, toy_spec

SCORES = {
    "metric": "rmse", "rows": 90, "vehicles": 9, "candidate": 1.25, "constant": 2.0, "local": 1.5,
    "compared": {"constant": 9}, "worse": {"constant": 1}, "worse_by": {"constant": -0.01},
}  # fmt: skip
PRIVATE = {"floor": 8, "company": 3, "groups": 1, "editions": 1, "vehicles": 9, "rows": 900}


def document_of(**changes: object) -> dict[str, object]:
    state = Play(toy_spec()).state
    document = run_document(TOY_ENGINE, RunState(**{**vars(state), **changes}), started=0.0, ended=None, model=None)
    return dict(document)


def test_form_asks_for_a_private_run_when_its_box_is_checked_and_for_a_plain_one_otherwise() -> None:
    assert spec_of(defaults()).private is None
    spec = spec_of({**defaults(), "private": "yes"})
    assert spec.private is not None
    assert (spec.private.floor, spec.private.company, spec.private.support) == (8, 3, 3)
    own = spec_of({**defaults(), "private": "yes", "private.support": "5", "private.floor": "12"})
    assert own.private is not None
    assert (own.private.floor, own.private.support) == (12, 5)


def test_run_page_names_protection_and_the_fleets_scores_and_counts_rows_from_sums() -> None:
    document = document_of(private=PRIVATE, scores=SCORES)
    protected, told, why = show.private_words(document)
    assert protected.startswith("private: only sums over 8 or more of its 9 vehicles")
    assert told.startswith("RMSE over 90 test rows of 9 vehicles: 1.25")
    assert why.startswith("no vehicle tells its own scores")
    assert show.rows(document) == 900


def test_run_page_of_a_plain_run_says_nothing_of_it() -> None:
    assert show.private_words(document_of()) == []


def test_run_parts_are_drawn_with_the_words_of_private_rounds(tmp_path: Path) -> None:
    service = build(load_config(state_dir=tmp_path), journal=MemoryJournal())
    rounds = [
        {"number": 1, "phase": "pairing", "kind": "keys", "attempt": 1, "accepted": 9, "asked": 9, "seconds": 1.0,
         "bytes": 9, "late": 0, "dropped": 0, "rejected": 0}
    ]  # fmt: skip
    document = {**document_of(private=PRIVATE, scores=SCORES), "rounds": rounds}
    dashboard = Dashboard(service, "token")
    page = dashboard.fragment("run_rounds", run=document, rounds=show.Page.of(rounds, 1), rollout=None)
    assert "keys: who takes part, and its public key" in page
    page = dashboard.fragment("run_facts", run=document, rounds=show.Page.of(rounds, 1), rollout=None, elapsed=5.0)
    assert "nobody left alone, but 3 or more together" in page
