"""How the answers of a round become what the server half reduces: one by one, or, in private runs, summed by group.

In a private run an answer is a masked vector that tells nothing. The vectors of all members of a group's present
edition add up to the sum of what they hide; that sum is what the server half gets, as one answer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from coordinator.engine.packing import copied
from coordinator.engine.state import CountedRows, Level, Store, Stored
from glassfleet.contract.messages import COUNTS, Contribution, Task
from glassfleet.contract.scheme import Server
from glassfleet.errors import ContributionError, PrivacyError
from glassfleet.private.between import COMPANY
from glassfleet.private.groups import Edition, next_edition, round_digest
from glassfleet.private.layout import Additive, Layout, layout_of
from glassfleet.private.sums import add, question_digest
from glassfleet.private.totals import Total, known
from schemas.errors import RunFailedError

MASKED = "masked"
"""Name of the one array in an answer of a private run: int64, shape (L,), any numbers."""


class GroupSumError(RunFailedError):
    """The answers of one group do not add up to what vehicles can have."""

    def __init__(self, group: int, detail: str, cause: str) -> None:
        super().__init__(detail, cause)
        self.group = group


class Collecting(Protocol):
    """What `learning` needs to know about answers."""

    def questions(self, task: Task) -> tuple[str, ...]:
        """Return the identities of what is asked with a task, SHA-256 (hex): one, or one for each group."""

    def collect(self, task: Task, members: Sequence[str], answers: Mapping[str, Stored]) -> list[Contribution]:
        """Return what the server half reduces, of exactly `members`, who have all answered; in a fixed order."""


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


def shrink(
    editions: Iterable[Edition], lost: Mapping[str, str], away: Collection[str], before: Sequence[Total]
) -> tuple[tuple[Edition, ...], dict[str, str]]:
    """Return the groups without `lost` and those who must go with them, and why each of all these is out.

    In a group that loses members those that are away go, too, if enough stay: they would be lost next, and a loss costs
    others. A group that loses nobody waits for them.

    Parameters
    ----------
    editions : iterable of Edition
        As they stand.
    lost : mapping of str to str
        Why, by agent.
    away : collection of str
        Who is not up.
    before : sequence of Total
        Of this run and earlier ones.
    """
    left: list[Edition] = []
    out: dict[str, str] = {}
    for edition in editions:
        gone = [agent for agent in edition.members if agent in lost]
        if not gone:
            left.append(edition)
            continue
        met = met_before(edition, before)
        shrunk = next_edition(
            edition, [agent for agent in edition.members if agent in lost or agent in away], before=met
        )
        if shrunk.edition is None:
            shrunk = next_edition(edition, gone, away, met)
        out |= {agent: lost.get(agent, "away: it was not connected when others were lost") for agent in shrunk.lost}
        out |= dict.fromkeys(shrunk.company, f"{COMPANY}: nobody leaves a group alone")
        if shrunk.edition is None:
            why = "too-few-for-privacy: the group is too small to go on"
            out = {agent: out.get(agent, why) for agent in edition.members} | out
        else:
            left.append(shrunk.edition)
    return tuple(left), out


def met_before(edition: Edition, totals: Sequence[Total]) -> tuple[Total, ...]:
    """Return what members of a group look at besides its present edition; none where there was no earlier run."""
    earlier = known(edition.roster.announced, totals)
    founders = edition.total.founders
    return (*earlier, *(each for each in totals if each.founders == founders)) if earlier else ()


def counted(collecting: Privately, levels: Iterable[Level], store: Store) -> CountedRows:
    """Return on how many rows something rests in each group's edition, as far as it was opened at `levels`.

    What a next edition is asked rests on the difference to this one, too; so it is kept when a group shrinks, of those
    that do not as well, as they may later.
    """
    rows = dict(collecting.counted_rows)
    for level in levels:
        answers = store.get(level.digest, {}) if level.task.kind in COUNTS else {}
        for edition in collecting.editions:
            if not answers or not all(member in answers for member in edition.members):
                continue
            alone = replace(collecting, editions=(edition,), counted_rows={})
            with suppress(RunFailedError):  # a false answer hides the others as a mask does
                (sums,) = alone.collect(level.task, edition.members, answers)
                rows[edition.group, edition.number, level.task.digest] = (level.task, sums)
    return rows


def carried(
    before: Privately, after: Privately, tasks: Iterable[Task], store: Mapping[str, Mapping[str, Stored]]
) -> dict[str, dict[str, Stored]]:
    """Return the answers that still count: those of groups whose edition is what it was, under the new digests."""
    same = {agent for edition in after.editions if edition in before.editions for agent in edition.members}
    if not same:
        return {}
    return {
        round_digest(after.questions(task)): {
            agent: stored
            for agent, stored in store.get(round_digest(before.questions(task)), {}).items()
            if agent in same
        }
        for task in tasks
    }
