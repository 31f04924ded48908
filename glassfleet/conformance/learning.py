"""What is learned: reduced without side effects, equal to the central model, whoever answers."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, Literal, get_args, get_origin

import numpy as np
from pydantic import ValidationError

from glassfleet.conformance.bench import Bench, ConformanceError, answer, digest_of, fault_text, require
from glassfleet.conformance.model import checked_predictions
from glassfleet.contract.scheme import promises_central
from glassfleet.data.dataset import pool
from glassfleet.model.baseline import recorded
from glassfleet.simulation import central_of
from schemas import codec
from schemas.errors import RunFailedError


def check_reduce_is_pure(bench: Bench) -> None:
    """Check that reducing is repeatable and changes neither state nor answers, and that progress can be told."""
    server = bench.scheme.server
    for step, contributions in bench.steps(bench.parameters):
        before = codec.encode([dict(step.state), [given.to_value() for given in contributions]])
        results = [server.reduce(step.state, contributions) for _ in range(2)]
        after = codec.encode([dict(step.state), [given.to_value() for given in contributions]])
        require(before == after, f"reducing {step.task.kind!r} leaves its arguments alone")
        first, second = (
            digest_of(result.model) if not hasattr(result, "task") else result.task.digest for result in results
        )
        require(first == second, f"reducing {step.task.kind!r} twice gives the same")
        progress = server.progress(step.state)
        codec.encode(dict(progress))
        lines = progress.get("lines", [])
        require(len(lines) <= 200 and all(isinstance(line, str) for line in lines), "progress has at most 200 lines")


def check_equality(bench: Bench) -> None:
    """Check promise 1: the fleet's model is the central one of the rows used, for any spread and order.

    Where the scheme promises it: with the parameters given, and with each other text or truth that one of them may be.
    """
    promised = [chosen for chosen in settings_of(bench) if promises_central(bench.scheme, chosen)]
    require(
        bool(promised) or bench.scheme.abilities.equals_central is None,
        "equals_central holds for some setting of the parameters",
    )
    for number, parameters in enumerate(promised):
        _must_equal_central(bench, bench.scheme.exact(parameters), (2,) if number else (5, 2))
    if promised and promised[0] != bench.scheme.exact(promised[0]):
        used = central_of(bench.scheme, promised[0], bench.domain, bench.fleet)
        fleet = bench.outcome(promised[0])
        require(
            (fleet.model.to_document(), recorded(fleet.summary)) == used,
            "the model of condensed rows is the central one of the vehicles' condensed rows",
        )


def settings_of(bench: Bench) -> list[Any]:
    """Return the bench's parameters, and those that differ from them in one choice: a literal or a truth."""
    settings, given = [bench.parameters], dict(bench.parameters)  # a dump may leave out what is usual
    for name, declared in type(bench.parameters).model_fields.items():
        others = (False, True) if declared.annotation is bool else get_args(declared.annotation)
        if get_origin(declared.annotation) is not Literal and declared.annotation is not bool:
            continue
        for other in others:
            if other == given[name]:
                continue
            with contextlib.suppress(ValidationError):  # it may not go with the others
                settings.append(type(bench.parameters).model_validate({**given, name: other}))
    return settings


def _must_equal_central(bench: Bench, exact: Any, spreads: Sequence[int]) -> None:
    everything = pool([data for _, data in sorted(bench.fleet.items())])
    learned = bench.run(exact, {"central": everything}).outcome
    central, beside = digest_of(learned.model), recorded(learned.summary)
    rng = np.random.default_rng(7)
    for number, vehicles in enumerate(spreads):
        part = rng.integers(0, vehicles, everything.rows)
        shuffled = rng.permutation(everything.rows)
        fleet = {f"v{v}": everything.at(shuffled[part == v]) for v in range(vehicles)}
        fleet["v9"] = bench.empty()
        backwards = number == len(spreads) - 1
        outcome = bench.run(exact, fleet, reverse=backwards).outcome
        how = f"rows spread over {vehicles} vehicles{', answers in the opposite order,' if backwards else ''}"
        require(digest_of(outcome.model) == central, f"{how} give the central model")
        require(recorded(outcome.summary) == beside, "what stands beside the document is that of the pooled rows")
        require(outcome.nullified == 0, "nothing is nullified with exact parameters")


def check_empty_vehicles(bench: Bench) -> None:
    """Check that a vehicle without rows answers and is accepted, and that a run with such alone ends as ``no-rows``."""
    for step, _ in bench.steps(bench.parameters):
        given = answer(bench.scheme, step.task, "empty", bench.empty())
        require(given.rows == 0, "a vehicle without rows says so")
        bench.scheme.server.check(step.task, given)
        require(not any(part.any() for part in given.sums.values()), "sums over no rows are zero")
    try:
        bench.run(bench.parameters, {"a": bench.empty(), "b": bench.empty()})
    except RunFailedError as fault:
        require(fault.cause == "no-rows", f"a run without rows ends as no-rows, not as: {fault}")
    except Exception as fault:
        raise ConformanceError(f"a run without rows raised {fault_text(fault)} instead of RunFailedError") from fault
    else:
        raise ConformanceError("a run without rows raises RunFailedError")


def check_elastic(bench: Bench) -> None:
    """Check that an elastic scheme finishes when each round is answered by another part of the fleet."""
    if "elastic" not in bench.scheme.participation:
        return
    model = bench.run(bench.parameters, drop=True).outcome.model
    checked_predictions(model, bench)
