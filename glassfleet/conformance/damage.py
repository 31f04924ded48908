"""Whatever a peer sends: damaged tasks, answers and documents are refused by name, or do no harm."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import reduce
from operator import getitem
from typing import Any, Final

import numpy as np

from glassfleet.conformance.bench import (
    Bench,
    ConformanceError,
    Path,
    answer,
    fault_text,
    fresh,
    replaced,
    require,
    travelled,
)
from glassfleet.conformance.learning import settings_of
from glassfleet.contract.messages import Contribution, Task
from glassfleet.contract.scheme import personal_model
from glassfleet.data.dataset import pool
from glassfleet.errors import ContributionError, TaskError
from glassfleet.model.protocol import Model
from schemas.errors import DocumentError, GlassfleetError

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
