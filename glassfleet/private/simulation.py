"""A private run in one process, with the very halves that vehicles and coordinator run, and vehicles that are lost.

What leaves a vehicle is masked here, too: `watch` sees exactly what a coordinator sees.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from glassfleet.contract.messages import COUNTS, Contribution, Done, Next, Task
from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain
from glassfleet.private.answering import accept, reply
from glassfleet.private.chain import Chain, meet
from glassfleet.private.groups import (
    LEAST_GROUP,
    Announcement,
    Edition,
    Roster,
    Terms,
    cut_groups,
    missing,
    next_edition,
)
from glassfleet.private.layout import Words, add, layout_of, question_digest
from glassfleet.private.masks import RunKey, pair_keys
from schemas.codec import Value
from schemas.errors import RunFailedError


class Vehicle:
    """One vehicle of a simulated private run.

    Parameters
    ----------
    agent : str
    data : Dataset
    key : RunKey
    answers : int or None
        So many answers it gives before it is lost for good; None: it is not lost.
    """

    def __init__(self, agent: str, data: Dataset, key: RunKey, answers: int | None = None) -> None:
        self.agent, self.data, self.key, self.left = agent, data, key, answers
        self.announcement = Announcement(agent, key.public, hashlib.sha256(agent.encode()).hexdigest())
        self.chain: Chain | None = None
        self.pairs: dict[str, bytes] = {}

    def meet(self, terms: Terms, roster: Roster) -> None:
        """Begin the chain, and agree on a key with each other founder."""
        self.chain = meet(self.announcement, terms, roster)
        self.pairs = pair_keys(self.key, self.agent, roster)

    def answer(self, scheme: Any, task: Task, edition: Edition, question: str) -> Words | None:
        """Return the masked answer; None when the vehicle is lost."""
        if self.left == 0 or self.chain is None:
            return None
        if self.left is not None:
            self.left -= 1
        asked = accept(self.chain, scheme, task, edition.number, edition.members, question)
        given: Contribution = scheme.client.contribute(task, self.data, np.random.default_rng(0))
        scheme.server.check(task, given)
        self.chain, words = reply(asked, given, self.pairs)
        return words


@dataclass(frozen=True)
class Heard:
    """One masked answer, as it reaches the coordinator."""

    agent: str
    edition: Edition
    task: Task
    words: Words


@dataclass(frozen=True)
class PrivateOutcome:
    """What a private run came to.

    Attributes
    ----------
    model : Any
        The finished model; of domain discovery the ``Domain``.
    cohort : tuple of str
        Whose rows it was learned from, in the order of id.
    lost, company : tuple of str
        Who was lost so far, and who had to go with them, in the order in which they left.
    summary : Mapping[str, Value]
        What the scheme reports.
    """

    model: Any
    cohort: tuple[str, ...]
    lost: tuple[str, ...]
    company: tuple[str, ...]
    summary: Mapping[str, Value] = field(default_factory=dict)


class PrivateFleet:
    """Vehicles that met for one run, and an honest coordinator.

    Parameters
    ----------
    terms : Terms
    vehicles : sequence of Vehicle
        Their ids differ.
    group : int
        Fewest founders of a group.
    watch : callable, optional
        Called with each :class:`Heard`.

    Raises
    ------
    RunFailedError
        ``too-few-for-privacy``.
    """

    def __init__(
        self,
        terms: Terms,
        vehicles: Sequence[Vehicle],
        *,
        group: int = LEAST_GROUP,
        watch: Callable[[Heard], None] | None = None,
    ) -> None:
        self.terms, self._watch = terms, watch
        self._vehicles = {vehicle.agent: vehicle for vehicle in vehicles}
        founders = [vehicle.announcement for vehicle in vehicles]
        needed = missing(terms, founders)
        if needed:
            raise RunFailedError(f"{needed} vehicles more are needed", "too-few-for-privacy")
        self._editions = {roster.group: roster.first() for roster in cut_groups(terms, founders, group)}
        for edition in self._editions.values():
            for agent in edition.members:
                self._vehicles[agent].meet(terms, edition.roster)
        self._store: dict[tuple[int, str], Contribution] = {}
        self._tasks: dict[str, Task] = {}
        self._former: dict[int, tuple[tuple[Task, Contribution], ...]] = {}
        self._lost: list[str] = []
        self._company: list[str] = []

    @property
    def cohort(self) -> tuple[str, ...]:
        """Who takes part, in the order of id."""
        return tuple(sorted(agent for edition in self._editions.values() for agent in edition.members))

    def learn(self, scheme: Any, parameters: Any, domain: Domain | None, seed: int = 0) -> PrivateOutcome:
        """Learn as far as the model, or find the domain (`scheme` is ``DISCOVERY`` and `domain` None).

        Raises
        ------
        PrivacyError
            ``impossible-sum``.
        ContributionError
            The sum of a group cannot be true.
        RunFailedError
            ``too-few-for-privacy``: no group is left; or the scheme finds no model.
        """
        self._store.clear()
        step = root = scheme.server.start(parameters, domain, seed)
        while True:
            step = self._evaluate(scheme, step)
            if isinstance(step, Done):
                lost, company = tuple(self._lost), tuple(self._company)
                return PrivateOutcome(step.model, self.cohort, lost, company, step.summary)
            if self._ask(scheme, step.task):
                step = root

    def _evaluate(self, scheme: Any, step: Next | Done) -> Next | Done:
        """Reduce from there as far as all groups have answered; return the open step."""
        while isinstance(step, Next):
            step = replace(step, task=replace(step.task, nonce=self.terms.nonce))
            keys = [(group, step.task.digest) for group in sorted(self._editions)]
            if not all(key in self._store for key in keys):
                break
            sums = [replace(self._store[key], former=self._former.get(key[0], ())) for key in keys]
            step = scheme.server.reduce(step.state, sums)
        return step

    def _ask(self, scheme: Any, task: Task) -> bool:
        """Ask each group that has not answered; return whether somebody is lost."""
        lost = len(self._lost)
        for group, edition in sorted(self._editions.items()):
            if (group, task.digest) not in self._store and (gone := self._open(scheme, task, edition)):
                self._shrink(edition, set(gone))
        return len(self._lost) > lost

    def _open(self, scheme: Any, task: Task, edition: Edition) -> list[str]:
        """Ask one group one task; store its sum if all answered, else return who did not."""
        layout = layout_of(scheme, task)
        question = question_digest(edition, task.digest, layout.digest)
        answers: list[Words] = []
        gone = []
        for agent in edition.members:
            words = self._vehicles[agent].answer(scheme, task, edition, question)
            if words is None:
                gone.append(agent)
                continue
            answers.append(words)
            if self._watch is not None:
                self._watch(Heard(agent, edition, task, words))
        if not gone:
            total = layout.read(add(answers), len(edition.members))
            scheme.server.check(task, total)
            self._store[edition.group, task.digest] = total
            self._tasks[task.digest] = task
        return gone

    def _shrink(self, edition: Edition, gone: set[str]) -> None:
        shrunk = next_edition(edition, gone)
        self._lost += shrunk.lost
        self._company += shrunk.company
        for key in [key for key in self._store if key[0] == edition.group]:
            opened = self._store.pop(key)
            if opened.kind in COUNTS:
                before = self._former.get(edition.group, ())
                self._former[edition.group] = (*before, (self._tasks[key[1]], opened))
        if shrunk.edition is not None:
            self._editions[edition.group] = shrunk.edition
            return
        self._company += [agent for agent in edition.members if agent not in {*shrunk.lost, *shrunk.company}]
        del self._editions[edition.group]
        if not self._editions:
            raise RunFailedError("no group has enough members left", "too-few-for-privacy")
