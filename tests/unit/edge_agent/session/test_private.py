"""A vehicle's part in private runs: what is on its disk, and a whole agent, decide what leaves it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from console.main import cli
from edge_agent.session.accounts import TOLD, Disclosures, numbers_in, told
from edge_agent.sources import Source
from glassfleet.contract.messages import Contribution
from glassfleet.errors import PrivacyError
from glassfleet.private.ledger import row_hashes
from schemas import codec
from schemas.envelope import Envelope, frames_for_request
from schemas.errors import DataError, StorageError
from schemas.messages import ContributionBody, Request
from schemas.topics import Topics
from tests.support.agent_bench import Bench
from tests.support.privacy.private_victim import (
    FRT,
    SECRET,
    Victim,
    dataset,
    domain_task,
    first_task,
    keys_task,
    seen,
    terms_of,
)

RUN = Path("runs", "r1")


@pytest.fixture
def victim(tmp_path: Path) -> Victim:
    return Victim(tmp_path / "v00")


def as_bytes(body: ContributionBody) -> bytes:
    """Return all that an answer says."""
    return codec.encode(body.model_dump())


def refused(code: str) -> Any:
    return pytest.raises(PrivacyError, match=f"^{code}: ")


def test_answers_are_the_same_bytes_after_a_restart_between_any_two_steps(victim: Victim) -> None:
    terms, path = terms_of(), victim.folder / RUN
    announced = victim.announce(terms)
    victim.restart()
    assert as_bytes(victim.announce(terms)) == as_bytes(announced)
    request = victim.request(terms, victim.founders(terms, announced), first_task(terms))
    before = {name: (path / name).read_bytes() for name in ("chain", "key")}
    masked = as_bytes(victim.answer(terms, request))
    victim.restart()
    assert as_bytes(victim.answer(terms, request)) == masked
    # Killed after the chain was written and before the ledger, or before both.
    (path / "chain").write_bytes(before["chain"])
    victim.restart()
    assert as_bytes(victim.answer(terms, request)) == masked
    assert (path / "key").read_bytes() == before["key"]


def test_vehicle_that_was_killed_before_its_chain_was_written_announces_another_key(victim: Victim) -> None:
    first = victim.announce(terms_of())
    (victim.folder / RUN / "chain").unlink()
    victim.restart()
    assert victim.announce(terms_of()).contribution != first.contribution


@pytest.mark.parametrize("damage", [lambda path: path.unlink(), lambda path: path.write_bytes(b"short")])
def test_rows_without_their_key_are_refused_by_name_and_nothing_is_announced(victim: Victim, damage: Any) -> None:
    terms, founders = victim.met()
    damage(victim.folder / RUN / "key")
    victim.restart()
    with refused("damaged"):
        victim.announce(terms)
    with refused("damaged"):
        victim.answer(terms, victim.request(terms, founders, first_task(terms)))


def test_key_without_its_rows_is_refused_when_the_rows_are_others_now(victim: Victim) -> None:
    terms, founders = victim.met()
    (victim.folder / RUN / "rows.npz").unlink()
    victim.data = dataset(7)
    victim.restart()
    with refused("not-member"):
        victim.answer(terms, victim.request(terms, founders, first_task(terms)))


@pytest.mark.parametrize("damage", [b"", b"\xff", codec.encode({"own": 1}), codec.encode([])])
@pytest.mark.parametrize("name", [RUN / "chain", "ledger"], ids=["chain", "ledger"])
def test_damaged_record_is_refused_by_name_and_the_end_of_the_run_still_comes(
    victim: Victim, name: Any, damage: bytes
) -> None:
    terms, founders = victim.met()
    path = victim.folder / name
    path.write_bytes(damage)
    victim.restart()
    with refused("damaged"):
        victim.answer(terms, victim.request(terms, founders, first_task(terms)))
    victim.private.end("r1")
    assert path.read_bytes() == damage, "nothing is overwritten that might tell what was answered"


def test_vehicle_that_lost_its_folder_is_refused_by_itself_and_has_another_key(victim: Victim) -> None:
    terms = terms_of()
    first = victim.announce(terms)
    request = victim.request(terms, victim.founders(terms, first), first_task(terms))
    shutil.rmtree(victim.folder)
    victim.folder.mkdir()
    victim.restart()
    with refused("not-member"):
        victim.answer(terms, request)
    assert victim.announce(terms).contribution != first.contribution
    with refused("not-member"):
        victim.answer(terms, request)


def test_all_rows_are_in_the_ledger_before_anything_is_answered_test_rows_as_others_than_training_rows(
    victim: Victim,
) -> None:
    victim.tests = dataset(9, rows=10)
    tests, training = (row_hashes(SECRET, each) for each in (victim.tests, victim.data))
    terms, founders = victim.met()
    for task in (domain_task(terms), first_task(terms)):
        victim.frozen("r1", victim.request(terms, founders, task))
        [noted] = victim.private.files.ledger().answered
        assert np.array_equal(noted.rows.training, training)
        assert np.array_equal(noted.rows.tests, tests)
    assert not np.isin(tests, training).any()


def test_run_that_was_announced_as_private_is_not_answered_in_the_clear(victim: Victim) -> None:
    terms, _ = victim.met()
    task = first_task(terms)
    with refused("not-private"):
        victim.private.choose(seen("r1", Request(task=task.to_value(), task_digest=task.digest, remaining=1.0)))


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
