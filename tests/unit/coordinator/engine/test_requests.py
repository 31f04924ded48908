"""What a request holds: the run's nonce, and no more bytes in a large fleet; which requests of support are refused."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from broker.port import Link
from coordinator.config import CoordinatorConfig
from coordinator.core import Coordinator
from coordinator.engine import Engine, OpenRound, learning
from coordinator.engine.learning import Openly
from coordinator.engine.state import Stored
from coordinator.main import assemble
from coordinator.specification.run import RunSpec
from edge_agent.messages import request_seen
from glassfleet.contract import catalogue
from glassfleet.contract.messages import Task
from glassfleet.data.dataset import Dataset
from glassfleet.private.groups import place
from lab.protocols.paper import pooled_domain
from schemas.codec import decode, encode
from schemas.envelope import Envelope, frames_for_blobs
from schemas.errors import UsageError
from schemas.messages import PrivateGroup, Request
from schemas.topics import Topics
from schemas.trust.joining import BlobStore
from tests.support.engine_bench import Play, toy_spec
from tests.support.memory_broker import MemoryHub, MemoryTransport
from tests.support.privacy.private_bench import PrivateStage, total_of
from tests.support.scratch_journal import ScratchJournal

X = np.random.default_rng(1).random((200, 2))
DOMAIN = pooled_domain(("a", "b"), "y", X, X[:, 0])


def test_nonce_reaches_every_level_and_the_vehicle():
    scheme = catalogue.load("frt")
    level = learning.start(scheme.server, scheme.Parameters(nullify=False), DOMAIN, 0, "a" * 32, 0, Openly())
    rng = np.random.default_rng(0)
    answer = scheme.client.contribute(level.task, Dataset(("a", "b"), "y", X, X[:, 0]), rng)
    store = {level.digest: {"v1": Stored("0" * 64, answer.rows, answer)}}
    grown = learning.advance(scheme.server, (level,), ["v1"], store, Openly())
    assert grown.levels[-1].number == 2
    assert grown.levels[-1].task.nonce == "a" * 32
    task = grown.levels[-1].task
    request = Request(task=task.to_value(), task_digest=task.digest, remaining=1.0)
    wire = Envelope.from_bytes(Envelope(fleet="f", body=request, run="r", scheme="frt").to_bytes(), fleet="f")
    seen = request_seen(wire)
    assert seen.task.digest == task.digest


def size_of(request: OpenRound) -> int:
    return len(request.envelope("fleet").to_bytes())


def body_of(request: OpenRound, piece: int | None = None) -> Request:
    body = request.envelope("fleet", piece=piece).body
    assert isinstance(body, Request)
    return body


def played(vehicles: int, spec: dict[str, Any]) -> Play:
    """Play a run in which a tenth of the vehicles is lost after the first round, and more come up then."""
    agents = tuple(f"v{number:05d}" for number in range(vehicles))
    play = Play(toy_spec(parameters={"levels": 4, "coarse": 2**40}, **spec), agents=agents)
    play.answer(*agents[1:])
    play.pass_time(play.spec.rounds.deadline)
    for number in range(vehicles // 10):
        play.up(f"w{number:05d}")
    play.finish(*agents[vehicles // 10 :])
    assert play.phase == "finished"
    return play


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"without": ["v00000"]},
        {"participation": "elastic"},
        {"participation": "elastic", "rounds": {"sample": 0.5}},
        {"rounds": {"sample": 0.5}},
    ],
)
def test_request_is_as_long_in_a_large_fleet(spec: dict[str, Any]) -> None:
    small, large = (played(vehicles, dict(spec)) for vehicles in (130, 390))
    assert {size_of(request) for request in large.requests} == {size_of(request) for request in small.requests}
    assert max(map(size_of, large.requests)) < 800
    rounds = large.state.rounds
    assert sum(each.request_bytes for each in rounds) == sum(map(size_of, large.requests)), "and it is recorded"


@pytest.mark.parametrize("seed", range(4))
def test_sample_that_is_told_as_a_rule_is_the_one_that_is_drawn(seed: int) -> None:
    agents = tuple(f"v{number:05d}" for number in range(500))
    for sampled in (1, 2, 250):
        play = Play(toy_spec(seed=seed, rounds={"sample": sampled}), agents=agents)
        body = play.requests[0].request
        assert len(play.open.asked) == sampled
        assert body.asked is None
        assert body.sample is not None
        assert tuple(filter(body.sample.asks, agents)) == play.open.asked


def test_private_request_tells_a_group_once_who_is_in_it() -> None:
    agents = [f"v{number:02d}" for number in range(30)]
    stage = PrivateStage(agents)
    stage.finish(*agents)
    stage.check_end()
    first, *others = stage.requests[1:]
    assert body_of(first).private == [], "what a group is told is where its vehicles alone fetch it"
    assert [(group.body.members, len(group.body.founders)) for group in first.groups] == [(agents, 30)]
    assert len(others) > 5
    assert not any(group.packed for request in others for group in request.groups)
    assert all(body_of(request).private and body_of(request).rosters is None for request in others)
    assert max(size_of(each) - len(encode(each.task.to_value())) for each in stage.requests[2:]) < 600


def test_private_request_names_the_members_of_a_group_again_when_some_are_lost() -> None:
    agents = [f"v{number:02d}" for number in range(14)]
    stage = PrivateStage(agents)
    stage.finish(*agents, leaves=dict.fromkeys(agents[:3], 4))
    stage.check_end()
    named = [bool(group.body.members) for request in stage.requests for group in request.groups]
    result = [bool(group.body.founders) for request in stage.requests for group in request.groups]
    assert sum(named) == 2, "as founders, and as those who are left"
    assert sum(result) == 1


def first_question(vehicles: int, *sizes: int) -> tuple[PrivateStage, OpenRound]:
    """Ask vehicles, the first of which were in groups of these sizes in an earlier run."""
    agents = [f"v{number:04d}" for number in range(vehicles)]
    ends = np.cumsum([0, *sizes]).tolist()
    stage = PrivateStage(agents, earlier=[total_of(agents[start:end]) for start, end in pairwise(ends)])
    # As long as a sealed one, and as little alike.
    sealed = (np.random.default_rng(number).bytes(850) for number in range(vehicles))
    for agent, message in zip(agents, sealed, strict=True):
        stage.answer(agent, values={"message": message})
    assert stage.request is not None
    assert stage.phase == "domain"
    return stage, stage.request


def test_first_question_of_a_private_run_is_as_long_in_a_large_fleet_but_for_where_the_groups_are() -> None:
    (small, few), (large, many) = first_question(100), first_question(200)
    assert (len(few.groups), len(many.groups)) == (3, 6)
    assert size_of(many) - size_of(few) <= 50 * 3
    bytes_each = [stage.state.open.request_bytes for stage in (small, large) if stage.state.open]
    assert abs(bytes_each[1] - bytes_each[0]) < 2_000, "a vehicle gets the announcements of its own group alone"
    assert max(bytes_each) < 64 * 1000


@pytest.mark.parametrize(
    ("vehicles", "piece", "sizes", "found"),
    [
        (20, 128 * 1024, (), 1),
        (200, 128 * 1024, (), 1),
        (200, 2048, (), 1),
        (43, 128 * 1024, (40,), 2),  # three new ones join the group: it is found where it was, and where they are
        (100, 128 * 1024, (40, 45), 2),
        (100, 128 * 1024, (30, 35), 1),
    ],
)
def test_vehicle_finds_its_group_and_no_other_by_its_place(
    vehicles: int, piece: int, sizes: tuple[int, ...], found: int
) -> None:
    _, request = first_question(vehicles, *sizes)
    rosters = body_of(request, piece).rosters
    assert rosters is not None
    cut = {each.digest: each for each in rosters.manifests()}
    assert len(cut) == len(request.groups)
    for group in request.groups:
        frames = frames_for_blobs(group.packed, Topics("fleet"), piece)
        for agent in group.body.members:
            roster = rosters.of(place(group.edition.roster.terms, group.edition.roster.by_id[agent]))
            assert roster is not None
            store = BlobStore(Topics("fleet"))
            store.want(roster)
            content = [store.add(*frame) for frame in frames.frames][-1]
            assert content is not None
            assert agent in PrivateGroup.model_validate(decode(content)).members
    assert rosters.of(2**48 - 1) is None
    assert sorted(agent for group in request.groups for agent in group.body.members) == [
        f"v{number:04d}" for number in range(vehicles)
    ]
    assert max(len(group.lasts) for group in request.groups) == found


def coordinator(journal: ScratchJournal) -> Coordinator:
    return assemble(CoordinatorConfig(), MemoryTransport(MemoryHub(), Link("mqtt://m", "c")), journal, Engine())


def test_coordinator_draws_a_nonce_for_each_run_and_keeps_it_over_a_restart():
    journal = ScratchJournal()
    one = coordinator(journal)
    for run in ("r1", "r2"):
        one.start_run(RunSpec(run=run, scheme="frt", domain=DOMAIN, nonce="0" * 32))
    states = [one.runs.live.get(run) for run in ("r1", "r2")]
    nonces = [state.spec.nonce for state in states if state]
    assert len(set(nonces)) == 2
    assert all(len(nonce) == 32 and nonce != "0" * 32 for nonce in nonces)
    journal.close()
    again = coordinator(ScratchJournal(journal))
    assert [state.spec.nonce for run in ("r1", "r2") if (state := again.runs.live.get(run))] == nonces


def test_tasks_of_two_runs_differ_when_they_ask_the_same():
    scheme = catalogue.load("frt")
    params = scheme.Parameters()
    levels = [
        learning.start(scheme.server, params, DOMAIN, 0, nonce, 0, Openly()) for nonce in ("a" * 32, "b" * 32, "")
    ]
    assert len({level.digest for level in levels}) == 3
    assert len({Task(task.scheme, task.kind, task.body).digest for task in (level.task for level in levels)}) == 1


@pytest.mark.parametrize("private", [None, {}])
def test_support_is_no_parameter_that_a_run_can_be_given(private: dict[str, int] | None) -> None:
    document = {"scheme": "frt", "parameters": {"support": 3}, "private": private}
    with pytest.raises(UsageError, match=r"private\.support|support = 0"):
        RunSpec.from_document(document)


def test_what_a_private_run_cannot_go_with_is_said_before_it() -> None:
    document = {"scheme": "tsk", "parameters": {"antecedents": "local"}, "private": {}}
    with pytest.raises(UsageError, match="own rules are no sums"):
        Engine().parameters(RunSpec.from_document(document))
