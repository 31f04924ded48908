"""Jobs: the small computations that a report is made of, each repeatable from its arguments and the data alone.

They are done over processes, and their results are kept: what was done once is read again.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import glassfleet
from console.progress import Work
from lab.experiments.workers import Worker, ask_all
from lab.papers.page import Blocks
from schemas.codec import canonical_json
from schemas.errors import StorageError, os_faults_as
from schemas.private_files import replace_private

FOLDS = 5


@dataclass(frozen=True)
class Job:
    """One computation.

    Attributes
    ----------
    kind : str
        Which of :data:`lab.papers.work.KINDS`.
    arguments : Mapping
        JSON values. Rows are those of `file` in the data folder, or of the vehicles of `source`, if there are such.
    """

    kind: str
    arguments: Mapping[str, Any]

    @property
    def label(self) -> str:
        """What it computes, in words; no two jobs have the same."""
        return f"{self.kind}: {', '.join(f'{name} {value}' for name, value in self.arguments.items())}"

    def files(self, folder: Path) -> list[str]:
        """Return the files of the data folder that it reads."""
        if self.arguments.get("source") == "real":
            return vehicles_of(folder)
        return [self.arguments["file"]] if "file" in self.arguments else []

    def key(self, folder: Path) -> str:
        """Return the digest of all that the result depends on: arguments, data, code, versions of the libraries."""
        whole = {
            "kind": self.kind,
            "arguments": dict(self.arguments),
            "files": {name: _file_digest(folder / name) for name in self.files(folder)},
            "code": _code_digest(str(self.arguments.get("scheme", ""))),
            "libraries": _versions(),
        }
        return hashlib.sha256(canonical_json(whole)).hexdigest()


Jobs = Mapping[Any, Sequence[Job]]
Found = Mapping[Any, Sequence[Any]]
"""The results of `Jobs`, JSON values, under the same keys."""


@dataclass(frozen=True)
class Chapter:
    """A part of a paper.

    Attributes
    ----------
    key : str
        What the command line calls it.
    paper : str
        The heading that it stands under.
    title : str
    jobs : callable
        (folder, full or not) -> what it needs computed, of the data that are there.
    blocks : callable
        The results -> what stands in its section.
    needs : tuple of str
        Files of the data folder; any one of them suffices.
    aliases : tuple of str
        Further names for the command line, e.g. ``frt-fig5``.
    """

    key: str
    paper: str
    title: str
    jobs: Callable[[Path, bool], Jobs]
    blocks: Callable[[Found], Blocks]
    needs: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()


def present(data: Path, names: Iterable[str]) -> list[str]:
    """Return the datasets that are there."""
    return [name for name in names if (data / file_of(name)).is_file()]


def file_of(name: str) -> str:
    """Return the name of a dataset's file in the data folder."""
    return f"{name}.csv.gz"


def vehicles_of(data: Path) -> list[str]:
    """Return the files of the real vehicles in the data folder."""
    return [f"qoe/{path.name}" for path in sorted((data / "qoe").glob("*.csv.gz"))]


def fold_jobs(name: str, scheme: str, **arguments: Any) -> list[Job]:
    """Return a job for each fold of a dataset; `arguments` as :mod:`lab.papers.work` has them."""
    return [Job("fold", {"scheme": scheme, "file": file_of(name), "fold": fold, **arguments}) for fold in range(FOLDS)]


def results_of(jobs: Iterable[Job], data: Path, kept: Path, *, processes: int, work: Work) -> dict[str, Any]:
    """Return the results of jobs by label.

    Parameters
    ----------
    jobs : iterable of Job
    data : Path
        Folder of the datasets.
    kept : Path
        Folder of results, one JSON file per job, named by the digest of what it depends on.
    processes : int
        1: in this process.
    work : Work
        Is told how far it is, and a line of each job.

    Raises
    ------
    RunFailedError
        A job failed; what was done before is kept.
    StorageError
        Results cannot be kept.
    """
    from lab.papers.work import run_job  # it brings the learning, which lists of chapters do without

    results: dict[str, Any] = {}
    todo: list[tuple[Job, Path]] = []
    for job in {job.label: job for job in jobs}.values():
        path = kept / f"{job.key(data)}.json"
        try:
            results[job.label] = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):  # not there, or cut short
            todo.append((job, path))
    if results:
        work.say(f"{len(results)} of {len(results) + len(todo)} results are there from before")
    if not todo:
        return results
    started = time.monotonic()
    work.at(0, len(todo))
    questions = [({"kind": job.kind, "arguments": dict(job.arguments)}, job.label) for job, _ in todo]
    make = partial(Worker, "lab.papers.work", [], str(data.resolve()))
    answers = ask_all(make, processes, questions, lambda asked: run_job(data, **asked))
    cannot = StorageError, f"cannot keep results in {kept}", ". Make room there, or choose another --out"
    with os_faults_as(*cannot):
        kept.mkdir(parents=True, exist_ok=True)
    for done, (position, result) in enumerate(answers, 1):
        job, path = todo[position]
        results[job.label] = result
        with os_faults_as(*cannot):  # whole or not at all: a report that is interrupted goes on from here
            replace_private(path, json.dumps(result, allow_nan=False).encode(), 0o644)
        spent = time.monotonic() - started
        left = spent / done * (len(todo) - done)
        work(f"[{done}/{len(todo)}] {job.label}  ({spent:.0f} s, about {left:.0f} s to go)")
    return results


@cache
def _file_digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@cache
def _code_digest(scheme: str) -> str:
    """Digest of the learning core and of one scheme (all of them when none is named)."""
    root = Path(glassfleet.__file__).parent
    files = [path for path in root.rglob("*.py") if "schemes" not in path.relative_to(root).parts]
    schemes = root / "schemes"
    files += (schemes / scheme).rglob("*.py") if scheme else schemes.rglob("*.py")
    here = Path(__file__).parent
    files += [here / "work.py", here.parent / "experiments" / "folds.py", *(here.parent / "protocols").glob("*.py")]
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(str(path.relative_to(root.parent)).encode() + path.read_bytes())
    return digest.hexdigest()


@cache
def _versions() -> dict[str, str]:
    versions = {name: importlib.metadata.version(name) for name in ("numpy", "scipy", "scikit-learn")}
    for name in ("cubist", "interpret-core"):  # an extra
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions
