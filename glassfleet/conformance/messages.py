"""What travels: answers from the task alone, and refusals of what cannot be meant, cannot be true, or is damaged."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial, reduce
from operator import getitem
from typing import Any, Final, get_args

import numpy as np

from glassfleet.conformance.bench import (
    Bench,
    ConformanceError,
    Path,
    answer,
    digest_of,
    fault_text,
    fresh,
    must_refuse,
    raises_only,
    replaced,
    require,
    travelled,
)
from glassfleet.conformance.learning import settings_of
from glassfleet.contract.messages import COUNTS, Contribution, Done, Task
from glassfleet.contract.scheme import Purpose, personal_model, private_parameters
from glassfleet.data.dataset import Dataset, pool
from glassfleet.errors import ContributionError, TaskError
from glassfleet.model.protocol import Model
from glassfleet.private.layout import layout_of
from schemas import codec
from schemas.errors import DocumentError, GlassfleetError, UsageError

_ODD_TASK_VALUES: Final[Sequence[Any]] = (None, "x", -1, [], {}, np.zeros((2, 2, 2)), np.full(3, -7, dtype=np.int32))


def check_travels(bench: Bench) -> None:
    """Check that tasks, states and contributions go through the codec, and the same model comes out."""
    direct = bench.outcome(bench.parameters)
    run = bench.run(bench.parameters, through=travelled)
    for step, contributions in run.steps:
        task = Task.from_value(travelled(step.task.to_value()))
        require(task.digest == step.task.digest, "a task's digest survives the way through the codec")
        for contribution in contributions:
            require(contribution.kind == task.kind, "a contribution repeats the task's kind")
    same = digest_of(direct.model) == digest_of(run.outcome.model)
    require(same, "messages that travelled give the same model")
    codec.encode(dict(direct.summary))


def check_recomputable(bench: Bench) -> None:
    """Check that a client answers from the task alone: twice, without its memo, after having seen other tasks."""
    steps = bench.steps(bench.parameters)
    for step, contributions in reversed(steps):
        for (agent, data), given in zip(sorted(bench.fleet.items()), contributions, strict=True):
            for what, rows in (("once more", data), ("with an empty memo", fresh(data))):
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
    bench.run(bench.parameters)
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
    there = bench.run(bench.parameters, moved).outcome.model
    require(digest_of(there) == digest_of(bench.outcome(bench.parameters).model), "columns are found by name")


def check_refuses_tasks(bench: Bench) -> None:
    """Check that a client that cannot answer raises TaskError alone: other columns or targets, a malformed task."""
    data = next(data for _, data in sorted(bench.fleet.items()) if data.rows)
    lacking = Dataset(data.features[1:], data.target, data.X[:, 1:].copy(), data.y)
    other = Dataset(data.features, "another target", data.X, data.y)
    y = np.arange(float(data.rows))
    unlike = Dataset(data.features, data.target, data.X, y if bench.domain.classes else y.astype(np.str_))
    wrong = {"that lacks a column": lacking, "with another target": other, "with a target of another kind": unlike}
    for step, _ in bench.steps(bench.parameters):
        scheme, kind, body = step.task.scheme, step.task.kind, step.task.body
        refused = [(f"a vehicle {what}", step.task, rows) for what, rows in wrong.items()]
        refused.append(("a task of another scheme", Task("no-such-scheme", kind, body), data))
        refused.append(("a task of an unknown kind", Task(scheme, "no-such-kind", body), data))
        for what, task, rows in refused:
            must_refuse(TaskError, what, partial(answer, bench.scheme, task, "a", fresh(rows)))
        for key in body:
            changed = {f"with {key}={odd!r}": {**body, key: odd} for odd in _ODD_TASK_VALUES}
            changed[f"without {key}"] = {other: body[other] for other in body if other != key}
            for how, damaged in changed.items():
                task, what = Task(scheme, kind, damaged), f"a task {how}"
                raises_only(TaskError, what, partial(answer, bench.scheme, task, "a", fresh(data)))
                raises_only(
                    TaskError, f"{what}, asked what it costs,", partial(bench.scheme.abilities.cost, task, data.rows)
                )


def check_refuses_domains(bench: Bench) -> None:
    """Check that a run is refused with UsageError where the target is of a kind that the scheme does not learn."""
    for purpose in {*get_args(Purpose)} - bench.scheme.purpose:
        other = Bench.of(bench.scheme, bench.parameters, purpose).domain
        start = partial(bench.scheme.server.start, bench.parameters, other, 0)
        must_refuse(UsageError, f"a domain for {purpose}", start)


def check_cost(bench: Bench) -> None:
    """Check that a scheme that says what answers may take says so for each task and any number of rows."""
    for step, _ in bench.steps(bench.parameters):
        for rows in (0, 1, 1_000_000):
            cost = bench.scheme.abilities.cost(step.task, rows)
            if cost is not None:
                sound = 0 <= cost.least <= cost.seconds < np.inf and 0 <= cost.megabytes < np.inf
                require(sound, f"the cost of {step.task.kind!r} for {rows} rows is 0 or more, and least is the least")


def check_private(bench: Bench) -> None:
    """Check that a scheme with private runs lays answers out by the task alone, and takes a group's sum for them."""
    try:
        parameters = private_parameters(bench.scheme, bench.parameters)
    except UsageError:
        return
    scheme: Any = bench.scheme
    for step, contributions in bench.steps(parameters):
        task = step.task
        layout = layout_of(scheme, task)
        vectors = [layout.flatten(given) for given in contributions]
        total = layout.read(np.sum(vectors, axis=0), len(vectors))
        scheme.server.check(task, total)
        # On how many rows of each vehicle something rests is another question than on how many of all.
        parts = [total] if task.kind in COUNTS else contributions
        one, all_of_them = (
            digest_of(step.model) if isinstance(step, Done) else step.task.digest
            for step in (scheme.server.reduce(step.state, given) for given in ([total], parts))
        )
        require(one == all_of_them, f"the sum of a group stands for its members' answers to {task.kind!r}")
        for key in task.body:
            for odd in _ODD_TASK_VALUES:
                ask = partial(layout_of, scheme, Task(task.scheme, task.kind, {**task.body, key: odd}))
                raises_only(TaskError, f"a task with {key}={odd!r}, asked for its layout,", ask)


def check_refuses_contributions(bench: Bench) -> None:
    """Check that the server accepts true answers, and raises ContributionError alone for what cannot be true."""
    for step, contributions in bench.steps(bench.parameters):
        for given in contributions:
            bench.scheme.server.check(step.task, given)
        best = max(contributions, key=lambda contribution: contribution.rows)
        for what, wrong in _impossible(best):
            check = partial(bench.scheme.server.check, step.task, wrong)
            must_refuse(ContributionError, f"check() of {step.task.kind!r} with {what}", check)


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
        least = part.copy()
        least.flat[-1:] = np.iinfo(np.int64).min  # whose absolute value is negative
        for what, wrong in (
            ("truncated", part[..., :-1]),
            ("of one dimension more", part[None]),
            ("empty", np.zeros(0, dtype=np.int64)),
            ("absurdly large", np.full_like(part, 2**62)),
            ("absurdly negative", np.full_like(part, -(2**62))),
            ("with the least integer at its end", least),
        ):
            if part.size or wrong.shape != part.shape:  # where nothing is asked, no number can be wrong
                yield f"{name!r} {what}", variant(sums={**given.sums, name: wrong})


# --- whatever a peer sends: damaged tasks, answers and documents are refused by name, or do no harm -------------------


EXAMPLES: Final = 200
"""Messages, and documents, that are damaged for one bench: always the same ones."""
_MOST_SECONDS: Final = 0.5
"""A damaged task may ask for more than anybody waits for: it is not answered here when the scheme says so."""


def check_damaged_messages(bench: Bench) -> None:
    """Check that client and server raise TaskError and ContributionError alone, whatever a task or an answer holds.

    What a client answers to a damaged task is a true answer to it; what the server accepts can be reduced.
    """
    rng = np.random.default_rng(11)
    runs = [bench.steps(parameters) for parameters in settings_of(bench)]
    for number in range(EXAMPLES):
        steps = runs[number % len(runs)]
        step, contributions = steps[int(rng.integers(len(steps)))]
        _damaged_task(bench, damaged(travelled(step.task.to_value()), rng))
        at = int(rng.integers(len(contributions)))
        value = damaged(travelled(contributions[at].to_value()), rng)
        try:
            wrong = Contribution.from_value(value)
            bench.scheme.server.check(step.task, wrong)
        except ContributionError:
            continue
        except Exception as fault:
            raise ConformanceError(
                f"an answer to {step.task.kind!r} raised {fault_text(fault)}: {value!r}"[:2000]
            ) from fault
        try:
            bench.scheme.server.reduce(step.state, [*contributions[:at], wrong, *contributions[at + 1 :]])
        except GlassfleetError:
            continue  # a named end
        except Exception as fault:
            what = (
                f"an answer to {step.task.kind!r} that check() accepts can be reduced, and raised {fault_text(fault)}"
            )
            raise ConformanceError(f"{what}: {value!r}"[:2000]) from fault


def _damaged_task(bench: Bench, value: Any) -> None:
    if not isinstance(value.get("body"), Mapping) or not {"scheme", "kind"} <= set(value):
        return  # the envelope says otherwise
    task = Task.from_value(value)
    data = max(bench.fleet.values(), key=lambda part: part.rows)
    try:
        cost = bench.scheme.abilities.cost(task, data.rows)
        if cost is not None and cost.seconds > _MOST_SECONDS:
            return
        given = answer(bench.scheme, task, "a", fresh(data))
    except TaskError:
        return
    except Exception as fault:
        raise ConformanceError(f"a task raised {fault_text(fault)} instead of TaskError: {value!r}"[:2000]) from fault
    try:
        bench.scheme.server.check(task, given)
    except Exception as fault:
        raise ConformanceError(
            f"a client's own answer is accepted, and raised {fault_text(fault)}: {value!r}"[:2000]
        ) from fault


def check_damaged_documents(bench: Bench) -> None:
    """Check that a reader raises DocumentError alone, whatever a document holds; and that models that are read work."""
    rng = np.random.default_rng(12)
    everything = pool([data for _, data in sorted(bench.fleet.items())])
    shared = bench.outcome(bench.parameters).model
    models = [shared, personal_model(bench.scheme, shared, everything)]
    for number in range(EXAMPLES):
        document = damaged(models[number % 2].to_document(), rng)
        try:
            model = bench.scheme.from_document(document)
        except DocumentError:
            continue
        except Exception as fault:
            raise ConformanceError(
                f"a document raised {fault_text(fault)} instead of DocumentError: {document!r}"[:2000]
            ) from fault
        _must_work(model, bench)


def _must_work(model: Model, bench: Bench) -> None:
    width = len(model.domain.features)
    rows = bench.inputs if width == bench.inputs.shape[1] else np.full((2, width), 0.4)
    answers = model.predict(rows).tolist()
    classes = model.domain.classes
    sound = all(value in classes if classes else math.isfinite(value) for value in answers)
    require(sound, "a model that was read answers classes of its domain, or finite numbers")
    require(all(str(rule) for rule in model.rules()) and bool(model.complexity()), "a model that was read has rules")


# --- damage ----------------------------------------------------------------------------------------------------------


def damaged(value: Any, rng: np.random.Generator) -> Any:
    """Return a value with one place replaced, removed or, in an array, another number; each place as likely."""
    places = [path for path in _places(value) if path]
    return _changed(value, places[int(rng.integers(len(places)))], rng)


def _changed(value: Any, path: Path, rng: np.random.Generator) -> Any:
    """Return the value changed where the path leads; what is beside it is shared with the given one."""
    *above, key = path
    inside = reduce(getitem, above, value)
    if isinstance(inside, np.ndarray):
        array = inside.copy()
        array.flat[int(rng.integers(array.size))] = _number_of(array.dtype, rng)
        return replaced(value, tuple(above), array)
    if isinstance(inside, Mapping) and rng.random() < 0.3:
        return replaced(value, tuple(above), {other: part for other, part in inside.items() if other != key})
    return replaced(value, path, _anything(rng))


def _places(value: Any, path: Path = ()) -> Iterator[Path]:
    yield path
    if isinstance(value, dict):
        for key in sorted(value):
            yield from _places(value[key], (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value[:3]):
            yield from _places(item, (*path, index))
    elif isinstance(value, np.ndarray) and value.size:
        yield (*path, 0)


def _number_of(dtype: np.dtype[Any], rng: np.random.Generator) -> Any:
    if dtype.kind == "f":
        return rng.choice([-1.0, 0.0, 0.5, 2.0, 1e300, -1e300])
    low, high = (0, 1) if dtype.kind == "b" else (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
    known = [low, high, high // 2 + 1, *range(-1, 6), 127, 2**20]
    near = [number for number in known if low <= number <= high]
    return near[int(rng.integers(len(near)))]


def _anything(rng: np.random.Generator) -> Any:
    shape = tuple(int(size) for size in rng.integers(0, 5, int(rng.integers(4))))
    dtype = rng.choice(["i1", "u1", "i2", "u2", "i4", "i8", "u8", "f8", "?"])
    made = np.full(shape, int(rng.integers(-3, 120))).astype(dtype)
    small, large = int(rng.integers(-3, 12)), int(rng.choice([-(2**63), -(2**31), 2**31, 2**53 + 1, 2**63 - 1]))
    float_ = float(rng.choice([-0.5, 0.0, 0.5, 1.5, 1e-320, 1e300, -1e300]))
    simple = [None, True, False, small, large, float_, "", "x", "no\x00", b"", b"\xff"]
    nested = [[], {}, [small], [float_, None], {"": small}, {"x": []}, [[small]]]
    several = [*simple, *nested, made, made, made, small, float_]
    return several[int(rng.integers(len(several)))]
