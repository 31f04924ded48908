"""Asks the package index for the wheels of a light gateway: ``python deploy/arm64.py``.

A vehicle's packages (pyproject.toml) on ARM64, with glibc (Debian, Yocto) and with musl (Alpine, OpenWrt): it prints
the wheel of each, and fails where one would have to be compiled. Nothing is installed.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

PLATFORMS = {
    "glibc": ("manylinux_2_28_aarch64", "manylinux_2_17_aarch64", "manylinux2014_aarch64"),
    "musl": ("musllinux_1_2_aarch64", "musllinux_1_1_aarch64"),
}
PYTHON = "3.11"


def wheels(library: str, packages: list[str]) -> list[str]:
    """Return the wheels' file names; raises CalledProcessError where there is none for a package."""
    platforms = [part for each in PLATFORMS[library] for part in ("--platform", each)]
    abis = [part for each in (f"cp{PYTHON.replace('.', '')}", "abi3", "none") for part in ("--abi", each)]
    with tempfile.TemporaryDirectory() as folder:
        command = [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--target", folder),
            *("--only-binary=:all:", "--implementation", "cp", "--python-version", PYTHON, "--report", "-"),
            *(*platforms, *abis, *packages),
        ]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return sorted(each["download_info"]["url"].rsplit("/", 1)[1] for each in json.loads(done.stdout)["install"])


if __name__ == "__main__":
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for name in PLATFORMS:
        print(f"{name}:", *wheels(name, project["dependencies"]), sep="\n  ")
