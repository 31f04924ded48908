"""Private runs of a whole fleet in virtual time: the deployed coordinator and agents, killed at any message."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from broker.port import Handlers, Link, Message
from coordinator.engine import OpenRound
from coordinator.engine.effects import Group
from coordinator.engine.pairing import ANNOUNCED
from coordinator.messages import Publisher
from coordinator.specification.run import RunSpec
from edge_agent.session.events import RequestSeen
from edge_agent.session.private import PrivateAnswers
from glassfleet.contract.messages import Contribution, Task
from glassfleet.private.layout import layout_of
from glassfleet.private.masks import RunKey
from glassfleet.private.words import runs_left
from schemas.envelope import Envelope
from schemas.errors import UsageError
from schemas.messages import ContributionBody, Request
from tests.support.authorities import TestCa
from tests.support.memory_broker import Faults, MemoryHub, MemoryTransport
from tests.support.privacy.private_bench import scheme_of
from tests.support.sample_models import curve
from tests.support.schedules import central_digest, train_only
from tests.support.simulation import COORDINATOR, FLEET, URL, Simulation

NAMES = tuple(f"v{number:02d}" for number in range(15))


pytestmark = pytest.mark.usefixtures("quiet_logs")
SLOW = pytest.mark.slow


SOURCES = {name: train_only(curve(40 + index, index)) for index, name in enumerate(NAMES)}


def spec(run: str = "r1", **changes: Any) -> RunSpec:
    return RunSpec.from_document(
        {
            "run": run,
            "scheme": "frt",
            "model": "m",
            "parameters": {"max_depth": 1, "n_sets": 2},
            "private": {},
            "rounds": {"deadline": 5, "gather_agents": len(NAMES), "max_restarts": 20, "extensions": 10},
            **changes,
        }
    )


def fleet(folder: Path, names: Sequence[str] = NAMES, **options: Any) -> Simulation:
    simulation = Simulation(SOURCES, folder, **options)
    simulation.start_coordinator()
    for name in names:
        simulation.start_agent(name)
    simulation.advance(1.0)
    return simulation


def check(simulation: Simulation, run: str = "r1", *, within: float = 200.0) -> dict[str, Any]:
    """Check what holds of every private run: a named end, the central model, nothing twice, nothing left."""
    document = simulation.run_until_ended(run, within=within)
    simulation.heal_everything()
    simulation.advance(60)
    assert not simulation.counted_twice()
    assert not simulation.leaked()
    assert not any(simulation.pending().values())
    if document["outcome"] == "finished":
        record = simulation.record("m")
        assert record.digest == central_digest(record, SOURCES)
        assert record.training.rows == sum(SOURCES[name].train.rows for name in record.cohort)
    else:
        assert document["reason"].startswith("too-few-for-privacy"), document["reason"]
    return document


def test_broker_sees_keys_and_noise_and_no_vehicles_numbers(state_dir: Path) -> None:
    simulation = fleet(state_dir)
    seen: dict[tuple[str, str], bytes] = {}
    asked: dict[str, Task] = {}

    def take(message: Message) -> None:
        body = Envelope.from_bytes(message.payload, fleet=FLEET).body if message.payload else None
        if isinstance(body, Request) and body.private is not None:
            asked[body.task_digest] = Task.from_value(body.task)
        if isinstance(body, ContributionBody):
            agent = simulation.topics.parse(message.topic).agent
            assert body.rows == 0
            contribution = Contribution.from_value(body.contribution)
            if contribution.kind == "keys":
                assert set(contribution.values) == set(ANNOUNCED)
                return
            assert set(contribution.sums) == {"masked"}
            seen[agent, body.task_digest] = contribution.sums["masked"].tobytes()

    spy = MemoryTransport(simulation.hub, Link(URL, "spy"))
    spy.subscribe(simulation.topics.request("+"))
    spy.subscribe(simulation.topics.contributions())
    spy.start(Handlers(take, lambda: None, lambda _why: None))
    simulation.start_run(spec())
    document = check(simulation)
    assert document["cohort"] == list(NAMES)
    assert len(seen) == len(asked) * len(NAMES)
    for (agent, question), words in seen.items():
        task = asked[question]
        given = scheme_of(task).client.contribute(task, SOURCES[agent].train, np.random.default_rng(0))
        own = layout_of(scheme_of(task), task).flatten(given)
        assert len(words) == own.nbytes
        # Masked words are as good as random: about as many ones as zeros, and none of the vector's words where it was.
        assert not (np.frombuffer(words, dtype=np.int64) == own).any()
        bits = np.unpackbits(np.frombuffer(words, dtype=np.uint8))
        assert abs(bits.mean() - 0.5) < 6 * 0.5 / np.sqrt(bits.size)  # six standard deviations of coins


@pytest.mark.parametrize("publish", [34, *(pytest.param(n, marks=SLOW) for n in (2, 9, 17, 18, 50))])
def test_model_is_the_central_one_when_the_coordinator_is_killed_at_any_publish(state_dir: Path, publish: int) -> None:
    simulation = fleet(state_dir, seed=publish)
    simulation.crash_coordinator_at_publish(publish)
    simulation.start_run(spec())
    for _ in range(40):
        simulation.advance(0.25)
        if simulation.coordinator is None:
            break
    assert simulation.deaths[COORDINATOR] == 1
    simulation.start_coordinator()
    assert check(simulation)["cohort"] == list(NAMES)


@pytest.mark.parametrize("dies", [pytest.param(False, marks=SLOW), True])
@pytest.mark.parametrize("moment", [8, *(pytest.param(n, marks=SLOW) for n in (*range(1, 8), *range(13, 40)))])
def test_no_part_of_a_request_is_left_when_the_broker_goes_back_to_any_moment(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch, moment: int, dies: bool
) -> None:
    """It has saved what it knew between two messages about requests, and crashes when the round is another.

    The coordinator goes on, or dies at that moment and finds a broker only when the round has been extended.
    """
    simulation = fleet(state_dir, ca=TestCa(), max_message_bytes=4096)
    route, carried = MemoryHub._route, 0

    def saving(hub: MemoryHub, message: Message) -> None:
        nonlocal carried
        route(hub, message)
        carried += simulation.topics.parse(message.topic).kind in ("blob", "request")
        if carried == moment and not simulation.deaths[COORDINATOR]:
            saved, carried_at = hub.save(), hub.now
            if dies:
                simulation.kill_coordinator()
            simulation.at(carried_at + (0 if dies else 6), simulation.stop_broker)
            simulation.at(carried_at + 8, simulation.start_coordinator)
            simulation.at(carried_at + 20, lambda: simulation.start_broker(saved))
            carried += 1

    monkeypatch.setattr(MemoryHub, "_route", saving)
    simulation.start_run(spec())
    assert check(simulation)["outcome"] == "finished"


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=SLOW) for n in (1, 2))])
def test_model_is_the_central_one_when_a_third_is_killed_at_once_at_any_moment(state_dir: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    # A network that is slow enough that vehicles are killed between two messages of one round.
    simulation = fleet(state_dir, seed=seed, faults=Faults(delay=(0.01, 0.3)))
    simulation.start_run(spec(rounds={"deadline": 5, "gather_agents": 15, "max_restarts": 20, "extensions": 1}))
    simulation.advance(float(rng.uniform(0.0, 6.0)))
    killed = [str(name) for name in rng.choice(NAMES, 5, replace=False)]
    for name in killed:
        simulation.kill_agent(name)
    document = check(simulation)
    assert document["outcome"] == "finished"
    assert len(document["cohort"]) >= 9


def test_second_private_run_is_refused_while_one_is_open_and_begins_afterwards(state_dir: Path) -> None:
    simulation = fleet(state_dir)
    simulation.start_run(spec())
    with pytest.raises(UsageError, match="private run 'r1' is open"):
        simulation.start_run(spec("r2"))
    simulation.cloud.cancel("r1")
    assert simulation.start_run(spec("r2")) == "r2"


def learn(simulation: Simulation, run: str, **changes: Any) -> dict[str, Any]:
    """Learn a model with at least eleven vehicles; all agree, and it is the central one of its cohort."""
    simulation.start_run(spec(run, rounds={"deadline": 5, "gather_agents": 11, "max_restarts": 20}, **changes))
    document = simulation.run_until_ended(run, within=100)
    record = simulation.record("m")
    assert document["outcome"] == "finished", document["reason"]
    assert record.run == run
    assert record.digest == central_digest(record, SOURCES)
    assert not any(reason.startswith("refused") for reason in reasons(document).values()), "vehicles agree"
    return document


def test_fleet_that_changes_by_one_vehicle_learns_again_and_says_who_is_left_out(state_dir: Path) -> None:
    simulation = fleet(state_dir, NAMES[:12])
    assert learn(simulation, "r1")["cohort"] == list(NAMES[:12])
    simulation.start_agent("v12")
    simulation.advance(1.0)
    document = learn(simulation, "r2")
    assert document["cohort"] == list(NAMES[:12])
    assert reasons(document)["v12"] == (
        "waits for company: too few vehicles are new with it; it joins when 2 more come"
    )
    assert document["rounds"][0]["seconds"] < 5, "a newcomer is not waited for"
    simulation.kill_agent("v05")
    simulation.advance(1.0)
    document = learn(simulation, "r3")
    assert document["rounds"][0]["seconds"] >= 5, "it waited for v05, whom others would have to follow"
    along = [agent for agent, reason in reasons(document).items() if reason.startswith("company")]
    assert len(along) == 2
    assert set(document["cohort"]) == set(NAMES[:13]) - {"v05", *along}, "the new one is one of four who came or went"
    for name in ("v05", "v13", "v14"):
        simulation.start_agent(name)
    simulation.advance(1.0)
    document = learn(simulation, "r4")
    assert document["cohort"] == list(NAMES), "two more have come, and v05 is back"
    today = document["ended"][:10]
    assert runs_left(document).endswith(f"; it answered in r3 ({today}), r2 ({today}), r1 ({today})")


def test_vehicle_that_sends_noise_is_named_and_left_out_until_it_is_readmitted(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulation = fleet(state_dir, NAMES[:12])
    masked, rng = PrivateAnswers.masked, np.random.default_rng(1)

    def noise(self: PrivateAnswers, asked: RequestSeen, *rest: Any) -> ContributionBody:
        body = masked(self, asked, *rest)
        if self._agent != "v04" or asked.run == "r3":
            return body
        contribution = Contribution.from_value(body.contribution)
        words = rng.integers(-(2**63), 2**63, contribution.sums["masked"].size)
        return body.model_copy(update={"contribution": replace(contribution, sums={"masked": words}).to_value()})

    monkeypatch.setattr(PrivateAnswers, "masked", noise)

    document = learn(simulation, "r1")
    assert document["false_answers"] == ["v04"]
    assert document["agents"]["v04"]["reason"] == "false answers: its masks fit nobody's"
    assert [agent for agent, _ in document["far_out"]] == ["v04"]
    assert len(document["cohort"]) == 9
    again = learn(simulation, "r2")
    assert again["spec"]["without"] == ["v04"]
    assert again["false_answers"] == ["v04"]
    assert again["cohort"] == document["cohort"]
    assert not any(each["kind"] == "pairs" for each in again["rounds"])
    assert learn(simulation, "r3", readmit=["v04"])["cohort"] == list(NAMES[:12])


def reasons(document: dict[str, Any]) -> dict[str, str]:
    return {agent: each["reason"] for agent, each in document["agents"].items() if each["reason"]}


def test_broker_that_swaps_a_founders_key_is_found_by_all_members(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coordinator is the broker's: it signs what it likes, but not a vehicle's announcement."""
    simulation = fleet(state_dir, ca=TestCa())
    assert simulation.ca is not None
    prepare = Publisher.prepare

    def swapped(self: Publisher, effect: OpenRound) -> Any:
        def spoilt(group: Group) -> Group:
            founders = [_with_other_key(group.body.founders[0]), *group.body.founders[1:]]
            return replace(group, body=group.body.model_copy(update={"founders": founders}))

        return prepare(self, replace(effect, groups=tuple(map(spoilt, effect.groups))))

    monkeypatch.setattr(Publisher, "prepare", swapped)
    for agent in simulation.agents.values():
        agent._effects._private._verifier = simulation.ca.verifier()  # as the agent's program gives it
    simulation.start_run(spec())
    document = simulation.run_until_ended("r1", within=100)
    assert document["outcome"] == "failed", "each time that the group is founded again another key is swapped"
    assert "bad-member: most of its group refuse its announcement (v00, v01, v02 and 5 more)" in document["reason"]


@pytest.mark.parametrize("unaware", [pytest.param(0, marks=SLOW), 4])
def test_vehicle_whose_certificate_is_revoked_while_it_pairs_is_left_out_alone(state_dir: Path, unaware: int) -> None:
    """Its announcement arrived in time; when the others are told of it, most of them know that it was revoked."""
    ca = TestCa()
    simulation = fleet(state_dir, ca=ca)
    revoked = ca.crl(simulation._issued["v12"])
    for name, agent in simulation.agents.items():
        verifier = agent._effects._private._verifier = ca.verifier()
        if name not in NAMES[:unaware]:
            verifier.update_crl(revoked)
    simulation.start_run(spec())
    document = check(simulation)
    assert document["outcome"] == "finished"
    assert document["cohort"] == [name for name in NAMES[unaware:] if name != "v12"]
    assert document["restarts"] == 1
    assert reasons(document)["v12"] == "bad-member: most of its group refuse its announcement"
    for agent in simulation.agents.values():  # it has another certificate
        agent._effects._private._verifier = ca.verifier()
    simulation.start_run(spec("r2"))
    document = check(simulation, "r2")
    assert document["outcome"] == "finished"
    assert not any("refused" in reason for reason in reasons(document).values()), reasons(document)


def test_vehicle_whose_announcement_says_nothing_of_earlier_runs_is_left_out_by_name(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as one with software of another version: the others could not look at its sums."""
    announce = PrivateAnswers.announce

    def formerly(self: PrivateAnswers, *asked: Any) -> ContributionBody:
        body = announce(self, *asked)
        if self._agent != "v03":
            return body
        values = {name: body.contribution["values"][name] for name in ("key", "floor")}
        return body.model_copy(update={"contribution": {**body.contribution, "values": values}})

    monkeypatch.setattr(PrivateAnswers, "announce", formerly)
    simulation = fleet(state_dir)
    simulation.start_run(spec())
    document = check(simulation)
    assert document["cohort"] == [name for name in NAMES if name != "v03"]
    [pairing, *_] = document["rounds"]
    assert pairing["dropped_agents"]["v03"].startswith("impossible: announcement: ")


def _with_other_key(message: bytes) -> bytes:
    envelope = Envelope.from_bytes(message, fleet=FLEET)
    assert isinstance(envelope.body, ContributionBody)
    values = {**Contribution.from_value(envelope.body.contribution).values, "key": RunKey.generate().public}
    body = envelope.body.model_copy(update={"contribution": Contribution("keys", 0, values=values).to_value()})
    return replace(envelope, body=body).to_bytes()
