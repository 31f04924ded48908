"""How examples are found, run, and compared with what their page shows; each is run by one of three files of tests.

Three, so that they are spread over processes: a process takes a whole file, and these take minutes.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.support.docs.examples import run, shown
from tests.support.docs.groups import GROUPS, PARTS, SAYS
from tests.support.docs.pages import Block


def test_every_example_is_run_by_one_file_of_tests():
    assert Counter(name for part in PARTS.values() for name in part) == Counter(list(GROUPS))
    assert set(SAYS) <= set(GROUPS)
    assert {f"test_examples_{part}.py" for part in PARTS} == {
        path.name for path in Path(__file__).parent.glob("test_examples_*.py")
    }


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
def test_what_a_page_shows_is_compared_with_what_the_block_before_it_printed(says: str, holds: bool):
    run_twice = [Block("run", "a", "bash", "")] * 2
    blocks = [*run_twice, Block("says", "a", "text", says)]

    assert shown(blocks, {0: "wo\n", 1: "one\ntwo  \nthree, 3.5\n"}) == ([] if holds else [says])


@pytest.mark.needs("bash")
def test_example_that_fails_or_hangs_is_noticed(tmp_path: Path):
    def result(name: str, text: str) -> tuple[int | None, dict[int, str]]:
        folder = tmp_path / name
        folder.mkdir()
        return run([Block("run", "a", "bash", text)], folder, seconds=2)

    assert result("fails", "echo before\nfalse\necho after\n") == (1, {-1: "", 0: "before\n"})
    assert result("hangs", "sleep 60\n")[0] is None
