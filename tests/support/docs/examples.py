"""Runs the marked blocks of a page as a reader would type them: one folder, real processes, nothing prepared."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from broker.servers.mosquitto import find_mosquitto
from broker.servers.process import free_port
from lab.processes import Process
from tests.support.docs.pages import ROOT, Block
from tests.support.needs.programs import NEEDS

SHELLS = frozenset({"bash", "sh"})
PORTS = ("1883", "8080", "8443", "8883", "18830")
"""Ports that pages name; each is another, free one in a test."""
CLONED = ("schemas", "glassfleet", "broker", "coordinator", "edge_agent", "console", "lab", "tests")
"""What a copy of the repository holds, for pages whose reader changes it."""

_PLACE = "@@ block {} @@"
_PLACES = re.compile(r"^@@ block (\d+) @@\n", re.MULTILINE)

_COMMANDS = re.compile(r"(?m)(?:^|[|;&(])\s*([a-z0-9-]+)\b")


def script(blocks: list[Block]) -> tuple[str, str]:
    """Write what is to be run.

    Parameters
    ----------
    blocks : list of Block
        A group. Python blocks among those of a shell are programs of their own.

    Returns
    -------
    name, text : str
    """
    languages = {block.language for block in blocks if block.mark == "run"}
    if languages == {"python"}:
        return "example.py", "".join(_python(number, block) for number, block in enumerate(blocks))
    assert languages <= SHELLS | {"python"}, f"nothing runs {sorted(languages)}"
    lines = ["set -eu\n", *(_shell(number, block) for number, block in enumerate(blocks))]
    return "example.sh", "".join([*lines, "\nkill $(jobs -p) 2> /dev/null || true\nwait\n"])


def programs(blocks: list[Block]) -> list[str]:
    """Name the programs outside Python that a group is typed with: first words of its commands, and the shell."""
    lines = "\n".join(block.text for block in blocks if block.mark == "run" and block.language in SHELLS)
    return sorted(NEEDS.keys() & {"bash", *_COMMANDS.findall(lines)}) if lines else []


def _python(number: int, block: Block) -> str:
    if block.mark == "file":
        return f"__import__('pathlib').Path({block.name!r}).write_text({block.text!r})\n"
    return f"print({_PLACE.format(number)!r}, flush=True)\n{block.text}\n" if block.mark == "run" else ""


def _shell(number: int, block: Block) -> str:
    if block.mark == "file":
        return f"cat > {block.name} <<'END-OF-FILE'\n{block.text}END-OF-FILE\n"
    if block.mark != "run":
        return ""
    text = block.text if block.language in SHELLS else f"python - <<'END-OF-FILE'\n{block.text}END-OF-FILE\n"
    if os.geteuid() == 0:  # the pages' words about root; the test's folder is for its owner alone
        text = re.sub(r"(?m)^mosquitto -c (\S+)", r"sed -i -e '1iuser root' -e '/^user /d' \1; mosquitto -c \1", text)
    return f"echo '{_PLACE.format(number)}'\n{text}\n"


def run(
    blocks: list[Block], folder: Path, *, clone: bool = False, installed: bool = True, seconds: float = 540
) -> tuple[int | None, dict[int, str]]:
    """Run a group in a folder: an empty one, or a clone of the repository.

    Parameters
    ----------
    blocks : list of Block
    folder : Path
    clone : bool
        Copy the working tree's code into the folder, and run that.
    installed : bool
        The working tree is there as if it were installed; otherwise nothing of it can be found.
    seconds : float
        Then it is ended.

    Returns
    -------
    code : int or None
        Exit code; None when it took too long.
    said : dict
        What was printed, by the number of the block among `blocks`; -1 for what came before the first.
    """
    name, text = script(blocks)
    for port in PORTS:
        if re.search(rf"\b{port}\b", text):
            text = re.sub(rf"\b{port}\b", str(free_port()), text)
    if clone:
        for part in CLONED:
            shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("fuzz", "golden"))
    # The script and the words stay out of the reader's folder.
    beside = folder.with_name(f"{folder.name}-beside")
    beside.mkdir()
    (beside / name).write_text(text)
    program = [sys.executable if name.endswith(".py") else "bash", str(beside / name)]
    variables = environment(beside, None if not installed else folder if clone else ROOT)
    process = Process("example", [], variables, output := beside / "output", program, folder=folder)
    process.start()
    group = process.pid
    try:
        code = process.reap(seconds)
    except subprocess.TimeoutExpired:
        code = None
    finally:
        _end(process, group)
    parts = _PLACES.split(output.read_text(errors="replace"))
    numbers = [-1, *(int(number) for number in parts[1::2])]
    return code, dict(zip(numbers, parts[0::2], strict=True))


def environment(home: Path, code: Path | None) -> Mapping[str, str]:
    """Return a reader's environment: state of its own in `home`, and `code` as if installed; None: nothing of ours."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name == "GLASSFLEET_DATA" or not name.startswith(("GLASSFLEET_", "PYTEST_", "PYTHON", "VIRTUAL_ENV", "MAKE"))
    }
    ours = str(Path(sys.executable).parent)
    path = [ours] * (code is not None) + [each for each in kept["PATH"].split(os.pathsep) if each != ours]
    mosquitto = find_mosquitto()
    if mosquitto is not None:
        path.append(str(Path(mosquitto).parent))
    return (
        kept
        | {
            "PATH": os.pathsep.join(path),
            "XDG_STATE_HOME": str(home / "home"),
            "OPENBLAS_NUM_THREADS": "1",
            "TZ": "UTC",
            "COLUMNS": "120",
        }
        | ({} if code is None else {"PYTHONPATH": str(code)})
    )


def _end(process: Process, group: int) -> None:
    """End what an example that failed has left behind."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(group, number)
        except ProcessLookupError:
            return
        try:
            process.reap(5)
        except subprocess.TimeoutExpired:
            continue


def shown(blocks: list[Block], text: Mapping[int, str]) -> list[str]:
    """Return what the page shows and the example did not print, as the page has it.

    A shown block must be, line by line, a part of what the block before it printed; ``...`` stands for anything within
    a line, and alone in a line for any number of lines.
    """
    absent = []
    before = -1
    for number, block in enumerate(blocks):
        if block.mark == "run":
            before = number
        elif block.mark == "says" and not _pattern(block.text).search(text.get(before, "")):
            absent.append(block.text)
    return absent


def _pattern(text: str) -> re.Pattern[str]:
    lines = [
        r"(?:.*\n)*?" if line.strip() == "..." else ".*".join(map(re.escape, line.rstrip().split("..."))) + r"[ \t]*\n"
        for line in text.splitlines()
    ]
    return re.compile("^" + "".join(lines), re.MULTILINE)
