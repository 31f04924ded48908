"""What the vehicles of a run told, from its journal: for `glassfleet lab audit`. A coordinator does without."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from coordinator.engine import Answer, Checkpoint, Engine, Event, OpenRound, RunState
from coordinator.engine.checkpoint import BOUND
from coordinator.engine.learning import MASKED, Privately
from coordinator.journal.port import Entry
from coordinator.runs.transaction import steps
from glassfleet.contract.messages import Contribution
from glassfleet.contract.scheme import Scheme
from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain
from glassfleet.errors import PrivacyError
from glassfleet.private.chain import PAIRS_SCHEME
from glassfleet.private.groups import LEAST_COMPANY, LEAST_FLOOR, Terms, least_members, parameters_digest
from glassfleet.private.layout import Additive, Layout, Words, layout_of
from glassfleet.private.masks import RunKey
from glassfleet.private.simulation import Heard, PrivateFleet, PrivateOutcome, Vehicle
from lab.audit.transcript import Opened
from schemas.errors import StorageError


@dataclass(frozen=True)
class Transcript:
    """What the vehicles of a run told: where it came to, and every answer that was accepted.

    Attributes
    ----------
    answers : tuple of Opened
        To all questions in the order in which they came, those about limits (scheme ``domain``) too. Of a private run
        the sums over each edition of a group; masked answers by themselves tell nothing.
    """

    state: RunState
    answers: tuple[Opened, ...]


def transcript_of(engine: Engine, entries: Sequence[Entry]) -> Transcript | None:
    """Return what the vehicles told in a run, from its entries; None: there are none.

    Raises as `transaction.fold`; and StorageError for a private run of another fleet than the engine's, and for an
    elastic run whose journal has let answers go.
    """
    state: RunState | None = None
    opened: dict[str, OpenRound] = {}
    layouts: dict[str, Layout] = {}
    answers: list[Opened] = []
    masked = Sums()
    for event, state, effects in steps(engine, entries):
        _check_whole(event, state)
        if isinstance(event, Answer):  # those that were not accepted are journalled as TurnedAway
            asked, sums = opened.get(event.task_digest), Contribution.from_value(event.contribution).sums
            if asked is None:
                raise StorageError(
                    f"{event.agent} answered what nobody asks in the fleet {engine.fleet!r}: the run is another fleet's"
                )
            for group in asked.groups:
                if event.agent in group.edition.members:
                    heard = Heard(event.agent, group.edition, asked.task, sums[MASKED].view(np.uint64))
                    masked.add(heard, layouts[asked.task_digest])
            if not asked.groups:
                answers.append(Opened(asked.task, frozenset({event.agent}), sums))
        for effect in effects:
            if isinstance(effect, OpenRound):
                opened[effect.task_digest] = effect
                collecting = engine.collecting(state)
                if isinstance(collecting, Privately):
                    layouts[effect.task_digest] = collecting.layout(effect.task)
    return None if state is None else Transcript(state, (*answers, *masked.opened))


def _check_whole(event: Event, state: RunState) -> None:
    """Raise StorageError when an event stands for others."""
    if isinstance(event, Checkpoint):
        raise StorageError(
            f"the journal keeps no answers to the first {len(state.rounds)} rounds: they were more than "
            f"{BOUND // 2**20} MB, and an elastic run needs them no more. Audit a run of fewer vehicles or rounds"
        )


# --- what a coordinator opens in a private run: the sum over each edition of a group, from the members' masked answers


class Sums:
    """Adds up masked answers, as they come.

    Attributes
    ----------
    opened : list of Opened
        The sum of each edition whose members have all answered, in the order in which it could be had. Answers of an
        edition in which somebody has not answered tell nothing.
    """

    def __init__(self) -> None:
        self.opened: list[Opened] = []
        self._sums: dict[tuple[bytes, str], Words] = {}
        self._who: dict[tuple[bytes, str], set[str]] = {}

    def add(self, heard: Heard, layout: Layout) -> None:
        """Take one answer; `layout` says where each number of an answer to its task stands."""
        key = heard.edition.digest, heard.task.digest
        who = self._who.setdefault(key, set())
        if heard.agent in who:
            return
        who.add(heard.agent)
        self._sums[key] = heard.words if len(who) == 1 else self._sums[key] + heard.words  # modulo 2^64
        if len(who) == len(heard.edition.members):
            words = self._sums.pop(key)
            if heard.task.scheme == PAIRS_SCHEME:  # not about rows
                return
            with suppress(PrivacyError):  # who answers noise hides the others as a mask does
                total = layout.read(words.view(np.int64), len(who))
                self.opened.append(Opened(heard.task, frozenset(who), total.sums))


def may_lose(vehicles: int) -> bool:
    """Return whether a group of so many goes on when one is lost, under the least terms that a run may have."""
    return vehicles - LEAST_COMPANY >= least_members(vehicles, LEAST_FLOOR, LEAST_COMPANY)


def _hashed(agent: str) -> bytes:
    """Return a key that is no secret: who leaves with whom depends on it, and a report must come out again."""
    return hashlib.sha256(agent.encode()).digest()


def conduct(
    scheme: Scheme, parameters: Any, domain: Domain, fleet: Mapping[str, Dataset], answers: int | None = None
) -> tuple[list[Opened], PrivateOutcome]:
    """Learn privately in this process, in one group; return what was opened, and the outcome.

    Parameters
    ----------
    scheme : Scheme
    parameters : scheme.Parameters
        Of a private run: :func:`glassfleet.contract.scheme.private_parameters`.
    domain : Domain
    fleet : mapping of str to Dataset
        Rows of each vehicle; at least :data:`~glassfleet.private.groups.LEAST_FLOOR` vehicles.
    answers : int or None
        After so many answers the first vehicle is lost, and others leave with it. None: nobody is lost.
    """
    first = min(fleet)
    terms = Terms("audit", "run", "nonce", scheme.name, parameters_digest(parameters))
    vehicles = [
        Vehicle(agent, replace(data, memo={}), RunKey(_hashed(agent)), answers if agent == first else None)
        for agent, data in fleet.items()
    ]
    sums, additive = Sums(), cast("Additive", scheme)
    masked = PrivateFleet(
        terms, vehicles, group=len(vehicles), watch=lambda heard: sums.add(heard, layout_of(additive, heard.task))
    )
    return sums.opened, masked.learn(scheme, parameters, domain)
