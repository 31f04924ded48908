"""Create a virtual environment with the locked packages; the standard library is all this needs.

    python3 deploy/bootstrap.py .venv [LOCK]

Debian and Ubuntu ship ``venv`` without ``ensurepip`` unless python3-venv is installed, which takes root. Where that
is so, pip itself is fetched as a Python package (one pinned wheel, its SHA-256 checked) and run from the wheel.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tempfile
import urllib.request
import venv
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urljoin

ROOT = Path(__file__).resolve().parent.parent
PIP_WHEEL = "pip-25.0.1-py3-none-any.whl"
PIP_SHA256 = "c46efd13b6aa8279f33f2864459c8ce587ea6a1a59ee20de055868d8f7688f7f"
OLDEST = (3, 11)


def fetch_pip(folder: Path) -> Path:
    """Download the pinned pip wheel from the package index and check its digest."""
    index = os.environ.get("PIP_INDEX_URL", "https://pypi.org/simple").rstrip("/") + "/"
    page_url = urljoin(index, "pip/")
    with urllib.request.urlopen(page_url, timeout=60) as answer:
        page = answer.read().decode()
    link = re.search(rf'href="([^"]*{re.escape(PIP_WHEEL)}[^"]*)"', page)
    if link is None:
        sys.exit(f"{PIP_WHEEL} is not on {page_url}; install python3-venv (apt install python3-venv) and try again")
    with urllib.request.urlopen(urljoin(page_url, link.group(1)), timeout=60) as answer:
        data = answer.read()
    digest = hashlib.sha256(data).hexdigest()
    if digest != PIP_SHA256:
        sys.exit(f"{PIP_WHEEL} has SHA-256 {digest}, expected {PIP_SHA256}; nothing was installed")
    wheel = folder / PIP_WHEEL
    wheel.write_bytes(data)
    return wheel


def run_quietly(command: Sequence[str]) -> None:
    """Run a command whose output is of interest only when it fails: then all of it is shown, and the fault raised."""
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        sys.stderr.write(done.stdout.decode(errors="replace"))
    done.check_returncode()


def main() -> None:
    if sys.version_info < OLDEST:
        sys.exit(f"Glassfleet needs Python 3.11 or newer; not {sys.version.split()[0]}. Try: make PYTHON=python3.12")
    target = Path(sys.argv[1] if len(sys.argv) > 1 else ".venv")
    lock = Path(sys.argv[2]) if len(sys.argv) > 2 else ROOT / "requirements.lock"
    try:
        import ensurepip  # noqa: F401, PLC0415

        has_ensurepip = True
    except ImportError:
        has_ensurepip = False
    print(f"Setting up {target} from {lock.name} (about a minute the first time) ...", flush=True)
    venv.create(target, with_pip=has_ensurepip, clear=True, symlinks=True)
    python = str(target / "bin" / "python")
    with tempfile.TemporaryDirectory() as folder:
        pip = [python, "-m", "pip"] if has_ensurepip else [python, str(fetch_pip(Path(folder)) / "pip")]
        quiet = ["install", "--quiet", "--disable-pip-version-check", "--no-input"]
        run_quietly([*pip, *quiet, "--require-hashes", "-r", str(lock)])
        run_quietly([*pip, *quiet, "--no-deps", "--no-build-isolation", "-e", str(ROOT)])
    (target / ".ready").touch()  # for make: not every PATH has a `touch`


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as fault:
        sys.exit(f"pip failed (exit {fault.returncode}); its message is above. Is the package index reachable?")
    except OSError as fault:
        sys.exit(f"Setting up failed: {fault}")
