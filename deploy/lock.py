"""Renew the two locks, pinned with hashes, for all supported Pythons: run ``make lock``.

``requirements.lock`` has every extra and the development tools, in their newest versions. ``lowest.lock`` has every
extra and what tests need, each direct dependency in the lowest version that pyproject.toml allows; `make test-lowest`
keeps these bounds true. Only uv's universal resolution yields one lock that holds on Python 3.11 to 3.13 and on x86-64
and Arm, so it is installed into a temporary environment.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOWEST = ROOT / "deploy" / "lowest.lock"


def wanted(group: str) -> list[str]:
    """Return what pyproject.toml asks for: core, extras, the tools to build it, and a group for development."""
    document = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project, groups = document["project"], document["dependency-groups"]
    lines = [*project["dependencies"], *document["build-system"]["requires"]]
    for extra in project["optional-dependencies"].values():
        lines += [line for line in extra if not line.startswith("glassfleet[")]
    for line in groups[group]:
        lines += [line] if isinstance(line, str) else groups[line["include-group"]]
    return lines


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "venv", f"{folder}/uv"], check=True)
        subprocess.run([f"{folder}/uv/bin/pip", "install", "--quiet", "uv"], check=True)

        def lock(lines: Iterable[str], *options: str) -> str:
            source = Path(folder) / "requirements.in"
            source.write_text("\n".join(lines) + "\n")
            command = [f"{folder}/uv/bin/uv", "pip", "compile", "--quiet", "--universal", "--generate-hashes"]
            command += ["--python-version", "3.11", "--no-annotate", "--no-header", *options, str(source)]
            done = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            return "# Made by `make lock` from pyproject.toml; do not edit.\n" + done

        (ROOT / "requirements.lock").write_text(lock([*wanted("dev"), "pip"]))
        LOWEST.write_text(lock(wanted("test"), "--resolution", "lowest-direct"))


if __name__ == "__main__":
    main()
