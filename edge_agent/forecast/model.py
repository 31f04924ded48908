"""The model that is served: the last good one that the agent keeps on disk, exchanged when a newer one is there."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassfleet.contract import catalogue
from glassfleet.contract.scheme import personal_model
from glassfleet.data.categories import code_of
from glassfleet.data.cells import MISSING, PAIRS, as_number, is_empty
from glassfleet.data.domain import Domain, Variable
from glassfleet.model.baseline import ReferenceRow, reference_of
from schemas.codec import document_digest
from schemas.errors import DataError, GlassfleetError, NotFoundError
from schemas.log import Log
from schemas.record import CENTRAL, ModelRecord

DATA_PAUSE = 60.0
"""Seconds until rows that could not be read or used are tried again: a database may come back, and is not pressed."""

PERSONAL = "personal"
"""``parameters.source`` of a record whose model a vehicle made of a published one, its parent; it stays there.

Of its forecasts only what it answers may be published, never a rule or what one says of the inputs."""


@dataclass(frozen=True)
class Served:
    """A model in use.

    Attributes
    ----------
    record : ModelRecord
    model : glassfleet.model.protocol.Model
    content : bytes
        The record as it was read, for the log.
    reference : ReferenceRow or None
        What forecasts are compared with; None: what the record does not have.
    """

    record: ModelRecord
    model: Any
    content: bytes
    reference: ReferenceRow | None = None

    @property
    def is_personal(self) -> bool:
        """Whether the vehicle made it with its rows: its rules stay at the vehicle."""
        return self.record.parameters.get("source") == PERSONAL


def load_model(content: bytes, rows: str | None = None, former: Served | None = None) -> Served:
    """Read a record, verify its digest, and rebuild the model, or make the vehicle's own of it.

    Parameters
    ----------
    content : bytes
        The record.
    rows : str or None
        Where the vehicle's rows are, as the agent has them: for schemes of which every vehicle makes its own model. The
        same rows give the same model. A record that :class:`ModelWatch` made of such a one needs none.
    former : Served or None
        What is in use: if the vehicle made it of the very same model, it is not made again.

    Raises
    ------
    VerificationError, DocumentError, NotFoundError
        It was changed, cannot be read, is of a scheme that is not installed here, or needs the vehicle's rows.
    DataError
        The rows cannot be used.
    """
    record = ModelRecord.load(content)
    scheme = catalogue.load(record.scheme)
    model = catalogue.model_of(record)
    if scheme.abilities.personalise is None or record.parameters.get("source") == PERSONAL:
        return Served(record, model, content, reference_of(record.parameters, model.domain))
    if rows is None:
        raise NotFoundError(
            f"of model {record.name!r} (scheme {record.scheme}) every vehicle makes its own with its rows: give them "
            "with --data, as `glassfleet agent` has them"
        )
    is_made = former is not None and former.is_personal and former.record.parents == [record.digest]
    own = former.model if former is not None and is_made else _own_of(scheme, model, rows)
    document = own.to_document()
    made = record.model_copy(
        update={
            "document": document,
            "digest": document_digest(document),
            "parents": [record.digest],
            "parameters": {**record.parameters, "source": PERSONAL},
            "signatures": [],  # it is no longer what was signed
        }
    )
    return Served(made, own, made.to_bytes())


def _own_of(scheme: Any, model: Any, rows: str) -> Any:
    """Return what the vehicle makes of a model with its rows."""
    from edge_agent.sources import read_source  # noqa: PLC0415 - few forecasters need it

    domain = model.domain
    categories = any(variable.categories for variable in domain.features)
    source = read_source(
        rows, target=domain.target_name, labels=domain.target is None, categories=categories, hold_back=True
    )
    try:
        return personal_model(scheme, model, source.train)
    except (KeyError, ValueError) as fault:
        raise DataError(f"{rows}: the vehicle's own model cannot be made of these rows: {fault}") from fault


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
    log : Log
    rows : str or None
        Where the vehicle's rows are, for models of which it makes its own.
    clock : callable
        Seconds that only go forward.
    """

    def __init__(
        self,
        directory: Path,
        name: str | None,
        log: Log,
        rows: str | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._directory = directory
        self._name = name
        self._log = log
        self._rows = rows
        self._clock = clock
        self._again: float | None = None
        self._seen: Mark | None = None
        self._served: Served | None = None
        self._complaint = ""
        self._references: dict[str, tuple[Mark, bool]] = {}

    @property
    def wanted(self) -> str:
        """What it looks for, in words."""
        which = "a model" if self._name is None else f"model {self._name!r}"
        return f"{which} that `glassfleet agent` keeps in {self._directory}"

    @property
    def complaint(self) -> str:
        """Why the newest model that was found cannot be used; empty: there is none, or it can."""
        return self._complaint

    def look(self) -> tuple[Served | None, bool]:
        """Return the model to use, and whether it is another than before. A file that cannot be used is logged once.

        It is not read again until it changes; where the vehicle's rows are what cannot be used, after a pause.
        """
        path = self._path()
        if path is None:
            return self._served, False
        try:
            mark = _mark(path)
            if mark == self._seen and (self._again is None or self._clock() < self._again):
                return self._served, False
            content = path.read_bytes()
        except FileNotFoundError:
            return self._served, False
        except OSError as fault:
            self._say_once(str(fault))
            return self._served, False
        self._seen, self._again = mark, None
        try:
            served = load_model(content, self._rows, self._served)
        except GlassfleetError as fault:
            if isinstance(fault, DataError):
                self._again = self._clock() + DATA_PAUSE  # rows may come later than the model, a database too
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
        models = [path for path in kept if not self._is_reference(path)]
        if len(models) > 1:
            names = ", ".join(path.stem for path in models)
            self._say_once(f"there are several models ({names}): name one with --model")
            return None
        return models[0] if models else None

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
    status = path.stat()
    return path.name, status.st_ino, status.st_mtime_ns, status.st_size


def inputs_of(row: Mapping[str, Any], domain: Domain) -> dict[str, float]:
    """Return a row's inputs by name, in the model's order; a category becomes its position, an empty cell NaN.

    Raises
    ------
    KeyError
        The row lacks a field.
    ValueError, TypeError
        A value is no finite number, or no text where the model takes one.
    """
    inputs = {variable.name: _number(row[variable.name], variable) for variable in domain.features}
    for variable in domain.features:
        value = inputs[variable.name]
        if not math.isfinite(value) and not (variable.may_be_empty and math.isnan(value)):
            raise ValueError(f"{variable.name!r} is {value}, not a finite number")
    return inputs


def _number(value: Any, variable: Variable) -> float:
    if variable.may_be_empty and is_empty(value):
        value = MISSING if variable.categories else math.nan
    if variable.categories:
        if isinstance(value, bool):  # the word that the fleet has for it
            words = (text for text in variable.categories for pair in PAIRS if text.lower() == pair[not value])
            value = next(words, value)
        if not isinstance(value, str):
            raise ValueError(f"{variable.name!r} is {str(value)[:40]}, and the model takes a text")
        value = code_of(value, variable.categories)
    elif value is None:
        raise ValueError(f"{variable.name!r} is empty, and the model takes a number")
    return as_number(value)


def vector(inputs: Mapping[str, float]) -> NDArray[np.float64]:
    """Return inputs as a row, shape (F,)."""
    return np.array(list(inputs.values()), dtype=np.float64)
