"""The hash-chained log: what a crash leaves, what a full disk keeps, and that every kind of tampering is found."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edge_agent.forecast.log import ORIGIN, ForecastLog, Head, newest_head, seal, segments
from edge_agent.forecast.verify import Seen, verify
from schemas.errors import IdentityError, StorageError, VerificationError

SMALL = 1 << 16


def note(number: int, size: int = 10) -> dict[str, Any]:
    return {"kind": "note", "time": 1000.0 + number, "text": f"{number} " + "x" * size}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "forecasts"


def write(folder: Path, count: int, *, start: int = 0, max_bytes: int = SMALL, size: int = 1000) -> None:
    log = ForecastLog(folder, max_bytes=max_bytes)
    for number in range(start, start + count):
        log.append(note(number, size))
    log.close()


def lines(folder: Path) -> list[bytes]:
    return [line for path in segments(folder) for line in path.read_bytes().splitlines(keepends=True)]


def test_log_goes_on_where_it_was_when_opened_again(folder):
    write(folder, 3)
    write(folder, 2, start=3)
    whole = verify(folder)
    assert (whole.first, whole.last, whole.keyed) == (1, 5, True)
    assert (whole.since, whole.until) == (1000.0, 1004.0)
    assert json.loads(lines(folder)[0])["previous"] == ORIGIN


def test_log_drops_a_torn_last_record_and_says_so(folder):
    write(folder, 3)
    with segments(folder)[-1].open("ab") as file:
        file.write(b'{"kind":"forecast","n":4,"ti')
    assert verify(folder).last == 3, "an auditor reads past it"
    log = ForecastLog(folder)
    assert ["dropped" in text for text in log.notes] == [True]
    log.append(note(9))
    log.close()
    assert verify(folder).last == 4


def test_log_goes_on_when_the_process_ended_before_the_head_was_written(folder):
    write(folder, 2)
    head = (folder / "head.json").read_bytes()
    write(folder, 1, start=2)
    (folder / "head.json").write_bytes(head)
    assert verify(folder).last == 3
    write(folder, 1, start=3)
    assert verify(folder).last == 4


def test_log_stays_within_its_bytes_and_its_chain_begins_later(folder):
    write(folder, 300)
    assert sum(path.stat().st_size for path in segments(folder)) <= SMALL
    whole = verify(folder)
    assert whole.last == 300
    assert 200 < whole.first < 270
    assert len(lines(folder)) == 300 - whole.first + 1
    assert len(segments(folder)) > 5


def test_log_goes_on_when_the_process_ended_while_old_segments_were_deleted(folder, monkeypatch):
    log = ForecastLog(folder, max_bytes=SMALL)

    class PowerCutError(Exception):
        pass

    def cut(self, missing_ok=False):
        raise PowerCutError

    monkeypatch.setattr(Path, "unlink", cut)
    written = 0
    try:
        while written < 300:
            log.append(note(written, 1000))
            written += 1
    except PowerCutError:
        monkeypatch.undo()
    assert written < 300
    log.close()
    before = verify(folder)
    assert before.first > 1
    assert json.loads(lines(folder)[0])["n"] == 1, "the oldest segment is still there"
    write(folder, 1, start=written)
    assert json.loads(lines(folder)[0])["n"] == before.first
    assert verify(folder).last == written + 1


def forged(record: dict[str, Any], n: int, previous: str) -> tuple[bytes, str]:
    """Seal a record as anybody can who does not have the vehicle's secret."""
    body = {name: value for name, value in record.items() if name not in ("n", "previous", "hash", "mac")}
    return seal({**body, "text": "all was well"}, n, previous, b"a guess")


def change(folder: Path) -> None:
    path = segments(folder)[1]
    path.write_bytes(path.read_bytes().replace(b"x", b"y", 1))


def change_and_seal_again(folder: Path) -> None:
    path = segments(folder)[1]
    rows = path.read_bytes().splitlines(keepends=True)
    record = json.loads(rows[1])
    rows[1] = forged(record, record["n"], record["previous"])[0]
    path.write_bytes(b"".join(rows))


def add_at_the_end(folder: Path) -> None:
    last = json.loads(lines(folder)[-1])
    with segments(folder)[-1].open("ab") as file:
        file.write(forged(last, last["n"] + 1, last["hash"])[0])


def remove_one(folder: Path) -> None:
    path = segments(folder)[1]
    rows = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(rows[:1] + rows[2:]))


def remove_a_segment(folder: Path) -> None:
    segments(folder)[1].unlink()


def reorder(folder: Path) -> None:
    path = segments(folder)[1]
    rows = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([rows[1], rows[0], *rows[2:]]))


def repeat(folder: Path) -> None:
    path = segments(folder)[1]
    rows = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([rows[0], *rows]))


def cut_the_beginning(folder: Path) -> None:
    segments(folder)[0].unlink()


def cut_the_end(folder: Path) -> None:
    path = segments(folder)[-1]
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))


def cut_the_end_as_if_torn(folder: Path) -> None:
    path = segments(folder)[-1]
    os.truncate(path, path.stat().st_size - 7)


def remove_the_head(folder: Path) -> None:
    (folder / "head.json").unlink()


def write_another_head(folder: Path) -> None:
    cut_the_end(folder)
    head = json.loads((folder / "head.json").read_bytes())
    last = json.loads(lines(folder)[-1])
    (folder / "head.json").write_text(json.dumps({**head, "n": last["n"], "hash": last["hash"]}))


def write_all_anew(folder: Path) -> None:
    previous = ORIGIN
    for path in segments(folder):
        rows = []
        for line in path.read_bytes().splitlines():
            record = json.loads(line)
            row, previous = forged(record, record["n"], previous)
            rows.append(row)
        path.write_bytes(b"".join(rows))


TAMPERING = [
    (change, "was changed"),
    (change_and_seal_again, "line 2 was not written by this vehicle"),
    (add_at_the_end, "line 3 was not written by this vehicle"),
    (remove_one, "were removed"),
    (remove_a_segment, "were removed"),
    (reorder, "were removed"),
    (repeat, "added or their order"),
    (cut_the_beginning, "were removed"),
    (cut_the_end, "end was cut off"),
    (cut_the_end_as_if_torn, "end was cut off"),
    (remove_the_head, "head is missing"),
    (write_another_head, "not written by this vehicle"),
    (write_all_anew, "line 1 was not written by this vehicle"),
]


@pytest.mark.parametrize(("tamper", "words"), TAMPERING)
def test_tampering_is_found_and_named(folder: Path, tamper: Callable[[Path], None], words: str) -> None:
    write(folder, 20)
    assert len(segments(folder)) > 3
    verify(folder)
    tamper(folder)
    with pytest.raises(VerificationError) as caught:
        verify(folder)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "tamper", [case[0] for case in TAMPERING if case[0] not in (remove_the_head, write_another_head)]
)
def test_tampering_is_still_found_when_the_forecaster_went_on_after_it(folder, tamper):
    write(folder, 20)
    tamper(folder)
    write(folder, 3, start=20)
    with pytest.raises(VerificationError):
        verify(folder)


@pytest.mark.parametrize("tamper", [remove_the_head, write_another_head])
def test_forecaster_finds_a_wrong_head_when_it_starts_and_says_it(folder, tamper):
    write(folder, 20)
    tamper(folder)
    log = ForecastLog(folder)
    assert any("head" in text for text in log.notes)
    log.close()


def seen(folder: Path, n: int, at: float = 0.0) -> Seen:
    record = json.loads(lines(folder)[n - 1])
    return Seen(record["n"], record["hash"], at)


def test_witness_proves_what_it_has_seen_also_where_the_secret_is_not(folder):
    write(folder, 20)
    assert verify(folder).witnessed is None
    heads = [seen(folder, 12), seen(folder, 15, 7.0)]
    assert verify(folder, heads).witnessed == heads[1]
    (folder / "secret").unlink()
    assert (verify(folder, heads).witnessed, verify(folder).keyed) == (heads[1], False)
    write_all_anew(folder)
    (folder / "head.json").write_bytes(Head(n=20, hash=seen(folder, 20).hash).to_bytes(b"a guess"))
    assert not verify(folder).keyed, "nobody can say"
    with pytest.raises(VerificationError, match=r"record 12 is not the one that a witness has seen at 1970-.*anew"):
        verify(folder, heads)


def test_old_copy_put_back_is_found_when_a_witness_has_seen_a_later_head_and_only_then(folder, tmp_path):
    write(folder, 8)
    shutil.copytree(folder, tmp_path / "old")
    write(folder, 8, start=8)
    heads = [seen(folder, 5), seen(folder, 12)]
    shutil.rmtree(folder)
    shutil.copytree(tmp_path / "old", folder)
    assert verify(folder).last == 8
    with pytest.raises(
        VerificationError, match=r"has seen record 12 at .*, and the log ends with record 8: an old copy"
    ):
        verify(folder, heads)
    write(folder, 20, start=100)  # the forecaster goes on, beyond what was seen
    with pytest.raises(VerificationError, match="record 12 is not the one that a witness has seen"):
        verify(folder, heads)


@pytest.mark.parametrize(
    "content",
    [
        b"[" * 100_000, b"{}", b'{"first":1,"before":"","n":9007199254740993,"hash":"","mac":""}',
        '{"first":1,"before":"","n":1,"hash":"","mac":"\u00e9"}'.encode(),
        b'{"first":1,"before":"","n":1,"hash":"","mac":"\\ud800"}',
    ],
)  # fmt: skip
def test_head_that_somebody_damaged_is_refused_by_name_and_told_to_nobody(folder, content):
    write(folder, 3)
    (folder / "head.json").write_bytes(content)
    assert newest_head(folder) is None
    with pytest.raises(VerificationError, match=r"the log's head (is damaged|was not written by this vehicle)"):
        verify(folder)
    log = ForecastLog(folder)
    assert log.notes
    log.close()


def test_record_that_is_nested_too_deeply_is_named(folder):
    write(folder, 3)
    with segments(folder)[0].open("ab") as file:
        file.write(b"[" * 100_000 + b"\n")
    with pytest.raises(VerificationError, match="line 4 is no record of a forecast log"):
        verify(folder)


def test_log_that_got_shorter_is_told_though_the_records_of_that_time_gave_way(folder):
    write(folder, 300)
    newest = Seen(300, json.loads(lines(folder)[-1])["hash"], 3.0)
    heads = [Seen(9, "a" * 64, 1.0), Seen(5, "b" * 64, 2.0), newest]
    with pytest.raises(VerificationError, match=r"shorter: a witness has seen record 9 at 1970.*newest was record 5"):
        verify(folder, heads)
    assert verify(folder, heads[1:]).witnessed == newest


def test_witness_of_records_that_gave_way_proves_none_of_the_others(folder):
    write(folder, 10)
    heads = [seen(folder, 10)]
    write(folder, 290, start=10)
    assert verify(folder, heads).witnessed is None


def test_second_writer_is_refused(folder):
    log = ForecastLog(folder)
    with pytest.raises(IdentityError):
        ForecastLog(folder)
    log.close()
    ForecastLog(folder).close()


def test_log_is_as_it_was_when_the_disk_is_full(folder):
    write(folder, 2)
    log = ForecastLog(folder)
    log.append(note(2))
    file, log._file = log._file, open("/dev/full", "ab", buffering=0)  # noqa: PTH123, SIM115 - a disk that is full
    with pytest.raises(StorageError, match="disk is full"):
        log.append(note(3))
    file.close()
    log.append(note(3))
    log.close()
    assert verify(folder).last == 4


def test_record_that_a_full_disk_cuts_leaves_nothing_behind(folder):
    write(folder, 2)
    log = ForecastLog(folder)
    log.append(note(2))
    [path] = segments(folder)
    limits, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 20, limits[1]))
    try:
        with pytest.raises(StorageError):
            log.append(note(3))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    log.append(note(3))
    log.close()
    assert verify(folder).last == 4
