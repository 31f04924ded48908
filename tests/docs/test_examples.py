"""Examples marked ``<!-- run: GROUP -->`` do what their page says: real commands, real processes, a real broker.

Blocks of one group on one page run in order, in one folder, as a reader would type them.
``<!-- file: NAME -->`` writes a block to a file.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.mosquitto import find_mosquitto
from tests.docs.pages import Block, Page, pages

GROUPS = {f"{page.name}:{name}": (page, blocks) for page in pages() for name, blocks in page.groups().items()}
NEEDS_MOSQUITTO = {"docs/howto/real-broker.md:broker"}
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
    "docs/howto/secure-fleet.md:secure": [
        "identity of coordinator coordinator in coordinator-identity",
        "enrolled as vehicle-07 until",
        "denied: vehicle-07",
    ],
    "docs/howto/add-a-scheme.md:checks": ["every check passed"],
    "docs/explanation/exactness.md:exactness": [],
}
"""What each prints, among other things; so this is also the list of all groups."""


def test_examples_to_run_are_those_that_are_known():
    assert set(GROUPS) == set(SAYS)


def _script(blocks: list[Block], folder: Path) -> list[str]:
    """Write what is to be run, and return the command that runs it."""
    languages = {block.language for block in blocks if block.mark == "run"}
    assert len(languages) == 1, "one group, one language"
    lines = []
    for block in blocks:
        if block.mark == "file":
            lines.append(f"cat > {block.name} <<'END-OF-FILE'\n{block.text}END-OF-FILE\n")
        else:
            lines.append(block.text)
    if languages == {"python"}:
        (folder / "example.py").write_text("\n".join(lines))
        return [sys.executable, "example.py"]
    if os.geteuid() == 0:  # the page's words about root; the test's folder is for its owner alone
        lines = [
            line.replace("mosquitto -c", "sed -i '/^user /d;1iuser root' mosquitto/mosquitto.conf; mosquitto -c")
            for line in lines
        ]
    ending = "kill $(jobs -p) 2> /dev/null || true\nwait\n"
    (folder / "example.sh").write_text("set -eu\n" + "\n".join(lines) + ending)
    return ["bash", "example.sh"]


@pytest.mark.acceptance
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "group", [pytest.param(name, marks=[pytest.mark.mosquitto] if name in NEEDS_MOSQUITTO else []) for name in GROUPS]
)
def test_example_runs_as_its_page_says(group: str, tmp_path: Path, free_port: Callable[[], int]):
    page, blocks = GROUPS[group]

    code, said = _run(_script(blocks, tmp_path), tmp_path, free_port())

    assert code == 0, f"{page.name}\n{said[-6000:]}"
    for expected in SAYS[group]:
        assert expected in said, f"{expected!r} is not in\n{said[-6000:]}"


def _run(command: list[str], folder: Path, port: int) -> tuple[int, str]:
    script = folder / command[-1]
    script.write_text(script.read_text().replace("18830", str(port)))  # a port of our own for the one of the page
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GLASSFLEET_")}
    path = [str(Path(sys.executable).parent), kept["PATH"]]
    mosquitto = find_mosquitto()
    if mosquitto is not None:
        path.append(str(Path(mosquitto).parent))
    environment = kept | {
        "PATH": os.pathsep.join(path),
        "XDG_STATE_HOME": str(folder / "home"),
        "PYTHONPATH": "",
        "OPENBLAS_NUM_THREADS": "1",
    }
    output = folder / "output"
    with output.open("w") as written:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=written, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            code = process.wait(timeout=240)
        except subprocess.TimeoutExpired:
            code = -1
        finally:
            _end(process)
    return code, output.read_text(errors="replace")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End what an example that failed has left behind."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            return
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            continue


def test_reader_of_pages_finds_marked_blocks():
    text = (
        "# A\n\n<!-- run: one -->\n```bash\necho 1\n```\n\n<!-- file: a.json -->\n```json\n{}\n```\n\n"
        "```bash\nno\n```\n\n    indented\n"
    )
    page = Page(Path("a.md"), text)

    assert [(block.mark, block.name, block.text) for block in page.groups()["one"]] == [
        ("run", "one", "echo 1\n"),
        ("file", "a.json", "{}\n"),
    ]
    assert [block.text for block in page.blocks if not block.mark] == ["no\n", "indented\n"]
