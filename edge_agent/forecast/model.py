"""The model that is served: the last good one that the agent keeps on disk, exchanged when a newer one is there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glassfleet import catalogue
from schemas.errors import GlassfleetError, NotFoundError
from schemas.record import CENTRAL, ModelRecord


@dataclass(frozen=True)
class Served:
    """A model in use.

    Attributes
    ----------
    record : ModelRecord
    model : glassfleet.scheme.Model
    content : bytes
        The record as it was read, for the log.
    """

    record: ModelRecord
    model: Any
    content: bytes


def load_model(content: bytes) -> Served:
    """Read a record, verify its digest, and rebuild the model.

    Raises
    ------
    VerificationError, DocumentError, NotFoundError
        It was changed, cannot be read, or is of a scheme that is not installed here or that makes a model of its own
        from the vehicle's rows.
    """
    record = ModelRecord.load(content)
    scheme = catalogue.load(record.scheme)
    if getattr(scheme, "personalise", None) is not None:
        raise NotFoundError(
            f"models of scheme {record.scheme!r} become each vehicle's own with its rows, which are not served live yet"
        )
    return Served(record, scheme.from_document(record.document), content)


Mark = tuple[str, int, int, int]
"""A file as it was: name, inode, time of change, size."""


class ModelWatch:
    """Looks, before each forecast, whether there is another model.

    Parameters
    ----------
    directory : Path
        Where the agent keeps its last good models, ``{name}.json``; it may appear later.
    name : str or None
        Which of them; None: the only one, references apart: they are there to be compared with.
    log : structlog logger
    """

    def __init__(self, directory: Path, name: str | None, log: Any) -> None:
        self._directory = directory
        self._name = name
        self._log = log
        self._seen: Mark | None = None
        self._served: Served | None = None
        self._complaint = ""
        self._references: dict[str, tuple[Mark, bool]] = {}

    @property
    def wanted(self) -> str:
        """What it looks for, in words."""
        which = "a model" if self._name is None else f"model {self._name!r}"
        return f"{which} that `glassfleet agent` keeps in {self._directory}"

    def look(self) -> tuple[Served | None, bool]:
        """Return the model to use, and whether it is another than before. A file that cannot be used is logged once."""
        path = self._path()
        if path is None:
            return self._served, False
        try:
            mark = _mark(path)
            if mark == self._seen:
                return self._served, False
            content = path.read_bytes()
        except FileNotFoundError:
            return self._served, False
        except OSError as fault:
            self._say_once(str(fault))
            return self._served, False
        self._seen = mark
        try:
            served = load_model(content)
        except GlassfleetError as fault:
            self._say_once(f"{path}: {fault}")
            return self._served, False
        if self._served is not None and served.record.digest == self._served.record.digest:
            self._served = served  # the same model, published again: nothing changes for the forecasts
            return served, False
        self._served = served
        record = served.record
        self._complaint = ""
        self._log.info("forecast-model", model=record.name, version=record.version, digest=record.digest)
        return served, True

    def _path(self) -> Path | None:
        if self._name is not None:
            return self._directory / f"{self._name}.json"
        kept = sorted(path for path in self._directory.glob("*.json") if not path.name.startswith("."))
        found = [path for path in kept if not self._is_reference(path)]
        if len(found) > 1:
            names = ", ".join(path.stem for path in found)
            self._say_once(f"there are several models ({names}): name one with --model")
            return None
        return found[0] if found else None

    def _is_reference(self, path: Path) -> bool:
        """Whether a kept model was learned in one place, and is here to be compared with; read once as it stands."""
        # Its name says so before it is opened: before each forecast there is time for a look, not for all records.
        if not path.stem.endswith(f".{CENTRAL}"):
            return False
        try:
            mark = _mark(path)
            seen, is_one = self._references.get(path.name, (None, False))
            if mark != seen:
                is_one = ModelRecord.load(path.read_bytes()).is_reference
        except GlassfleetError as fault:
            self._say_once(f"{path}: {fault}")
            is_one = True  # nobody can forecast with it, whatever it was
        except OSError:
            return True  # it goes, or comes, at this moment
        self._references[path.name] = mark, is_one
        return is_one

    def _say_once(self, text: str) -> None:
        if text != self._complaint:
            self._complaint = text
            self._log.error("forecast-model-unusable", reason=text)


def _mark(path: Path) -> Mark:
    found = path.stat()
    return path.name, found.st_ino, found.st_mtime_ns, found.st_size
