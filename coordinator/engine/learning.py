"""Learning as a function of who counts and what they answered.

`grow` is the heart of the coordinator: start the server half and, as long as every member has a stored answer to the
current task, reduce, in the order of agent id. The first task that is not answered by all is the open round. Replay
after a loss, resumption after a crash and the central reference are this function with other arguments.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coordinator.engine.collecting import Collecting
from coordinator.engine.state import Level, RunState, Store
from coordinator.engine.table import SCHEME_ENDS
from coordinator.specification.rollout import BEATS, GATE, WORSE_THAN_ALONE
from glassfleet.contract import catalogue
from glassfleet.contract.messages import Contribution, Done, Next, State, Task
from glassfleet.contract.scheme import Scheme, Server
from glassfleet.data.domain import Domain
from glassfleet.errors import ContributionError
from glassfleet.evaluation.influence import FEWEST, MOST, MOST_BYTES, Influence, harmful
from glassfleet.evaluation.paired import MARGIN
from glassfleet.evaluation.scores import ScoresAsked, same_target
from glassfleet.model.intervals import lines_of
from glassfleet.private.groups import round_digest
from schemas.documents import canonical_json
from schemas.errors import GlassfleetError, RunFailedError


class SchemeFaultError(Exception):
    """The scheme's server half raised, or asked the same task twice. The text becomes the run's reason.

    Attributes
    ----------
    cause : str
        The named end: one of ``table.SCHEME_ENDS``.
    group : int or None
        Private runs: whose answers do not add up.
    """

    def __init__(self, detail: str, cause: str = "scheme-error", group: int | None = None) -> None:
        super().__init__(detail)
        self.cause = cause
        self.group = group


Lookup = Callable[[str], Scheme]
"""Finds a scheme by name; raises NotFoundError."""


@dataclass(frozen=True)
class Growth:
    """What came of growing: the levels, whose last level is open, and the end if it was reached."""

    levels: tuple[Level, ...]
    done: Done | None = None


def start(  # noqa: PLR0917 - one call
    server: Server,
    parameters: Any,
    domain: Domain | None,
    seed: int,
    nonce: str,
    max_rows_each: int,
    collecting: Collecting,
) -> Level:
    """Return the first level; its task, and so those of all later levels, carries nonce and ``max_rows_each``."""
    try:
        first = server.start(parameters, domain, seed)  # type: ignore[arg-type]  # discovery starts without a domain
    except Exception as fault:
        raise _fault("start", fault) from fault
    task = replace(first.task, nonce=nonce).limited(max_rows_each)
    return level_of(1, first.state, task, collecting)


def advance(
    server: Server, levels: tuple[Level, ...], members: Sequence[str], store: Store, collecting: Collecting
) -> Growth:
    """Reduce the open level over exactly `members`, who have all answered."""
    level = levels[-1]
    answers = store[level.digest]
    ordered = sorted(members)
    try:
        outcome = server.reduce(level.state, collecting.collect(level.task, ordered, answers))
    except Exception as fault:
        raise _fault("reduce", fault) from fault
    closed = replace(
        level, members=tuple(ordered), nullified=sum(answers[member].contribution.nullified for member in ordered)
    )
    if isinstance(outcome, Done):
        return Growth((*levels[:-1], closed), outcome)
    assert isinstance(outcome, Next)
    task = replace(outcome.task, nonce=level.task.nonce).limited(level.task.max_rows_each)
    following = level_of(level.number + 1, outcome.state, task, collecting)
    if any(following.digest == earlier.digest for earlier in levels):
        raise SchemeFaultError(f"the scheme asked the task of round {level.number} again; a task must name its round")
    return Growth((*levels[:-1], closed, following))


def grow(
    server: Server, levels: tuple[Level, ...], members: Sequence[str], store: Store, collecting: Collecting
) -> Growth:
    """Reduce from the open level of `levels` until a level is not answered by all `members`, or the model is done.

    Passing the first level alone evaluates the whole run; passing levels that were grown for the same members continues
    it (ordinary progress reduces each round once).
    """
    growth = Growth(levels)
    while growth.done is None:
        answers = store.get(growth.levels[-1].digest, {})
        if not members or not all(member in answers for member in members):
            break
        growth = advance(server, growth.levels, members, store, collecting)
    return growth


def root(levels: tuple[Level, ...], collecting: Collecting) -> tuple[Level, ...]:
    """Return the first level alone, open again."""
    first = levels[0]
    return (level_of(first.number, first.state, first.task, collecting),)


def level_of(number: int, state: State, task: Task, collecting: Collecting) -> Level:
    """Return an open level."""
    questions = collecting.questions(task)
    return Level(number, state, task, round_digest(questions), questions)


def validate(server: Server, task: Task, value: Mapping[str, Any], rows: int) -> Contribution:
    """Check an answer; raises ContributionError with the reason, whatever the peer sent."""
    contribution = Contribution.from_value(value)
    if contribution.kind != task.kind:
        raise ContributionError(f"answers {contribution.kind[:40]!r}, the task is {task.kind!r}")
    if contribution.rows > rows:  # fewer are right: rows that are too few to condense are left out
        raise ContributionError(f"states {contribution.rows} rows, its envelope {rows}")
    try:
        server.check(task, contribution)
    except ContributionError:
        raise
    except Exception as fault:  # a check that trips over hostile values must not take the coordinator down
        raise ContributionError(f"cannot be checked ({type(fault).__name__}: {fault})") from fault
    return contribution


def most_rows(limit: Callable[[Any], int], parameters: Any) -> int:
    """Return how many rows a scheme's exact sums are good for: its ``max_rows`` says it."""
    try:
        return int(limit(parameters))
    except Exception as fault:
        raise _fault("max_rows", fault) from fault


def too_many(most: int, total: int, rows: Callable[[], Mapping[str, int]]) -> list[str]:
    """Return the agents with most rows that do not fit in.

    Parameters
    ----------
    most : int
        Rows that the sums are good for.
    total : int
        Rows of all who answered.
    rows : callable
        Returns the rows by agent; asked only when they are too many.
    """
    beyond: list[str] = []
    if total <= most:
        return beyond
    each = rows()
    for agent in sorted(each, key=lambda agent: (-each[agent], agent)):
        if total <= most:
            break
        beyond.append(agent)
        total -= each[agent]
    return beyond


def share(number: float | None, of: int) -> int:
    """Resolve a number of agents or a fraction of them; at least 1, which is what None stands for."""
    if number is None:
        return 1
    wanted = number if isinstance(number, int) else math.ceil(number * of - 1e-9)
    return max(1, wanted)


def _fault(what: str, fault: Exception) -> SchemeFaultError:
    if not isinstance(fault, RunFailedError):
        return SchemeFaultError(f"{what} raised {type(fault).__name__}: {fault}"[:400])
    # Not a fault of the scheme: it says that these rows give no model, and by which name if there is one.
    if fault.cause in SCHEME_ENDS:
        return SchemeFaultError(fault.detail[:400], fault.cause, getattr(fault, "group", None))
    return SchemeFaultError(str(fault)[:400], "no-model")


def to_score(state: RunState) -> ScoresAsked:
    """Return what the vehicles score: the model, and in a private run what its name stood for at the begin and before.

    Of any run it is asked how far what the name stood for has moved. A model of another target is no champion. The
    limits are those of the gate that each new version passes.
    """
    model = json.loads(canonical_json(state.model.to_document()))
    lines = lines_of(state.model) if state.model.domain.target is not None else 0
    champion = state.champion if state.champion is not None and same_target(model, state.champion) else None
    watched = 0
    if champion is not None:
        with suppress(GlassfleetError, LookupError, ValueError, TypeError):  # its scheme may be installed no more
            watched = lines_of(catalogue.load(str(champion["scheme"])).from_document(champion))
    if state.spec.private is None:
        return ScoresAsked(model, champion, lines=lines, watched=watched)
    limits = {"champion": MARGIN, "constant": min(GATE.max_worse, -BEATS), "local": WORSE_THAN_ALONE}
    return ScoresAsked(model, champion, limits, lines, () if champion is None else state.formers, watched)


def harmful_member(
    regressions: Callable[[Sequence[tuple[Task, Contribution]]], NDArray[np.float64] | None],
    state: RunState,
    levels: Sequence[Level],
) -> Influence | None:
    """Return the member of a plain run's cohort without which the others gain; errors are in the target's unit.

    Parameters
    ----------
    regressions : callable
        Returns what one vehicle's answers tell of the scheme's regressions; None: nothing.
    state : RunState
        With all answers.
    levels : sequence of Level
        All of them, closed.
    """

    def moments_of(agent: str) -> NDArray[np.float64] | None:
        return regressions([(level.task, state.store[level.digest][agent].contribution) for level in levels])

    members, target = levels[-1].members, None if state.domain is None else state.domain.target
    if target is None or not FEWEST <= len(members) <= MOST:
        return None
    first = moments_of(members[0])
    if first is None or len(members) * first.nbytes > MOST_BYTES:
        return None
    found = harmful({member: known for member in members if (known := moments_of(member)) is not None})
    width = target.high - target.low
    return found and replace(found, error=width * found.error, without=width * found.without)
