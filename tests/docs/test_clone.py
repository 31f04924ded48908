"""What a newcomer types after ``git clone``, typed: make sets everything up, and the tutorial is followed to its end.

Nothing of the working tree is on any path: what runs is the last commit, in an environment of its own, installed from
the package index.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.docs.examples import environment, run, shown
from tests.support.docs.groups import SAYS
from tests.support.docs.pages import ROOT, Block, Page

pytestmark = [
    pytest.mark.slow,
    pytest.mark.acceptance,
    pytest.mark.timeout(1800),
    pytest.mark.needs("bash", "git", "make"),
    pytest.mark.skipif(not (ROOT / ".git").exists(), reason="this is no clone itself: there is nothing to clone"),
]
TUTORIAL = "docs/tutorial/first-fleet.md"
WHENCE = "command -v glassfleet\npython -c 'import console, glassfleet; print(console.__path__, glassfleet.__path__)'\n"


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone of the last commit."""
    folder = tmp_path_factory.mktemp("newcomer") / "glassfleet"
    subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(folder)], check=True)
    assert not (folder / ".venv").exists()
    return folder


def test_newcomer_follows_the_tutorial_word_by_word_in_a_clean_clone(clone: Path) -> None:
    page = Page(clone / TUTORIAL, (clone / TUTORIAL).read_text(encoding="utf-8"))
    (install,) = (block for block in page.blocks if block.begins == "make setup")
    blocks = [
        Block("run", "first-fleet", install.language, install.text),
        Block("run", "first-fleet", "bash", WHENCE),
        *page.groups()["first-fleet"],
    ]

    code, seen = run(blocks, clone, installed=False, seconds=1500)

    text = "".join(seen.values())
    assert code == 0, text[-6000:]
    assert str(clone / ".venv" / "bin" / "glassfleet") in seen[1]
    assert str(ROOT) not in seen[1]
    assert [words for words in SAYS[f"{TUTORIAL}:first-fleet"] if words not in text] == []
    assert shown(blocks, seen) == []


def test_newcomer_sees_the_demo_with_one_command_in_a_clean_clone(clone: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        ["make", "demo"],
        cwd=clone,
        env=environment(tmp_path, None),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=1500,
    )

    assert done.returncode == 0, done.stderr[-3000:]
    assert "15 vehicles" in done.stderr + done.stdout
    assert "equal: the fleet learned exactly the central model of its cohort" in done.stdout
