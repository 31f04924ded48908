"""Which rows a vehicle answers private runs from, and by what it knows them again.

    private/            training and test rows of the last run that was answered

Runs are answered from the rows of the last one until enough have come or gone since: the difference of two runs' sums
would be these. Then the new ones are offered, and taken when others have new rows, too: not known before the run's
groups are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from edge_agent.session.snapshots import Snapshot, Snapshots, load_rows
from edge_agent.storage import explained, make_directory, replacing
from glassfleet.data.dataset import Dataset
from glassfleet.errors import PrivacyError
from glassfleet.private.chain import Chain
from glassfleet.private.groups import Announcement, Terms
from glassfleet.private.ledger import Ledger, Rows, hashed, row_hashes, rows_tag
from schemas import codec
from schemas.errors import WireError

if TYPE_CHECKING:  # fleets without private runs shall not pay for the cryptography
    from glassfleet.private.masks import RunKey


Hashes: TypeAlias = "np.ndarray[Any, np.dtype[np.uint64]]"


@dataclass(frozen=True)
class _Hashed:
    digest: str  # of the training rows
    rows: Rows
    distinct: int  # training rows


class PrivateRows:
    """Rows of private runs.

    Parameters
    ----------
    directory : Path
        The agent's own.
    secret : bytes
        The agent's: rows are hashed with it, alike in all runs.
    snapshots : Snapshots
        Rows of the runs.
    tests : callable
        Gives the test rows that the vehicle has now.
    least_rows : int
        Fewest rows that make a vehicle company for others.
    """

    def __init__(
        self, directory: Path, secret: bytes, snapshots: Snapshots, tests: Callable[[], Dataset], least_rows: int
    ) -> None:
        self._directory = directory / "private"
        self._secret = secret
        self._snapshots = snapshots
        self._tests = tests
        self._least_rows = least_rows
        self._known: dict[str, _Hashed] = {}  # by run

    def choose(self, run: str, present: Dataset, ledger: Ledger) -> Dataset:
        """Return the training rows that a run is joined with, freeze its test rows, and offer new ones.

        Raises
        ------
        PrivacyError
            ``few-new-rows``: few came or went, and the rows of the last run are gone. ``not-private``: other test rows
            were frozen for the run before.
        StorageError
        """
        train, test = present, self._tests()
        rows, _ = self._of(train, test)
        if ledger.has_some(rows) and not ledger.has(rows):
            # Products of fewer rows than twice their columns may tell what these rows span.
            least = max(self._least_rows, 2 * (len(present.features) + 2))
            kept, tells_few = self._kept(ledger), ledger.tells_few(rows, least)
            if tells_few and kept is None:
                raise PrivacyError("few-new-rows", f"{self._directory} lacks the rows of the last private run")
            if kept is not None:
                if not tells_few:
                    self._snapshots.offer(run, train, test)
                train, test = kept
        if not np.array_equal(self._tests_of(self._snapshots.tests_of_run(run, test)), self._tests_of(test)):
            raise PrivacyError("not-private", "the run's test rows were frozen before it was announced")
        return train

    def offered(self, run: str) -> dict[str, str]:
        """Return what is announced of other rows that the run may be answered from; nothing if there are none."""
        offered = self._snapshots.offered(run)
        if offered is None:
            return {}
        train, test, digest = offered
        rows, _ = self._of(train, test)
        return {"new_rows": self._tag(rows.training), "new_tests": self._tag(rows.tests), "new_digest": digest}

    def take_offer(self, run: str) -> None:
        """Answer a run from the other rows, if there are any. Idempotent."""
        self._snapshots.take_offer(run)
        self.forget(run)

    def are(self, run: str, snapshot: Snapshot, rows: Dataset) -> bool:
        """Whether training rows are those of a snapshot."""
        own = self.of_run(run, snapshot).training
        return rows is snapshot.data or np.array_equal(own, row_hashes(self._secret, rows))

    def of_run(self, run: str, snapshot: Snapshot) -> Rows:
        """Return the hashes of a run's rows."""
        return self._hashed(run, snapshot).rows

    def distinct(self, run: str, snapshot: Snapshot) -> int:
        """Return how many different training rows a run has."""
        return self._hashed(run, snapshot).distinct

    def tags(self, run: str, snapshot: Snapshot) -> tuple[str, str]:
        """Return what tells a run's training and test rows from others."""
        rows = self.of_run(run, snapshot)
        return self._tag(rows.training), self._tag(rows.tests)

    def keep(self, run: str) -> None:
        """Keep the rows of a run that is answered; no copy is made. Raises StorageError."""
        for path in (self._snapshots.path(run), self._snapshots.test_path(run)):
            kept = make_directory(self._directory) / path.name
            with explained("keep", kept):
                if path.exists() and not (kept.exists() and kept.samefile(path)):
                    link = kept.with_suffix(".new")
                    link.unlink(missing_ok=True)
                    link.hardlink_to(path)
                    link.replace(kept)

    def forget(self, run: str) -> None:
        """Forget the hashes of a run that is over."""
        self._known.pop(run, None)

    def _hashed(self, run: str, snapshot: Snapshot) -> _Hashed:
        known = self._known.get(run)
        if known is None or known.digest != snapshot.digest:
            rows, distinct = self._of(snapshot.data, self._snapshots.tests_of_run(run, self._tests()))
            known = self._known[run] = _Hashed(snapshot.digest, rows, distinct)
        return known

    def _of(self, train: Dataset, test: Dataset) -> tuple[Rows, int]:
        training, distinct = hashed(self._secret, train)
        return Rows(training, self._tests_of(test)), distinct

    def _tests_of(self, test: Dataset) -> Hashes:
        return row_hashes(self._secret, test)

    def _tag(self, hashes: Hashes) -> str:
        return rows_tag(self._secret, hashes)

    def _kept(self, ledger: Ledger) -> tuple[Dataset, Dataset] | None:
        """Return training and test rows of the last run; None: they are gone, or of two runs (killed between)."""
        paths = [self._directory / name for name in ("rows.npz", "test.npz")]
        if not all(path.exists() for path in paths):
            return None
        train, test = map(load_rows, paths)
        return (train, test) if ledger.has(self._of(train, test)[0]) else None


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
