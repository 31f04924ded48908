"""Rows as a model takes them, for ``glassfleet model predict`` and ``explain``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from schemas.errors import DataError, UsageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from edge_agent.sources import Table
    from glassfleet.data.domain import Domain
    from glassfleet.model.protocol import Model


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
    if learned.domain.memory is not None:
        return _remembered(table, learned.domain)
    missing = [name for name in learned.domain.names if name not in table.names]
    if missing:
        raise DataError(
            f"{table.path}: the model's input {missing[0]!r} is no column ({len(missing)} missing). "
            f"It needs: {', '.join(learned.domain.names)}"
        )
    return _encoded(table, learned.domain)


def _remembered(table: Table, domain: Domain) -> NDArray[np.float64]:
    """Return the inputs of a model with lagged features: its rows are in the order of time."""
    import numpy as np

    from glassfleet.data.dataset import Dataset
    from glassfleet.data.lags import remember

    needed = [name for name in domain.needs if name not in table.names]
    if needed:
        raise DataError(
            f"{table.path}: the model's inputs need the column {needed[0]!r}, which is not there. It needs: "
            f"{', '.join(domain.needs)}"
        )
    target = domain.target_name
    remembers_target = domain.memory is not None and domain.memory.uses_target
    y = table.matrix([target])[:, 0] if remembers_target else np.zeros(table.rows)
    rows = Dataset(domain.needs, target, table.matrix(domain.needs), y)
    return remember(rows, domain.memory).select(domain.names).X


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
