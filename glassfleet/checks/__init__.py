"""A conformance suite for any scheme: what every scheme must do, whatever it learns.

Run it over a scheme of your own::

    from glassfleet.checks import check_scheme
    check_scheme(SCHEME)

or, in a test, one check at a time: :data:`CHECKS` maps their names to functions of a :class:`Bench`. Each raises
:class:`ConformanceError`, whose text says what was expected and what happened. Needs no test framework.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from glassfleet.checks.bench import Bench, ConformanceError
from glassfleet.checks.damage import check_damaged_documents, check_damaged_messages
from glassfleet.checks.declared import check_declarations, check_parameters, check_readme
from glassfleet.checks.learning import check_elastic, check_empty_vehicles, check_equality, check_reduce_is_pure
from glassfleet.checks.messages import (
    check_clients_leave_data_alone,
    check_columns_by_name,
    check_cost,
    check_private,
    check_recomputable,
    check_refuses_contributions,
    check_refuses_domains,
    check_refuses_tasks,
    check_travels,
)
from glassfleet.checks.model import check_document, check_model
from glassfleet.scheme import Scheme

Check = Callable[[Bench], None]

CHECKS: Final[Mapping[str, Check]] = {
    check.__name__.removeprefix("check_"): check
    for check in (
        check_declarations,
        check_parameters,
        check_readme,
        check_travels,
        check_recomputable,
        check_clients_leave_data_alone,
        check_columns_by_name,
        check_refuses_domains,
        check_refuses_tasks,
        check_cost,
        check_private,
        check_refuses_contributions,
        check_reduce_is_pure,
        check_equality,
        check_empty_vehicles,
        check_elastic,
        check_model,
        check_document,
        check_damaged_messages,
        check_damaged_documents,
    )
}
"""All checks, by name."""


def check_scheme(scheme: Scheme, parameters: Any = None) -> None:
    """Run every check on `scheme`.

    Parameters
    ----------
    scheme : Scheme
    parameters : scheme.Parameters, optional
        What the checks learn with; the defaults when not given. A slow scheme may pass small settings.

    Raises
    ------
    ConformanceError
        With the text of every check that failed.
    """
    faults = []
    benches = Bench.all_of(scheme, parameters)
    for name, check in CHECKS.items():
        for bench in benches:
            try:
                check(bench)
            except ConformanceError as fault:
                faults.append(f"{name}: {fault}")
    if faults:
        raise ConformanceError("; ".join(faults))


__all__: Sequence[str] = ["CHECKS", "Bench", "Check", "ConformanceError", "check_scheme"]
