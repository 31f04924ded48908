"""A conformance suite for any scheme: what every scheme must do, whatever it learns.

Run it over a scheme of your own::

    from glassfleet.checks import check_scheme
    check_scheme(SCHEME)

or, in a test, one check at a time: :data:`CHECKS` maps their names to functions of a :class:`Bench`. Each raises
:class:`ConformanceError`, whose text says what was expected and what happened. Needs no test framework.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import resources
from typing import Any, Final, Literal, get_args, get_origin

import numpy as np
from pydantic import BaseModel, ValidationError

from glassfleet.checks_bench import (
    Bench,
    ConformanceError,
    answer,
    outcome_of,
    replace_at,
    require,
    steps_of,
    value_paths,
)
from glassfleet.data import Dataset, pool
from glassfleet.scheme import (
    Contribution,
    ContributionError,
    Model,
    Participation,
    Purpose,
    Scheme,
    Task,
    TaskError,
    promises_central,
)
from schemas import codec
from schemas.documents import canonical_json, document_digest
from schemas.errors import DocumentError, GlassfleetError

Check = Callable[[Bench], None]

_ODD_TASK_VALUES: Final[Sequence[Any]] = (None, "x", -1, [], {}, np.zeros((2, 2, 2)), np.full(3, -7, dtype=np.int32))
_ODD_DOCUMENT_VALUES: Final[Sequence[Any]] = (None, "x", -1, 2.5, [], {}, 1e300, True)


def check_declarations(bench: Bench) -> None:
    """Check that name, title, purposes, participation modes and halves are declared as the contract says."""
    scheme = bench.scheme
    name = scheme.name
    require(name.isidentifier() and name == name.lower(), f"name {name!r} is a lower-case identifier")
    require(bool(scheme.title.strip()), "the title says what the scheme is")
    for what, declared, known in (
        ("purpose", scheme.purpose, frozenset(get_args(Purpose))),
        ("participation", scheme.participation, frozenset(get_args(Participation))),
    ):
        require(
            bool(declared) and declared <= known, f"{what} is a non-empty subset of {sorted(known)}, got {declared}"
        )
    require(isinstance(scheme.equals_central, bool), "equals_central is True or False")
    for half, methods in ((scheme.client, ("contribute",)), (scheme.server, ("start", "check", "reduce", "progress"))):
        for method in methods:
            require(callable(getattr(half, method, None)), f"{type(half).__name__} has a method {method}")


def check_parameters(bench: Bench) -> None:
    """Check that parameters have defaults, a JSON schema and form, are frozen, and refuse what they do not know."""
    Parameters = bench.scheme.Parameters
    require(issubclass(Parameters, BaseModel), "Parameters is a pydantic model")
    json.dumps(Parameters.model_json_schema())
    defaults = Parameters()
    require(bool(Parameters.model_config.get("frozen")), "Parameters are frozen")
    form = json.loads(json.dumps(defaults.model_dump(mode="json"), allow_nan=False))
    require(Parameters.model_validate(form) == defaults, "parameters survive the way through JSON")
    try:
        Parameters.model_validate({**form, "no_such_parameter": 1})
    except ValidationError:
        pass
    else:
        raise ConformanceError("an unknown parameter is refused (extra='forbid')")
    exact = bench.scheme.exact(bench.parameters)
    require(isinstance(exact, Parameters), "exact() returns Parameters")
    require(bench.scheme.exact(exact) == exact, "exact() of exact parameters changes nothing")


def check_readme(bench: Bench) -> None:
    """Check that the scheme's folder has a README.md with a drawing of the messages and the equations."""
    module = importlib.import_module(type(bench.scheme).__module__)
    package = module.__package__ or ""
    readme = resources.files(package).joinpath("README.md") if package else None
    require(readme is not None and readme.is_file(), f"the folder of {package or module.__name__} has a README.md")
    assert readme is not None
    text = readme.read_text(encoding="utf-8")
    require(len(text) >= 200, "README.md says what is learned and what travels")
    blocks = re.findall(r"^```[^\n]*\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    drawn = any("->" in block and "<-" in block for block in blocks)
    require(drawn, "README.md draws the messages between ``` lines, with arrows --> to the vehicles and <-- back")
    # An equation has a name or a sign of a sum on its left and some arithmetic on its right; `min_rows=1` has not.
    said = [*blocks, *re.findall(r"`[^`\n]+`", text), *re.findall(r"\$[^$]+\$", text)]
    equation = re.compile(r"[=~].*([-+*/^]| sum|\\sum|\\frac|\()|\bsum_\w+ ")
    require(any(equation.search(part) for part in said), "README.md gives an equation, between ` or $ signs")


def check_travels(bench: Bench) -> None:
    """Check that tasks, states and contributions go through the codec, and the same model comes out."""
    direct = bench.outcome(bench.parameters)

    def through(value: Any) -> Any:
        return codec.decode(codec.encode(value))

    for step, contributions in steps_of(bench.scheme, bench.parameters, bench.domain, bench.fleet, through=through):
        task = Task.from_value(through(step.task.to_value()))
        require(task.digest == step.task.digest, "a task's digest survives the way through the codec")
        for contribution in contributions:
            require(contribution.kind == task.kind, "a contribution repeats the task's kind")
    travelled = outcome_of(bench.scheme, bench.parameters, bench.domain, bench.fleet, through=through)
    require(_digest(direct.model) == _digest(travelled.model), "messages that travelled give the same model")
    codec.encode(dict(direct.summary))


def check_recomputable(bench: Bench) -> None:
    """Check that a client answers from the task alone: twice, without its memo, after having seen other tasks."""
    steps = bench.steps(bench.parameters)
    for step, contributions in reversed(steps):
        for (agent, data), given in zip(sorted(bench.fleet.items()), contributions, strict=True):
            fresh = Dataset(data.features, data.target, data.X, data.y)
            for what, rows in (("once more", data), ("with an empty memo", fresh)):
                again = answer(bench.scheme, step.task, agent, rows)
                require(
                    codec.encode(again.to_value()) == codec.encode(given.to_value()),
                    f"{agent} answers {step.task.kind!r} {what} with the same bytes",
                )


def check_clients_leave_data_alone(bench: Bench) -> None:
    """Check that a client works on read-only rows and does not change them."""
    before = {agent: (data.X.copy(), data.y.copy()) for agent, data in bench.fleet.items()}
    for data in bench.fleet.values():
        data.X.flags.writeable = data.y.flags.writeable = False
    outcome_of(bench.scheme, bench.parameters, bench.domain, bench.fleet)
    for agent, (X, y) in before.items():
        same = np.array_equal(X, bench.fleet[agent].X) and np.array_equal(y, bench.fleet[agent].y)
        require(same, f"the rows of {agent} are as they were")


def check_columns_by_name(bench: Bench) -> None:
    """Check that a client finds columns by name: another order and additional columns change nothing."""
    moved = {}
    for agent, data in bench.fleet.items():
        extra = np.full((data.rows, 1), 7.5)
        X = np.concatenate([extra, data.X[:, ::-1]], axis=1)
        moved[agent] = Dataset(("extra", *data.features[::-1]), data.target, X, data.y)
    there = outcome_of(bench.scheme, bench.parameters, bench.domain, moved).model
    require(_digest(there) == _digest(bench.outcome(bench.parameters).model), "columns are found by name")


def check_refuses_tasks(bench: Bench) -> None:
    """Check that a client that cannot answer raises TaskError alone: columns are missing, the task is malformed."""
    data = next(data for _, data in sorted(bench.fleet.items()) if data.rows)
    lacking = Dataset(data.features[1:], data.target, data.X[:, 1:].copy(), data.y)
    other = Dataset(data.features, "another target", data.X, data.y)
    for step, _ in bench.steps(bench.parameters):
        for what, rows in (("that lacks a column", lacking), ("with another target", other)):
            _must_refuse(bench, step.task, rows, f"a vehicle {what}")
        foreign = Task("no-such-scheme", step.task.kind, step.task.body)
        _must_refuse(bench, foreign, data, "a task of another scheme")
        _must_refuse(bench, Task(step.task.scheme, "no-such-kind", step.task.body), data, "a task of an unknown kind")
        for key in step.task.body:
            for odd in _ODD_TASK_VALUES:
                body = {**step.task.body, key: odd}
                try:
                    answer(bench.scheme, Task(step.task.scheme, step.task.kind, body), "a", _fresh(data))
                except TaskError:
                    continue
                except Exception as fault:
                    raise ConformanceError(
                        f"a task with {key}={odd!r} raised {_told(fault)} instead of TaskError"
                    ) from fault


def check_refuses_contributions(bench: Bench) -> None:
    """Check that the server accepts true answers, and raises ContributionError alone for what cannot be true."""
    for step, contributions in bench.steps(bench.parameters):
        for given in contributions:
            bench.scheme.server.check(step.task, given)
        best = max(contributions, key=lambda contribution: contribution.rows)
        for what, wrong in _impossible(best):
            try:
                bench.scheme.server.check(step.task, wrong)
            except ContributionError:
                continue
            except Exception as fault:
                raise ConformanceError(f"{step.task.kind!r} with {what} raised {_told(fault)}") from fault
            raise ConformanceError(f"{step.task.kind!r} with {what} is refused by check()")


def check_reduce_is_pure(bench: Bench) -> None:
    """Check that reducing is repeatable and changes neither state nor answers, and that progress can be told."""
    server = bench.scheme.server
    for step, contributions in bench.steps(bench.parameters):
        before = codec.encode([dict(step.state), [given.to_value() for given in contributions]])
        results = [server.reduce(step.state, contributions) for _ in range(2)]
        after = codec.encode([dict(step.state), [given.to_value() for given in contributions]])
        require(before == after, f"reducing {step.task.kind!r} leaves its arguments alone")
        first, second = (
            _digest(result.model) if not hasattr(result, "task") else result.task.digest for result in results
        )
        require(first == second, f"reducing {step.task.kind!r} twice gives the same")
        progress = server.progress(step.state)
        codec.encode(dict(progress))
        lines = progress.get("lines", [])
        require(len(lines) <= 200 and all(isinstance(line, str) for line in lines), "progress has at most 200 lines")


def check_equality(bench: Bench) -> None:
    """Check promise 1: with nullification off the fleet's model is the central one, for any spread and order.

    Where the scheme promises it: with the parameters given, and with each other text or truth that one of them may be.
    """
    promised = [chosen for chosen in _settings(bench) if promises_central(bench.scheme, chosen)]
    require(
        bool(promised) or not bench.scheme.equals_central, "equals_central holds for some setting of the parameters"
    )
    for number, parameters in enumerate(promised):
        _must_equal_central(bench, bench.scheme.exact(parameters), (2,) if number else (1, 2, 5))


def _settings(bench: Bench) -> list[Any]:
    """Return the bench's parameters, and those that differ from them in one choice: a literal or a truth."""
    found, given = [bench.parameters], bench.parameters.model_dump()
    for name, declared in type(bench.parameters).model_fields.items():
        others = (False, True) if declared.annotation is bool else get_args(declared.annotation)
        if get_origin(declared.annotation) is not Literal and declared.annotation is not bool:
            continue
        for other in others:
            if other == given[name]:
                continue
            with contextlib.suppress(ValidationError):  # it may not go with the others
                found.append(type(bench.parameters).model_validate({**given, name: other}))
    return found


def _must_equal_central(bench: Bench, exact: Any, spreads: Sequence[int]) -> None:
    everything = pool([data for _, data in sorted(bench.fleet.items())])
    central = _digest(outcome_of(bench.scheme, exact, bench.domain, {"central": everything}).model)
    rng = np.random.default_rng(7)
    for vehicles in spreads:
        part = rng.integers(0, vehicles, everything.rows)
        shuffled = rng.permutation(everything.rows)
        fleet = {
            f"v{v}": Dataset(everything.features, everything.target, everything.X[rows], everything.y[rows])
            for v in range(vehicles)
            for rows in [shuffled[part == v]]
        }
        fleet["v9"] = bench.empty()
        outcome = outcome_of(bench.scheme, exact, bench.domain, fleet)
        require(_digest(outcome.model) == central, f"rows spread over {vehicles} vehicles give the central model")
        require(outcome.nullified == 0, "nothing is nullified with exact parameters")
        backwards = outcome_of(bench.scheme, exact, bench.domain, fleet, reverse=True)
        require(_digest(backwards.model) == central, "the order of the answers changes nothing")


def check_empty_vehicles(bench: Bench) -> None:
    """Check that a vehicle without rows answers and is accepted, and that a fleet of such ends by name."""
    for step, _ in bench.steps(bench.parameters):
        given = answer(bench.scheme, step.task, "empty", bench.empty())
        require(given.rows == 0, "a vehicle without rows says so")
        bench.scheme.server.check(step.task, given)
        require(not any(part.any() for part in given.sums.values()), "sums over no rows are zero")
    try:
        outcome_of(bench.scheme, bench.parameters, bench.domain, {"a": bench.empty(), "b": bench.empty()})
    except (ContributionError, GlassfleetError):
        pass  # a named end
    except Exception as fault:
        raise ConformanceError(f"a fleet without rows raised {_told(fault)}") from fault


def check_elastic(bench: Bench) -> None:
    """Check that an elastic scheme finishes when each round is answered by another part of the fleet."""
    if "elastic" not in bench.scheme.participation:
        return
    model = outcome_of(bench.scheme, bench.parameters, bench.domain, bench.fleet, drop=True).model
    _check_predictions(model, bench)


def check_model(bench: Bench) -> None:
    """Check that the model predicts row by row as in a batch, explains that, and states its rules and size."""
    model = bench.outcome(bench.parameters).model
    require(isinstance(model, Model), "the outcome is a Model")
    require(model.scheme == bench.scheme.name, "the model names its scheme")
    require(model.domain == bench.domain, "the model holds its domain")
    predicted = _check_predictions(model, bench)
    rules = list(model.rules())
    require([rule.index for rule in rules] == list(range(len(rules))), "rules are numbered from 0, in order")
    for rule in rules:
        require(bool(str(rule).strip()) and 0.0 <= rule.weight <= 1.0, "a rule reads, and its weight is in [0, 1]")
    X = bench.inputs
    for row in range(0, len(X), max(1, len(X) // 12)):
        explanation = model.explain(X[row])
        expected = predicted[row]
        require(bool(explanation.prediction == expected), "explain() explains what predict() says")
        for activation in (explanation.fired, *explanation.runners_up):
            require(0.0 <= activation.strength <= 1.0, "strengths are in [0, 1]")
            require(activation.rule in rules, "an explanation names rules of the model")
        require(set(explanation.shares) <= set(bench.domain.names), "shares are of inputs")
        if explanation.shares and not isinstance(explanation.prediction, str):
            total = explanation.base + sum(explanation.shares.values())
            scale = abs(explanation.base) + sum(map(abs, explanation.shares.values())) + 1.0
            require(math.isclose(total, explanation.prediction, abs_tol=1e-9 * scale), "base and shares add up")
    sizes = model.complexity()
    require(bool(sizes) and all(math.isfinite(size) and size >= 0 for size in sizes.values()), "sizes are counts")


def check_document(bench: Bench) -> None:
    """Check that the document is complete: read again it gives the same document, digest and predictions."""
    model = bench.outcome(bench.parameters).model
    document = model.to_document()
    members = {"scheme", "format", "parameters", "domain", "model"}
    require(set(document) == members, f"a document has the members {sorted(members)}")
    text = canonical_json(document)
    again = bench.scheme.from_document(json.loads(text))
    require(canonical_json(again.to_document()) == text, "a document read and written again is the same")
    require(
        np.array_equal(model.predict(bench.inputs), again.predict(bench.inputs)),
        "it predicts the same, to the last bit",
    )
    require(dict(again.complexity()) == dict(model.complexity()), "it has the same size")
    require([str(rule) for rule in again.rules()] == [str(rule) for rule in model.rules()], "it has the same rules")
    for member in members:
        _must_not_load(bench, {key: value for key, value in document.items() if key != member}, f"no {member!r}")
    _must_not_load(bench, {**document, "extra": 1}, "an unknown member")
    _must_not_load(bench, {**document, "scheme": "no-such-scheme"}, "another scheme's name")
    _must_not_load(bench, {**document, "format": 10**6}, "an unknown format")
    for path in value_paths(document, 300):
        for odd in _ODD_DOCUMENT_VALUES:
            damaged = replace_at(copy.deepcopy(document), path, odd)
            try:
                bench.scheme.from_document(damaged)
            except DocumentError:
                continue
            except Exception as fault:
                where = ".".join(map(str, path))
                raise ConformanceError(f"a document with {where}={odd!r} raised {_told(fault)}") from fault


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
        check_refuses_tasks,
        check_refuses_contributions,
        check_reduce_is_pure,
        check_equality,
        check_empty_vehicles,
        check_elastic,
        check_model,
        check_document,
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
    for name, check in CHECKS.items():
        for bench in Bench.all_of(scheme, parameters):
            try:
                check(bench)
            except ConformanceError as fault:
                faults.append(f"{name}: {fault}")
    if faults:
        raise ConformanceError("; ".join(faults))


def _check_predictions(model: Model, bench: Bench) -> np.ndarray[Any, Any]:
    X = bench.inputs
    predicted = model.predict(X)
    require(predicted.shape == (len(X),), f"predict() returns shape {(len(X),)}, got {predicted.shape}")
    if predicted.dtype.kind == "f":
        require(bool(np.isfinite(predicted).all()), "predictions are finite")
    else:
        require(set(predicted.tolist()) <= set(bench.domain.classes), "predictions are class labels")
    single = np.concatenate([model.predict(X[row : row + 1]) for row in range(len(X))])
    require(np.array_equal(single, predicted), "a row's prediction does not depend on its batch")
    require(model.predict(X[:0]).shape == (0,), "no rows give no predictions")
    try:
        model.predict(X[:, 1:])
    except ValueError:
        pass
    else:
        raise ConformanceError("rows of the wrong width raise ValueError")
    return predicted


def _impossible(given: Contribution) -> Iterator[tuple[str, Contribution]]:
    """Yield variants of an answer that cannot be true, each with what is wrong with it."""

    def variant(**changes: Any) -> Contribution:
        whole = {"kind": given.kind, "rows": given.rows, "sums": given.sums, "values": given.values}
        return Contribution(**{**whole, **changes})

    yield "another kind", variant(kind="no-such-kind")
    for field in ("sums", "values"):
        parts: Mapping[str, Any] = getattr(given, field)
        yield (
            f"an unknown entry in {field}",
            variant(**{field: {**parts, "no-such-entry": np.zeros(1, dtype=np.int64)}}),
        )
        for name in parts:
            yield f"{field} without {name!r}", variant(**{field: {k: v for k, v in parts.items() if k != name}})
    for name, part in given.sums.items():
        for what, wrong in (
            ("truncated", part[..., :-1]),
            ("of one dimension more", part[None]),
            ("empty", np.zeros(0, dtype=np.int64)),
            ("absurdly large", np.full_like(part, 2**62)),
            ("absurdly negative", np.full_like(part, -(2**62))),
        ):
            yield f"{name!r} {what}", variant(sums={**given.sums, name: wrong})


def _must_refuse(bench: Bench, task: Task, data: Dataset, what: str) -> None:
    try:
        answer(bench.scheme, task, "a", _fresh(data))
    except TaskError:
        return
    except Exception as fault:
        raise ConformanceError(f"{what} raised {_told(fault)} instead of TaskError") from fault
    raise ConformanceError(f"{what} raises TaskError")


def _must_not_load(bench: Bench, document: Mapping[str, Any], what: str) -> None:
    try:
        bench.scheme.from_document(document)
    except DocumentError:
        return
    except Exception as fault:
        raise ConformanceError(f"a document with {what} raised {_told(fault)} instead of DocumentError") from fault
    raise ConformanceError(f"a document with {what} raises DocumentError")


def _fresh(data: Dataset) -> Dataset:
    return Dataset(data.features, data.target, data.X, data.y)


def _digest(model: Model) -> str:
    return document_digest(model.to_document())


def _told(fault: Exception) -> str:
    return f"{type(fault).__name__} ({fault})"


__all__: Sequence[str] = ["CHECKS", "Bench", "Check", "ConformanceError", "check_scheme"]
