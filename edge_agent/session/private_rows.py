"""Which rows a vehicle answers private runs from, and by what it knows them again.

    private/            training and test rows of the last run that was answered

Runs are answered from the rows of the last one until enough have come or gone since: the difference of two runs' sums
would be these. Then the new ones are offered, and taken when others have new rows, too: not known before the run's
groups are.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from edge_agent.session.snapshots import Snapshot, Snapshots, load_rows
from edge_agent.storage import explained, make_directory
from glassfleet.data.dataset import Dataset
from glassfleet.errors import PrivacyError
from glassfleet.private.ledger import Ledger, row_hashes, rows_tag

Hashes: TypeAlias = "np.ndarray[Any, np.dtype[np.uint64]]"


@dataclass(frozen=True)
class _Hashed:
    digest: str  # of the training rows
    training: Hashes
    every: Hashes


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
            ``few-new-rows``: few came or went, and the rows of the last run are gone.
        StorageError
        """
        train, test = present, self._tests()
        every = self._every(train, test)
        if ledger.has_some(every):
            # Products of fewer rows than twice their columns may tell what these rows span.
            least = max(self._least_rows, 2 * (len(present.features) + 2))
            kept, tells_few = self._kept(), ledger.tells_few(every, least)
            if tells_few and kept is None:
                raise PrivacyError("few-new-rows", f"{self._directory} lacks the rows of the last private run")
            if kept is not None:
                if not tells_few and not np.array_equal(every, self._every(*kept)):
                    self._snapshots.offer(run, train, test)
                train, test = kept
        self._snapshots.tests_of_run(run, test)
        return train

    def offered(self, run: str) -> dict[str, str]:
        """Return what is announced of other rows that the run may be answered from; nothing if there are none."""
        offered = self._snapshots.offered(run)
        if offered is None:
            return {}
        train, test, digest = offered
        return {"new_rows": rows_tag(self._secret, self._every(train, test)), "new_digest": digest}

    def take_offer(self, run: str) -> None:
        """Answer a run from the other rows, if there are any. Idempotent."""
        self._snapshots.take_offer(run)
        self._known.pop(run, None)  # test rows may be others though training rows are not

    def are(self, run: str, snapshot: Snapshot, rows: Dataset) -> bool:
        """Whether training rows are those of a snapshot."""
        return rows is snapshot.data or np.array_equal(self.training(run, snapshot), row_hashes(self._secret, rows))

    def training(self, run: str, snapshot: Snapshot) -> Hashes:
        """Return the hashes of a run's training rows, see :func:`glassfleet.private.ledger.row_hashes`."""
        return self._hashed(run, snapshot).training

    def every(self, run: str, snapshot: Snapshot) -> Hashes:
        """Return those of its test rows, too: scores tell of them."""
        return self._hashed(run, snapshot).every

    def tag(self, run: str, snapshot: Snapshot) -> str:
        """Return what tells a run's rows from others, see :func:`glassfleet.private.ledger.rows_tag`."""
        return rows_tag(self._secret, self.every(run, snapshot))

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
            training = row_hashes(self._secret, snapshot.data)
            every = self._every(snapshot.data, self._snapshots.tests_of_run(run, self._tests()), training)
            known = self._known[run] = _Hashed(snapshot.digest, training, every)
        return known

    def _every(self, train: Dataset, test: Dataset, training: Hashes | None = None) -> Hashes:
        """Return hashes of all rows; a row that goes from one part to the other is another one."""
        if training is None:
            training = row_hashes(self._secret, train)
        return np.union1d(training, row_hashes(hmac.digest(self._secret, b"tests", "sha256"), test))

    def _kept(self) -> tuple[Dataset, Dataset] | None:
        """Return training and test rows of the last run; None: they are gone, or there was none."""
        paths = [self._directory / name for name in ("rows.npz", "test.npz")]
        return (load_rows(paths[0]), load_rows(paths[1])) if all(path.exists() for path in paths) else None
