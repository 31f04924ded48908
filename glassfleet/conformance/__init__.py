"""A conformance suite for any scheme: what every scheme must do, whatever it learns.

Run it over a scheme of your own::

    from glassfleet.conformance import check_scheme
    check_scheme(SCHEME)

or, in a test, one check at a time: :data:`CHECKS` maps their names to functions of a :class:`Bench`. Each raises
:class:`ConformanceError`, whose text says what was expected and what happened. Needs no test framework.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from glassfleet.conformance import learning, messages, model
from glassfleet.conformance.bench import Bench, ConformanceError
from glassfleet.contract.scheme import Scheme

Check = Callable[[Bench], None]

CHECKS: Final[Mapping[str, Check]] = {
    name.removeprefix("check_"): check
    for module in (messages, learning, model)
    for name, check in vars(module).items()
    if name.startswith("check_") and check.__module__ == module.__name__
}
"""All checks, by name: the functions ``check_...`` of these modules, in their order."""


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
