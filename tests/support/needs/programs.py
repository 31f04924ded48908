"""What tests need outside Python and a system's basic tools: how it is found, and the Debian packages that bring it.

``python3 -m tests.support.needs.programs`` prints the packages that are not installed here.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from glob import glob
from pathlib import Path
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def _no_data() -> str:
    folder = os.environ.get("GLASSFLEET_DATA")
    if folder and Path(folder).is_dir() and not hidden():
        return ""
    return "no real data sets here: set GLASSFLEET_DATA to a folder with them (glassfleet lab datasets fetch --help)"


def _no_recordings() -> str:
    folder = os.environ.get("GLASSFLEET_VEHICLE")
    if folder and Path(folder, "csv").is_dir() and not hidden():
        return ""
    return "vehicles' files with their truths are not here: GLASSFLEET_VEHICLE names no folder of them"


def _no_namespaces() -> str:
    if os.geteuid() != 0:
        return "only root may pull cables: run pytest as root (sudo -E .venv/bin/pytest ...)"
    tried = subprocess.run([path("unshare"), "--net", "true"], capture_output=True, text=True, check=False)
    return "" if tried.returncode == 0 else f"no network namespaces on this machine: {tried.stderr.strip()}"


@dataclass(frozen=True)
class Need:
    """Programs that must be found, their Debian packages, and what else must hold (empty: it does, else why not)."""

    programs: tuple[str, ...] = ()
    packages: str = ""
    fault: Callable[[], str] = str


NEEDS = {
    "bash": Need(("bash",), "bash"),
    "chromium": Need(("chromium",), "chromium fonts-dejavu-core"),  # with a font to draw with
    "curl": Need(("curl",), "curl"),
    "data": Need(fault=_no_data),
    "fish": Need(("fish",), "fish"),
    "gcc": Need(("gcc",), "gcc libc6-dev"),
    "git": Need(("git",), "git"),
    "jq": Need(("jq",), "jq"),
    "make": Need(("make",), "make"),
    "mosquitto": Need(("mosquitto",), "mosquitto"),
    "namespaces": Need(("ip", "tc", "unshare", "nsenter"), "iproute2 util-linux", _no_namespaces),
    "nats": Need(("nats-server",), "nats-server"),
    "node": Need(("node",), "nodejs"),
    "postgresql": Need(("initdb",), "postgresql"),
    "recordings": Need(fault=_no_recordings),
    "sqlite3": Need(("sqlite3",), "sqlite3"),
    "systemd": Need(("systemd-analyze",), "systemd"),
    "zsh": Need(("zsh",), "zsh"),
}


def hidden() -> bool:
    """Whether everything here is hidden: ``GLASSFLEET_BARE=1``, as on a machine with Python alone."""
    return os.environ.get("GLASSFLEET_BARE") == "1"


def find(program: str) -> str | None:
    """Path of a program: on the PATH, or where Debian and Homebrew put it; None: it is not here, or hidden."""
    if hidden():
        return None
    if program == "chromium":
        program = os.environ.get("GLASSFLEET_CHROMIUM", program)
    newest = sorted(glob("/usr/lib/postgresql/*/bin"), key=lambda each: [*map(int, re.findall(r"\d+", each))])  # noqa: PTH207
    places = [
        *reversed(newest),
        os.environ.get("PATH", os.defpath),
        *("/usr/sbin", "/sbin", "/usr/local/bin", "/usr/local/sbin", "/opt/homebrew/bin", "/opt/homebrew/sbin"),
    ]
    return shutil.which(program, path=os.pathsep.join(places))


def path(program: str) -> str:
    """Path of a program that is here: the test asked for it."""
    found = find(program)
    assert found is not None, f"{program} is not installed, and the test did not ask: @pytest.mark.needs(...)"
    return found


def needs(*names: str) -> Callable[[F], F]:
    """Say what a fixture needs, below ``@pytest.fixture``: so do then the tests that use it."""

    def mark(function: F) -> F:
        function.needs = names  # type: ignore[attr-defined]
        return function

    return mark


@cache
def why_not(need: str) -> str:
    """Say why tests with this need cannot run here, with the way out; empty: they can."""
    wanted = NEEDS[need]
    if any(find(each) is None for each in wanted.programs):
        return f"{wanted.packages.split()[0]} is not installed: apt install {wanted.packages}"
    return wanted.fault()


def packages(needs: Iterable[str]) -> list[str]:
    """Give the Debian packages of those needs whose programs are not here."""
    absent = (NEEDS[need] for need in needs if any(find(each) is None for each in NEEDS[need].programs))
    return sorted({package for need in absent for package in need.packages.split()})


if __name__ == "__main__":
    print(*packages(NEEDS))
