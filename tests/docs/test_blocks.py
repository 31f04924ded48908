"""Every block of code in a page is executed, read by the program's own reader, or listed here with its reason."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

from tests.support.docs.commands import command_lines, fault
from tests.support.docs.examples import SHELLS
from tests.support.docs.pages import ROOT, Block, Page, pages
from tests.support.docs.readers import READERS

GENERATED = {"docs/reference/cli.md", "docs/reference/settings.md"}
"""Written from the code; every example of a command's help is tried in ``tests/unit/console/test_every_command.py``."""

INSTALLS = "installs packages from an index; the slow tests/docs/test_clone.py types it in a clean clone"
NETWORK = "needs other people's servers"
CONTAINERS = "needs a container engine"
SYSTEMD = "needs systemd and root"
CLUSTER = "needs a Kubernetes cluster"

NOT_RUN: dict[str, dict[str, str]] = {
    "CONTRIBUTING.md": {"make setup     # .venv with the locked versions": INSTALLS},
    "README.md": {"make demo     # fifteen vehicles learn while some are killed: half a minute": INSTALLS},
    "docs/index.md": {"make demo": INSTALLS},
    "docs/tutorial/first-fleet.md": {"make setup": INSTALLS},
    "docs/howto/deploy.md": {
        "cd deploy/compose": CONTAINERS,
        "python3 -m venv /opt/glassfleet-0.1.0": SYSTEMD,
        "python3 -m venv /opt/glassfleet-0.2.0": SYSTEMD,
        "systemctl start glassfleet-enrol@vehicle-07": SYSTEMD,
        "/opt/glassfleet/bin/pip install 'glassfleet-0.1.0-py3-none-any.whl[coordinator,operator,postgres]'": SYSTEMD,
        "createuser --pwprompt glassfleet": "asks for a password; tests/acceptance/test_postgresql.py does it",
        "glassfleet coordinator --standby --journal postgresql://glassfleet@127.0.0.1/glassfleet --broker "
        "mqtts://broker.example.org:8883": "needs two machines; tests/acceptance/test_standby.py does it on one",
        "kubectl create namespace glassfleet": CLUSTER,
    },
    "docs/howto/operate.md": {
        "export GLASSFLEET_COORDINATOR_NOTIFY='jsons://hooks.example.org/fleet "
        "mailtos://fleet:password@mail.example.org?to=duty@example.org'": NETWORK,
    },
    "docs/explanation/private-runs.md": {
        "glassfleet run start --model qoe --private --wait": (
            "needs eight vehicles; tests/acceptance/test_demo.py runs a private demonstration"
        )
    },
    "docs/howto/reproduce-the-papers.md": {
        "glassfleet lab datasets fetch mortgage california --data-dir data": NETWORK
    },
}
"""By page and first line of the block: why it is not executed. Each is still read as its language."""

CODE = re.compile(
    r"(?m)^\s*(?:\$ )?(?:glassfleet|make|pip|python3?|cd|export|docker|kubectl|systemctl|curl|mosquitto|from|import"
    r"|def)(?= |$)"
)


def _unmarked() -> list[tuple[Page, Block]]:
    return [(page, block) for page in pages() if page.name not in GENERATED for block in page.blocks if not block.mark]


def _is_code(block: Block) -> bool:
    """Tell code from drawings and from what is shown in passing."""
    return block.language not in {"", "text"} or CODE.search(block.text) is not None


def test_every_block_of_code_is_executed_or_says_why_it_cannot_be():
    result = {(page.name, block.begins) for page, block in _unmarked() if _is_code(block)}
    listed = {(page, begins) for page, blocks in NOT_RUN.items() for begins in blocks}

    assert result - listed == set(), "mark it <!-- run: GROUP -->, or list it in NOT_RUN with the reason"
    assert listed - result == set(), "is gone, or is executed now: take it from NOT_RUN"


def test_nearly_everything_is_executed():
    executed = sum(block.mark == "run" for page in pages() for block in page.blocks)

    assert sum(len(blocks) for blocks in NOT_RUN.values()) * 4 <= executed
    assert all(len(reason) > 10 for blocks in NOT_RUN.values() for reason in blocks.values())


@pytest.mark.needs("bash")
def test_blocks_that_are_not_executed_can_be_read_all_the_same():
    faults = []
    for page, block in _unmarked():
        if not _is_code(block):
            continue
        where = f"{page.name}: {block.begins}"
        if block.language == "python":
            ast.parse(block.text)
            continue
        assert block.language in SHELLS | {"", "text"}, f"{where}: nothing reads it: mark it <!-- is: READER -->"
        read = subprocess.run(["bash", "-n"], input=block.text, capture_output=True, text=True, check=False)
        faults += [f"{where}: {read.stderr}"] if read.returncode or read.stderr else []
        faults += [f"{where}: {text}" for words in command_lines(block.text) if (text := fault(words, whole=True))]
    assert faults == []


def test_make_knows_every_target_that_a_page_names():
    named = {
        (page.name, target)
        for page in pages()
        for block in page.blocks
        for target in re.findall(r"(?m)^make ([a-z-]+)", block.text)
    }
    targets = set(re.findall(r"(?m)^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8")))

    assert {target for _, target in named} >= {"demo", "test"}
    assert [(page, target) for page, target in named if target not in targets] == []


_READ = [(page, block) for page in pages() for block in page.blocks if block.mark == "is"]


def test_configuration_in_pages_is_taken_by_its_reader(tmp_path: Path):
    for number, (page, block) in enumerate(_READ):
        folder = tmp_path / str(number)
        folder.mkdir()
        try:
            READERS[block.name](block.text, folder)
        except BaseException as fault:
            fault.add_note(f"{page.name}: {block.begins}")
            raise


def test_every_reader_of_configuration_has_something_to_read():
    assert {block.name for _, block in _READ} == set(READERS)


def test_quoted_code_stands_in_the_file_that_it_is_from():
    quoted = [(page, block) for page in pages() for block in page.blocks if block.mark == "from"]
    absent = [
        f"{page.name}: {part}"
        for page, block in quoted
        for part in re.split(r"(?m)^ *\.\.\.\n", block.text)
        if part not in (ROOT / block.name).read_text(encoding="utf-8")
    ]

    assert quoted
    assert absent == []
