"""Broken files: each ends with a message that names the fault and the way out, or with a count of what was left out."""

# ruff: noqa: E501 - a table of files, one a line
from __future__ import annotations

import gzip
import io
import random
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from console.main import run
from edge_agent.imports.importing import ImportJob, import_files
from edge_agent.imports.opened import opened
from schemas.errors import GlassfleetError

ROWS = [f"{row * 0.5:.2f},{row * 7 % 30 + 0.25:.2f},{row * 11 % 17 + 0.125:.3f}" for row in range(60)]
LINES = ["time,speed,fuel", *ROWS]
PLAIN = "".join(f"{line}\n" for line in LINES).encode()


def changed(row: int, line: str) -> bytes:
    return "".join(f"{line if at == row else each}\n" for at, each in enumerate(LINES)).encode()


def zipped(**files: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name.replace("_csv", ".csv"), content)
    return out.getvalue()


def locked() -> bytes:
    content = bytearray(zipped(drive_csv=PLAIN))
    for mark, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.index(mark) + place] |= 1  # says that it is encrypted
    return bytes(content)


GZ, ZIP = gzip.compress(PLAIN), zipped(drive_csv=PLAIN)

REFUSED: dict[str, tuple[bytes | Callable[[], bytes], str]] = {
    "nothing": (b"", "the file is empty"),
    "blanks": (b" \n \n", "no rows, only comments"),
    "nul bytes alone": (b"\0" * 5000, "holds no text"),
    "comments alone": (b"# a\n# b\n", "no rows, only comments"),
    "names alone": (b"time,speed,fuel\n", "no rows"),
    "cells parted by two blanks": (b"a b c\n1  2  3\n4  5  6\n", "no rows with as many cells. Collect data first, leave this vehicle out, or part cells by one"),
    "names and units alone": (b"time,speed,fuel\ns,km/h,l/h\n", "no rows"),
    "one number": (b"1\n", "one column"),
    "one word": (b"hello\n", "no separator"),
    "prose": (b"Dear logger,\nplease write, if you can,\nsome numbers.\n", ""),
    "html": (b"<!DOCTYPE html><html><body>no rows</body></html>", "HTML or XML"),
    "xml": (b'\xef\xbb\xbf<?xml version="1.0"?><rows/>', "HTML or XML"),
    "pdf": (b"%PDF-1.7 ...", "PDF"),
    "old spreadsheet": (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 100, "old spreadsheet"),
    "spreadsheet": (zipped(**{"[Content_Types].xml": b"x", "xl/sheet.xml": b"x"}), "a spreadsheet"),
    "sqlite": (b"SQLite format 3\0" + b"\0" * 100, "sqlite:///"),
    "zstd": (b"\x28\xb5\x2f\xfd" + b"x" * 50, "zstd -d"),
    "bzip2": (b"BZh91AY&SY", "bunzip2"),
    "xz": (b"\xfd7zXZ\0\0", "unxz"),
    "elf": (b"\x7fELF" + bytes(range(256)) * 8, ""),
    "random bytes": (random.Random(1).randbytes(5000), ""),
    "gz, only its begin": (GZ[:8], "no text"),
    "gz with a flipped byte": (GZ[:60] + bytes([GZ[60] ^ 255]) + GZ[61:], "damaged"),
    "gz of nothing": (gzip.compress(b""), "no text"),
    "gz of gz": (gzip.compress(GZ), ""),
    "gz bomb": (lambda: 20 * gzip.compress(b"0" * (16 << 20)), "unpacks to more than"),
    "zip bomb": (lambda: zipped(drive_csv=b"0" * (320 << 20)), "unpacks to more than"),
    "zip, only its begin": (ZIP[:40], "zip archive cannot be read"),
    "zip without its end": (ZIP[:-30], "zip archive cannot be read"),
    "zip with a flipped byte": (ZIP[:60] + bytes([ZIP[60] ^ 255]) + ZIP[61:], "zip archive cannot be read"),
    "zip of two": (zipped(a_csv=PLAIN, b_csv=PLAIN), "holds 2 files"),
    "zip of none": (zipped(), ""),
    "zip that is locked": (locked, "zip archive cannot be read"),
    "parquet, only its begin": (b"PAR1" + b"\0" * 40, "not a readable table"),
    "arrow, only its begin": (b"ARROW1\0\0" + b"\0" * 40, "not a readable table"),
    "utf-16 cut in a letter": (b"\xff\xfe" + "time,speed,fuel\n1".encode("utf-16-le")[:-1], "not written in utf-16"),
    "a quote that is not closed": (changed(20, '9.50,"12.25,1.125'), "quote"),
    "a quote inside a cell": (changed(20, '9.50,12"25,1.125'), '12"25'),
    "a longer row": (changed(20, "9.50,12.25,1.125,7"), "line 21 has 4 cells"),
    "a shorter row": (changed(20, "9.50,12.25"), "line 21 has 2 cells"),
    "another separator in one row": (changed(20, "9.50;12.25;1.125"), "line 21 has 1 cell"),
    "a cell of 100 MB": (lambda: changed(20, f"9.50,{'9' * (100 << 20)},1.125"), "longer than 2 MB"),
    "no line end in 100 MB": (lambda: b"1," * (50 << 20), "longer than 2 MB"),
    "a number beyond a float": (changed(20, "9.50,1e999,1.125"), "1e999"),
    "underscores": (changed(20, "9.50,1_000,1.125"), "1_000"),
    "a word": (changed(20, "9.50,fast,1.125"), "'fast' (line 21)"),
    "a formula": (changed(20, "9.50,=SUM(A1:A3),1.125"), "=SUM(A1:A3)"),
    "a command": (changed(20, "9.50,=cmd|' /C calc'!A0,1.125"), "cmd"),
    "a time that is none": (changed(20, "soon,12.25,1.125"), "'soon' (line 21)"),
    "a time beyond all": (changed(20, "1e300,12.25,1.125"), "time"),
    "control characters in a name": (PLAIN.replace(b"speed", b"sp\x1b[31med"), "control characters"),
    "a name of 300 letters": (PLAIN.replace(b"speed", b"s" * 300), "more than 200"),
    "five thousand columns": (lambda: "".join(",".join(f"{row or 'c'}{column}" for column in range(5000)) + "\n" for row in range(4)).encode(), "at most"),
    "a name twice": (PLAIN.replace(b"speed", b"fuel"), "two columns have this name"),
    "names that are numbers": (PLAIN.replace(b"time,speed,fuel", b"1,2,3"), "holds values, no names"),
    "json, cut in its only object": (b'{"time": 1, "sp', "line 1 is no JSON"),
    "json, a broken line": (b'{"time": 1, "fuel": 2}\n{"time": 2, fuel: 3}\n{"time": 3, "fuel": 4}\n', "line 2 is no JSON"),
    "json, a number": (b'{"time": 1, "fuel": 2}\n7\n', "object 2 is 7"),
    "json, lists": (b'{"time": 1, "fuel": [1, 2]}\n', "the field 'fuel' is a list"),
    "json, an array of lists": (b"[[1, 2], [3, 4]]", "object 1"),
    "json, deep": (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, ""),
    "json, empty objects": (b"{}\n{}\n", "no JSON object with a field"),
    "json, many fields": (lambda: b"".join(b'{"f%d": 1}\n' % number for number in range(3000)), "more than 2,000"),
}  # fmt: skip

TAKEN: dict[str, tuple[bytes, str]] = {
    "cut in a row": (PLAIN + b"30.00,1", "line"),
    "cut in a gz": (gzip.compress(PLAIN * 1 + b"30.00,1.25,1.125\n" * 9000)[:-200], "cut short"),
    "nul bytes at the end": (PLAIN + b"\0" * 4096, "NUL"),
    "json, the last line cut": (b'{"time": 1, "fuel": 2}\n' * 1 + b'{"time": 2, "fuel": 3}\n{"time": 3, "fu', "cut"),
    "a comment between": (changed(20, "# marker"), "comments"),
    "a row without a time": (changed(20, ",12.25,1.125"), "without a time"),
}


def test_packed_files_that_were_joined_are_read_to_the_end(tmp_path):
    half = b"1,2\n" * 400_000  # more than is unpacked at once
    file = tmp_path / "joined.csv.gz"
    file.write_bytes(2 * gzip.compress(half))
    assert opened(file, tmp_path).path.read_bytes() == 2 * half


@pytest.mark.parametrize("kind", REFUSED)
def test_broken_file_is_refused_in_one_line_with_exit_code_3(tmp_path, capsys, kind):
    content, words = REFUSED[kind]
    source, out = tmp_path / "drive.csv", tmp_path / "drive.parquet"
    source.write_bytes(content() if callable(content) else content)
    assert run(["data", "import", str(source), "--out", str(out), "--quiet"]) == 3
    output = capsys.readouterr().err
    assert words in output
    assert output.count("\n") == 1
    assert len(output) < 1500
    assert "\x1b" not in output
    assert [path.name for path in tmp_path.iterdir()] == ["drive.csv"]


@pytest.mark.parametrize("kind", TAKEN)
def test_file_with_a_little_damage_is_taken_and_the_damage_counted(tmp_path, kind):
    content, words = TAKEN[kind]
    source = tmp_path / "drive.csv"
    source.write_bytes(content)
    report = import_files(ImportJob([source], tmp_path / "drive.parquet"))
    assert any(words in reason for reason in report.left_out), report.left_out


def mangled(content: bytes, seed: int) -> bytes:
    """Damage a file: bytes changed, cut out, doubled, put elsewhere, or cut off."""
    chance = random.Random(seed)
    given = bytearray(content)
    for _ in range(chance.randint(1, 6)):
        if not given:
            break
        at, size = chance.randrange(len(given)), chance.choice([1, 1, 3, 40])
        match chance.randrange(6):
            case 0:
                given[at] = chance.randrange(256)
            case 1:
                del given[at : at + size]
            case 2:
                given[at:at] = given[at : at + size]
            case 3:
                given[at:at] = chance.choice(
                    [b"\0" * size, b'"', b",", b";", b"\n", b"\r", b"\xff", "\u202f".encode(), b"1e5", b"#"]
                )
            case 4:
                del given[at:]
            case _:
                other = chance.randrange(len(given))
                given[at : at + size], given[other : other + size] = given[other : other + size], given[at : at + size]
    return bytes(given)


def fuzz(folder: Path, seeds: range) -> None:
    """Import mangled files: each is taken, or refused with a fault of ours."""
    german = PLAIN.replace(b",", b";").replace(b".", b",")
    long = b"time,signal,value\n" + b"".join(
        b"%d,%s,%d\n" % (row, name, row) for row in range(20) for name in (b"a", b"b")
    )
    lines = b"".join(b'{"time": %d, "fuel": %d}\n' % (row, row % 7) for row in range(30))
    kinds = (PLAIN, german, long, lines, GZ, ZIP, PLAIN.decode().encode("utf-16"), b"# head\n# more\n" + PLAIN)
    for seed in seeds:
        source = folder / "drive.csv"
        source.write_bytes(mangled(kinds[seed % len(kinds)], seed))
        try:
            import_files(ImportJob([source], folder / "drive.parquet"))
        except GlassfleetError:
            continue
        except BaseException as fault:
            raise AssertionError(f"seed {seed}: {fault!r}") from fault


def test_mangled_files_end_with_a_table_or_a_fault_of_ours(tmp_path):
    fuzz(tmp_path, range(60))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_thousands_of_mangled_files_end_with_a_table_or_a_fault_of_ours(tmp_path):
    fuzz(tmp_path, range(100, 4000))
