"""Does jobs over processes, keeps their results, says how far it is. What was done once is read again."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from console.progress import Work
from lab.experiments.workers import Worker, ask_all
from lab.papers.jobs import Job
from lab.papers.work import run_job
from schemas.errors import RunFailedError, StorageError, os_faults_as
from schemas.private_files import replace_private


def results_of(jobs: Sequence[Job], data: Path, kept: Path, *, processes: int, work: Work) -> dict[str, Any]:
    """Return the results of jobs by label.

    Parameters
    ----------
    jobs : sequence of Job
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
    results: dict[str, Any] = {}
    todo: list[tuple[Job, Path]] = []
    for job in {job.label: job for job in jobs}.values():
        path = kept / f"{job.key(data)}.json"
        earlier = _read(path)
        if earlier is None:
            todo.append((job, path))
        else:
            results[job.label] = earlier
    if results:
        work.say(f"{len(results)} of {len(results) + len(todo)} results are there from before")
    if not todo:
        return results
    _make(kept)
    started = time.monotonic()
    done = 0
    work.at(0, len(todo))

    def keep(job: Job, path: Path, result: Any) -> None:
        nonlocal done
        done += 1
        results[job.label] = result
        _write(path, result)
        spent = time.monotonic() - started
        left = spent / done * (len(todo) - done)
        work(f"[{done}/{len(todo)}] {job.label}  ({spent:.0f} s, about {left:.0f} s to go)")

    if processes == 1:
        for job, path in todo:
            try:
                keep(job, path, run_job(data, job.kind, job.arguments))
            except ValueError as fault:
                raise RunFailedError(f"{job.label}: {fault}") from fault
        return results
    questions = [({"kind": job.kind, "arguments": dict(job.arguments)}, job.label) for job, _ in todo]
    for position, result in ask_all(lambda: Worker("lab.papers.work", [], str(data.resolve())), processes, questions):
        keep(*todo[position], result)
    return results


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None  # not there, or cut short: it is computed again


def _make(folder: Path) -> None:
    with os_faults_as(StorageError, f"cannot make {folder}", ". Choose another --out"):
        folder.mkdir(parents=True, exist_ok=True)


def _write(path: Path, result: Any) -> None:
    """Write whole or not at all: a report that is interrupted goes on from here."""
    with os_faults_as(StorageError, f"cannot keep a result in {path.parent}", ". Make room there"):
        replace_private(path, json.dumps(result, allow_nan=False).encode(), 0o644)
