"""Vector's binary logs as python-can is given them: whole objects of sizes that can be, unpacked within a limit.

Its reader takes sizes in the file as they are: one of 0 keeps it in a circle, and a container of some kilobytes may
unpack to any number of gigabytes.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

from schemas.errors import DataError

MOST_UNPACKED: Final = 1 << 26
MOST_OBJECT: Final = 1 << 24

_FILE: Final = 144  # bytes of the head of a file
_OBJECT: Final = struct.Struct("<4sHHLL")  # signature, size of the head, its version, size, kind
_CONTAINER: Final = struct.Struct("<H6xL4x")  # method, bytes unpacked
_KIND_CONTAINER: Final = 10
_HEADS: Final = {1: 32, 2: 40}  # bytes before what an object holds, by the version of its head
_OF_CAN: Final = {1: 16, 73: 32, 86: 16, 100: 84, 101: 40}  # bytes that python-can reads of each kind at least
_ERRORS_OF_CAN: Final = (2, 3)  # without the details that python-can reads


class Containers:
    """The file that python-can reads: its head, and containers that are not packed."""

    start = 0.0
    first_channel = 1
    no_frames = "damaged objects"

    def __init__(self, path: Path, file: BinaryIO, left_out: Counter[str]) -> None:
        self._path = path
        self._file = file
        self._left_out = left_out
        self.given = 0
        head = file.read(_FILE)
        if not head.startswith(b"LOGG"):
            raise DataError("is no BLF file: it does not begin with LOGG", where=str(path))
        if len(head) < _FILE or not _FILE <= int.from_bytes(head[4:8], "little") <= 1 << 16:
            raise DataError("is cut, or damaged, in its first bytes", where=str(path))
        file.seek(int.from_bytes(head[4:8], "little"))
        self._head = head[:4] + _FILE.to_bytes(4, "little") + head[8:]
        self._body = self._containers()
        self._waiting = b""

    def again(self) -> Containers:
        """Return the file for a new reader, which goes on behind what was read."""
        self._waiting = self._head
        return self

    def read(self, size: int) -> bytes:
        """Return the next bytes, fewer at the end."""
        while len(self._waiting) < size and (more := next(self._body, b"")):
            self._waiting += more
        taken, self._waiting = self._waiting[:size], self._waiting[size:]
        return taken

    def close(self) -> None:
        """Do nothing: who has opened the file closes it."""

    def _containers(self) -> Iterator[bytes]:
        rest = b""
        for content in self._unpacked():
            objects, rest = self._objects(rest + content)
            if objects:
                size = _OBJECT.size + _CONTAINER.size + len(objects)
                head = _OBJECT.pack(b"LOBJ", _OBJECT.size, 1, size, _KIND_CONTAINER)
                yield head + _CONTAINER.pack(0, len(objects)) + objects + bytes(size % 4)
        if rest:
            self._left_out["objects cut at the end"] += 1

    def _unpacked(self) -> Iterator[bytes]:
        while head := self._file.read(_OBJECT.size):
            here = self._file.tell() - len(head)
            if len(head) < _OBJECT.size or not head.startswith(b"LOBJ"):
                self._file.seek(0, os.SEEK_END)
                self._left_out["bytes behind a fault"] += self._file.tell() - here
                return
            _, _, _, size, kind = _OBJECT.unpack(head)
            body = self._file.read(min(max(size - _OBJECT.size, 0), MOST_OBJECT))
            if len(body) != size - _OBJECT.size:
                self._left_out["containers cut at the end"] += 1
                return
            self._file.read(size % 4)
            if kind != _KIND_CONTAINER:
                yield head + body + bytes(size % 4)
                continue
            if len(body) < _CONTAINER.size:
                self._left_out["damaged containers"] += 1
                continue
            method, _ = _CONTAINER.unpack_from(body)
            content = body[_CONTAINER.size :]
            if method == 2:
                try:
                    unpacking = zlib.decompressobj()
                    content = unpacking.decompress(content, MOST_UNPACKED)
                except zlib.error:
                    self._left_out["damaged containers"] += 1
                    continue
                if unpacking.unconsumed_tail:
                    what = f"a container unpacks to more than {MOST_UNPACKED >> 20} MB: no log does"
                    raise DataError(what, where=str(self._path))
            elif method:
                self._left_out["damaged containers"] += 1
                continue
            yield content

    def _objects(self, content: bytes) -> tuple[bytes, bytes]:
        """Return the objects of CAN in `content`, and the begin of one that it does not hold to its end."""
        kept: list[bytes] = []
        place = 0
        while True:
            found = content.find(b"LOBJ", place)
            if found < 0 or len(content) - found < _OBJECT.size:
                return b"".join(kept), content[max(place, len(content) - _OBJECT.size) if found < 0 else found :]
            if found - place >= 8:
                self._left_out["bytes between objects"] += found - place
            _, head, version, size, kind = _OBJECT.unpack_from(content, found)
            least = _HEADS.get(version, MOST_OBJECT) + _OF_CAN.get(kind, 0)
            if not least <= size <= MOST_OBJECT or not _OBJECT.size <= head <= size:
                self._left_out["damaged objects"] += 1
                place = found + 4
                continue
            if found + size > len(content):
                return b"".join(kept), content[found:]
            place = found + size
            if kind in _OF_CAN:
                kept.append(content[found:place] + bytes(-size % 4))
                self.given += 1
            else:
                self._left_out["error frames" if kind in _ERRORS_OF_CAN else "objects without a frame of CAN"] += 1
