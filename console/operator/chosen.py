"""The model that a command names, published or in a file, in the words asked for; and rows as it takes them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from console.broker_discovery import broker_url
from console.common import BrokerOptions, F, broker_options, json_file, rows_place, security_options, versioned
from schemas.errors import DataError, DocumentError, UsageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from edge_agent.sources import Table
    from glassfleet.data.domain import Domain
    from glassfleet.model.baseline import ReferenceRow
    from glassfleet.model.protocol import Model
    from schemas.record import ModelRecord


def file_of(text: str) -> Path | None:
    """Return the file that NAME|FILE names; None: a published model."""
    return Path(text) if "/" in text or text.endswith(".json") else None


@dataclass(frozen=True, kw_only=True)
class ModelOptions(BrokerOptions):
    """What `model_options` adds."""

    name: str

    @property
    def file(self) -> Path | None:
        """The file that is named in place of a published model; None: none is."""
        return file_of(self.name)


def model_options(function: F) -> F:
    """Add what names one model, published or in a file, and where to find it."""
    function = security_options(broker_options(function))
    return click.argument("name", metavar="NAME[@VERSION]|FILE")(function)


def rows_option(words: str, *, required: bool) -> Callable[[F], F]:
    """Add ``--data SOURCE``."""
    return click.option(
        "--data", type=click.Path(), callback=rows_place, required=required, metavar="SOURCE",
        help=f"{words}: a file or URL that `glassfleet data --help` lists.",
    )  # fmt: skip


def words_option(function: F) -> F:
    """Add ``--words FILE``."""
    return click.option(
        "--words",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help='Speak in other terms and units. JSON: {"column": {"unit": "dB", "terms": ["poor", "fair", "good"]}}.',
    )(function)


def read_model_file(path: Path) -> tuple[ModelRecord | None, Model]:
    """Read a model from a record, a bare document, or an export in JSON.

    Raises
    ------
    DocumentError, VerificationError
        It is none of these, or was changed.
    """
    from glassfleet.export import read_model  # numpy comes with it

    try:
        return read_model(path.read_bytes(), str(path))
    except OSError as fault:
        raise DocumentError(f"cannot read {path}: {fault.strerror}") from fault
    except DocumentError as fault:
        text = str(fault) if str(path) in str(fault) else f"{path}: {fault}"
        raise DocumentError(f"{text}. Name a file that glassfleet model export wrote as json") from fault


def typical(options: ModelOptions, record: ModelRecord | None, learned: Model) -> ReferenceRow | None:
    """Return the typical row of a model's record, or of a file that an estimator saved; None: there is none."""
    from glassfleet.model.baseline import reference_of

    if record is not None:
        return reference_of(record.parameters, learned.domain)
    saved = b"" if options.file is None else options.file.read_bytes().lstrip()
    return reference_of(json.loads(saved) if saved[:1] == b"{" else {}, learned.domain)


def spoken(learned: Model, words: Path | None) -> Model:
    """Return the model in the words of a file."""
    from console.operator.words import reworded
    from glassfleet.explain import in_words_of

    if words is None:
        return learned
    return in_words_of(learned, reworded(learned.domain, json_file(words, "words"), str(words)))


def load(options: ModelOptions) -> tuple[ModelRecord | None, Model, str]:
    """Return the record, where there is one, the model that the options name, and what a published one is now."""
    return load_with_moved(options)[:3]


def load_with_moved(options: ModelOptions) -> tuple[ModelRecord | None, Model, str, list[str]]:
    """Return what `load` does, and what has moved since the model was learned, as the newest later version says."""
    from console.operator.published import read_registry
    from glassfleet.contract import catalogue

    if options.file is not None:
        from console.operator.published import Signatures

        record, learned = read_model_file(options.file)
        signatures = Signatures.at_hand()
        if record is not None:
            signatures.judge(record)
        elif signatures.verifier is not None:
            click.echo(f"{options.file} holds a model without a record: there is no signature to verify", err=True)
        return record, learned, "", []
    name, version = versioned(options.name)
    url = broker_url(options.broker, options.state_dir)
    registry = read_registry(url, options.fleet)
    record = registry.record(name, version)
    learned = catalogue.model_of(record)
    later = [each for (of, number), each in sorted(registry.records.items()) if of == name and number > record.version]
    drifts = [drift for each in later if (drift := each.parameters.get("drift", {})).get("of") == record.digest]
    return record, learned, registry.standing(name, record.version), drifts[-1]["moved"] if drifts else []


def row_of(source: str, number: int, learned: Model) -> NDArray[np.float64]:
    """Return the inputs of one row, counted from 1; raises UsageError when there is none."""
    table = _table(source, learned)
    X = _inputs(table, learned)
    if number > X.shape[0]:
        raise UsageError(f"--row {number}: {table.path} has {X.shape[0]} rows")
    row: NDArray[np.float64] = X[number - 1]
    return row


def inputs_of(source: str, learned: Model) -> NDArray[np.float64]:
    """Return the model's inputs from a file or query, shape (n, F)."""
    return _inputs(_table(source, learned), learned)


def _table(source: str, learned: Model) -> Table:
    from edge_agent.recordings.units import unlike
    from edge_agent.sources import read_table

    table = read_table(source, missing=[each.name for each in learned.domain.features if each.may_be_empty])
    if other := unlike(learned.domain, table.units):
        raise DataError(f"{table.path}: {other}")
    return table


def _inputs(table: Table, learned: Model) -> NDArray[np.float64]:
    missing = [name for name in learned.domain.names if name not in table.names]
    if missing:
        raise DataError(
            f"{table.path}: the model's input {missing[0]!r} is no column, or one that an import leaves out "
            f"(glassfleet data import says why); {len(missing)} missing. It needs: {', '.join(learned.domain.names)}"
        )
    return _encoded(table, learned.domain)


def _encoded(table: Table, domain: Domain) -> NDArray[np.float64]:
    """Return the inputs with texts as positions among the domain's categories."""
    import numpy as np

    from glassfleet.data.categories import code_of

    if not any(variable.categories and variable.name in table.text for variable in domain.features):
        return table.matrix(domain.names)
    X = np.empty((table.rows, len(domain.features)))
    for index, variable in enumerate(domain.features):
        if not (variable.categories and variable.name in table.text):
            X[:, index] = table.matrix([variable.name])[:, 0]
            continue
        texts = [str(cell) for cell in table.column(variable.name)]
        codes = {text: code_of(text, variable.categories) for text in set(texts)}
        X[:, index] = [codes[text] for text in texts]
    return X
