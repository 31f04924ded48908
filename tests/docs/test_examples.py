"""Examples marked ``<!-- run: GROUP -->`` do what their page says: real commands, real processes, a real broker.

Blocks of one group on one page run in order, in one folder, as a reader would type them. ``<!-- file: NAME -->`` writes
a block to a file; ``<!-- says: GROUP -->`` shows what the block before it prints. What is not executed is listed, with
its reason, in ``test_blocks.py``.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.docs.examples import run, shown
from tests.docs.pages import Block, Page, pages

GROUPS = {f"{page.name}:{name}": (page, blocks) for page in pages() for name, blocks in page.groups().items()}


def _programs(*names: str) -> pytest.MarkDecorator:
    absent = [name for name in names if shutil.which(name) is None]
    return pytest.mark.skipif(bool(absent), reason=f"not installed: apt install {' '.join(absent)}")


_DATA = pytest.mark.skipif("GLASSFLEET_DATA" not in os.environ, reason="real datasets: set GLASSFLEET_DATA")
MARKS = {
    "README.md:tables": [_DATA, pytest.mark.slow],
    "docs/howto/operate.md:operate": [_programs("curl", "sqlite3")],
    "docs/howto/real-broker.md:broker": [pytest.mark.mosquitto],
    "docs/howto/reproduce-the-papers.md:papers": [_DATA],
    "docs/howto/reproduce-the-papers.md:report": [_DATA, pytest.mark.slow],
    "docs/howto/reproduce-the-papers.md:table": [_DATA, pytest.mark.slow],
    "docs/howto/secure-fleet.md:secure": [pytest.mark.mosquitto],
    "docs/howto/your-own-data.md:own-data": [_programs("sqlite3"), pytest.mark.mosquitto],
    "docs/reference/http-api.md:http": [_programs("curl", "jq")],
}
"""What an example needs, beyond what is installed."""
CLONES = {"docs/howto/add-a-scheme.md:scheme"}
"""Their reader works in a clone of the repository, and changes it: they get a copy."""
LONG = {"docs/howto/reproduce-the-papers.md:report": 3400.0}
"""Seconds that an example may take, where that is more than the others get."""
SAYS = {
    "docs/tutorial/first-fleet.md:first-fleet": [
        "400 rows (320 train, 80 test), 3 inputs, target minutes",
        "equal: the fleet learned exactly the central model",
        "trips v1",
        "IF ",
        "trips.py: one Python file",
    ],
    "docs/howto/real-broker.md:broker": ["MQTT 5"],
    "docs/howto/use-the-estimators.md:estimators": ["Good"],
    "docs/howto/your-own-data.md:own-data": [
        "error   load: 1 number with a decimal comma",
        "exit code 3",
        "60 samples taken, 0 refused, 0 lost; 50 rows",
    ],
    "docs/howto/deploy.md:cloud": [],
    "docs/howto/reproduce-the-papers.md:own": [],
    "docs/howto/reproduce-the-papers.md:papers": ["weather_izmir", "mortgage"],
    "docs/howto/reproduce-the-papers.md:report": [],
    "docs/howto/reproduce-the-papers.md:table": ["frt-accuracy"],
    "README.md:apart": ["an agent takes this", "model qoe v2", "rule ", "chain whole", "first.html: report of first"],
    "README.md:tables": ["federated (FL)    1.26788", "central (CL)       1.2795", "federated (FL)    1.19419"],
    "docs/howto/secure-fleet.md:secure": [
        "identity of coordinator coordinator in coordinator-identity",
        "enrolled as vehicle-07 until",
        "enrolled as vehicle-08 until",
        "denied: vehicle-08, vehicle-07",
        "denied: vehicle-08",
    ],
    "docs/howto/add-a-scheme.md:scheme": [],
    "docs/explanation/exactness.md:exactness": [],
    "docs/explanation/model-registry.md:registry": [],
    "docs/howto/forecast-on-the-vehicle.md:forecast": [],
    "docs/howto/operate.md:operate": [],
    "docs/reference/exports.md:explanations": [],
    "docs/reference/http-api.md:http": [],
    "docs/howto/read-a-model-with-an-auditor.md:audit": [],
}
"""What each prints, among other things and beside what its page shows; so this is also the list of all groups."""


def test_examples_to_run_are_those_that_are_known():
    assert set(GROUPS) == set(SAYS)


@pytest.mark.acceptance
@pytest.mark.parametrize(
    "group",
    [
        pytest.param(name, marks=[*MARKS.get(name, []), pytest.mark.timeout(LONG.get(name, 540) + 60)])
        for name in GROUPS
    ],
)
def test_example_runs_as_its_page_says(group: str, tmp_path: Path, free_port: Callable[[], int]):
    page, blocks = GROUPS[group]
    folder = tmp_path / "reader"
    folder.mkdir()

    seconds = LONG.get(group, 540)
    code, said = run(blocks, folder, free_port, clone=group in CLONES, seconds=seconds)

    text = "".join(f"--- {blocks[number].begins if number >= 0 else ''}\n{part}" for number, part in said.items())
    assert code == 0, f"{page.name}\n{text[-6000:]}"
    for expected in SAYS[group]:
        assert expected in text, f"{expected!r} is not in\n{text[-6000:]}"
    for absent in shown(blocks, said):
        pytest.fail(f"{page.name} shows\n{absent}\nand it printed\n{text[-12000:]}")


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
