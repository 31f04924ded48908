"""Scores of private runs, and what earlier runs say of vehicles."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from coordinator.models.rollout.verdict import judged_sums
from coordinator.runs.earlier import MOST_TOTALS, TOO_MANY, earlier, least_allowing, quarantined, spent_in
from edge_agent.models.evaluation import root_mean_square
from glassfleet.contract import catalogue
from glassfleet.data.dataset import Dataset, pool
from glassfleet.evaluation.paired import MOST_TOLD, PairedDifference, difference
from glassfleet.model.intervals import errors_on
from glassfleet.private.totals import Member, Total
from glassfleet.private.words import runs_left
from glassfleet.simulation import central
from schemas.codec import document_digest
from tests.support.privacy.private_bench import PrivateStage, rows_of, total_of
from tests.support.sample_models import unit_domain

AGENTS = [f"v{number:02d}" for number in range(14)]
SPEC: dict[str, Any] = {
    "domain": unit_domain("ab", high=2.0),
    "private": {"patience": 0},
    "parameters": {"max_depth": 2},
    "rounds": {"deadline": 10, "gather_agents": len(AGENTS)},
}


def held_out(agent: str) -> Dataset:
    """Return rows that a vehicle did not learn from, of each a different number."""
    rows, count = pool([rows_of(f"{agent} tests"), rows_of(f"{agent} more")]), 10 + AGENTS.index(agent)
    return Dataset(rows.features, rows.target, rows.X[:count], rows.y[:count])


VERSIONS = {"c": 1, "d": 2}


def played(
    *lost: str, champion: dict[str, Any] | None = None, formers: tuple[dict[str, Any], ...] = ()
) -> PrivateStage:
    """Return a run that has ended; who is lost is silent from the question for scores on."""
    stage = PrivateStage(AGENTS, tests=held_out, champion=champion, formers=formers, **SPEC)
    stage.finish(*AGENTS, leaves=dict.fromkeys(lost, _rounds_before_scores() if lost else 0))
    return stage


@cache
def _rounds_before_scores() -> int:
    return [each.kind for each in played().state.rounds].index("scores")


def test_scores_of_a_private_run_are_those_of_all_test_rows_together_and_the_rows_are_counted() -> None:
    state = played().state
    assert state.phase == "finished"
    tests = [held_out(agent) for agent in AGENTS]
    X, y = np.concatenate([each.X for each in tests]), np.concatenate([each.y for each in tests])
    assert state.scores["candidate"] == pytest.approx(root_mean_square(y, state.model.predict(X)), rel=1e-6)
    assert (state.scores["rows"], state.scores["vehicles"]) == (len(y), len(AGENTS))
    assert state.scores["compared"] == {"constant": len(AGENTS), "local": len(AGENTS)}
    assert state.errors == errors_on(state.model, X, y), "the errors are those of all test rows in one place"
    result = {"floor": 8, "company": 3, "support": 3, "groups": 1, "editions": 1, "vehicles": 14, "rows": 14 * 12}
    assert state.private == result
    assert [each.kind for each in state.rounds].count("scores") == 1
    assert state.levels[-1].task.scheme == "frt"


def test_who_is_lost_when_scores_are_asked_changes_neither_the_model_nor_its_cohort() -> None:
    stage = played("v03")
    state = stage.state
    assert state.model.to_document() == played().state.model.to_document()
    assert state.cohort == tuple(AGENTS)
    assert not state.lost
    assert state.scores["vehicles"] == 11  # it left with company, in one smaller edition
    assert [each.cohort for each in stage.published] == [tuple(AGENTS)]


@pytest.mark.parametrize("lost", [AGENTS[:9], AGENTS])
def test_a_run_whose_scores_cannot_be_had_is_published_without(lost: list[str]) -> None:
    stage = played(*lost)
    state = stage.state
    assert state.phase == "finished"
    assert state.reason == ""
    assert state.scores["missing"].startswith(("too-few-for-privacy: ", "quorum-not-met: "))
    assert len(stage.published) == 1
    assert not judged_sums(state.scores, {}, asked=None, current=None, cohort=14).passes


def test_champion_is_compared_when_its_target_is_the_same_and_the_journal_brings_it_back() -> None:
    document = played().state.model.to_document()
    stage = played(champion=document)
    state = stage.state
    assert state.scores["champion"] == state.scores["candidate"]
    assert state.scores["compared"] == {"champion": 14, "constant": 14, "local": 14}
    assert state.scores["beside"] == {document_digest(document): [14, 0.0, 0.0]}
    stage.restart()
    assert stage.state.scores == state.scores
    other = {**document, "domain": {**document["domain"], "target": {"name": "z", "low": 0.0, "high": 1.0}}}
    assert "champion" not in played(champion=other).state.scores


def test_former_versions_are_compared_on_the_same_rows_and_their_sums_are_those_of_the_vehicles() -> None:
    champion, former = _other(3), _other(1)
    state = played(champion=champion, formers=(former,)).state
    documents = [state.model.to_document(), champion, former]
    rows = [held_out(agent) for agent in AGENTS]
    pairs: dict[int, list[PairedDifference]] = {1: [], 2: [], 3: []}
    for each in rows:
        forecasts = [catalogue.load("frt").from_document(document).predict(each.X) for document in documents]
        for place, (one, other) in enumerate(((0, 1), (0, 2), (2, 1)), 1):
            pairs[place].append(difference("rmse", root_mean_square, each.y, forecasts[one], forecasts[other]))
    digests = [document_digest(each) for each in documents]
    kept = [state.scores["beside"][digests[1]], state.scores["beside"][digests[2]], state.scores["before"][digests[2]]]
    for sums, differences in zip(kept, pairs.values(), strict=True):
        changes = [max(-MOST_TOLD, min(MOST_TOLD, each.change)) for each in differences]
        variances = [min(MOST_TOLD**2, each.variance) for each in differences]
        assert sums == [14, pytest.approx(sum(changes), abs=1e-6), pytest.approx(sum(variances), abs=1e-6)]


def _other(depth: int) -> dict[str, Any]:
    """Return the document of another model."""
    scheme = catalogue.load("frt")
    parameters = scheme.Parameters.model_validate({"max_depth": depth, "n_sets": 2})
    rows = pool([rows_of(agent) for agent in AGENTS[:5]])
    document: dict[str, Any] = central(scheme, parameters, SPEC["domain"], rows).model.to_document()
    return document


def test_gate_asks_for_half_of_the_vehicles_and_says_why() -> None:
    scores = {
        "metric": "rmse", "rows": 100, "candidate": 0.9, "constant": 1.0, "local": 0.95, "champion": 1.0,
        "compared": {"constant": 10, "champion": 10, "local": 10}, "worse": {"constant": 5, "champion": 6, "local": 5},
        "worse_by": {"constant": -0.01, "champion": 0.01, "local": 0.5},
        "beside": {"d": [10, 0.06, 1e-6], "c": [10, 0.2, 1e-6]}, "before": {"c": [10, -0.14, 1e-6]},
    }  # fmt: skip
    assert judged_sums(scores, VERSIONS, asked=None, current=None, cohort=12).passes
    verdict = judged_sums(scores, VERSIONS, asked="d", current="d", cohort=12)
    assert not verdict.passes
    assert verdict.reason == (
        "former-better: version 1 is the best: error -1.4% against version 2; error -10.0% against the current version "
        "over all 100 test rows; worse by more than 1% for 6 of 10 vehicles; error +2.0% against version 1, the best "
        "of 2 versions, over 10 vehicles; it may truly be +2.0%, allowed is +1.0%"
    )
    assert verdict.returns == "c"
    scores["before"] = {"c": [10, -0.1, 1e-6]}
    verdict = judged_sums(scores, VERSIONS, asked="d", current="d", cohort=12)
    assert (verdict.passes, verdict.returns, verdict.reason[:8]) == (False, "", "too-bad:"), "not shown to be better"
    scores["beside"] = {"d": [10, 0.06, 1e-6], "c": [3, 0.2, 1e-6]}
    assert judged_sums(scores, VERSIONS, asked="d", current="d", cohort=12).passes, "a former version that few can use"
    assert judged_sums(scores, VERSIONS, asked="d", current="e", cohort=12).reason.startswith("not-compared")
    assert judged_sums(scores, VERSIONS, asked=None, current=None, cohort=30).reason.startswith(
        "too-few-reports: 10 of 30"
    )
    assert "warning" in judged_sums({**scores, "local": 0.8}, VERSIONS, asked=None, current=None, cohort=12).reason


def test_first_model_is_held_back_when_it_is_much_worse_than_alone_for_more_than_half_of_the_vehicles() -> None:
    scores = {
        "metric": "rmse", "rows": 100, "candidate": 2.5, "constant": 9.0, "local": 1.0, "champion": 9.0,
        "compared": {"constant": 10, "champion": 10, "local": 10}, "worse": {"constant": 0, "champion": 0, "local": 6},
        "worse_by": {"constant": -0.01, "champion": 0.05, "local": 1.0},
    }  # fmt: skip
    verdict = judged_sums(scores, VERSIONS, asked=None, current=None, cohort=12)
    assert not verdict.passes
    assert verdict.reason == (
        "too-bad: worse than what each vehicle learns alone (error +150.0%), by more than 100% for 6 of 10 vehicles; "
        "at most half may be"
    )
    scores |= {"beside": {"d": [10, -0.9, 1e-6]}, "before": {}}
    assert judged_sums(scores, VERSIONS, asked="d", current="d", cohort=12).passes, (
        "a later version need beat its former one"
    )


def run(number: int, *, false: tuple[str, ...] = (), readmit: tuple[str, ...] = (), **more: Any) -> dict[str, Any]:
    spec = {"nonce": f"nonce {number}", "readmit": list(readmit)}
    agents = {"v1": {"reason": ""}, "v2": {"reason": ""}}
    return {"spec": spec, "outcome": "finished", "agents": agents, "totals": [], "false_answers": list(false), **more}


def test_newest_totals_are_looked_at_each_once() -> None:
    totals = [total_of([f"v{number}", "w"]) for number in range(MOST_TOTALS + 5)]
    documents = [
        run(0, totals=[]),
        run(1, totals=[each.to_value() for each in totals[:2]]),
        *(run(number + 2, totals=[each.to_value()]) for number, each in enumerate(totals)),
    ]
    assert earlier(documents[:3]) == tuple(totals[:2])
    assert earlier(documents) == tuple(totals[:MOST_TOTALS])


def test_vehicle_is_left_out_until_it_is_readmitted_and_again_when_it_answers_falsely_again() -> None:
    named, readmitted = run(0, false=("v1", "v2")), run(1, readmit=("v1",))
    assert quarantined([named], ()) == {"v1", "v2"}
    assert quarantined([named], ("v1",)) == {"v2"}
    assert quarantined([readmitted, named], ()) == {"v2"}
    assert quarantined([run(2, false=("v1",)), readmitted, named], ()) == {"v1", "v2"}
    assert quarantined([run(1, false=("v1",), readmit=("v1",)), named], ("v2",)) == {"v1"}


@pytest.mark.parametrize(
    ("outcome", "code"), [("failed", "cannot-answer"), ("failed", "single-out"), ("finished", "cannot-answer")]
)
def test_vehicle_that_ended_two_runs_as_it_could_not_answer_is_left_out_until_it_is_readmitted(
    outcome: str, code: str
) -> None:
    ended: dict[str, Any] = {
        "outcome": outcome,
        "agents": {"v1": {"reason": f"refused: {code}"}, "v2": {"reason": "deadline"}},
    }
    documents = [run(number, **ended) for number in range(2)]
    is_out = outcome == "failed" and code == "cannot-answer"
    assert quarantined(documents, ()) == ({"v1"} if is_out else set())
    assert quarantined(documents[:1], ()) == set()
    assert quarantined(documents, ("v1",)) == set()
    assert quarantined([run(2, readmit=("v1",)), *documents], ()) == set()
    assert quarantined([run(3, **ended), run(2, readmit=("v1",)), *documents], ()) == set()


def past(run: str, *eras: str, answered: int = 9) -> dict[str, Any]:
    """Return a private run in which vehicles had rows of these eras, v0 first; the last ones did not answer."""
    founders = tuple(Member(f"v{number}", era, "r", "t") for number, era in enumerate(eras))
    total = Total(founders, founders[:answered]).to_value()
    return {"run": run, "ended": f"2026-03-0{run[-1]}T10:00:00", "totals": [total], "runs_left": {}, "agents": {}}


@pytest.mark.parametrize("refuses", [False, True])
def test_who_allows_no_more_runs_is_told_with_those_that_it_answered_over_these_rows(*, refuses: bool) -> None:
    runs = [past("r5", "new", "old", answered=1), past("r4", "x", "old"), past("r3", "old", "old"), past("r2", "old")]
    now = {**past("r6", *(() if refuses else ("new", "old"))), "runs_left": {} if refuses else {"v0": 3, "v1": 1}}
    now["agents"] = {"v1": {"status": "out", "reason": TOO_MANY if refuses else ""}}
    agent = least_allowing(now)
    assert agent == "v1"
    now["spent_in"] = spent_in(agent, now, runs)
    assert [each["run"] for each in now["spent_in"]] == ["r4", "r3"]
    words = "r4 (2026-03-04), r3 (2026-03-03)"
    assert runs_left(now).endswith(
        f"v1 answered over these rows before, in {words}"
        if refuses
        else f"that is what v1 allows, the least of all; it answered in {words}"
    )
