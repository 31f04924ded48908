"""Snapshots of rows: within a run an agent answers from the same rows, whatever happens to its data or to its process.

At the first answer of a run the training rows are written to ``{state_dir}/runs/{run}/rows.npz``; every contribution
of the run carries their number and a keyed digest. The digest is HMAC-SHA256 under the agent's secret over the run and
the rows: the coordinator can tell that rows changed, but neither guess rows and test the guess, nor recognise the same
rows in another run.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import shutil
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from edge_agent.storage import explained, make_directory, replacing
from glassfleet.data.dataset import Dataset
from schemas import codec
from schemas.errors import StorageError

KEPT_RUNS = 16
"""Snapshots of rows that are kept when runs end while the agent is away: each is as large as the data."""

_BLOCK = 4096


@dataclass(frozen=True)
class Snapshot:
    """The rows that a run is answered from.

    Attributes
    ----------
    data : Dataset
    digest : str
        Keyed digest, 64 hex digits.
    """

    data: Dataset
    digest: str


def keyed_digest(secret: bytes, run: str, data: Dataset) -> str:
    """HMAC-SHA256 (hex) of the run and the rows in a canonical form (little-endian, C order; labels as UTF-8)."""
    mac = hmac.new(secret, b"glassfleet rows 1\0", hashlib.sha256)
    labels = data.y.dtype.kind not in "fiu"
    head = {"run": run, "features": list(data.features), "target": data.target, "rows": data.rows, "labels": labels}
    if data.categories:
        head["categories"] = _categories(data)
    mac.update(codec.encode(head))
    for start in range(0, data.rows, _BLOCK):  # blocks: no second copy of all rows
        mac.update(np.ascontiguousarray(data.X[start : start + _BLOCK], dtype="<f8").tobytes())
        block = data.y[start : start + _BLOCK]
        if labels:
            mac.update(codec.encode([str(label) for label in block]))
        else:
            mac.update(np.ascontiguousarray(block, dtype="<f8").tobytes())
    return mac.hexdigest()


def noise_key(secret: bytes, run: str, task_digest: str) -> bytes:
    """Return the key, 32 bytes, that an answer's privacy noise is drawn from; it tells nothing about the secret."""
    return hmac.new(secret, codec.encode({"noise": 1, "run": run, "task": task_digest}), hashlib.sha256).digest()


def condense_key(secret: bytes) -> bytes:
    """Return the key, 32 bytes, by which a vehicle draws made-up rows; it tells nothing about the secret."""
    return hmac.new(secret, codec.encode({"condense": 1}), hashlib.sha256).digest()


def privacy_generator(key: bytes) -> np.random.Generator:
    """Return the generator for an answer's privacy noise, from its :func:`noise_key`.

    Nobody else can predict it, and answering the same task again draws the same. A fresh draw per answer would
    let a coordinator that asks twice average the noise away.
    """
    return np.random.Generator(np.random.PCG64(int.from_bytes(key, "little")))


class Snapshots:
    """Keeps the snapshots of the open runs.

    Parameters
    ----------
    directory : Path
        ``{state_dir}/runs``; created when needed.
    secret : bytes
        The agent's secret.
    max_runs : int
        Snapshots on disk at most: runs may end while the agent is away. The oldest go first.
    """

    def __init__(self, directory: Path, secret: bytes, *, max_runs: int = KEPT_RUNS) -> None:
        self._directory = directory
        self._secret = secret
        self._max_runs = max_runs
        self._known: dict[str, Snapshot] = {}

    def of_run(self, run: str, data: Dataset) -> Snapshot:
        """Return the rows of `run`: those of the first call, from memory or disk; `data` when this is the first.

        Raises
        ------
        StorageError
            The snapshot cannot be written (full disk) or read.
        """
        known = self._known.get(run)
        if known is not None:
            return known
        path = self.path(run)
        digest = keyed_digest(self._secret, run, data)
        if path.exists():
            stored = load_rows(path)
            stored_digest = keyed_digest(self._secret, run, stored)
            # The same rows as now: share them, with what the client halves have cached, instead of holding them twice.
            snapshot = Snapshot(data if stored_digest == digest else stored, stored_digest)
        else:
            make_directory(path.parent)
            with replacing(path) as file:
                write_rows(file, data)
            snapshot = Snapshot(data, digest)
        self._known[run] = snapshot
        self._limit(run)
        return snapshot

    def tests_of_run(self, run: str, data: Dataset) -> Dataset:
        """Return the test rows of a private run: those of the first call. Raises StorageError as `of_run`."""
        path = self.test_path(run)
        if path.exists():
            return load_rows(path)
        make_directory(path.parent)
        with replacing(path) as file:
            write_rows(file, data)
        return data

    def offer(self, run: str, train: Dataset, test: Dataset) -> None:
        """Keep other training and test rows for `run`, in case that these are answered from."""
        make_directory(self._directory / run)
        for part, data in (("test", test), ("rows", train)):
            with replacing(self._offered(run, part)) as file:
                write_rows(file, data)

    def offered(self, run: str) -> tuple[Dataset, Dataset, str] | None:
        """Return other training and test rows of `run`, and the digest of the former; None: there are none."""
        if not self._offered(run, "rows").exists():
            return None
        train, test = (load_rows(self._offered(run, part)) for part in ("rows", "test"))
        return train, test, keyed_digest(self._secret, run, train)

    def take_offer(self, run: str) -> None:
        """Answer `run` from the other rows, if there are any. Idempotent; whoever is killed in it ends it later."""
        for part, path in (("test", self.test_path(run)), ("rows", self.path(run))):
            if self._offered(run, part).exists():
                self._offered(run, part).replace(path)
        self._known.pop(run, None)

    def _offered(self, run: str, part: str) -> Path:
        return self._directory / run / f"new-{part}.npz"

    def test_path(self, run: str) -> Path:
        """Return where the test rows of `run` are, once they were asked for."""
        return self._directory / run / "test.npz"

    def path(self, run: str) -> Path:
        """Return where the snapshot of `run` is, once there is one."""
        return self._directory / run / "rows.npz"

    def drop(self, run: str) -> None:
        """Delete the snapshot of a run that is over, and what was remembered of its rows. Idempotent."""
        if (known := self._known.pop(run, None)) is not None:
            known.data.memo.clear()
        shutil.rmtree(self._directory / run, ignore_errors=True)

    def _limit(self, current: str) -> None:
        with explained("list", self._directory):
            runs = sorted((path for path in self._directory.iterdir()), key=lambda path: path.stat().st_mtime)
        for path in [path for path in runs if path.name != current][: max(0, len(runs) - self._max_runs)]:
            self.drop(path.name)


def _categories(data: Dataset) -> dict[str, list[str]]:
    return {name: list(texts) for name, texts in sorted(data.categories.items())}


def write_rows(file: IO[bytes], data: Dataset) -> None:
    """Write rows as `load_rows` reads them."""
    np.savez(
        file,
        features=np.array(data.features, dtype=np.str_),
        target=np.array(data.target, dtype=np.str_),
        X=data.X,
        y=data.y if data.y.dtype.kind in "fiu" else data.y.astype(np.str_),  # text, never objects
        categories=np.array(json.dumps(_categories(data))),
    )


def load_rows(path: Path) -> Dataset:
    """Return the rows of a snapshot; raises StorageError when it cannot be read."""
    try:
        with explained("read", path), np.load(path, allow_pickle=False) as stored:
            return Dataset(
                tuple(str(name) for name in stored["features"]),
                str(stored["target"]),
                stored["X"],
                stored["y"],
                categories={name: tuple(own) for name, own in json.loads(str(stored["categories"])).items()},
            )
    except (ValueError, KeyError, zipfile.BadZipFile, EOFError) as fault:
        raise StorageError(
            f"the snapshot {path} is damaged ({fault}): delete its directory; the agent then answers the run from its "
            "present rows, and the coordinator says if they differ"
        ) from fault
