"""Jobs: the small computations that a report is made of, each repeatable from its arguments and the data alone."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, TypedDict

import glassfleet
from lab.papers.page import Blocks
from schemas.codec import canonical_json

Results = Mapping[str, Any]
"""A JSON value by the label of its job."""


class Arguments(TypedDict, total=False):
    """What a fold or a split may be told beside its rows, see :mod:`lab.papers.work`."""

    scheme: str
    parameters: Mapping[str, Any]
    settings: Sequence[str]
    skew: str
    seed: int
    participation: float


@dataclass(frozen=True)
class Job:
    """One computation.

    Attributes
    ----------
    kind : str
        Which of :data:`lab.papers.work.KINDS`.
    label : str
        For progress.
    arguments : Mapping
        JSON values.
    files : tuple of str
        Files of the data folder that it reads.
    """

    kind: str
    label: str
    arguments: Mapping[str, Any]
    files: tuple[str, ...] = field(default_factory=tuple)

    def key(self, folder: Path) -> str:
        """Return the digest of all that the result depends on: arguments, data, code, versions of the libraries."""
        whole = {
            "kind": self.kind,
            "arguments": dict(self.arguments),
            "files": {name: _file_digest(folder / name) for name in self.files},
            "code": _code_digest(str(self.arguments.get("scheme", ""))),
            "libraries": _versions(),
        }
        return hashlib.sha256(canonical_json(whole)).hexdigest()


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
        (folder, full or not) -> its jobs; none when the data are not there.
    blocks : callable
        (results by label, folder) -> what stands in its section. Given the results of those jobs that were done.
    needs : tuple of str
        Files of the data folder; any one of them suffices.
    aliases : tuple of str
        Further names for the command line, e.g. ``frt-fig5``.
    """

    key: str
    paper: str
    title: str
    jobs: Callable[[Path, bool], list[Job]]
    blocks: Callable[[Results, Path], Blocks]
    needs: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()


def present(data: Path, names: Iterable[str]) -> list[str]:
    """Return the datasets that are there."""
    return [name for name in names if (data / file_of(name)).is_file()]


def file_of(name: str) -> str:
    """Return the name of a dataset's file in the data folder."""
    return f"{name}.csv.gz"


def fold_label(title: str, name: str, fold: int, variant: str = "") -> str:
    """Return the label of a fold, counted from 0, of a dataset in a paper's chapter, learned with a variant."""
    return f"{title} {name}{f', {variant}' if variant else ''}, fold {fold + 1}"


def fold_job(title: str, name: str, fold: int, variant: str, arguments: Arguments) -> Job:
    """Return the job of such a fold; `arguments` are :func:`lab.papers.work.run_job`'s."""
    file = file_of(name)
    return Job("fold", fold_label(title, name, fold, variant), {"file": file, "fold": fold, **arguments}, (file,))


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
