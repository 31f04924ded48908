"""Learning as a function of who counts and what they answered.

`grow` is the heart of the coordinator: start the server half and, as long as every member has a stored answer to the
current task, reduce, in the order of agent id. The first task that is not answered by all is the open round. Replay
after a loss, resumption after a crash and the central reference are this function with other arguments.

What is reduced are the answers one by one (`Openly`). In a private run (`Privately`) an answer is a masked vector that
tells nothing. Those of all members of a group's present edition add up to the sum of what they hide. That sum is what
the server half gets, as one answer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from sys import intern
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from coordinator.engine.events import NUMBERS
from coordinator.engine.state import CountedRows, Level, RunState, Store, Stored
from coordinator.engine.table import SCHEME_ENDS
from coordinator.specification.rollout import BEATS, GATE, WORSE_THAN_ALONE
from coordinator.specification.run import Bounds, limits_of
from glassfleet.contract import catalogue
from glassfleet.contract.messages import Contribution, Done, Next, State, Task
from glassfleet.contract.scheme import Scheme, Server, input_quantiles_of, is_label_scheme
from glassfleet.data.domain import Domain
from glassfleet.discovery import DiscoveryParameters
from glassfleet.errors import ContributionError, PrivacyError
from glassfleet.evaluation.influence import FEWEST, MOST, MOST_BYTES, Influence, harmful
from glassfleet.evaluation.paired import MARGIN
from glassfleet.evaluation.scores import ScoresAsked, same_target
from glassfleet.model.intervals import lines_of
from glassfleet.private.groups import Edition, round_digest
from glassfleet.private.layout import Additive, Layout, add, layout_of, question_digest
from schemas.codec import canonical_json
from schemas.errors import GlassfleetError, RunFailedError, UsageError

MASKED = "masked"
"""Name of the one array in an answer of a private run: int64, shape (L,), any numbers."""


class GroupSumError(RunFailedError):
    """The answers of one group do not add up to what vehicles can have."""

    def __init__(self, group: int, detail: str, cause: str) -> None:
        super().__init__(detail, cause)
        self.group = group


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


class Collecting(Protocol):
    """What `learning` needs to know about answers."""

    def questions(self, task: Task) -> tuple[str, ...]:
        """Return the identities of what is asked with a task, SHA-256 (hex): one, or one for each group."""

    def collect(self, task: Task, members: Sequence[str], answers: Mapping[str, Stored]) -> list[Contribution]:
        """Return what the server half reduces, of exactly `members`, who have all answered; in a fixed order."""


def copied(of: Contribution, sums: Mapping[str, NDArray[np.int64]], agent: str) -> Contribution:
    """Return an answer with other sums, and who gave it."""
    # Not `changed`: a look at an object's ``__dict__`` makes one, and there are as many answers as vehicles and rounds.
    return Contribution(intern(of.kind), of.rows, sums, of.values, of.nullified, agent)


class Openly:
    """Each vehicle's answer is reduced as it came."""

    @staticmethod
    def questions(task: Task) -> tuple[str, ...]:
        """Return the digest of the task."""
        return (task.digest,)

    @staticmethod
    def collect(task: Task, members: Sequence[str], answers: Mapping[str, Stored]) -> list[Contribution]:  # noqa: ARG004
        """Return the answers in the order of agent id."""
        given = ((member, answers[member].contribution) for member in sorted(members))
        return [copied(each, each.sums, member) for member, each in given]


@dataclass(frozen=True)
class Privately:
    """The sum of each group is reduced as one answer.

    Attributes
    ----------
    editions : tuple of Edition
        The groups as they stand.
    scheme : Additive
        Says how answers to a task are laid out.
    server : Server
        Says whether a sum can be true.
    max_rows : int or None
        So many rows the exact sums are good for; None: any number.
    counted_rows : Mapping
        What is known of former editions, see :func:`counted`.
    """

    editions: tuple[Edition, ...]
    scheme: Additive
    server: Server
    max_rows: int | None
    counted_rows: CountedRows

    def layout(self, task: Task) -> Layout:
        """Return where each number of an answer stands."""
        return layout_of(self.scheme, task)

    def questions(self, task: Task) -> tuple[str, ...]:
        """Return the identity of the task in each group's edition, in the order of the groups."""
        layout, digest = self.layout(task).digest, task.digest
        return tuple(question_digest(edition, digest, layout) for edition in self.editions)

    def check(self, task: Task, contribution: Contribution) -> None:
        """Raise ContributionError unless the answer is a masked vector of the right length: no more can be seen."""
        words = contribution.sums.get(MASKED)
        if contribution.rows or contribution.values or contribution.nullified or set(contribution.sums) != {MASKED}:
            raise ContributionError("an answer in a private run is one masked vector and nothing else")
        size = self.layout(task).size
        if words is None or words.shape != (size,):
            raise ContributionError(f"a masked vector of {size} numbers is asked for")

    def collect(self, task: Task, members: Sequence[str], answers: Mapping[str, Stored]) -> list[Contribution]:
        """Return the sum of each group, in the order of the groups.

        Raises
        ------
        GroupSumError
            ``impossible-sum``, or ``too-many-rows`` in one group.
        RunFailedError
            ``no-rows`` or ``too-many-rows``.
        """
        layout = self.layout(task)
        sums = []
        for edition in self.editions:
            assert set(edition.members) <= set(members)
            words = [answers[member].contribution.sums[MASKED].view(np.uint64) for member in edition.members]
            try:
                total = layout.read(add(words), len(edition.members))
                self._check_rows(total.rows, edition.group)
                self.server.check(task, total)
            except (PrivacyError, ContributionError) as fault:
                detail = (
                    f"the {len(words)} answers of group {edition.group} do not add up to what vehicles "
                    f"can have ({fault}): one of them is false or of other software"
                )
                raise GroupSumError(edition.group, detail, "impossible-sum") from fault
            former = tuple(
                part for (group, number, _), part in self.counted_rows.items()
                if group == edition.group and number < edition.number
            )  # fmt: skip
            sums.append(replace(total, agent=f"group-{edition.group}", summed=edition.summed, former=former))
        rows = sum(each.rows for each in sums)
        if not rows:
            raise RunFailedError(f"the {len(members)} agents that answered have no rows for this", "no-rows")
        self._check_rows(rows)
        return sums

    def _check_rows(self, rows: int, group: int | None = None) -> None:
        if self.max_rows is None or rows <= self.max_rows:
            return
        cause, detail = "too-many-rows", f"{rows} rows; the sums are good for {self.max_rows} in all"
        raise RunFailedError(detail, cause) if group is None else GroupSumError(group, detail, cause)


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
        raise fault_of("start", fault) from fault
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
        raise fault_of("reduce", fault) from fault
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


def fault_of(what: str, fault: Exception) -> SchemeFaultError:
    """Return what a fault of a scheme's server half ends a run by."""
    if isinstance(fault, UsageError):  # the limits and classes that were found are none to learn from
        return SchemeFaultError(str(fault)[:400])
    if not isinstance(fault, RunFailedError):
        return SchemeFaultError(f"{what} raised {type(fault).__name__}: {fault}"[:400])
    # Not a fault of the scheme: it says that these rows give no model, and by which name if there is one.
    if fault.cause in SCHEME_ENDS:
        return SchemeFaultError(fault.detail[:400], fault.cause, getattr(fault, "group", None))
    return SchemeFaultError(str(fault)[:400], "no-model")


def discovery_of(
    features: Sequence[str], target: str, bounds: Mapping[str, tuple[float, float] | Bounds], scheme: Scheme
) -> DiscoveryParameters:
    """Return discovery's parameters for these columns; a classifier's classes are found too.

    Raises ValueError (pydantic's) when `bounds` name a column that the run does not have.
    """
    words = {column: known for column, known in bounds.items() if isinstance(known, Bounds)}
    return DiscoveryParameters(
        features=tuple(features),
        target=target,
        bounds=limits_of(bounds),
        input_quantiles=input_quantiles_of(scheme, labels=is_label_scheme(scheme)),
        units={column: known.unit for column, known in words.items() if known.unit},
        terms={column: known.terms for column, known in words.items() if known.terms},
        labels=is_label_scheme(scheme),
        either=scheme.purpose == {"classification", "regression"},
        categories=scheme.abilities.categories,
        missing=scheme.abilities.missing_cells,
        excess=scheme.abilities.excess,
        guarded=False,  # all rows count: `to_search` has what a run leaves out
    )


def to_search(state: RunState, scheme: Scheme) -> DiscoveryParameters:
    """Return what a run's search of its domain starts from."""
    spec = state.spec
    parameters = discovery_of(state.features, state.target, spec.bounds or {}, scheme)
    guard = {"guarded": True, "readable": True, "max_rows_each": state.max_rows_each}
    return parameters.model_copy(update={**guard, "units": _units(state, parameters)})


def _units(state: RunState, parameters: DiscoveryParameters) -> dict[str, str]:
    """Return the units that the vehicles tell, and those of the specification, which count."""
    known = {*parameters.features, parameters.target}
    units = {
        name: kind.removeprefix(f"{NUMBERS} in ")
        for name, kind in state.kinds.items()
        if kind.startswith(f"{NUMBERS} in ") and name in known
    }
    return units | parameters.units


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
