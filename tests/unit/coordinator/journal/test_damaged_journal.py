"""A coordinator on a journal in which bytes have changed: what they concern is named, and everything else goes on."""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from console.main import run
from coordinator.config import CoordinatorConfig
from coordinator.http.api import make_app
from coordinator.journal.port import Decision, Entry
from coordinator.journal.sql import SqlJournal
from coordinator.main import build
from coordinator.process.service import Service
from coordinator.runs.view import suspended_document
from coordinator.specification.run import RunSpec
from schemas.codec import document_digest
from schemas.errors import DamagedError, StorageError
from tests.support.coordinator_http import ask, record_of, small_document

PAGES = ("/", "/runs", "/models", "/api/runs", "/api/models", "/api/models/m", "/api/metrics", "/metrics")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a state folder with two ended runs, their models, and two runs that go on."""
    folder = tmp_path_factory.mktemp("whole")
    journal = SqlJournal(f"sqlite:///{folder / 'journal.sqlite'}")
    document = small_document()
    digest = document_digest(document)

    def record(version: int) -> tuple[str, bytes]:
        return digest, record_of(document, version=version, run=f"r{version}", cohort=["v1"]).to_bytes()

    for number in (1, 2):
        name, at = f"r{number}", float(number)
        known = {"run": name, "spec": {"scheme": "frt"}, "started": 0.0, "reason": ""}
        journal.append([Entry(name, "started", at, at, b"body")])
        journal.close_run(name, suspended_document(known, cancelled="so", ended=1.0), at)
        journal.add_model("m", name, record)
        body = {"version": number, "digest": digest, "cause": "published", "reason": "", "sequence": number}
        journal.append([], [Decision("m", "current", at, at, body)])
    journal.close()
    service = Opened(folder)
    for name in ("open-1", "open-2"):
        service.coordinator.start_run(RunSpec.from_document({"run": name, "scheme": "frt", "seed": 7}))
    service.close()
    return folder


@pytest.fixture
def state(whole: Path, tmp_path: Path) -> Path:
    shutil.copy(whole / "journal.sqlite", tmp_path)
    return tmp_path


class Opened:
    """A coordinator on a state folder, and its HTTP API."""

    def __init__(self, folder: Path) -> None:
        self._journal = SqlJournal(f"sqlite:///{folder / 'journal.sqlite'}")
        self.service: Service = build(CoordinatorConfig.load(state_dir=folder), journal=self._journal)
        self.coordinator = self.service.coordinator
        self.app = make_app(self.service, "token")

    def get(self, path: str) -> httpx.Response:
        return ask(self.app, "GET", path)

    def outcomes(self) -> dict[str, str]:
        return {each["run"]: each["outcome"] or each["state"] for each in self.get("/api/runs").json()}

    def close(self) -> None:
        self._journal.close()


@pytest.fixture
def reopened(state: Path) -> Iterator[Callable[[], Opened]]:
    made: list[Opened] = []

    def again() -> Opened:
        made.append(Opened(state))
        return made[-1]

    yield again
    for each in made:
        each.close()


def change(folder: Path, statement: str, *values: Any) -> None:
    with sqlite3.connect(folder / "journal.sqlite") as connection:
        connection.execute(statement, values)
    connection.close()


def flipped(folder: Path, field: str, where: str, byte: int, bit: int = 0) -> None:
    """Flip a bit of what stands in a field, as a disk would: without regard for its type or encoding."""
    table, column = field.split(".")
    with sqlite3.connect(folder / "journal.sqlite") as connection:
        query = f"SELECT CAST({column} AS BLOB), typeof({column}) FROM {table} WHERE {where}"
        content, kind = connection.execute(query).fetchone()
        changed = bytearray(content)
        changed[byte % len(changed)] ^= 1 << bit
        connection.execute(f"UPDATE {table} SET {column} = CAST(? AS {kind}) WHERE {where}", (bytes(changed),))
    connection.close()


def all_go_on(service: Opened) -> None:
    assert {path: service.get(path).status_code for path in PAGES} == dict.fromkeys(PAGES, 200)


@pytest.mark.parametrize(("byte", "bit"), [(885440, 3), (140891, 0)])
def test_model_with_a_flipped_bit_is_listed_as_damaged_and_never_served(
    state: Path, reopened: Callable[[], Opened], byte: int, bit: int
) -> None:
    flipped(state, "models.record", "version = 1", byte, bit)
    service = reopened()
    assert [each.get("damaged", False) for each in service.get("/api/models/m").json()] == [True, False]
    for path in ("/api/models/m/1", "/models/m/1"):
        refused = service.get(path)
        assert refused.status_code == 409
        assert "is damaged in the journal, and not served" in refused.text
    assert service.get("/api/models/m/2").status_code == service.get("/models/m/2").status_code == 200
    assert ">damaged<" in service.get("/models/m").text
    assert service.coordinator.metrics["journal.damaged"] == 1
    all_go_on(service)


@pytest.mark.parametrize(("byte", "bit"), [(885440, 3), (140891, 0)])
def test_run_with_a_flipped_bit_says_so_and_the_others_are_shown(
    state: Path, reopened: Callable[[], Opened], byte: int, bit: int
) -> None:
    flipped(state, "runs.document", "run = 'r1'", byte, bit)
    service = reopened()
    assert service.outcomes() == {"r1": "damaged", "r2": "cancelled", "open-1": "running", "open-2": "running"}
    assert service.get("/runs/r1").status_code == 200
    all_go_on(service)


def contents(journal: SqlJournal) -> tuple[dict[Any, Any], dict[Any, Any], list[Decision]]:
    documents = {}
    for ended in journal.ended():
        with suppress(DamagedError):
            documents[ended] = journal.document(ended)
    models = {(each.name, each.version): each for each in journal.models() if not each.is_damaged}
    return models, {ended: one for ended, one in documents.items() if one is not None}, journal.decisions()


@pytest.mark.parametrize("bit", [pytest.param(bit, marks=[pytest.mark.slow] if bit % 5 else []) for bit in range(16)])
def test_index_with_a_flipped_bit_hides_no_models_without_a_word(state: Path, bit: int) -> None:
    path = state / "journal.sqlite"
    with sqlite3.connect(path) as connection:
        query = "SELECT rootpage FROM sqlite_master WHERE name = 'sqlite_autoindex_models_1'"
        ((page,),) = connection.execute(query)
    connection.close()
    content = bytearray(path.read_bytes())
    content[(page - 1) * 4096 + 3 + bit // 8] ^= 1 << bit % 8  # how many keys the page has
    path.write_bytes(content)
    journal = SqlJournal(f"sqlite:///{path}")
    assert any(each.table == "models" for each in journal.damaged)
    journal.close()


def test_journal_with_any_one_bit_flipped_is_refused_by_name_or_hands_out_only_what_was_written(state: Path) -> None:
    path = state / "journal.sqlite"
    url = f"sqlite:///{path}"
    journal = SqlJournal(url)
    models, documents, decisions = contents(journal)
    journal.close()
    whole, draw, named = path.read_bytes(), random.Random(0), 0
    for number in range(60):
        # Every third one where the tables are described.
        place = draw.randrange(4096 if number % 3 == 0 else len(whole))
        changed = bytearray(whole)
        changed[place] ^= 1 << draw.randrange(8)
        path.write_bytes(changed)
        try:
            journal = SqlJournal(url)
        except StorageError:
            named += 1
            continue
        result = contents(journal)
        assert result[0].items() <= models.items()
        assert all(documents[ended] == one for ended, one in result[1].items())
        assert all(each in decisions for each in result[2])
        assert journal.damaged or (result[0], result[2]) == (models, decisions), place
        named += bool(journal.damaged)
        journal.close()
    assert named > 5


def test_champion_that_is_damaged_is_not_published_and_nothing_else_stops(
    state: Path, reopened: Callable[[], Opened]
) -> None:
    flipped(state, "models.record", "version = 2", 600)
    service = reopened()
    topics = [frame.topic for frame in service.coordinator.models.publisher.frames("m")]
    assert [topic for topic in topics if "/blob/" not in topic] == ["gf/1/fleet/model/m/v/1"], "no pointer to it"
    all_go_on(service)
    assert service.coordinator.models.promote("m", 1).version == 1


def test_model_on_a_page_that_cannot_be_read_is_not_published_and_nothing_else_stops(
    state: Path, reopened: Callable[[], Opened]
) -> None:
    path, cohort = state / "journal.sqlite", [f"v{number:05}" for number in range(2000)]
    journal = SqlJournal(f"sqlite:///{path}")
    record = record_of(small_document(), version=3, run="r3", cohort=cohort).to_bytes()
    journal.add_model("m", "r3", lambda _version: ("digest", record))
    journal.close()
    content = bytearray(path.read_bytes())
    page = content.rfind(b'"v01500"') // 4096 * 4096
    content[page : page + 4] = b"\xff" * 4  # a page of a long value begins with the number of the next one
    path.write_bytes(content)
    service = reopened()
    assert service.coordinator.metrics["journal.damaged"] == 1
    service.coordinator.connected()
    topics = {
        frame.topic.removeprefix("gf/1/fleet/model/m/") for frame in service.coordinator.models.publisher.frames("m")
    }
    assert topics == {"v/1", "v/2", "current"}
    all_go_on(service)


def test_run_whose_records_are_damaged_is_suspended_and_the_other_goes_on(
    state: Path, reopened: Callable[[], Opened]
) -> None:
    flipped(state, "records.body", "run = 'open-1'", 40)
    service = reopened()
    assert service.outcomes() == {"r1": "cancelled", "r2": "cancelled", "open-1": "suspended", "open-2": "running"}
    assert "damaged" in service.get("/api/runs/open-1").json()["reason"]
    service.coordinator.cancel("open-1")
    assert service.outcomes()["open-1"] == "cancelled"
    all_go_on(service)


def test_wall_clock_that_is_damaged_is_no_time_and_the_run_goes_on(state: Path, reopened: Callable[[], Opened]) -> None:
    change(state, "UPDATE records SET wall = 1e300 WHERE run = 'open-1'")
    change(state, "UPDATE decisions SET wall = 1e300 WHERE rowid = 1")
    service = reopened()
    assert service.outcomes()["open-1"] == "running"
    assert service.get("/runs/open-1").status_code == service.get("/models/m/2").status_code == 200
    assert service.coordinator.metrics["journal.damaged"] == 1
    all_go_on(service)


@pytest.mark.parametrize("value", [None, 2**40, "text", b"\xff\xfe", 0.5], ids=repr)
@pytest.mark.parametrize(
    "fields",
    [
        ("models.record", "runs.document", "decisions.body", "records.body"),
        ("models.digest", "runs.at", "decisions.kind", "records.kind"),
    ],
    ids=["bodies", "heads"],
)
def test_value_of_any_type_in_a_damaged_field_stops_nothing(
    state: Path, reopened: Callable[[], Opened], fields: tuple[str, ...], value: Any
) -> None:
    with sqlite3.connect(state / "journal.sqlite") as connection:  # a disk knows of no NOT NULL
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("UPDATE sqlite_master SET sql = replace(sql, ' NOT NULL', '')")
    connection.close()
    for field in fields:
        table, column = field.split(".")
        change(state, f"UPDATE {table} SET {column} = ? WHERE rowid = 1", value)
    service = reopened()
    assert service.coordinator.metrics["journal.damaged"] == 3, "records of ended runs are not looked at"
    all_go_on(service)


def test_operator_verifies_and_exports_a_damaged_journal_while_the_coordinator_runs(
    state: Path, reopened: Callable[[], Opened], capsys: pytest.CaptureFixture[str]
) -> None:
    flipped(state, "models.record", "version = 1", 600)
    flipped(state, "records.body", "run = 'r2'", 0)  # of a run that has ended: nobody reads it any more
    _running = reopened()
    capsys.readouterr()
    assert run(["coordinator", "journal", "verify", "--state-dir", str(state)]) == 5
    text = capsys.readouterr()
    assert "damaged: models row m 1, run 'r1', model 'm': its checksum does not fit\n" in text.out
    assert "damaged: records row 2, run 'r2': its checksum does not fit\n" in text.out
    assert "the journal is damaged: restore" in text.err
    out = state / "journal.jsonl"
    assert run(["coordinator", "journal", "export", "--state-dir", str(state), "--out", str(out)]) == 5
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["record"]["version"] for row in rows if row["table"] == "models"] == [2]
    assert [row["run"] for row in rows if row["table"] == "runs"] == ["r1", "r2"]
    assert out.stat().st_mode & 0o777 == 0o600


def test_operator_is_told_that_a_journal_is_whole_or_not_there(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["coordinator", "journal", "verify", "--state-dir", str(state), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["whole"], result["damaged"]) == ({"records": 4, "runs": 2, "models": 2, "decisions": 2}, [])
    assert run(["coordinator", "journal", "verify", "--state-dir", str(state / "nothing")]) == 9
    assert "there is no journal" in capsys.readouterr().err


def test_export_saves_what_lies_around_a_page_that_cannot_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    journal = SqlJournal(f"sqlite:///{tmp_path / 'journal.sqlite'}")
    journal.append([Entry("r", "answer", float(number), 0.0, bytes(700)) for number in range(1000)])
    journal.close()
    path = tmp_path / "journal.sqlite"
    content = bytearray(path.read_bytes())
    content[100 * 4096 : 101 * 4096] = bytes(4096)
    path.write_bytes(content)
    assert run(["coordinator", "journal", "export", "--state-dir", str(tmp_path)]) == 5
    text = capsys.readouterr()
    assert text.err.startswith("damaged: file: its structure is damaged (")
    lines = text.out.splitlines()
    assert 980 <= len(lines) < 1000
