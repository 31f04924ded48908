"""Scores of private runs, and what earlier runs say of vehicles."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from coordinator.engine import Answer, Engine, Event, Offer, OpenRound, Publish, RunState, Start, Tick
from coordinator.engine.events import from_value, to_value
from coordinator.models.sums import judged
from coordinator.runs.earlier import FORMER_RUNS, former, quarantined
from coordinator.specification.run import RunSpec
from edge_agent.models.evaluation import root_mean_square
from edge_agent.models.summed import summed
from glassfleet import catalogue
from glassfleet.data.dataset import Dataset
from glassfleet.intervals import errors_on
from glassfleet.private.masks import RunKey
from glassfleet.private.simulation import Vehicle
from glassfleet.scheme import Contribution
from glassfleet.scores import SCORES
from schemas.errors import UsageError
from tests.support.sample_models import unit_domain

DOMAIN = unit_domain("ab", high=2.0)
AGENTS = tuple(f"v{number:02d}" for number in range(14))
SPEC = RunSpec.from_document(
    {
        "run": "r1",
        "scheme": "frt",
        "parameters": {"max_depth": 2},
        "domain": DOMAIN,
        "private": {"patience": 0},
        "policy": {"deadline": 10, "gather_agents": len(AGENTS)},
        "nonce": "0" * 32,
    }
)


def rows(seed: int, number: int = 60) -> Dataset:
    rng = np.random.default_rng(seed)
    X = rng.random((number, 2))
    return Dataset(("a", "b"), "y", X, X[:, 0] + X[:, 1] ** 2)


class Fleet:
    """Vehicles that answer an engine under masks, and may be lost when a kind of question comes."""

    def __init__(self, champion: dict[str, Any] | None = None) -> None:
        self.engine = Engine(catalogue.load, lambda *_: (None, None))  # type: ignore[arg-type]
        self.vehicles = {agent: Vehicle(agent, rows(at), RunKey.generate()) for at, agent in enumerate(AGENTS)}
        self.tests = {agent: rows(100 + at, 10 + at) for at, agent in enumerate(AGENTS)}
        self.at, self.asked, self.published = 0.0, {}, []  # type: ignore[var-annotated]
        self.lost: dict[str, set[str]] = {}
        self.entries: list[Any] = []
        self.state: RunState | None = None
        offer = Offer(frozenset({"frt"}), ("a", "b"), "y")
        self.send(Start(0.0, SPEC, dict.fromkeys(AGENTS, offer), champion))

    def send(self, event: Event) -> None:
        self.entries.append(to_value(event))
        self.state, effects = self.engine.step(self.state, event)
        for effect in effects:
            if isinstance(effect, OpenRound):
                self.asked[effect.task_digest] = effect
            if isinstance(effect, Publish):
                self.published.append(effect)

    def run(self) -> RunState:
        """Answer until the run has ended."""
        while True:
            state = self.state
            assert state is not None
            if state.open is None:
                return state
            opened, before = self.asked[state.open.digest], state
            for agent in AGENTS:
                if agent not in self.lost.get(opened.task.kind, set()) and agent in (opened.asked or AGENTS):
                    self._answer(agent, opened)
            after = self.state or state
            if after is before or (after.open is not None and after.open.digest == opened.task_digest):
                self.at += 10.0
                self.send(Tick(self.at))

    def _answer(self, agent: str, opened: OpenRound) -> None:
        vehicle = self.vehicles[agent]
        if opened.phase == "pairing":
            own = vehicle.announcement
            said = {"key": own.key, "floor": own.floor, "message": b"sealed"}
            contribution = Contribution("keys", 0, values=said)
        else:
            group = next(each for each in opened.groups if agent in each.edition.members)
            if vehicle.chain is None:
                vehicle.meet(group.edition.roster.terms, group.edition.roster)
            scheme: Any = catalogue.load("frt")
            if opened.task.scheme == SCORES.name:
                client = SimpleNamespace(contribute=lambda task, data, _: summed(task, data, self.tests[agent]))
                scheme = SimpleNamespace(layout=SCORES.layout, server=SCORES.server, client=client)
            words = vehicle.answer(scheme, opened.task, group.edition, group.question)
            assert words is not None
            contribution = Contribution(opened.task.kind, 0, {"masked": words.view(np.int64)})
        digest, value = opened.task_digest, contribution.to_value()
        data = vehicle.announcement.data_digest
        self.send(Answer.of(self.at, agent, digest, rows=0, data_digest=data, contribution=value))


def test_scores_of_a_private_run_are_those_of_all_test_rows_together_and_the_rows_are_counted() -> None:
    fleet = Fleet()
    state = fleet.run()
    assert state.phase == "finished"
    tests = list(fleet.tests.values())
    X, y = np.concatenate([each.X for each in tests]), np.concatenate([each.y for each in tests])
    assert state.scores["candidate"] == pytest.approx(root_mean_square(y, state.model.predict(X)), rel=1e-6)
    assert (state.scores["rows"], state.scores["vehicles"]) == (len(y), len(AGENTS))
    assert state.scores["compared"] == {"constant": len(AGENTS)}
    assert state.errors == errors_on(state.model, X, y), "the errors are those of all test rows in one place"
    told = {"floor": 8, "company": 3, "support": 3, "groups": 1, "editions": 1, "vehicles": 14, "rows": 14 * 60}
    assert state.private == told
    assert [each.kind for each in state.rounds].count("scores") == 1
    assert state.levels[-1].task.scheme == "frt"


def test_who_is_lost_when_scores_are_asked_changes_neither_the_model_nor_its_cohort() -> None:
    whole, fleet = Fleet().run(), Fleet()
    fleet.lost = {"scores": {"v03"}}
    state = fleet.run()
    assert state.model.to_document() == whole.model.to_document()
    assert state.cohort == AGENTS
    assert not state.lost
    assert state.scores["vehicles"] == 11  # it left with company, in one smaller edition
    assert fleet.published[0].cohort == AGENTS


@pytest.mark.parametrize("lost", [AGENTS[:9], AGENTS])
def test_a_run_whose_scores_cannot_be_had_is_published_without(lost: tuple[str, ...]) -> None:
    fleet = Fleet()
    fleet.lost = {"scores": set(lost)}
    state = fleet.run()
    assert state.phase == "finished"
    assert state.reason == ""
    assert state.scores["missing"].startswith(("too-few-for-privacy: ", "quorum-not-met: "))
    assert len(fleet.published) == 1
    assert not judged(state.scores, asked=None, current=None, cohort=14).passes


def test_champion_is_compared_when_its_target_is_the_same_and_the_journal_brings_it_back() -> None:
    first = Fleet().run()
    document = first.model.to_document()
    fleet = Fleet(champion=document)
    state = fleet.run()
    assert state.scores["champion"] == state.scores["candidate"]
    assert state.scores["compared"] == {"champion": 14, "constant": 14}
    folded: RunState | None = None
    for entry in fleet.entries:
        folded, _ = fleet.engine.step(folded, from_value(entry))
    assert folded is not None
    assert folded.scores == state.scores
    other = {**document, "domain": {**document["domain"], "target": {"name": "z", "low": 0.0, "high": 1.0}}}
    assert "champion" not in Fleet(champion=other).run().scores


def test_gate_asks_for_half_of_the_vehicles_and_says_why() -> None:
    scores = {
        "metric": "rmse", "rows": 100, "candidate": 0.9, "constant": 1.0, "local": 0.95, "champion": 1.0,
        "compared": {"constant": 10, "champion": 10}, "worse": {"constant": 5, "champion": 6},
        "worse_by": {"constant": -0.01, "champion": 0.05},
    }  # fmt: skip
    assert judged(scores, asked=None, current=None, cohort=12).passes
    verdict = judged(scores, asked="d", current="d", cohort=12)
    assert not verdict.passes
    assert verdict.reason.startswith("too-bad: error -10.0% against the current version")
    assert judged(scores, asked="d", current="e", cohort=12).reason.startswith("not-compared")
    assert judged(scores, asked=None, current=None, cohort=30).reason.startswith("too-few-reports: 10 of 30")
    assert "warning" in judged({**scores, "local": 0.8}, asked=None, current=None, cohort=12).reason


def test_staged_rollout_of_a_private_model_is_refused_with_a_reason() -> None:
    with pytest.raises(UsageError, match="no vehicle tells its own scores"):
        RunSpec.from_document({**SPEC.to_document(), "rollout": {}})


def run(number: int, *, false: tuple[str, ...] = (), readmit: tuple[str, ...] = (), **more: Any) -> dict[str, Any]:
    spec = {"nonce": f"nonce {number}", "readmit": list(readmit)}
    return {"spec": spec, "editions": [["v1", "v2"]], "false_answers": list(false), **more}


def test_newest_runs_in_which_vehicles_were_added_up_are_looked_at() -> None:
    documents = [run(0, editions=[]), *(run(number) for number in range(1, 40))]
    found = former(documents)
    assert [each.nonce for each in found] == [f"nonce {number}" for number in range(1, FORMER_RUNS + 1)]
    assert found[0].editions == (frozenset({"v1", "v2"}),)


def test_vehicle_is_left_out_until_it_is_readmitted_and_again_when_it_answers_falsely_again() -> None:
    named, readmitted = run(0, false=("v1", "v2")), run(1, readmit=("v1",))
    assert quarantined([named], ()) == {"v1", "v2"}
    assert quarantined([named], ("v1",)) == {"v2"}
    assert quarantined([readmitted, named], ()) == {"v2"}
    assert quarantined([run(2, false=("v1",)), readmitted, named], ()) == {"v1", "v2"}
    assert quarantined([run(1, false=("v1",), readmit=("v1",)), named], ("v2",)) == {"v1"}
