"""Broken recordings and databases: each is refused with its reason and exit code, or read as far as it goes."""

from __future__ import annotations

import struct
import zlib
from itertools import pairwise

import pytest

from schemas.errors import DataError, GlassfleetError, UsageError
from tests.support.vehicle.recordings import DBC, DRIVE, engine, message, mf4, write_log

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

RECORDS = [(number / 10, number * 0.5, number % 7) for number in range(300)]
LAUGHS = "".join(f'<!ENTITY {name} "{10 * f"&{last};"}">' for last, name in pairwise("abcdefghij"))
KCD = f'<?xml version="1.0"?><!DOCTYPE k [<!ENTITY a "aaaaaaaaaa">{LAUGHS}]><NetworkDefinition>&j;</NetworkDefinition>'


def blf(*objects: bytes, method: int = 0) -> bytes:
    """Return a BLF file with one container."""
    content = b"".join(objects)
    content = zlib.compress(content) if method == 2 else content
    head = struct.pack("<4sHHLL", b"LOBJ", 16, 1, 32 + len(content), 10) + struct.pack("<H6xL4x", method, 0)
    return b"LOGG" + (144).to_bytes(4, "little") + bytes(136) + head + content


LOGS = {
    "empty.log": (b"", "no frames of data in it"),
    "binary.log": (bytes(range(256)) * 40, "no frames of data in it"),
    "console.log": (b"  can0  100   [8]  13 88 64 81 0C D0 07 00\n" * 30, "no frames of data in it, but 30 lines"),
    "table.log": (b"time,speed\n" + b"1,2\n" * 20_000, "lines or objects are no frames|no frames of data in it"),
    "line.asc": (b"   1.0 1  100  Rx   d 8 " + b"00 " * 30_000, "line 1 has more than 65536 bytes: no log"),
    "relative.asc": (b"date Mon Jan 1 10:00:00 2024\nbase hex timestamps relative\n", "line 2 says that"),
    "events.asc": (b"date Mon Jan 1 10:00:00 2024\n   1.0 1 ErrorFrame\n" * 3, "but 3 error frames"),
    "version.trc": (b";$FILEVERSION=9.9\n;$STARTTIME=1\n", "version '9.9' of the format is not read"),
    "comment.trc": (b"; a\n" * 5000, "a thousand lines of comment"),
    "columns.trc": (b";$FILEVERSION=2.1\n;$STARTTIME=1\n 1 2 DT 100 Rx 8 00\n", "File has no column information"),
    "text.blf": (b"date Mon Jan 1 10:00:00 2024\n", "does not begin with LOGG"),
    "head.blf": (b"LOGG" + bytes(20), "is cut, or damaged, in its first bytes"),
    "size.blf": (b"LOGG" + b"\xff" * 300, "is cut, or damaged, in its first bytes"),
    "circle.blf": (blf(struct.pack("<4sHHLL", b"LOBJ", 32, 1, 0, 1) + bytes(64)), "1 damaged object"),
    "other.blf": (blf(struct.pack("<4sHHLL", b"LOBJ", 32, 1, 48, 20) + bytes(32)), "1 object without a fram"),
    "bomb.blf": (lambda: blf(bytes(65 << 20), method=2), "unpacks to more than 64 MB"),
    "cut.blf": (blf(bytes(5000), method=2)[:-9], "1 container cut at the end"),
    "packed.blf": (blf(b"no zlib at all").replace(b"\x00\x00no", b"\x02\x00no"), "no frames of data in it"),
    "method.blf": (blf(bytes(64), method=77), "1 damaged container"),
}  # fmt: skip
"""Files that are no logs of a bus; all end with exit code 3."""

DATABASES = {
    "empty.dbc": (b"", "is cut, or no DBC file"),
    "cut.dbc": (DBC[: DBC.index("Coolant") + 12].encode(), "is cut, or no DBC file: it ends with"),
    "binary.dbc": (bytes(range(256)) * 10, "is cut, or no DBC file"),
    "fit.dbc": (DBC.replace("7|16@0+", "7|160@0+").encode(), "signal Speed does not fit into the 8 bytes of Engine"),
    "log.dbc": (b"(1.0) can0 100#00;\n", "cannot be read as DBC"),
    "bomb.kcd": (KCD.encode(), "cannot be read as KCD"),
    "cut.kcd": (b'<?xml version="1.0"?><NetworkDefinition><Bus name="a"><Mess', "cannot be read as KCD"),
    "other.arxml": (b"<html></html>", "cannot be read as ARXML"),
    "version.sym": (b'FormatVersion=5.0 // Do not edit!\nTitle="x"\n', "cannot be read as SYM"),
    "other.txt": (DBC.encode(), "no database of a bus"),
}
"""Files that are no databases; exit code 3, and 2 where the name says so already."""

MEASUREMENTS = {
    "text.mf4": (b"time,speed\n1,2\n", "is not a valid ASAM MDF file"),
    "head.mf4": (mf4(RECORDS)[:40], "is cut, damaged, or not what its name says"),
    "blocks.mf4": (mf4(RECORDS)[:300], "is cut, damaged, or not what its name says"),
    "circle.mf4": (mf4(RECORDS).replace(b"##DG\0\0\0\0", b"##DG\1\1\1\1"), None),
    "zeros.mf4": (mf4(RECORDS)[:200] + bytes(5000), "is cut, damaged, or not what its name says"),
    "many.mf4": (mf4(RECORDS, claimed=2**62), None),
    "angle.mf4": (mf4(RECORDS, sync=2), "no samples in it"),
    "none.mf4": (mf4([]), "no samples in it|is cut"),
    "empty.mf4": (b"", "is empty"),
}


@pytest.mark.parametrize("name", LOGS)
def test_logs_that_are_none(tmp_path, dbc, read, name):
    content, why = LOGS[name]
    (tmp_path / name).write_bytes(content() if callable(content) else content)
    with pytest.raises(DataError, match=f"{name}: .*({why})"):
        read(tmp_path / name, dbc)


@pytest.mark.parametrize("name", DATABASES)
def test_databases_that_are_none(tmp_path, read, name):
    content, why = DATABASES[name]
    (tmp_path / name).write_bytes(content)
    fault = UsageError if name.endswith(".txt") else DataError
    with pytest.raises(fault, match=f"{name}: .*{why}"):
        read(write_log(tmp_path / "drive.log", DRIVE), tmp_path / name)


@pytest.mark.parametrize("name", MEASUREMENTS)
def test_measurements_that_are_none(tmp_path, read_apart, name):
    content, why = MEASUREMENTS[name]
    (tmp_path / name).write_bytes(content)
    if why is None:
        read_apart(tmp_path / name)
        return
    with pytest.raises(DataError, match=f"{name}: .*({why})"):
        read_apart(tmp_path / name)


def test_files_that_are_not_there(tmp_path, dbc, read_apart):
    with pytest.raises(DataError, match=r"none.log: cannot be read"):
        read_apart(tmp_path / "none.log", dbc)
    (tmp_path / "drive.log").mkdir()
    with pytest.raises(DataError, match=r"drive.log: cannot be read"):
        read_apart(tmp_path / "drive.log", dbc)
    log = write_log(tmp_path / "there.log", DRIVE)
    with pytest.raises(DataError, match=r"none.dbc: cannot be read"):
        read_apart(log, tmp_path / "none.dbc")
    with pytest.raises(UsageError, match="--database"):
        read_apart(log)


def test_what_the_process_reads_arrives(tmp_path, dbc, read, read_apart):
    log = write_log(tmp_path / "drive.log", [engine(1.0, time=2.0), message(256, b"\1"), engine(300.0, 15, time=3.0)])
    here, apart = read(log, dbc), read_apart(log, dbc)
    assert here[1] == apart[1]
    for name, signal in here[0].items():
        other = apart[0][name]
        assert repr(signal.value.tolist()) == repr(other.value.tolist())
        assert signal.time.tolist() == other.time.tolist()
        given = ("unit", "low", "high", "description", "missing")
        assert [getattr(signal, what) for what in given] == [getattr(other, what) for what in given]


def test_a_package_that_is_absent_is_named(tmp_path, dbc, read_apart, monkeypatch):
    (tmp_path / "packages" / "can").mkdir(parents=True)
    (tmp_path / "packages" / "can" / "__init__.py").write_text("raise ModuleNotFoundError(name='can')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "packages"))
    with pytest.raises(GlassfleetError, match=r"needs the package can, .* pip install 'glassfleet\[can\]'"):
        read_apart(write_log(tmp_path / "drive.log", DRIVE), dbc)
