"""The gate: no new version is current before the fleet has scored it, and whoever waits in vain is named."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest
from structlog.testing import capture_logs

from broker.port import Message
from coordinator.specification.rollout import GATE, RolloutPlan
from glassfleet.contract.scheme import Abilities
from schemas.envelope import Envelope
from schemas.errors import NotFoundError
from schemas.messages import Evaluation, ModelPointer, Trial
from tests.support.coordinator_bench import TOPICS, Fleet
from tests.support.engine_bench import TOY_ENGINE


class Gated(Fleet):
    """A fleet that learns toy models and scores them."""

    def learn(self, run: str, *agents: str) -> None:
        self.begin(run=run)
        self.finish(*agents, run=run)
        self.pass_time(3.0)

    def has(self, alias: str = "current") -> bool:
        return bool(self.hub.retained.get(getattr(TOPICS, f"model_{alias}")("model")))

    def pointer(self, alias: str = "current") -> ModelPointer:
        """Return what a name points to; it must point to something."""
        body = Envelope.from_bytes(self.hub.retained[getattr(TOPICS, f"model_{alias}")("model")], fleet="f").body
        assert isinstance(body, ModelPointer)
        return body

    def trial(self) -> Trial:
        """Return how the candidate is tried."""
        trial = self.pointer("candidate").trial
        assert trial is not None
        return trial

    def current(self) -> int:
        return self.pointer().version if self.has() else 0

    def score(self, *agents: str, error: float, constant: float = 1.0, **more: Any) -> None:
        """Agents say how the candidate does; champion, and constant if nothing is said, have the score 1."""
        pointer = self.pointer("candidate")
        beside, can = self.trial().champion, not more.get("cannot")
        differences = {each: [error - 1.0, 1e-6, 0.0, 0.0] for each in self.compared() if can}
        body = Evaluation(
            name="model",
            version=pointer.version,
            digest=pointer.digest,
            federated=error,
            local=0.5,
            rows=9,
            constant=constant,
            champion=1.0 if beside and can else None,
            champion_digest=beside,
            **{"metric": "rmse", "beside": differences, **more},
        )
        for agent in agents:
            payload = Envelope(fleet="f", body=body, run="r1", agent=agent).to_bytes()
            self.publish(TOPICS.evaluation(agent), payload)

    def compared(self) -> list[str]:
        trial = self.trial()
        return [trial.champion, *(each.digest for each in trial.formers)] if trial.champion else []

    def newest(self) -> dict[str, Any]:
        return self.core.rollouts.documents("model")[-1]


@pytest.fixture
def fleet() -> Gated:
    fleet = Gated()
    fleet.birth("a", "b", "c")
    return fleet


def test_first_version_becomes_current_once_all_that_are_up_have_scored_it_better_than_the_constant(
    fleet: Gated,
) -> None:
    fleet.learn("r1", "a", "b", "c")
    record = fleet.record()
    assert (fleet.pointer("candidate").digest, fleet.trial().champion) == (record.digest, "")
    assert fleet.current() == 0
    fleet.score("a", "b", error=0.4)
    assert fleet.current() == 0, "the third has yet to speak"
    fleet.score("c", error=0.4)
    pointer = fleet.pointer()
    assert (pointer.version, pointer.reason) == (
        1,
        "error -60.0% against always forecasting the mean, median of 3 vehicles",
    )
    assert not fleet.has("candidate")
    assert fleet.core.metrics["gates.promoted"] == 1


def test_first_version_that_forecasts_no_better_than_the_constant_stays_a_candidate(fleet: Gated) -> None:
    fleet.learn("r1", "a", "b", "c")
    fleet.score("a", "b", "c", error=0.995)
    assert fleet.current() == 0
    candidate = fleet.pointer("candidate")
    assert candidate.reason == (
        "too-bad: error -0.5% against always forecasting the mean, median of 3 vehicles; the limit is error -1.0%"
    )
    with pytest.raises(NotFoundError, match="no version of model 'model' is current"):
        fleet.core.models.rollback("model", None, "why")
    assert fleet.core.models.promote("model", 1, "tried by hand").version == 1
    fleet.hub.pump()
    assert (fleet.current(), fleet.has("candidate")) == (1, False)


SUSPECT = "without c the others gain: error 1 instead of 9; start the next run with --without c"


ALONE = "what each vehicle learns alone"
WARNS = f"; warning: no better than {ALONE}"


@pytest.mark.parametrize(
    ("error", "suspect", "reason"),
    [
        (0.9, "", f"{WARNS} (error +80.0%, the median): its page says what to try"),
        (1.1, "", f"; worse than {ALONE} (error +120.0%, the median); the limit is error +100.0%"),
        (50.0, "", f"; worse than {ALONE} (error more than 10 times as high, the median); the limit is"),
        (0.49, SUSPECT, f"; {SUSPECT}"),
        (0.51, SUSPECT, f"{WARNS} (error +2.0%, the median): its page says what to try; {SUSPECT}"),
        (0.6, SUSPECT, f"; worse than {ALONE} (error +20.0%, the median); the limit is error +5.0%; {SUSPECT}"),
    ],
)
def test_first_version_is_judged_against_what_vehicles_learn_alone_more_strictly_where_one_is_named(
    fleet: Gated, error: float, suspect: str, reason: str
) -> None:
    fleet.learn("r1", "a", "b", "c")
    fleet.core.rollouts.replace("model", 1, GATE, "again", suspect)
    fleet.pass_time(0.1)
    fleet.score("a", "b", "c", error=error, constant=100.0)
    passes = "limit" not in reason
    assert fleet.current() == passes
    pointer = fleet.pointer("current" if passes else "candidate")
    assert reason in pointer.reason
    fleet.crash()
    assert fleet.newest()["reason"] == pointer.reason


def test_fault_while_a_liar_is_looked_for_ends_no_run_and_is_in_the_log(
    fleet: Gated, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> None:
        raise ZeroDivisionError("no rows")

    monkeypatch.setattr("coordinator.engine.learning.harmful_member", fails)
    with capture_logs() as log:
        fleet.learn("r1", "a", "b", "c")
    assert fleet.record().run == "r1"
    [line] = [each for each in log if each["event"] == "influence-unknown"]
    assert line["log_level"] == "error"
    assert line["reason"].startswith("ZeroDivisionError: no rows (test_gate.py, line ")


@pytest.mark.parametrize(("error", "suspect"), [(1.1, ""), (0.6, SUSPECT)])
def test_first_version_that_did_not_pass_does_not_pass_a_rollout_that_an_operator_starts(
    fleet: Gated, error: float, suspect: str
) -> None:
    fleet.learn("r1", "a", "b", "c")
    fleet.core.rollouts.replace("model", 1, GATE, "again", suspect)
    plan = RolloutPlan(stages=(1.0,), max_worse=0.05, max_worse_share=1.0)
    for again in (False, True):
        fleet.pass_time(0.1)
        fleet.score("a", "b", "c", error=error, constant=100.0)
        newest = fleet.newest()
        assert (fleet.current(), newest["phase"]) == (0, "rolled-back")
        assert f"worse than {ALONE}" in newest["reason"]
        assert suspect in newest["reason"]
        if not again:
            fleet.core.rollouts.start("model", 1, plan)


def test_later_version_is_judged_against_the_present_one_alone_and_says_who_is_named(fleet: Gated) -> None:
    fleet.learn("r1", "a", "b", "c")
    fleet.score("a", "b", "c", error=0.4)
    fleet.learn("r2", "a", "b", "c")
    fleet.core.rollouts.replace("model", 2, GATE, "again", SUSPECT)
    fleet.pass_time(0.1)
    fleet.score("a", "b", "c", error=0.9)
    assert fleet.current() == 2
    assert SUSPECT in fleet.newest()["reason"]


def test_version_that_is_worse_than_the_present_one_is_named_and_the_present_one_stays(fleet: Gated) -> None:
    fleet.learn("r1", "a", "b", "c")
    fleet.score("a", "b", "c", error=0.4)
    fleet.learn("r2", "a", "b", "c")
    fleet.score("a", "b", "c", error=1.2)
    assert fleet.current() == 1
    candidate = fleet.pointer("candidate")
    assert (candidate.version, fleet.trial().below) == (2, 0), "nobody tries it any more"
    assert candidate.reason == (
        "too-bad: error +20.0% against version 1, over 3 vehicles; it may truly be +20.2%, allowed is +1.0%"
    )
    assert fleet.core.metrics["gates.too-bad"] == 1
    assert ("model", 2) in fleet.core.models.pinned()
    fleet.crash()
    assert (fleet.current(), fleet.core.aliases.candidate["model"].reason) == (1, candidate.reason)


def test_version_that_nobody_scores_stays_a_candidate_by_name_after_two_minutes(fleet: Gated) -> None:
    fleet.learn("r1", "a", "b", "c")
    fleet.pass_time(GATE.deadline - 5.0)
    assert fleet.newest()["phase"] == "trying"
    fleet.pass_time(6.0)
    assert fleet.newest()["reason"] == "too-few-reports: 0 reports until the deadline, 2 needed"
    candidate = fleet.pointer("candidate")
    assert (candidate.version, candidate.reason) == (1, fleet.newest()["reason"])


def test_version_registered_just_before_a_crash_is_not_current_by_that(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Gated()
    fleet.begin("a")

    class KilledError(Exception):
        pass

    def die(*_: object) -> None:
        raise KilledError

    monkeypatch.setattr(fleet.core.rollouts, "replace", die)
    with pytest.raises(KilledError):
        fleet.finish("a", run="r1")
    assert [model.version for model in fleet.core.registry.heads("model")] == [1]
    fleet.crash()
    fleet.birth("a")
    fleet.pass_time(3.0)
    assert fleet.current() == 0
    fleet.score("a", error=0.4)
    assert fleet.current() == 1


def test_newer_version_takes_over_the_gate_and_the_older_is_judged_by_what_was_said(fleet: Gated) -> None:
    fleet.learn("r1", "a", "b", "c")
    fleet.score("a", "b", error=0.4)
    fleet.learn("r2", "a", "b", "c")
    assert fleet.current() == 1, "a silent vehicle keeps no version of a frequent run back"
    fleet.learn("r3", "a", "b", "c")
    two, three = fleet.core.rollouts.documents("model")[-2:]
    assert (two["phase"], two["reason"]) == ("stopped", "run r3 brings version 3")
    assert (three["champion"], three["phase"]) == (1, "trying")


def test_personal_models_are_current_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    scheme = TOY_ENGINE.lookup("toy")
    monkeypatch.setattr(type(scheme), "abilities", Abilities(personalise=lambda model, _data: model))
    fleet = Gated()
    fleet.birth("a")
    fleet.learn("r1", "a")
    assert (fleet.current(), fleet.core.rollouts.documents()) == (1, [])


def test_operator_can_have_a_candidate_tried_again_when_nothing_is_current(fleet: Gated) -> None:
    fleet.learn("r1", "a", "b", "c")
    fleet.score("a", "b", "c", error=2.0)
    fleet.core.rollouts.start("model", 1, GATE)
    fleet.pass_time(0.1)
    fleet.score("a", "b", "c", error=0.4)
    assert fleet.current() == 1


class Nights(Gated):
    """A fleet of three, whose errors with each version are given."""

    def __init__(self) -> None:
        super().__init__()
        self.birth("a", "b", "c")
        self.errors: dict[str, float] = {}

    def night(self, *errors: float) -> tuple[int, list[int]]:
        """Learn a version, let the fleet score it; return what is current then, and what it was compared with.

        `errors` are those of all versions on the rows of this night, the new one's last.
        """
        run = f"r{len(errors)}"
        self.begin(run=run, parameters={"levels": len(errors)})
        self.finish("a", "b", "c", run=run)
        self.pass_time(3.0)
        known = {head.digest: error for head, error in zip(self.core.registry.heads("model"), errors, strict=True)}
        beside, formers = {}, [each.version for each in self.trial().formers]
        for digest in self.compared():
            present = self.pointer().digest
            than_present, is_other = known[digest] / known[present] - 1.0, digest != present
            beside[digest] = [errors[-1] / known[digest] - 1.0, 1e-6, than_present, 1e-6 * is_other]
        self.score("a", "b", "c", error=errors[-1], constant=9.0, beside=beside)
        return self.current(), formers


def test_losses_that_are_small_beside_the_present_version_do_not_add_up() -> None:
    fleet, error, errors, current = Nights(), 0.9, list[float](), []
    for _ in range(12):
        error *= 1.003
        errors.append(error)
        current.append(fleet.night(*errors)[0])
    assert current == [1, 2, 3, *[3] * 9], "the third is 0.6 % worse than the first, the fourth 0.9 %"


def test_candidate_is_compared_with_the_best_that_were_in_use_not_with_the_latest() -> None:
    fleet = Nights()
    errors = [1.0, 0.999, 0.9985, 0.9995, 0.998, 0.9975]
    for night in range(1, 6):
        assert fleet.night(*errors[:night])[0] == night
    assert fleet.night(*errors) == (6, [3, 2, 4])
    assert fleet.pointer().reason.startswith("error -0.1% against version 5, the best of 4 versions, over 3 vehicles")
    pinned = fleet.core.models.pinned()
    assert {version for _, version in pinned} >= {2, 3, 5, 6}, "no retention takes what the next one is compared with"
    fleet.crash()
    assert fleet.night(*errors, 0.9974) == (7, [5, 3, 2])


def test_former_version_that_is_the_best_on_new_rows_is_current_again_and_the_candidate_says_why() -> None:
    fleet = Nights()
    fleet.night(1.0)
    assert fleet.night(1.0, 0.9) == (2, [])
    assert fleet.night(1.0, 1.1, 1.2) == (1, [1])
    pointer, candidate = fleet.pointer(), fleet.pointer("candidate")
    assert candidate.reason.startswith(
        "former-better: version 1 is the best, error -9.1% against version 2; version 3: error +20.0% against version 1"
    )
    assert pointer.reason == candidate.reason.removeprefix("former-better: ")
    assert fleet.core.registry.history("model")[-1].body["cause"] == "returned"
    assert fleet.core.metrics["gates.former-better"] == 1
    fleet.crash()
    assert fleet.current() == 1
    assert fleet.night(1.0, 1.1, 1.2, 0.9) == (4, [2])


def test_nothing_that_was_in_use_before_an_operators_word_comes_back() -> None:
    fleet = Nights()
    for night in range(1, 4):
        fleet.night(*[1.0] * night)
    fleet.core.models.rollback("model", 2, "false alarms in tunnels")
    fleet.hub.pump()
    assert fleet.night(0.5, 1.0, 0.5, 1.0) == (4, [])
    assert fleet.night(0.5, 1.0, 0.5, 1.0, 1.0) == (5, [2])


def test_scores_stay_over_a_restart_also_of_former_versions_and_of_vehicles_that_are_down() -> None:
    fleet = Nights()
    for night in range(1, 4):
        fleet.night(*[0.9] * night)
    before = {version: fleet.core.fleet.evaluations("model", version) for version in (1, 2, 3)}
    assert [sorted(scores) for scores in before.values()] == [["a", "b", "c"]] * 3
    gate = fleet.newest()
    fleet.birth("c", status="down")
    fleet.crash()
    assert {version: fleet.core.fleet.evaluations("model", version) for version in before} == before
    assert fleet.core.fleet.known()["c"].status == "down"
    assert fleet.newest() == gate, "what the gate saw is there, too"
    fleet.birth("c")
    fleet.night(*[0.9] * 4)
    fleet.crash()
    assert sorted(fleet.core.fleet.evaluations("model", 1)) == ["a", "b", "c"], "later scores take nothing away"


def test_scores_are_read_at_once_for_all_vehicles_that_come_together(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Nights()
    fleet.night(0.9)
    before, births = fleet.core.fleet.evaluations("model", 1), [*map(TOPICS.agent_state, "abc")]
    monkeypatch.setattr(fleet, "arrive", lambda _message: None)  # they come in one batch
    fleet.crash()
    monkeypatch.setattr(fleet.journal, "kept", read := Mock(wraps=fleet.journal.kept))
    fleet.core.handle([Message(topic, fleet.hub.retained[topic], retained=True) for topic in births])
    assert fleet.core.fleet.evaluations("model", 1) == before
    assert read.call_count == 1
