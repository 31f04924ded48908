"""What a vehicle lets out of itself in private runs, whatever coordinator and broker ask: its files and rules together.

The coordinator here plays several honest vehicles' `PrivateRuns` against a hostile one's wishes; what a vehicle does
not answer cannot be added up.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_agent.session.private import PRIVATE, PrivateRuns
from edge_agent.session.snapshots import Snapshots
from edge_agent.sources import Source
from glassfleet import catalogue
from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import pooled_domain
from glassfleet.discovery import DISCOVERY, DiscoveryParameters
from glassfleet.errors import PrivacyError, TaskError
from glassfleet.private.groups import Announcement, Edition, Roster, Terms, parameters_digest
from glassfleet.private.layout import layout_of
from glassfleet.private.ledger import Limits, row_hashes
from glassfleet.private.masks import RunKey
from glassfleet.private.sums import question_digest
from glassfleet.scheme import Contribution, Task, private_parameters
from schemas import codec
from schemas.envelope import Envelope
from schemas.errors import DataError
from schemas.messages import ContributionBody, PrivateGroup, Request
from schemas.parts import frames_for_request
from schemas.topics import Topics
from tests.support.agent_bench import Bench

SECRET = bytes(range(32))
FRT: Any = catalogue.load("frt")
PARAMETERS = private_parameters(FRT, FRT.Parameters(max_depth=2))
OTHERS = tuple(f"v{number:02d}" for number in range(1, 11))


def dataset(seed: int = 0, rows: int = 40) -> Dataset:
    rng = np.random.default_rng(seed)
    return Dataset(("a", "b"), "y", rng.random((rows, 2)), rng.random(rows))


def keys_task(terms: Terms) -> Task:
    return Task(PRIVATE, "keys", terms.to_value(), terms.nonce)


class Victim:
    """A vehicle's private runs as its agent has them, and the coordinator's side of asking it."""

    def __init__(self, folder: Path, choice: Any = "allowed") -> None:
        self.folder, self.choice, self.data = folder, choice, dataset()
        self.tests = dataset(9, rows=0)
        self.others = {agent: RunKey.generate() for agent in OTHERS}
        self.restart()

    def restart(self) -> None:
        self.private = PrivateRuns(
            Topics("fleet"),
            "v00",
            self.folder,
            SECRET,
            limits=Limits(),
            choice=self.choice,
            verifier=None,
            tests=lambda _: self.tests,
        )
        self.snapshots = Snapshots(self.folder / "runs", SECRET)

    def announce(self, terms: Terms) -> ContributionBody:
        task = keys_task(terms)
        request = Request(task=task.to_value(), task_digest=task.digest, remaining=1.0)
        self.private.heard(terms.run)
        self.private.choose(terms.run, request)
        snapshot = self.snapshots.of_run(terms.run, self.data)
        self.private.check(terms.run, request, snapshot, self.data)
        return self.private.announce(terms.run, task.digest, task, snapshot)

    def founders(self, terms: Terms, own: ContributionBody, absent: int = 0) -> list[bytes]:
        """Messages of the group's founders, `absent` of the others not among them."""
        digest = keys_task(terms).digest
        bodies = {"v00": own}
        for agent in OTHERS[absent:]:
            said = Contribution("keys", 0, values={"key": self.others[agent].public, "floor": 8})
            bodies[agent] = ContributionBody(
                task_digest=digest, rows=0, data_digest="0" * 64, contribution=said.to_value()
            )
        return [
            Envelope(fleet="fleet", agent=agent, run=terms.run, body=body, time=0.0).to_bytes()
            for agent, body in sorted(bodies.items())
        ]

    def request(self, terms: Terms, founders: list[bytes], task: Task, members: Any = None, number: int = 0) -> Request:
        announcements = []
        for message in founders:
            envelope = Envelope.from_bytes(message, fleet="fleet")
            assert isinstance(envelope.body, ContributionBody)
            values = Contribution.from_value(envelope.body.contribution).values
            announcements.append(
                Announcement(envelope.agent, values["key"], envelope.body.data_digest, values["floor"])
            )
        roster = Roster(terms, 0, tuple(announcements))
        edition = Edition(roster, number, tuple(members or roster.by_id))
        scheme: Any = DISCOVERY if task.scheme == "domain" else FRT
        question = question_digest(edition, task.digest, layout_of(scheme, task).digest)
        group = PrivateGroup(
            group=0, number=number, members=list(edition.members), question=question, founders=founders
        )
        return Request(task=task.to_value(), task_digest=question, remaining=1.0, private=[group])

    def answer(self, terms: Terms, request: Request, contribution: Contribution | None = None) -> ContributionBody:
        run, task = terms.run, Task.from_value(request.task)
        self.private.heard(run)
        self.private.choose(run, request)
        snapshot = self.snapshots.of_run(run, self.data)
        self.private.check(run, request, snapshot, self.data)
        scheme: Any = DISCOVERY if task.scheme == "domain" else FRT
        given = contribution or scheme.client.contribute(task, snapshot.data, np.random.default_rng(0))
        return self.private.masked(run, request, snapshot, given)

    def end(self, run: str) -> None:
        self.private.end(run)
        self.snapshots.drop(run)


def terms_of(run: str = "r1", nonce: str = "n1", parameters: Any = PARAMETERS) -> Terms:
    return Terms("fleet", run, nonce, "frt", parameters_digest(parameters))


def first_task(terms: Terms, parameters: Any = PARAMETERS, **body: Any) -> Task:
    data = dataset(rows=200)
    task = FRT.server.start(parameters, pooled_domain(data.features, data.target, data.X, data.y), 0).task
    return Task(task.scheme, task.kind, {**task.body, **body}, terms.nonce)


def domain_task(terms: Terms, **changes: Any) -> Task:
    parameters = DISCOVERY.private(DiscoveryParameters(features=("a", "b"), target="y"))
    task = DISCOVERY.server.start(parameters).task
    return Task(task.scheme, task.kind, {**task.body, **changes}, terms.nonce)


def refused(code: str) -> Any:
    return pytest.raises(PrivacyError, match=f"^{code}: ")


@pytest.fixture
def victim(tmp_path: Path) -> Victim:
    return Victim(tmp_path)


def test_an_honest_coordinator_is_answered(victim: Victim) -> None:
    terms = terms_of()
    founders = victim.founders(terms, victim.announce(terms))
    for task in (domain_task(terms), first_task(terms)):
        assert victim.answer(terms, victim.request(terms, founders, task)).rows == 0
    victim.restart()
    assert victim.answer(terms, victim.request(terms, founders, first_task(terms)))


@pytest.mark.parametrize("same_run", [True, False])
def test_a_run_that_was_answered_is_not_met_again_when_its_chain_is_gone(victim: Victim, same_run: bool) -> None:
    """Else the chain would begin anew: all 11 answer, then 10 of them, and the difference is the eleventh."""
    terms = terms_of()
    founders = victim.founders(terms, victim.announce(terms))
    victim.answer(terms, victim.request(terms, founders, first_task(terms)))
    for number in range(20):  # any request makes a snapshot; the oldest folders give way, with key and chain
        victim.snapshots.of_run(f"other-{number}", victim.data)
    assert not (victim.folder / "runs" / "r1" / "chain").exists()
    again = terms if same_run else terms_of(run="r2")
    with pytest.raises(PrivacyError):
        victim.announce(again)
    with pytest.raises(PrivacyError):
        victim.answer(terms, victim.request(terms, founders, first_task(terms)))


def test_a_run_that_was_answered_stays_over_though_its_nonce_was_pushed_out(victim: Victim) -> None:
    terms = terms_of()
    founders = victim.founders(terms, victim.announce(terms))
    victim.answer(terms, victim.request(terms, founders, first_task(terms)))
    victim.end("r1")
    ledger = victim.private._ledger()
    victim.private._save_ledger(replace(ledger, ended=tuple(f"forged-{number}" for number in range(1024))))
    with refused("run-over"):
        victim.announce(terms)


def test_an_old_snapshot_does_not_make_a_vehicle_forget_runs_over_its_present_rows(victim: Victim) -> None:
    """Any request freezes rows; a run over them, much later, would be one over none of the present ones."""
    present, victim.data = victim.data, dataset(99)
    victim.snapshots.of_run("old", victim.data)
    victim.data = present
    terms = terms_of()
    founders = victim.founders(terms, victim.announce(terms))
    victim.answer(terms, victim.request(terms, founders, first_task(terms)))
    victim.end("r1")
    for _ in range(2):
        with refused("not-private"):
            victim.announce(terms_of("old", "n2"))
        victim.restart()
    after = terms_of("r3", "n3")
    founders = victim.founders(after, victim.announce(after), absent=1)
    with refused("single-out"):
        victim.answer(after, victim.request(after, founders, first_task(after)))


def test_answers_are_of_all_rows_of_each_vehicle(victim: Victim) -> None:
    """Sums over at most k and at most k + 1 rows of each differ by one row, of whoever has the most rows."""
    terms = terms_of()
    founders = victim.founders(terms, victim.announce(terms))
    for most in (20, 21):
        with refused("not-private"):
            victim.answer(terms, victim.request(terms, founders, first_task(terms, max_rows_each=most)))


def test_lagged_features_are_the_same_in_all_tasks(victim: Victim) -> None:
    """Rows without a past are left out: two declarations are sums over two sets of rows."""
    terms = terms_of()
    founders = victim.founders(terms, victim.announce(terms))
    lags = [{"inputs": [{"input": "a", "lag": lag}], "start": "drop"} for lag in (1, 2)]
    assert victim.answer(terms, victim.request(terms, founders, domain_task(terms, memory=lags[0])))
    for other in (domain_task(terms, memory=lags[1]), domain_task(terms), first_task(terms)):
        with refused("other-domain"):
            victim.answer(terms, victim.request(terms, founders, other))


def test_a_vehicle_with_few_rows_left_is_no_company(victim: Victim) -> None:
    """A task may leave rows out; who has none left would make the others' sum that of one vehicle."""
    terms = terms_of()
    founders = victim.founders(terms, victim.announce(terms))
    request = victim.request(terms, founders, first_task(terms))
    few = FRT.client.contribute(first_task(terms), dataset(rows=31), np.random.default_rng(0))
    with pytest.raises(TaskError, match="too few to be company"):
        victim.answer(terms, request, few)


def test_small_numbers_are_not_withheld_for_then_a_refusal_would_tell_of_them(victim: Victim) -> None:
    nullifying = FRT.Parameters(max_depth=2, min_rows=5)
    assert private_parameters(FRT, nullifying) != nullifying
    terms = terms_of(parameters=nullifying)
    founders = victim.founders(terms, victim.announce(terms))
    with refused("not-private"):
        victim.answer(terms, victim.request(terms, founders, first_task(terms, nullifying)))
    honest = victim.request(terms, founders, domain_task(terms))
    counted = {**honest.task, "body": {**honest.task["body"], "min_count": 5}}
    with pytest.raises(TaskError, match="do not add up"):
        victim.answer(terms, honest.model_copy(update={"task": counted}))


def test_who_could_not_answer_a_task_answers_no_other_one(victim: Victim) -> None:
    """Else each task that fails on some rows would ask a vehicle for one bit of its own."""
    terms = terms_of()
    founders = victim.founders(terms, victim.announce(terms))
    victim.answer(terms, victim.request(terms, founders, first_task(terms)))
    victim.private.leave("r1")
    for _ in range(2):
        for task in (first_task(terms), first_task(terms, PARAMETERS)):
            with refused("run-left"):
                victim.answer(terms, victim.request(terms, founders, task))
        victim.restart()


def test_runs_that_a_vehicle_could_not_answer_count_as_well(victim: Victim) -> None:
    """Whether it can may depend on its rows: else run after run would ask for one bit of them each."""
    for number in range(Limits().runs):
        terms = terms_of(f"r{number}", f"n{number}")
        founders = victim.founders(terms, victim.announce(terms))
        request = victim.request(terms, founders, first_task(terms))
        victim.private.check(terms.run, request, victim.snapshots.of_run(terms.run, victim.data), victim.data)
        victim.private.leave(terms.run)
        victim.end(terms.run)
        victim.restart()
    with refused("too-many-runs"):
        victim.announce(terms_of("next", "next"))


def test_what_is_asked_counts_before_it_is_answered(victim: Victim) -> None:
    terms = replace(terms_of(), max_questions=1)
    founders = victim.founders(terms, victim.announce(terms))
    first = victim.request(terms, founders, domain_task(terms))
    victim.private.check("r1", first, victim.snapshots.of_run("r1", victim.data), victim.data)
    victim.restart()
    with refused("too-many-questions"):
        victim.answer(terms, victim.request(terms, founders, first_task(terms)))
    assert victim.answer(terms, first)


def test_an_announcement_for_another_run_of_the_same_name_is_no_announcement(victim: Victim) -> None:
    terms, former = terms_of(), terms_of(nonce="n0")
    founders = victim.founders(terms, own := victim.announce(terms))
    stale = victim.founders(former, own)
    mixed = [founders[0], *stale[1:]]
    with refused("bad-member"):
        victim.answer(terms, victim.request(terms, mixed, first_task(terms)))
    assert victim.answer(terms, victim.request(terms, founders, first_task(terms)))


def test_refusal_names_the_member_and_nothing_else_and_another_group_is_met_afterwards(victim: Victim) -> None:
    terms = terms_of()
    founders = victim.founders(terms, victim.announce(terms))
    bad = Envelope.from_bytes(founders[-1], fleet=terms.fleet).agent
    stale = victim.founders(terms_of(nonce="n0"), victim.announce(terms))
    with pytest.raises(PrivacyError) as caught:
        victim.answer(terms, victim.request(terms, [*founders[:-1], stale[-1]], first_task(terms)))
    assert caught.value.reason == f"bad-member: {bad}"
    victim.restart()
    assert victim.answer(terms, victim.request(terms, founders[:-1], first_task(terms)))
    with refused("other-roster"):
        victim.answer(terms, victim.request(terms, founders, first_task(terms)))


def test_a_request_that_tells_nothing_again_is_answered_from_what_the_vehicle_keeps(victim: Victim) -> None:
    def short(request: Request, **changes: Any) -> Request:
        [group] = request.private or []
        return request.model_copy(update={"private": [group.model_copy(update={"founders": [], **changes})]})

    terms = terms_of()
    founders = victim.founders(terms, victim.announce(terms))
    whole = victim.request(terms, founders, domain_task(terms))
    for members in ([], (whole.private or [])[0].members):
        with refused("not-member"):  # it has met nobody
            victim.answer(terms, short(whole, members=members))
    said = victim.answer(terms, whole)
    victim.restart()
    assert codec.encode(victim.answer(terms, short(whole, members=[])).model_dump()) == codec.encode(said.model_dump())
    after = victim.request(terms, founders, first_task(terms), members=["v00", *OTHERS[3:]], number=1)
    with refused("other-edition"):  # who is in it?
        victim.answer(terms, short(after, members=[]))
    assert victim.answer(terms, short(after))
    with refused("not-member"):
        victim.answer(terms, short(after, members=[], group=1))


def test_keys_of_pairs_are_those_of_the_roster_that_is_answered(victim: Victim) -> None:
    """A first roster that came to nothing leaves nothing behind."""
    terms = terms_of()
    own = victim.announce(terms)
    request = victim.request(terms, victim.founders(terms, own), first_task(terms))
    met = victim.private._met("r1")
    victim.answer(terms, request)
    assert met is not None
    victim.private._save("r1", met)  # as if nothing had been written
    victim.others = {agent: RunKey.generate() for agent in OTHERS}
    after = victim.request(terms, victim.founders(terms, own), first_task(terms))
    said = victim.answer(terms, after)
    victim.restart()
    assert codec.encode(victim.answer(terms, after).model_dump()) == codec.encode(said.model_dump())


def test_a_vehicle_that_missed_the_end_of_a_run_takes_part_in_the_next(victim: Victim) -> None:
    terms, after = terms_of(), terms_of("r2", "n2")
    founders = victim.founders(terms, victim.announce(terms))
    victim.answer(terms, victim.request(terms, founders, first_task(terms)))
    with refused("too-many-runs"):
        victim.announce(after)
    victim.restart()  # the run ended meanwhile: its request is not retained any more
    assert victim.announce(after)
    with refused("run-over"):
        victim.answer(terms, victim.request(terms, founders, first_task(terms)))
    assert not (victim.folder / "runs" / "r1" / "key").exists()


def test_a_request_that_is_refused_takes_nothing_from_the_open_run(victim: Victim) -> None:
    """A broker that was killed publishes an older state again: the keys request of a run that ended comes first."""
    former = terms_of()
    victim.announce(former)
    victim.end("r1")
    terms = terms_of(run="r2", nonce="n2")
    founders = victim.founders(terms, victim.announce(terms))
    victim.private.connected()
    with refused("run-over"):
        victim.announce(former)
    assert victim.answer(terms, victim.request(terms, founders, first_task(terms)))


def test_the_end_of_a_run_whose_chain_was_never_written_lets_the_next_begin(victim: Victim) -> None:
    terms = terms_of()
    victim.announce(terms)
    (victim.folder / "runs" / "r1" / "chain").unlink()
    victim.end("r1")
    assert victim.announce(terms_of("r2", "n2"))


@pytest.mark.parametrize("choice", ["only", "never"])
def test_the_choice_stands_before_rows_are_read(tmp_path: Path, choice: Any) -> None:
    victim = Victim(tmp_path, choice)
    terms = terms_of()
    plain, keys = first_task(terms), keys_task(terms)
    for task, answered in ((plain, choice != "only"), (keys, choice != "never")):
        request = Request(task=task.to_value(), task_digest=task.digest, remaining=1.0)
        if answered:
            victim.private.choose("r1", request)
        else:
            with refused("not-private"):
                victim.private.choose("r1", request)


def test_a_new_category_does_not_make_other_rows_of_the_same_rows() -> None:
    """Positions among categories shift when one comes that sorts before others; the rows are the same."""
    kinds, more, numbers = ("north", "south"), ("east", "north", "south"), np.arange(4.0)
    X = np.column_stack([numbers % 2, numbers])
    before = Dataset(("kind", "number"), "y", X, np.zeros(4), categories={"kind": kinds})
    shifted = Dataset(("kind", "number"), "y", X + np.array([1.0, 0.0]), np.zeros(4), categories={"kind": more})
    others = Dataset(("kind", "number"), "y", X, np.zeros(4), categories={"kind": more})
    assert np.array_equal(row_hashes(SECRET, before), row_hashes(SECRET, shifted))
    assert not np.isin(row_hashes(SECRET, others), row_hashes(SECRET, before)).any()


def unreadable() -> Source:
    data = dataset()

    def current() -> Source:
        raise DataError("line 7: income 31,415 is no number")

    return Source(data, data, refresh=current)


def test_a_refusal_of_a_private_request_tells_nothing_of_the_rows(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.agent(data=unreadable())
    bench.run()
    bench.coordinator.ask(keys_task(terms_of()))
    bench.run()
    assert [each.reason for each in bench.coordinator.refusals] == ["cannot-answer"]


def test_a_vehicle_for_private_runs_only_refuses_others_before_it_reads_its_rows(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.agent(data=unreadable(), private="only")
    bench.run()
    bench.coordinator.ask(first_task(terms_of()))
    bench.run()
    assert [each.reason for each in bench.coordinator.refusals] == ["not-private"]
    assert not list(tmp_path.rglob("rows.npz"))


def test_what_fails_inside_an_answer_tells_nothing_and_ends_the_run_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault's name would be a bit of the rows, and each further task another one."""
    bench, terms = Bench(tmp_path), terms_of()
    victim = Victim(tmp_path / "others")
    agent = bench.agent("v00", Source(dataset(), dataset(5)))
    bench.run()
    bench.coordinator.ask(keys_task(terms))
    bench.run()
    founders = victim.founders(terms, bench.coordinator.answers[0])

    def fails(*_: Any) -> Contribution:
        raise ZeroDivisionError

    monkeypatch.setattr(type(FRT.client), "contribute", fails)
    for number, task in enumerate((first_task(terms), first_task(terms, seed=1)), 2):
        body = victim.request(terms, founders, task)
        envelope = Envelope(
            fleet="fleet", body=body, run="r1", round=number, attempt=1, scheme="frt", time=10.0 + number
        )
        for frame in frames_for_request(envelope, Topics("fleet"), 128 * 1024).frames:
            bench.coordinator.transport.publish(frame.topic, frame.payload, retain=True)
        bench.run(3)
    assert [each.reason for each in bench.coordinator.refusals] == ["cannot-answer", "run-left"]
    assert agent.counts["answers"] == 1


def test_a_vehicle_that_is_let_in_again_on_its_standing_connection_takes_part_in_the_next_run(tmp_path: Path) -> None:
    """A broker sends nothing to who is revoked, yet may keep the connection: the end of a run is missed that way."""
    bench = Bench(tmp_path)
    agent = bench.agent("v00", Source(dataset(), dataset(5)))
    bench.run()
    bench.coordinator.ask(keys_task(terms_of()))
    bench.run()
    agent.transport.unsubscribe(Topics("fleet").request("+"))
    bench.coordinator.clear()
    bench.coordinator.ask(keys_task(after := terms_of("r2", "n2")), run="r2")
    bench.run()
    agent.connected()  # as after each renewal of its certificate
    bench.run()
    assert not bench.coordinator.refusals
    assert bench.coordinator.answers[-1].task_digest == keys_task(after).digest
