"""How examples are found, run, and compared with what their page shows; each is run by one of three files of tests.

Three, so that they are spread over processes: a process takes a whole file, and these take minutes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.docs.examples import run, shown
from tests.docs.groups import GROUPS, PARTS, SAYS
from tests.docs.pages import Block, Page


def test_examples_to_run_are_those_that_are_known():
    assert set(GROUPS) == set(SAYS)


def test_every_example_is_run_by_one_file_of_tests():
    assert Counter(name for part in PARTS.values() for name in part) == Counter(list(GROUPS))
    assert {f"test_examples_{part}.py" for part in PARTS} == {
        path.name for path in Path(__file__).parent.glob("test_examples_*.py")
    }


TEXT = (
    "# A\n\n<!-- file: a.json -->\n```json\n{}\n```\n\n<!-- run: one -->\n```bash\necho 1\n```\n\n"
    "<!-- says: one -->\n```text\n1\n```\n\n```bash\nno\n```\n\n    indented\n"
)


def test_reader_of_pages_finds_marked_blocks():
    page = Page(Path("a.md"), TEXT)

    assert [(block.mark, block.name, block.text) for block in page.groups()["one"]] == [
        ("file", "a.json", "{}\n"),
        ("run", "one", "echo 1\n"),
        ("says", "one", "1\n"),
    ]
    assert [block.text for block in page.blocks if not block.mark] == ["no\n", "indented\n"]


@pytest.mark.parametrize(
    ("says", "holds"),
    [
        ("one\ntwo\n", True),
        ("two\nthree, 3.5\n", True),
        ("one\n...\nthree, ...\n", True),
        ("one\nthree, 3.5\n", False),
        ("wo\n", False),
        ("two\n...\none\n", False),
        ("three, 3.6\n", False),
    ],
)
def test_what_a_page_shows_is_compared_with_what_was_printed(says: str, holds: bool):
    blocks = [Block("run", "a", "bash", ""), Block("says", "a", "text", says)]

    assert shown(blocks, {0: "one\ntwo  \nthree, 3.5\n"}) == ([] if holds else [says])


def test_what_a_page_shows_is_not_found_in_what_another_block_printed():
    blocks = [Block("run", "a", "bash", ""), Block("run", "a", "bash", ""), Block("says", "a", "text", "one\n")]

    assert shown(blocks, {0: "one\n", 1: "two\n"}) == ["one\n"]


def test_example_that_fails_or_hangs_is_noticed(tmp_path: Path, free_port: Callable[[], int]):
    def result(name: str, text: str) -> tuple[int, dict[int, str]]:
        folder = tmp_path / name
        folder.mkdir()
        return run([Block("run", "a", "bash", text)], folder, free_port, seconds=2)

    assert result("fails", "echo before\nfalse\necho after\n") == (1, {-1: "", 0: "before\n"})
    assert result("hangs", "sleep 60\n")[0] == -1
