"""A vehicle's part in private runs: what is on its disk, and a whole agent, decide what leaves it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from console.main import cli
from coordinator.engine import OpenRound
from coordinator.engine.pairing import ANNOUNCED
from edge_agent.session.accounts import TOLD, Disclosures, numbers_in, told
from edge_agent.session.events import RequestSeen
from edge_agent.session.private import PrivateAnswers
from edge_agent.session.snapshots import Snapshots
from edge_agent.sources import Source
from glassfleet.contract.messages import Contribution
from glassfleet.errors import PrivacyError
from glassfleet.private.ledger import Limits, row_hashes
from schemas import codec
from schemas.envelope import Envelope, frames_for_request
from schemas.errors import DataError, StorageError
from schemas.messages import ContributionBody
from schemas.topics import Topics
from tests.support.agent_bench import Bench
from tests.support.privacy.private_bench import PrivateStage, rows_of, scheme_of
from tests.support.privacy.private_victim import FRT, Victim, dataset, first_task, keys_task, terms_of

AGENTS = [f"v{number:02d}" for number in range(11)]
TOPICS = Topics("fleet")
LIMITS = Limits(least_rows=1)


def request_of(asked: OpenRound) -> RequestSeen:
    groups = [each.body for each in asked.groups] or None
    request = asked.request.model_copy(update={"private": groups})
    return RequestSeen(asked.run, request, asked.task)


class OneVehicle:
    """Vehicle v00 with its files; the others of the run are simulated."""

    def __init__(self, folder: Path, run: str = "r1", stage: PrivateStage | None = None, **options: Any) -> None:
        self.folder, self.run, self.options = folder, run, options
        self.secret = b"s" * 32
        folder.mkdir(exist_ok=True)
        self.stage = stage or PrivateStage(AGENTS, run=run, parameters={"max_depth": 1, "n_sets": 2}, nonce="7" * 32)
        self.restart()

    def restart(self) -> None:
        """Begin again with what is on the disk."""
        self.snapshots = Snapshots(self.folder / "runs", self.secret)
        options = {
            "limits": LIMITS,
            "choice": "allowed",
            "verifier": None,
            "snapshots": self.snapshots,
            "tests": lambda: rows_of("v00"),
            **self.options,
        }
        self.private = PrivateAnswers(TOPICS, "v00", self.folder, self.secret, **options)

    def respond(self, asked: OpenRound | None = None) -> ContributionBody:
        """Answer as the agent does: check, compute, mask."""
        asked = asked or self.stage.requests[-1]
        request = request_of(asked)
        self.private.heard(self.run)
        self.private.choose(request)
        rows = self.private.rows(request, rows_of("v00"))
        snapshot = self.snapshots.of_run(self.run, rows)
        self.private.check(request, snapshot, rows)
        if asked.phase == "pairing":
            return self.private.announce(request, snapshot)
        given = scheme_of(asked.task).client.contribute(asked.task, snapshot.data, None)
        return self.private.masked(request, snapshot, given)

    def give(self, body: ContributionBody) -> None:
        """Hand an answer to the coordinator; the message of an announcement is what the others will read."""
        changes: dict[str, Any] = {"contribution": body.contribution, "data_digest": body.data_digest}
        vehicle = self.stage.vehicles["v00"]
        if body.contribution["kind"] == "keys":
            message = Envelope(fleet="fleet", agent="v00", run=self.run, body=body).to_bytes()
            values = {**Contribution.from_value(body.contribution).values, "message": message}
            changes["contribution"] = Contribution("keys", 0, values=values).to_value()
        event = vehicle.answer(0.0, self.stage.requests[0])
        assert event is not None
        changes["task_digest"] = body.task_digest
        assert self.stage.send(type(event)(**{**vars(event), **changes}))[0].startswith("accepted")

    def pair(self) -> None:
        """Announce this vehicle and the others."""
        self.give(self.respond())
        for agent in AGENTS[1:]:
            vehicle = self.stage.vehicles[agent]
            own = vehicle.own.to_value()
            contribution = Contribution("keys", 0, values={name: own[name] for name in ANNOUNCED})
            digest = self.stage.requests[0].task_digest
            body = ContributionBody(
                task_digest=digest, rows=0, data_digest=vehicle.own.data_digest, contribution=contribution.to_value()
            )
            message = Envelope(fleet="fleet", agent=agent, run=self.run, body=body).to_bytes()
            self.stage.answer(agent, values={"message": message})
        assert self.stage.phase == "domain"

    @property
    def path(self) -> Path:
        return self.folder / "runs" / self.run


@pytest.fixture
def vehicle(tmp_path: Path) -> OneVehicle:
    return OneVehicle(tmp_path / "v00")


def as_bytes(body: ContributionBody) -> bytes:
    """Return all that an answer says."""
    return codec.encode(body.model_dump())


def refuses(code: str, act: Callable[[], Any]) -> None:
    with pytest.raises(PrivacyError) as caught:
        act()
    assert caught.value.code == code, str(caught.value)


def test_answers_are_the_same_bytes_after_a_restart_between_any_two_steps(vehicle: OneVehicle) -> None:
    announced = as_bytes(vehicle.respond())
    vehicle.restart()
    assert as_bytes(vehicle.respond()) == announced
    vehicle.pair()
    before = {name: (vehicle.path / name).read_bytes() for name in ("chain", "key")}
    masked = as_bytes(vehicle.respond())
    vehicle.restart()
    assert as_bytes(vehicle.respond()) == masked
    # Killed after the chain was written and before the ledger, or before both.
    (vehicle.path / "chain").write_bytes(before["chain"])
    vehicle.restart()
    assert as_bytes(vehicle.respond()) == masked
    assert (vehicle.path / "key").read_bytes() == before["key"]


def test_vehicle_that_was_killed_before_its_chain_was_written_announces_another_key(vehicle: OneVehicle) -> None:
    first = vehicle.respond()
    (vehicle.path / "chain").unlink()
    vehicle.restart()
    assert vehicle.respond().contribution != first.contribution


@pytest.mark.parametrize("damage", [lambda path: path.unlink(), lambda path: path.write_bytes(b"short")])
def test_rows_without_their_key_are_refused_by_name_and_nothing_is_announced(vehicle: OneVehicle, damage: Any) -> None:
    vehicle.respond()
    damage(vehicle.path / "key")
    vehicle.restart()
    refuses("damaged", vehicle.respond)
    shutil.rmtree(vehicle.folder)
    vehicle = OneVehicle(vehicle.folder)
    vehicle.pair()
    damage(vehicle.path / "key")
    vehicle.restart()
    refuses("damaged", vehicle.respond)


def test_key_without_its_rows_is_refused_when_the_rows_are_others_now(vehicle: OneVehicle, tmp_path: Path) -> None:
    vehicle.pair()
    (vehicle.path / "rows.npz").unlink()
    vehicle.restart()
    snapshot = vehicle.snapshots.of_run("r1", rows_of("v01"))
    refuses(
        "not-member",
        lambda: vehicle.private.check(request_of(vehicle.stage.requests[-1]), snapshot, rows_of("v01")),
    )


@pytest.mark.parametrize("damage", [b"", b"\xff", codec.encode({"own": 1}), codec.encode([])])
@pytest.mark.parametrize("name", ["chain", "ledger"])
def test_damaged_record_is_refused_by_name_and_the_end_of_the_run_still_comes(
    vehicle: OneVehicle, name: str, damage: bytes
) -> None:
    vehicle.pair()
    path = vehicle.folder / "ledger" if name == "ledger" else vehicle.path / name
    path.write_bytes(damage)
    vehicle.restart()
    refuses("damaged", vehicle.respond)
    vehicle.private.end("r1")
    assert path.read_bytes() == damage, "nothing is overwritten that might tell what was answered"


def test_vehicle_that_lost_its_folder_is_refused_by_itself_and_by_the_coordinator(vehicle: OneVehicle) -> None:
    vehicle.pair()
    shutil.rmtree(vehicle.folder)
    vehicle = OneVehicle(vehicle.folder, stage=vehicle.stage)
    vehicle.secret = b"t" * 32
    vehicle.restart()
    refuses("not-member", vehicle.respond)
    again = vehicle.respond(vehicle.stage.requests[0])  # asked for its key again it has another one
    refuses("not-member", vehicle.respond)
    event = vehicle.stage.sent[0]
    assert event.contribution != again.contribution


def test_all_rows_are_in_the_ledger_before_anything_is_answered_test_rows_as_others_than_training_rows(
    tmp_path: Path,
) -> None:
    vehicle = OneVehicle(tmp_path / "v00", tests=lambda: rows_of("tests"))
    tests = row_hashes(vehicle.secret, rows_of("tests"))
    training = row_hashes(vehicle.secret, rows_of("v00"))
    vehicle.pair()
    while vehicle.stage.phase != "finished":
        vehicle.give(vehicle.respond())
        [noted] = vehicle.private.files.ledger().answered
        assert np.array_equal(noted.rows.training, training)
        assert np.array_equal(noted.rows.tests, tests)
        vehicle.stage.answer(*AGENTS[1:])
    assert not np.isin(tests, training).any()


def test_run_that_was_announced_as_private_is_not_answered_in_the_clear(vehicle: OneVehicle) -> None:
    vehicle.pair()
    asked = request_of(vehicle.stage.requests[-1])
    openly = replace(asked, request=asked.request.model_copy(update={"private": None}))
    refuses("not-private", lambda: vehicle.private.choose(openly))


def test_vehicle_with_few_rows_is_no_company_for_others(tmp_path: Path) -> None:
    refuses("no-rows", OneVehicle(tmp_path / "v00", limits=Limits()).respond)


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


def test_answers_are_counted_by_run_also_after_a_restart_and_the_smallest_set_is_kept(tmp_path: Path) -> None:
    times = iter([10.0, 20.0, 30.0, 40.0])
    result = Disclosures(tmp_path / TOLD, lambda: next(times))
    result.note("r1", "private", 0, {"floor": 8, "company": 3}, ())
    result.note("r1", "frt", 100, {"floor": 8, "company": 3}, ("a", "b", "c"))
    result.close()
    result = Disclosures(tmp_path / TOLD, lambda: next(times))
    result.note("r1", "scores", 5, {"floor": 8, "company": 3}, ("a", "b"))
    result.note("r2", "tree", 7, None, ())
    result.close()
    first, second = told(tmp_path / TOLD)
    assert (first["scheme"], first["answers"], first["numbers"], first["members"]) == ("frt", 3, 105, ["a", "b"])
    assert (first["began"], first["last"]) == (10.0, 30.0)
    assert second["protection"] == {}


def test_numbers_are_those_of_sums_and_of_what_is_no_sum() -> None:
    contribution = {"rows": 9, "sums": {"a": np.zeros((2, 3))}, "values": {"rules": [[1, 2.5, "x"], []], "key": b"1"}}
    assert numbers_in(contribution) == 8


def test_ledger_command_names_the_protection_and_the_others(tmp_path: Path) -> None:
    folder = tmp_path / "agents" / "fleet" / "a"
    folder.mkdir(parents=True)
    result = Disclosures(folder / TOLD, lambda: 0.0)
    result.note("r1", "frt", 100, {"floor": 8, "company": 3}, ("a", "b"))
    result.note("r2", "tree", 7, None, ())
    result.close()
    arguments = ["agent", "ledger", "--state-dir", str(tmp_path), "--fleet", "fleet"]
    lines = CliRunner().invoke(cli, arguments).output.splitlines()
    assert lines[0].endswith(
        "r1  frt  1 answers, 100 numbers  private: summed over 2 vehicles (never fewer than 8, company 3)"
    )
    assert lines[1] == "  with b"
    assert lines[2].endswith("plain: coordinator and broker read this vehicle's numbers")
    document = json.loads(CliRunner().invoke(cli, [*arguments, "--json"]).output)
    assert [each["run"] for each in document["runs"]] == ["r1", "r2"]


def test_a_damaged_ledger_is_told_by_name(tmp_path: Path) -> None:
    (tmp_path / TOLD).write_bytes(b"no database" * 100)
    with pytest.raises(StorageError, match="what this vehicle has told"):
        told(tmp_path / TOLD)
