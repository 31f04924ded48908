"""The pictures in docs/images, and the sources of what they are of: ``make pictures`` notes their digests."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from tests.support.docs.pages import ROOT

FOLDER = ROOT / "docs" / "images"
NOTE = FOLDER / "pictures.sha256"
MOST_BYTES = 3_000_000
"""All pictures together: everybody who clones the repository takes them along."""
SEEN = (
    "coordinator/http/dashboard/*.py", "coordinator/http/dashboard/templates/*.html",
    "coordinator/http/dashboard/static/*.*", "glassfleet/export/svg/*.*", "lab/demo/display.py", "lab/demo/view.py",
)  # fmt: skip
"""What makes the dashboard's pages and the demonstration's screen look as they do."""


def digests(root: Path = ROOT) -> dict[str, str]:
    """Return the SHA-256 of each source by its path; how lines end and in which order files are found is no matter."""
    return {
        path.relative_to(root).as_posix(): hashlib.sha256(path.read_bytes().replace(b"\r\n", b"\n")).hexdigest()
        for pattern in SEEN
        for path in root.glob(pattern)
    }


def as_note(known: Mapping[str, str]) -> str:
    """Return digests as ``sha256sum`` writes them."""
    return "".join(f"{digest}  {path}\n" for path, digest in sorted(known.items()))


def from_note(text: str) -> dict[str, str]:
    """Read what `as_note` has written."""
    return {path: digest for digest, path in (line.split(maxsplit=1) for line in text.splitlines() if line.strip())}


def stale(noted: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return the sources that changed, came or went since the pictures were taken."""
    return sorted(path for path in noted.keys() | now.keys() if noted.get(path) != now.get(path))
