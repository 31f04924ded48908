"""JSON Schemas of every task and every answer: ``python -m deploy.site.payloads > docs/reference/payloads.json``.

Parameters, domains and terms are the models of the code. What is around them is read off real runs of
every scheme, in one process, of numbers, classes, texts, empty cells and private ones: names, types, dtypes and
dimensions of arrays.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from glassfleet.conformance.bench import Bench
from glassfleet.contract import catalogue
from glassfleet.contract.messages import Contribution, Next, Task
from glassfleet.contract.scheme import private_parameters
from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain, Variable
from glassfleet.discovery import DISCOVERY, DiscoveryParameters
from glassfleet.evaluation.scores import SCORES, ScoresAsked
from glassfleet.model.intervals import lines_of
from glassfleet.private.groups import Announcement, Terms
from glassfleet.private.pairs import KIND as PAIRS_KIND
from glassfleet.private.pairs import PAIRS
from glassfleet.simulation import federated

Exchange = tuple[Task, Contribution]
Schema = dict[str, Any]

HEAD = "Made by `python -m deploy.site.payloads`; a test keeps it equal to the code."


def render() -> str:
    """Return the file."""
    return json.dumps(described_all(spoken()), indent=1) + "\n"


def described_all(spoken_so_far: Iterable[Exchange]) -> Schema:
    """Return the schemas of tasks and answers, and of what they hold."""
    schemas: dict[str, Schema] = {}
    tasks: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    answers: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for task, contribution in spoken_so_far:
        tasks[task.scheme, task.kind].append(task.to_value())
        answers[task.scheme, task.kind].append(contribution.to_value())
    arrays: dict[str, Schema] = {}
    for (scheme, kind), values in sorted(tasks.items()):
        fixed: dict[str, Any] = {"scheme": {"const": scheme}, "kind": {"const": kind}, "nonce": {"type": "string"}}
        fixed["body"] = described([value["body"] for value in values], arrays, scheme)
        if scheme not in _SPECIAL:
            fixed["body"]["properties"]["max_rows_each"] = {"type": "integer", "minimum": 0}
        schemas[f"{scheme}.{kind}.task"] = _map(fixed, ("scheme", "kind", "body"))
        schemas[f"{scheme}.{kind}.answer"] = _answer(answers[scheme, kind], kind, arrays, scheme)
    schemas["masked.answer"] = _masked(arrays)
    known = {name: {"$ref": f"#/$defs/{name}"} for name in schemas}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$comment": HEAD,
        "$defs": {
            "task": {"oneOf": [ref for name, ref in known.items() if name.endswith(".task")]},
            "answer": {"anyOf": [ref for name, ref in known.items() if name.endswith(".answer")]},
            "total": described([{"founders": [["v1", "", "", ""]], "members": [0]}], arrays, ""),
            "domain": _model(Domain, "domain"),
            **schemas,
            **{
                f"parameters.{name}": _model(catalogue.load(name).Parameters, f"parameters.{name}") for name in _names()
            },
            **dict(sorted(arrays.items())),
        },
    }


# --- what is said in runs ------------------------------------------------------------------------------------------


def _names() -> list[str]:
    return [name for name in catalogue.names() if catalogue.load(name).__class__.__module__.startswith("glassfleet.")]


_SPECIAL = ("domain", "private", PAIRS.name, SCORES.name)


def spoken() -> Iterator[Exchange]:
    """Yield the tasks and answers of runs of all kinds."""
    for name in _names():
        yield from _of_scheme(catalogue.load(name))
    yield from _of_discovery()
    yield from _of_private_runs()


def _of_scheme(scheme: Any) -> Iterator[Exchange]:
    spoken_so_far: list[Exchange] = []

    def listen(task: Task, given: Contribution) -> None:
        spoken_so_far.append((task, given))

    for bench in Bench.all_of(scheme):
        federated(scheme, bench.parameters, bench.domain, bench.fleet, listen=listen)
        # Of texts, empty cells and what is beyond limits, as far as the scheme takes them.
        if scheme.abilities.categories or scheme.abilities.missing_cells:
            fleet = {agent: _with_texts(data, scheme) for agent, data in bench.fleet.items()}
            parameters = DiscoveryParameters(
                features=fleet["vehicle-0"].features, target="quality", labels=bench.purpose == "classification",
                categories=True, missing=scheme.abilities.missing_cells, excess=scheme.abilities.excess,
                input_quantiles=(0.2, 0.8),
            )  # fmt: skip
            domain = _discovered(parameters, fleet, spoken_so_far)
            federated(scheme, bench.parameters, domain, fleet, listen=listen)
        if "support" in scheme.Parameters.model_fields and bench.purpose == "regression":
            private = private_parameters(scheme, scheme.Parameters(), 3)
            federated(scheme, private, *_many_rows(), listen=listen)
    yield from spoken_so_far


def _many_rows() -> tuple[Domain, dict[str, Dataset]]:
    """Return a vehicle with so many rows that all is asked of it that rests on enough of them."""
    X = np.random.default_rng(0).random((1500, 2))
    limits = {"low": 0.0, "high": 1.0}
    domain = Domain(features=tuple(Variable(name=name, **limits) for name in "ab"), target=Variable(name="y", **limits))
    return domain, {"v": Dataset(("a", "b"), "y", X, np.minimum(X[:, 0] * X[:, 1] + np.abs(X[:, 0] - 0.5), 1.0))}


def _with_texts(data: Dataset, scheme: Any) -> Dataset:
    X = np.column_stack([data.X[:, :2], data.X[:, 2] - 1.0])
    if scheme.abilities.missing_cells:
        X[::7, 0] = np.nan
    return Dataset((*data.features[:2], "gear"), data.target, X, data.y, categories={"gear": ("a", "b", "c", "d")})


def _discovered(parameters: DiscoveryParameters, fleet: Mapping[str, Dataset], spoken_so_far: list[Exchange]) -> Domain:
    step: Any = DISCOVERY.server.start(parameters)
    while isinstance(step, Next):
        given = []
        for agent, data in sorted(fleet.items()):
            answered = DISCOVERY.client.contribute(step.task, data, np.random.default_rng(0))
            given.append(replace(answered, agent=agent))
            spoken_so_far.append((step.task, answered))
        step = DISCOVERY.server.reduce(step.state, given)
    domain: Domain = step.model
    return domain


def _of_discovery() -> Iterator[Exchange]:
    spoken_so_far: list[Exchange] = []
    for purpose in ("regression", "classification"):
        bench = Bench.of(catalogue.load("tree"), None, purpose)
        features, classes = bench.domain.names, purpose == "classification"
        either = DiscoveryParameters(features=features, target="quality", either=True)
        _discovered(either, bench.fleet, spoken_so_far)
        if not classes:
            _discovered(DiscoveryParameters(features=features, target="quality"), bench.fleet, spoken_so_far)
            _discovered(
                DISCOVERY.private(DiscoveryParameters(features=features, target="quality")), bench.fleet, spoken_so_far
            )
    yield from spoken_so_far


def _of_private_runs() -> Iterator[Exchange]:
    terms = Terms("fleet", "run", "0" * 32, "frt", "0" * 64)
    own = Announcement("v1", bytes(32), "0" * 64, totals=(bytes(32),), heard=(bytes(32),)).to_value()
    values = {name: own[name] for name in own if name not in ("agent", "data_digest")}
    yield Task("private", "keys", terms.to_value(), terms.nonce), Contribution("keys", 0, values=values)
    yield Task(PAIRS.name, PAIRS_KIND, {"group": 0, "vehicles": 8}, terms.nonce), Contribution(PAIRS_KIND, 0)
    from edge_agent.models.summed import summed  # noqa: PLC0415 - it loads the agent

    for purpose in ("regression", "classification"):
        name = "frt" if purpose == "regression" else "frbc"
        bench = Bench.of(catalogue.load(name), catalogue.load(name).Parameters(), purpose)
        learned = bench.outcome(bench.parameters).model
        model, lines = learned.to_document(), lines_of(learned) if purpose == "regression" else 0
        worse = dict.fromkeys(("champion", "constant", "local"), 0.05)
        for asked in (ScoresAsked(model, lines=lines), ScoresAsked(model, model, worse, 0, [model])):
            task = SCORES.server.start(asked, bench.domain, 0).task
            data = bench.fleet["vehicle-0"]
            yield task, summed(task, data, data)


# --- from values to schemas -------------------------------------------------------------------------------------------


def described(values: Sequence[Any], arrays: dict[str, Schema], scheme: str, name: str = "") -> Schema:
    """Return the schema of all of these values, the values of one place."""
    if name == "parameters" and scheme not in _SPECIAL:
        return {"$ref": f"#/$defs/parameters.{scheme}"}
    if name == "domain" and isinstance(values[0], Mapping):
        return {"$ref": "#/$defs/domain"}
    if name in ("model", "champion", "formers") and scheme == SCORES.name:
        return {"description": "Documents of models, see exports.md.", "type": ["object", "null", "array"]}
    kinds: dict[str, list[Any]] = defaultdict(list)
    for value in values:
        kinds[_kind(value)].append(value)
    if "integer" in kinds and "number" in kinds:
        kinds["number"] += kinds.pop("integer")
    schemas_of_kinds = [_one_kind(kind, same, arrays, scheme, name) for kind, same in sorted(kinds.items())]
    return schemas_of_kinds[0] if len(schemas_of_kinds) == 1 else {"anyOf": schemas_of_kinds}


def _kind(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"array {value.dtype.str} {value.ndim}"
    if isinstance(value, bool):
        return "boolean"
    for kind, types in (("integer", int), ("number", float), ("string", str), ("binary", bytes), ("object", Mapping)):
        if isinstance(value, types):
            return kind
    return "null" if value is None else "list"


def _one_kind(kind: str, values: Sequence[Any], arrays: dict[str, Schema], scheme: str, name: str) -> Schema:
    if kind.startswith("array"):
        return {"$ref": f"#/$defs/{_array(kind, arrays)}"}
    if kind == "binary":
        return {"type": "string", "format": "binary"}
    if kind == "list":
        items = [item for value in values for item in value]
        return {"type": "array", "items": described(items, arrays, scheme) if items else {}}
    if kind != "object":
        return {"type": kind}
    if name in _BY_NAME:  # keys are names of columns, classes or groups of data
        items = [item for value in values for item in value.values()]
        return {"type": "object", "additionalProperties": described(items, arrays, scheme)}
    keys = dict.fromkeys(key for value in values for key in value)
    fields = {key: described([value[key] for value in values if key in value], arrays, scheme, key) for key in keys}
    return _map(fields, [key for key in keys if all(key in value for value in values)])


_BY_NAME = frozenset({"columns", "categories", "worse_by"})


def _array(kind: str, arrays: dict[str, Schema]) -> str:
    _, dtype, ndim = kind.split()
    name = f"array{dtype.translate({ord('<'): '-', ord('|'): '-'})}-{ndim}"
    fields: dict[str, Schema] = {
        "__nd__": {"const": dtype},
        "shape": {"type": "array", "items": {"type": "integer"}, "minItems": int(ndim), "maxItems": int(ndim)},
        "data": {"type": "string", "format": "binary"},
    }
    arrays[name] = _map(fields, fields)
    return name


def _map(fields: Mapping[str, Schema], required: Any) -> Schema:
    return {"type": "object", "properties": dict(fields), "required": list(required), "additionalProperties": False}


def _answer(values: Sequence[Any], kind: str, arrays: dict[str, Schema], scheme: str) -> Schema:
    count = {"type": "integer", "minimum": 0, "exclusiveMaximum": 2**31}
    fields: dict[str, Schema] = {
        "kind": {"const": kind},
        "rows": count,
        "sums": described([value["sums"] for value in values], arrays, scheme),
        "values": described([value["values"] for value in values], arrays, scheme),
        "nullified": count,
    }
    return _map(fields, fields)


def _masked(arrays: dict[str, Schema]) -> Schema:
    masked = Contribution("", 0, {"masked": np.zeros(1, np.int64)}).to_value()
    schema = _answer([masked], "", arrays, "")
    schema["properties"]["kind"] = {"type": "string"}
    return schema


def _model(model: Any, name: str) -> Schema:
    schema: Schema = model.model_json_schema(ref_template=f"#/$defs/{name}/$defs/{{model}}")
    return _untitled(schema)  # type: ignore[no-any-return]


def _untitled(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _untitled(item) for key, item in value.items() if not (key == "title" and isinstance(item, str))}
    return [_untitled(item) for item in value] if isinstance(value, list) else value


if __name__ == "__main__":
    sys.stdout.write(render())
