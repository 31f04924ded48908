"""The machine: Python, packages, schemes, folders, room on the disk, and a vehicle's data."""

from __future__ import annotations

import importlib.util
import shutil
import sys
import tempfile
from pathlib import Path

from console.checkup.finding import Finding, fine, size, warning, wrong
from console.lazy import EXTRAS
from schemas.private_files import writable_by_others
from schemas.text import counted

CORE = ("click", "cryptography", "msgpack", "numpy", "paho", "pydantic", "rfc8785", "scipy", "structlog")

LEAST_ROOM = 64 * 1024 * 1024
"""Bytes below which a journal or an outbox may fail at any moment."""

LITTLE_ROOM = 1024 * 1024 * 1024


def python() -> Finding:
    """Name the interpreter."""
    return fine("python", f"{sys.version.split()[0]} at {sys.executable}")


def core() -> Finding:
    """Look for the packages that every process needs."""
    missing = [name for name in CORE if importlib.util.find_spec(name) is None]
    if missing:
        return wrong("core packages", f"missing: {', '.join(missing)}", "install with: pip install glassfleet")
    return fine("core packages", "all there")


def schemes() -> Finding:
    """List the schemes that can run here, and what the others lack."""
    from glassfleet.contract import catalogue  # numpy comes with it

    names = catalogue.names()
    absent = "".join(f"; {name} {reason}" for name, reason in catalogue.unavailable().items())
    if not names:
        return wrong("schemes", f"none can run here{absent}", "install with: pip install glassfleet")
    return fine("schemes", ", ".join(names) + absent)


def state_folder(folder: Path) -> Finding:
    """Try to write into the state folder, or where it would be made."""
    place = _existing(folder)
    try:
        # The rights alone do not tell: a disk may be mounted read-only, or be full.
        with tempfile.NamedTemporaryFile(dir=place, prefix=".glassfleet-doctor-") as probe:
            probe.write(b"x" * 4096)
            probe.flush()
    except OSError as fault:
        return wrong(
            "state folder",
            f"{folder} cannot be written: {fault.strerror}",
            "give it to this user, or choose another with --state-dir or GLASSFLEET_STATE_DIR",
        )
    if place == folder.absolute():
        if who := writable_by_others(folder):
            return wrong("state folder", f"{who} can write {folder}: no service starts there", f"chmod 700 {folder}")
        if folder.stat().st_mode & 0o077:
            return warning(
                "state folder",
                f"other users can look into {folder}, which holds secrets",
                f"chmod 700 {folder}; each service does it when it starts",
            )
    return fine("state folder", f"{folder} can be written")


def disk(folder: Path) -> Finding:
    """Look how much room is left where state is kept."""
    free = shutil.disk_usage(_existing(folder)).free
    fix = "free some, or move --state-dir to another disk: a full one stops the coordinator (it resumes) and agents"
    if free < LEAST_ROOM:
        return wrong("disk", f"{size(free)} are free for {folder}", fix)
    if free < LITTLE_ROOM:
        return warning("disk", f"{size(free)} are free for {folder}", fix)
    return fine("disk", f"{size(free)} are free for {folder}")


def data(path: str, target: str | None) -> list[Finding]:
    """Read a vehicle's rows as its agent would; raises DataError that says what is wrong with them."""
    from edge_agent.sources import read_source
    from edge_agent.sources.cells import HOW_TO_TEST, NO_TEST_ROWS

    source = read_source(path, target=target, hold_back=True)
    says = (
        f"{counted(source.train.rows, 'rows')} to train, {source.test.rows} to test, "
        f"{counted(len(source.train.features), 'inputs')}, target {source.train.target}"
    )
    findings = [fine("data", says), *(warning("data", text) for text in source.warnings)]
    return findings if source.test.rows else [*findings, warning("data", NO_TEST_ROWS, HOW_TO_TEST)]


def extras() -> list[Finding]:
    """Say which optional parts are installed."""
    findings = []
    for extra in dict.fromkeys(EXTRAS.values()):
        missing = [name for name, part in EXTRAS.items() if part == extra and importlib.util.find_spec(name) is None]
        words = f"not installed (pip install 'glassfleet[{extra}]')" if missing else "installed"
        findings.append(fine(f"extra {extra}", words))
    return findings


def _existing(folder: Path) -> Path:
    place = folder.absolute()
    while not place.exists():
        place = place.parent
    return place
