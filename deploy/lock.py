"""Renew requirements.lock: every extra and the development tools, pinned with hashes, for all supported Pythons.

Run ``make lock``. It installs ``uv`` into a temporary environment, because only its universal resolution yields one
lock that holds on Python 3.11 to 3.13 and on x86-64 and Arm.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = [*project["project"]["dependencies"], *project["dependency-groups"]["dev"]]
    for lines in project["project"]["optional-dependencies"].values():
        wanted += [line for line in lines if not line.startswith("glassfleet[")]
    wanted += [*project["build-system"]["requires"], "pip"]
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "requirements.in"
        source.write_text("\n".join(wanted) + "\n")
        subprocess.run([sys.executable, "-m", "venv", f"{folder}/uv"], check=True)
        subprocess.run([f"{folder}/uv/bin/pip", "install", "--quiet", "uv"], check=True)
        command = [f"{folder}/uv/bin/uv", "pip", "compile", "--quiet", "--universal", "--generate-hashes"]
        command += ["--python-version", "3.11", "--no-annotate", "--no-header", str(source)]
        lock = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    (ROOT / "requirements.lock").write_text("# Made by `make lock` from pyproject.toml; do not edit.\n" + lock)


if __name__ == "__main__":
    main()
