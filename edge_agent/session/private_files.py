"""The files of a vehicle's private runs: its key, its chain and its ledger.

runs/{run}/key      the secret of the run, 32 bytes      lives and dies with the rows, ``rows.npz``
runs/{run}/chain    what was announced, met and answered
ledger              what was answered in earlier runs over the same rows
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge_agent.storage import explained, replacing
from glassfleet.errors import PrivacyError
from glassfleet.private.chain import Chain
from glassfleet.private.groups import Announcement, Terms
from glassfleet.private.ledger import Ledger
from schemas import codec
from schemas.errors import WireError

if TYPE_CHECKING:  # fleets without private runs shall not pay for the cryptography
    from glassfleet.private.masks import RunKey


@dataclass(frozen=True)
class Met:
    """What the chain's file holds: the announcement, and the chain once the roster was seen."""

    own: Announcement
    terms: Terms
    chain: Chain | None = None


class PrivateFiles:
    """Reads and writes them; a file that cannot be read is a PrivacyError ``damaged``.

    Parameters
    ----------
    directory : Path
        The agent's own.

    Attributes
    ----------
    runs : Path
        A folder for each run.
    """

    def __init__(self, directory: Path) -> None:
        self._directory, self.runs = directory, directory / "runs"
        self._known_ledger: Ledger | None = None  # as it is on the disk; nobody else writes it

    def path(self, run: str, name: str) -> Path:
        """Return where a run's ``key`` or ``chain`` is, once there is one."""
        return self.runs / run / name

    def new_key(self, run: str) -> RunKey:
        """Make the run's key, before the vehicle has announced one."""
        from glassfleet.private.masks import RunKey  # noqa: PLC0415 - it needs the cryptography

        key = RunKey.generate()
        with replacing(self.path(run, "key")) as file:
            file.write(key.to_bytes())
        return key

    def drop_key(self, run: str) -> None:
        """Forget the key of a run."""
        with explained("delete", path := self.path(run, "key")):
            path.unlink(missing_ok=True)

    def key(self, run: str) -> RunKey:
        """Read the key that was announced; raises PrivacyError ``damaged``."""
        from glassfleet.private.masks import RunKey  # noqa: PLC0415 - it needs the cryptography

        path = self.path(run, "key")
        with explained("read", path):
            content = path.read_bytes() if path.exists() else b""
        try:
            return RunKey(content)
        except ValueError as fault:
            raise _damaged(path, fault) from fault

    def met(self, run: str) -> Met | None:
        """Return what was announced and met in a run; None: nothing."""
        value = self._read(self.path(run, "chain"))
        if value is None:
            return None
        try:
            chain = None if value["chain"] is None else Chain.from_value(value["chain"])
            return Met(Announcement.from_value(value["own"]), Terms.from_value(value["terms"]), chain)
        except (WireError, PrivacyError, ValueError, KeyError, TypeError) as fault:
            raise _damaged(self.path(run, "chain"), fault) from fault

    def save(self, run: str, met: Met) -> None:
        """Write what was announced and met in a run."""
        chain = None if met.chain is None else met.chain.to_value()
        self._write(self.path(run, "chain"), {"own": met.own.to_value(), "terms": met.terms.to_value(), "chain": chain})

    def ledger(self) -> Ledger:
        """Return the ledger, empty where there is none."""
        if self._known_ledger is not None:
            return self._known_ledger
        path = self._directory / "ledger"
        value = self._read(path)
        try:
            self._known_ledger = Ledger() if value is None else Ledger.from_value(value)
        except WireError as fault:
            raise _damaged(path, fault) from fault
        return self._known_ledger

    def save_ledger(self, ledger: Ledger) -> None:
        """Write the ledger, unless it is the one on the disk."""
        if ledger is self._known_ledger:
            return
        self._known_ledger = None
        self._write(self._directory / "ledger", ledger.to_value())
        self._known_ledger = ledger

    @staticmethod
    def _read(path: Path) -> Any:
        with explained("read", path):
            if not path.exists():
                return None
            content = path.read_bytes()
        try:
            return codec.decode(content)
        except WireError as fault:
            raise _damaged(path, fault) from fault

    @staticmethod
    def _write(path: Path, value: dict[str, Any]) -> None:
        with replacing(path) as file:
            file.write(codec.encode(value))


def _damaged(path: Path, fault: Exception) -> PrivacyError:
    return PrivacyError(
        "damaged",
        f"{path} is damaged or lost ({fault}): without it this vehicle cannot know what it told before. The next run "
        "is not concerned; a damaged ledger may be deleted once none of the rows of earlier runs is left",
    )
