"""A file's text as it can be read: unpacked, decoded, without the damage that a power loss leaves.

A plain UTF-8 file is read where it lies; any other one is written anew into a folder for the time of the import. What
is left out of it is counted by reason.
"""

from __future__ import annotations

import codecs
import io
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import BinaryIO, Final

from schemas.errors import DataError, os_faults_as

CHUNK: Final = 1 << 20
BEGIN: Final = 1 << 17
LONGEST_LINE: Final = 1 << 21
"""Bytes; no engine reads a longer line, and no logger writes one."""

_MOST_TIMES: Final = 200
_FREE: Final = 1 << 28
"""What is unpacked may be so many times the packed size, beyond `_FREE` bytes: more is a bomb, not a drive."""

KINDS: Final = (
    (b"SQLite format 3\0", "an SQLite database", "Name its rows: sqlite:///{path}?table=NAME, or ?query=SELECT ..."),
    (b"%PDF", "a PDF document", "Export the table as CSV"),
    (b"\xd0\xcf\x11\xe0", "an old spreadsheet", "Save the table as CSV"),
    (b"\x28\xb5\x2f\xfd", "a file compressed with zstd", "Unpack it first: zstd -d {path}"),
    (b"BZh", "a file compressed with bzip2", "Unpack it first: bunzip2 {path}"),
    (b"\xfd7zXZ", "a file compressed with xz", "Unpack it first: unxz {path}"),
    (b"7z\xbc\xaf", "a 7-Zip archive", "Unpack it first"),
    (b"<", "a page or document of HTML or XML", "Export the table as CSV"),
)
"""How files that hold no text table begin, what they are, and the way out."""

CUT: Final = "lines cut at the end"
"""Why a last line is left out."""

PARQUET: Final = b"PAR1"
ARROW: Final = b"ARROW1"


@dataclass
class Text:
    """A table's text.

    Attributes
    ----------
    path : Path
        UTF-8, without NUL bytes.
    source : str
        The file that it comes from, for messages.
    encoding : str
        How that file is written.
    begin : bytes
        The first bytes, unpacked.
    is_torn : bool
        The last line has no line end.
    has_low_lines : bool
        Whether a ``_`` may stand behind its first `BEGIN` bytes.
    left_out : Counter of str
        Lines that were left out, by reason.
    notes : list of str
        What was done, in words.
    """

    path: Path
    source: str
    encoding: str = "utf-8"
    begin: bytes = b""
    is_torn: bool = False
    has_low_lines: bool = True
    left_out: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)


def opened(path: Path, scratch: Path, encoding: str = "") -> Text:
    """Return a file's text.

    Parameters
    ----------
    path : Path
        A text file, plain, ``.gz``, or the only file in a ``.zip``.
    scratch : Path
        Folder for a text that has to be written anew.
    encoding : str
        Where the file does not tell it by a mark; empty: UTF-8, or cp1252 where it is none.

    Raises
    ------
    DataError
        It cannot be read, is damaged, or is no text.
    """
    text = Text(path, str(path))
    with os_faults_as(DataError, f"{path}: cannot be read", ". Check its name, its folder and its rights"):
        if path.is_dir():
            raise DataError("it is a directory", "Name one vehicle's files", str(path))
        size = path.stat().st_size
        if not size:
            raise DataError("the file is empty", "Write a header row with the columns' names", str(path))
        with _unpacked(path, text) as (chunks, is_packed):
            first = next(chunks, b"")
            text.begin = first[:BEGIN]
            text.encoding = _encoding(first, encoding)
            if text.encoding == "utf-8" and not is_packed and _is_plain(first, chunks, text):
                return text
        if text.encoding == "utf-8" and not encoding and not _is_utf8(path, text):
            text.encoding = "cp1252"
        text.path = scratch / "text"
        try:
            _write(path, text)
        except (UnicodeDecodeError, LookupError) as fault:
            mend = 'Name it in the plan: encoding = "..." under [csv]'
            raise DataError(f"not written in {text.encoding} ({fault})", mend, text.source) from fault
    return text


def head(text: Text) -> list[str] | None:
    """Return the first whole lines of a text of which nothing is to be left out; None: something is."""
    if text.is_torn or text.left_out:
        return None
    whole = text.begin[: text.begin.rfind(b"\n") + 1]
    return list(io.StringIO(whole.decode("utf-8-sig"), newline=""))


def _is_plain(first: bytes, chunks: Iterator[bytes], text: Text) -> bool:
    """Whether a file can be read where it lies: UTF-8, no NUL bytes, line ends with LF."""
    decoder = codecs.getincrementaldecoder("utf-8-sig")()
    line, last, text.has_low_lines = 0, b"", b"_" in first[BEGIN:]
    for chunk in chain((first,), chunks):
        text.has_low_lines |= chunk is not first and b"_" in chunk
        returns = chunk.count(b"\r")
        if b"\0" in chunk or (
            returns and abs(chunk.count(b"\n") - chunk.count(b"\r\n")) + returns - chunk.count(b"\r\n") > 1
        ):
            return False  # more than one at a chunk's edge: line ends of several kinds
        try:
            if not chunk.isascii() or decoder.getstate()[0]:
                decoder.decode(chunk)
        except UnicodeDecodeError:
            return False
        line = _longest(text, chunk, line)
        last = chunk
    if decoder.getstate()[0]:
        return False  # it ends within a letter
    text.is_torn = not last.endswith(b"\n")
    return True


def _longest(text: Text, chunk: bytes, line: int) -> int:
    """Return how many bytes of a line have begun at the chunk's end; raises DataError where it is too long."""
    end = chunk.rfind(b"\n")
    begun = len(chunk) - end - 1 if end >= 0 else line + len(chunk)
    if begun > LONGEST_LINE or (end >= 0 and line + chunk.find(b"\n") > LONGEST_LINE):
        what = f"a line is longer than {LONGEST_LINE >> 20} MB"
        raise DataError(what, "Look for a quote that is not closed, and that it is a table at all", text.source)
    return begun


def _is_utf8(path: Path, text: Text) -> bool:
    """Whether a text is UTF-8 to its end, which also finds what unpacks to too much before anything is written."""
    decoder = codecs.getincrementaldecoder("utf-8-sig")()
    with _unpacked(path, Text(path, text.source)) as (chunks, _):
        try:
            for chunk in chunks:
                decoder.decode(chunk)
            return not decoder.getstate()[0]
        except UnicodeDecodeError:
            return False


def _encoding(first: bytes, given: str) -> str:
    """Return what a text is written in, as far as its first bytes tell; a mark at its begin counts most."""
    for mark, name in (
        (codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32"),
        (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"),
    ):  # fmt: skip
        if first.startswith(mark):
            return name
    if given:
        return given
    part = first[:4096]
    even, odd = part[::2].count(0), part[1::2].count(0)
    half = len(part) // 2
    if half > 4 and max(even, odd) > 0.4 * half and min(even, odd) < 0.05 * half:
        return "utf-16-le" if odd > even else "utf-16-be"
    return "utf-8"


@contextmanager
def _unpacked(path: Path, text: Text) -> Iterator[tuple[Iterator[bytes], bool]]:
    """Give the chunks of a file's content, and whether it was packed."""
    with path.open("rb") as raw:
        begin = raw.read(16)
        raw.seek(0)
        for mark, what, mend in KINDS:
            if begin.lstrip(b"\xef\xbb\xbf \r\n\t").startswith(mark):
                raise DataError(f"{what}, not a table of text", mend.format(path=path), str(path))
        if begin.startswith(b"\x1f\x8b"):
            yield _bounded(_gunzipped(iter(lambda: raw.read(CHUNK), b""), text), path), True
        elif begin.startswith(b"PK\x03\x04"):
            with _member(path) as member:
                yield _bounded(member, path), True
        elif path.name.lower().endswith((".gz", ".zip")):
            mend = "Copy it again, or name it as what it is"
            raise DataError("not compressed, in spite of its name, or damaged at its begin", mend, str(path))
        else:
            yield iter(lambda: raw.read(CHUNK), b""), False


def _gunzipped(chunks: Iterator[bytes], text: Text) -> Iterator[bytes]:
    unpack = zlib.decompressobj(wbits=31)
    try:
        for chunk in chunks:
            left = chunk
            while left:
                if unpack.eof:
                    if not left.strip(b"\0"):
                        break
                    unpack = zlib.decompressobj(wbits=31)
                yield unpack.decompress(left, CHUNK)
                while unpack.unconsumed_tail and not unpack.eof:  # behind the end it is what follows, and stays
                    yield unpack.decompress(unpack.unconsumed_tail, CHUNK)
                left = unpack.unused_data
    except zlib.error as fault:
        raise DataError(f"the gzip file is damaged ({fault})", "Copy it again", text.source) from fault
    if not unpack.eof:
        yield unpack.flush()
        text.left_out["compressed files cut short"] = 1


@contextmanager
def _member(path: Path) -> Iterator[Iterator[bytes]]:
    try:
        with zipfile.ZipFile(path) as archive:
            files = [each for each in archive.infolist() if not each.is_dir() and "__MACOSX" not in each.filename]
            names = [each.filename for each in files]
            if "[Content_Types].xml" in names:
                raise DataError("a spreadsheet, not a table of text", "Save the table as CSV", str(path))
            if len(files) != 1:
                mend = "Unpack it, and name one vehicle's files"
                raise DataError(f"the zip archive holds {len(files)} files ({', '.join(names[:5])})", mend, str(path))
            with archive.open(files[0]) as member:
                yield iter(lambda: member.read(CHUNK), b"")
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, zlib.error) as fault:
        raise DataError(
            f"the zip archive cannot be read ({fault})", "Unpack it, or copy it again", str(path)
        ) from fault


def _bounded(chunks: Iterator[bytes], path: Path) -> Iterator[bytes]:
    most, size = _FREE + _MOST_TIMES * path.stat().st_size, 0
    for chunk in chunks:
        size += len(chunk)
        if size > most:
            what = f"it unpacks to more than {most >> 20} MB, {_MOST_TIMES} times its size: hardly a table"
            raise DataError(what, "Unpack it yourself if it is one", str(path))
        if chunk:
            yield chunk


def _write(path: Path, text: Text) -> None:
    """Write a text as UTF-8 with LF, without NUL bytes."""
    decoder = codecs.getincrementaldecoder("utf-8-sig" if text.encoding == "utf-8" else text.encoding)()
    text.left_out.clear()
    damage = _Damage(text)
    begun = ""
    with text.path.open("w", encoding="utf-8", newline="") as out, _unpacked(path, text) as (chunks, _):
        for chunk in chain(chunks, (None,)):
            part = begun + decoder.decode(chunk or b"", final=chunk is None)
            if chunk is not None and part.endswith("\r"):
                part, begun = part[:-1], "\r"
            else:
                begun = ""
            part = part.replace("\r\n", "\n").replace("\r", "\n")
            whole, end, rest = part.rpartition("\n")
            begun = rest + begun
            if len(begun) > LONGEST_LINE:
                _longest(text, b"x" * (LONGEST_LINE + 1), 0)
            if end:
                out.write(damage.without(whole) if damage.seen or "\0" in whole else whole + end)
                damage.last = whole[-4096:]
        text.is_torn = bool(begun.strip("\0"))
        if begun:
            out.write(damage.without(begun).removesuffix("\n") if "\0" in begun else begun)
    text.begin = text.path.open("rb").read(BEGIN)
    if not text.begin.strip():
        raise DataError("the file holds no text", "Copy it again from the logger", text.source)
    if text.encoding not in ("utf-8", "utf-16", "utf-32"):
        text.notes.append(f"read as {text.encoding}")


class _Damage:
    """Leaves lines out that NUL bytes are in, unless what is left of them is whole beyond doubt."""

    def __init__(self, text: Text) -> None:
        self._count = text.left_out
        self.seen = False
        self.last = ""

    def without(self, block: str) -> str:
        kept: list[str] = [line for line in self.last.split("\n")[-3:] if line] if self.last else []
        old = len(kept)
        self.seen = False
        for line in block.split("\n"):
            if "\0" not in line:
                kept.append(line)
                continue
            core = line.strip("\0")
            if not core.strip():
                self._count["lines of NUL bytes"] += 1
            elif "\0" not in core and _is_whole(core, kept, line.startswith("\0"), line.endswith("\0")):
                kept.append(core)
            else:
                self._count["lines with NUL bytes"] += 1
        return "".join(f"{line}\n" for line in kept[old:])


_FIRST: Final = re.compile(r"\s*(\d+(?:\.\d+)?)")
_LAST: Final = re.compile(r"[.,](\d+)\s*$")


def _is_whole(line: str, before: list[str], begins: bool, ends: bool) -> bool:
    """Whether a line that NUL bytes touch lost nothing: its first number goes on, its last one has its digits."""
    if len(before) < 2 or re.sub(r"[^,;\t|]", "", line) != re.sub(r"[^,;\t|]", "", before[-1]):
        return False
    if begins:
        numbers = [_FIRST.match(each) for each in (before[-2], before[-1], line)]
        if not all(numbers):
            return False
        two, one, now = (float(each[1]) for each in numbers if each)
        if not two < one < now <= one + 5 * (one - two):
            return False
    return not ends or is_unbroken(line, before[-2:])


def is_unbroken(line: str, others: list[str]) -> bool:
    """Whether a line's last number has as many decimals as that of all the others: nothing of it was cut off."""
    decimals = [_LAST.search(each) for each in (line, *others)]
    return all(decimals) and len({len(each[1]) for each in decimals if each}) == 1


def lines_between(raw: BinaryIO, begin: int, end: int) -> int:
    """Return how many lines end between two places of a file, and leave it at the second one."""
    raw.seek(begin)
    count, left = 0, end - begin
    while left > 0 and (chunk := raw.read(min(CHUNK, left))):
        count += chunk.count(b"\n")
        left -= len(chunk)
    return count


def without_last_line(text: Text, scratch: Path) -> None:
    """Write a text anew without its last line."""
    with text.path.open("rb") as whole:
        whole.seek(0, 2)
        size = whole.tell()
        whole.seek(max(0, size - LONGEST_LINE - CHUNK))
        end = size - len(whole.read().rpartition(b"\n")[2])
    copy = scratch / "whole"
    with text.path.open("rb") as given, copy.open("wb") as out:
        while end > 0 and (chunk := given.read(min(CHUNK, end))):
            out.write(chunk)
            end -= len(chunk)
    text.path, text.is_torn = copy, False
