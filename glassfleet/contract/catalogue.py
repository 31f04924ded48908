"""Finds the schemes: folders under ``glassfleet/schemes`` and the entry points of other packages.

A scheme is a module that defines ``SCHEME``. A scheme that needs more packages than a vehicle has says so in
``REQUIRES``, a tuple of import names, and imports them only when it works. Where one is missing the scheme is
*unavailable*, which is told with the reason instead of failing.

A module of this distribution is imported when its scheme is used, and not for being listed: a vehicle that answers one
scheme would load all of them at every start, 0.1 s and 4 MB (measured). Its ``REQUIRES`` is read from its text.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import pkgutil
import re
from collections.abc import Iterable
from functools import cache
from importlib.abc import InspectLoader
from importlib.metadata import entry_points
from typing import cast

from glassfleet.contract.scheme import Scheme
from glassfleet.model.intervals import tell_forecasts
from glassfleet.model.protocol import Model
from glassfleet.model.tables import RuleTables, Tables
from schemas.errors import NotFoundError, UsageError
from schemas.record import ModelRecord

GROUP = "glassfleet.schemes"
"""The package of our schemes, and the entry point group by which other packages offer theirs."""

OWN = ("glassfleet", "lab")
"""Top packages of this distribution: modules in these have a ``SCHEME``."""


def names() -> list[str]:
    """Return the names of the schemes that can be used here, sorted."""
    return sorted(name for name in _modules() if not _reason(name))


def unavailable() -> dict[str, str]:
    """Return the schemes that cannot be used here, by name, each with the reason."""
    return {name: reason for name in sorted(_modules()) if (reason := _reason(name))}


def load(name: str) -> Scheme:
    """Return a scheme by name.

    Raises
    ------
    NotFoundError
        No such scheme, or it cannot be used here; the text names the reason and the schemes that can.
    """
    if name not in _modules():
        raise NotFoundError(f"no scheme {name!r}; known: {', '.join(names()) or 'none'}")
    if reason := _reason(name):
        raise NotFoundError(f"scheme {name!r} cannot be used here: {reason}")
    return cast("Scheme", importlib.import_module(_modules()[name]).SCHEME)


def model_of(record: ModelRecord) -> Model:
    """Return the model of a record, with what the record says beside the document of its rules' forecasts.

    Raises
    ------
    NotFoundError
        Its scheme cannot be used here.
    DocumentError, VerificationError
        It is malformed, or was changed.
    """
    model = load(record.scheme).from_document(record.document)
    tell_forecasts(model, record.parameters)
    return model


def tables_of(model: Model) -> Tables:
    """Return the model's tables.

    Raises
    ------
    UsageError
        The scheme states none for it, or is not installed.
    """
    try:
        tables = load(model.scheme).abilities.tables
    except NotFoundError as fault:
        raise UsageError(str(fault)) from fault
    if tables is None:
        raise UsageError(f"scheme {model.scheme!r} has no tables(model), which c and fml need; json holds its models")
    return tables(model)


def rule_tables(model: Model) -> RuleTables | None:
    """Return when which rule of the model fires, and what it says; None where that is not known, or there are none."""
    try:
        tables = tables_of(model)
    except UsageError:
        return None
    return tables if isinstance(tables, RuleTables) else None


@cache
def _modules() -> dict[str, str]:
    """Return the module of each scheme; our folders win over entry points of the same name."""
    others = {point.name: point.module for point in entry_points(group=GROUP)}
    package = importlib.import_module(GROUP)
    ours = {
        module.name: f"{package.__name__}.{module.name}"
        for module in pkgutil.iter_modules(package.__path__)
        if module.ispkg and not module.name.startswith("_")
    }
    return others | ours


@cache
def _reason(name: str) -> str:
    """Return why the scheme cannot be used, or an empty text."""
    place = _modules()[name]
    try:
        if place.partition(".")[0] in OWN:
            return _missing(_stated(place))
        module = importlib.import_module(place)
    except ImportError as fault:
        return f"needs {fault.name or fault}, which is not installed"
    except Exception as fault:  # noqa: BLE001  another package's scheme must not take the other schemes with it
        return f"its module cannot be loaded ({type(fault).__name__}: {fault})"
    if missing := _missing(getattr(module, "REQUIRES", ())):
        return missing
    return "" if hasattr(module, "SCHEME") else "its module defines no SCHEME"


def _stated(module: str) -> tuple[str, ...]:
    """Return the ``REQUIRES`` of a module that is not imported for it."""
    spec = importlib.util.find_spec(module)  # of a package that is not installed this raises ImportError
    if spec is None:
        raise ModuleNotFoundError(f"no module {module}", name=module)
    loader = cast("InspectLoader", spec.loader)
    match = re.search(r"^REQUIRES = (\(.*?\))$", loader.get_source(module) or "", re.MULTILINE | re.DOTALL)
    return tuple(ast.literal_eval(match[1])) if match else ()


def _missing(needs: Iterable[str]) -> str:
    missing = [need for need in needs if not _is_installed(need)]
    return f"needs {', '.join(missing)}, which is not installed" if missing else ""


def _is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:  # the parent of a dotted name is missing
        return False
