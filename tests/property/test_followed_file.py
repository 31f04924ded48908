"""A followed file under any order of writing, cutting, rotating, replacing and restarting: real files, every look real.

What is given was written whole. Nothing that is in the file at the end, or in a file that was rotated away while it was
open, is missing. Nothing is given twice, except what was in a file that was cut or replaced.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st

from edge_agent.live.stream import Followed

LONGEST = 60
OPERATIONS = (
    "append", "append", "append", "append_long", "append_blank", "append_late", "begin", "end", "cut", "cut_begun",
    "empty", "rewrite", "rotate", "create", "replace", "replace_by_copy", "reuse", "restart", "restart", "look",
    "look", "look", "look_to_the_end",
)  # fmt: skip
Operation = tuple[str, int]


class Writers:
    """A file, everybody who does something to it, and the one who follows it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "samples.jsonl"
        self.path.touch()
        self.rotated: Path | None = None
        """The file that was rotated away while it was followed, and must still be read to its end."""
        self.number = 0
        self.begun = b""
        self.whole: set[bytes] = set()
        self.given: Counter[bytes] = Counter()
        self.often: Counter[bytes] = Counter()
        """How often more than once a line may be given."""
        self.place = ""
        self.follower = self.opened()

    def opened(self) -> Followed:
        return Followed(self.path, os.open(self.path, os.O_RDONLY), LONGEST, self.place)

    def is_open(self, path: Path) -> bool:
        return path.is_file() and os.path.samestat(os.fstat(self.follower._handle), path.stat())

    def row(self, width: int) -> bytes:
        self.number += 1
        return b"%d:%s:%d\n" % (self.number, b"x" * width, self.number)

    def lines(self, path: Path) -> list[bytes]:
        return [line for line in path.read_bytes().split(b"\n")[:-1] if line.strip()] if path.is_file() else []

    def note(self) -> None:
        for path in (self.path, self.rotated):
            self.whole |= set(self.lines(path)) if path is not None else set()

    def write(self, content: bytes, *, mode: str = "ab") -> None:
        with self.path.open(mode) as out:
            out.write(content)

    def take(self) -> bool:
        result = self.follower.look()
        for line, place in result or ():
            self.place = place
            if line is not None:
                assert line in self.whole, f"nobody wrote {line!r}"
                assert len(line) <= LONGEST
                self.given[line] += 1
                assert self.given[line] <= 1 + self.often[line], f"{line!r} was given twice"
        if self.rotated is not None and not self.is_open(self.rotated):  # it was left for the new one
            assert self.content, "it was left while the new one was empty"
            self.check(self.rotated)
            self.rotated = None
        return result is not None

    def check(self, path: Path) -> None:
        missing = [line for line in self.lines(path) if len(line) <= LONGEST and not self.given[line]]
        assert not missing, f"lost: {missing}"

    def take_all(self) -> None:
        while self.take():
            pass
        self.check(self.path)
        if self.rotated is not None:
            self.check(self.rotated)

    @property
    def content(self) -> bytes:
        return self.path.read_bytes() if self.path.is_file() else b""

    def append(self, size: int) -> None:
        self.write(self.row(size % 40))

    def append_long(self, size: int) -> None:
        self.write(self.row(LONGEST + size))

    def append_blank(self, _: int) -> None:
        self.write(b" \n\n")

    def begin(self, size: int) -> None:
        if not self.begun:
            row = self.row(size % 150)
            self.begun = row[size % len(row) :]
            self.write(row[: size % len(row)])

    def end(self, _: int) -> None:
        self.write(self.begun)
        self.begun = b""

    def cut(self, size: int) -> None:
        if content := self.content:
            os.truncate(self.path, size % len(content))
            self.often.update(self.lines(self.path))

    def cut_begun(self, _: int) -> None:
        if content := self.content:  # to its last whole line: nothing is given again
            os.truncate(self.path, content.rfind(b"\n") + 1)

    def empty(self, _: int) -> None:
        if self.content:
            os.truncate(self.path, 0)

    def rewrite(self, size: int) -> None:
        self.write(b"".join(self.row(size % 40) for _ in range(size % 9)), mode="wb")

    def another(self) -> Path:
        return self.path.with_name(f"samples.jsonl.{len(list(self.path.parent.iterdir()))}")

    def rotate(self, _: int) -> None:
        if self.content:
            there = self.another()
            self.rotated = there if self.is_open(self.path) else self.rotated
            self.path.rename(there)

    def create(self, _: int) -> None:
        self.path.touch()

    def append_late(self, size: int) -> None:
        """Whoever writes has not gone over to the new file yet."""
        if self.rotated is not None and not self.content:
            with self.rotated.open("ab") as out:
                out.write(self.row(size % 40))

    def replace(self, size: int, content: bytes = b"") -> None:
        """Put another file there in one step, as an editor does."""
        if self.is_open(self.path):  # it is read to its end, although it has no name any more
            self.rotated = self.another()
            os.link(self.path, self.rotated)
        other = self.path.with_name("other")
        other.write_bytes(content + self.row(size % 40))
        self.often.update(line for line in content.split(b"\n") if line.strip())
        other.replace(self.path)

    def replace_by_copy(self, size: int) -> None:
        self.replace(size, self.content)

    def reuse(self, size: int) -> None:
        """Give the inode to another file, as a file system does with that of a deleted one, and restart."""
        self.rewrite(size)
        self.note()
        self.restart(size)

    def restart(self, _: int) -> None:
        if not self.path.is_file():
            self.path.touch()
        self.follower.close()
        self.rotated = None
        self.follower = self.opened()

    def look(self, _: int) -> None:
        self.take()

    def look_to_the_end(self, _: int) -> None:
        self.take_all()


@settings(max_examples=100)
@given(st.lists(st.tuples(st.sampled_from(OPERATIONS), st.integers(0, 200)), max_size=40))
@example([("append", 3), ("begin", 9), ("look", 0), ("cut_begun", 0), ("append", 20)])
@example([("append", 3), ("begin", 140), ("look", 0), ("look", 0), ("look", 0), ("cut_begun", 0), ("append", 20)])
@example([("append", 3), ("look", 0), ("rewrite", 8), ("look", 0)])
@example([("append", 3), ("look", 0), ("reuse", 8), ("append", 3)])
@example([("append", 3), ("look", 0), ("rotate", 0), ("create", 0), ("look", 0), ("append_late", 0), ("append", 3)])
def test_follower_gives_each_line_whole_and_once_when_anything_happens_to_the_file(operations: list[Operation]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        writers = Writers(Path(folder))
        try:
            for name, size in operations:
                getattr(writers, name)(size)
                writers.note()
            writers.take_all()
        finally:
            writers.follower.close()
