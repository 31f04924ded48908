"""The state of a rollout."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, get_args

from coordinator.journal.port import ROLLOUTS, Decision
from coordinator.models.rollout.table import TABLE, Phase
from coordinator.specification.rollout import RolloutPlan


@dataclass(frozen=True)
class Started:
    """An operator or a run wants a candidate tried; versions and digests of both models.

    The champion's are 0 and empty when no version is current: then the candidate is compared with the constant.
    `formers` are versions and digests of earlier ones that were in use: the candidate is compared with them, too.
    `suspect` says without whom the others would gain, in words; empty: nobody is named.
    """

    at: float
    rollout: str
    name: str
    version: int
    digest: str
    champion: int
    champion_digest: str
    plan: RolloutPlan
    suspect: str = ""
    formers: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True)
class StageOpened:
    """These vehicles are up, and can be asked: a stage begins."""

    at: float
    agents: tuple[str, ...]


@dataclass(frozen=True)
class Reported:
    """A vehicle's scores of candidate and champion, on the same rows; and of a model of its own training rows alone.

    `beside` has for the champion and each former version, by digest: how much worse the candidate is than it, the
    variance of that, and the same two of it and the champion.
    """

    at: float
    agent: str
    metric: str
    candidate: float
    champion: float
    local: float
    beside: Mapping[str, Sequence[float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Cannot:
    """A vehicle cannot score the candidate, and says why."""

    at: float
    agent: str
    why: str


@dataclass(frozen=True)
class Tick:
    """Time passes."""

    at: float


@dataclass(frozen=True)
class Hurry:
    """These vehicles are not waited for: they are down, or a newer version waits for the verdict."""

    at: float
    agents: tuple[str, ...]


@dataclass(frozen=True)
class Pause:
    """An operator wants it to stand still."""

    at: float
    reason: str = ""


@dataclass(frozen=True)
class Resume:
    """An operator lets it go on."""

    at: float


@dataclass(frozen=True)
class Stop:
    """An operator ends it: the champion stays."""

    at: float
    reason: str = ""


@dataclass(frozen=True)
class Superseded:
    """Another version became current."""

    at: float
    version: int


Event: TypeAlias = Started | StageOpened | Reported | Cannot | Tick | Hurry | Pause | Resume | Stop | Superseded
EVENTS: dict[str, type[Any]] = {kind.__name__.lower(): kind for kind in get_args(Event)}


@dataclass(frozen=True)
class Try:
    """Publish the candidate's pointer to the vehicles below a threshold."""

    salt: str
    below: int


@dataclass(frozen=True)
class Withdraw:
    """Nothing is tried any more."""


@dataclass(frozen=True)
class Promote:
    """Make the candidate current."""

    reason: str


@dataclass(frozen=True)
class Return:
    """Make a former version current again: it is the best on the rows of now."""

    version: int
    digest: str
    reason: str


Effect: TypeAlias = Try | Withdraw | Promote | Return


def decision(name: str, rollout: str, event: Event, wall: float) -> Decision:
    """Return an event as the journal has it."""
    body = {key: value for key, value in vars(event).items() if key not in ("at", "name")}
    if isinstance(event, Started):
        body["plan"] = event.plan.model_dump(mode="json")
    return Decision(name, ROLLOUTS + type(event).__name__.lower(), event.at, wall, {**body, "rollout": rollout})


def event_of(decision: Decision) -> Event:
    """Return the event that a decision is about; raises whatever there is, when another version wrote it."""
    kind = EVENTS[decision.kind.removeprefix(ROLLOUTS)]
    body = dict(decision.body)
    rollout = body.pop("rollout")
    if kind is Started:
        body |= {"name": decision.name, "rollout": rollout, "plan": RolloutPlan.from_document(body["plan"])}
        body["formers"] = tuple((version, digest) for version, digest in body["formers"])
    if kind is StageOpened:
        body["agents"] = tuple(body["agents"])
    event: Event = kind(at=decision.at, **body)
    return event


@dataclass(frozen=True)
class Stage:
    """A stage that was opened.

    Attributes
    ----------
    below : int
        Threshold of the vehicles' places.
    asked : tuple of str
        Of those that were up, who is below it.
    opened, closed : float
        Coordinator's time, seconds; `closed` is 0 while it is open.
    verdict : str
        How it was judged, in words; empty while it is open.
    """

    share: float
    below: int
    asked: tuple[str, ...]
    opened: float
    closed: float = 0.0
    verdict: str = ""


@dataclass(frozen=True)
class Rollout:
    """The state.

    Attributes
    ----------
    stages : tuple of Stage
        Opened ones; the last is the current one, unless the phase is ``opening``.
    reports : dict
        Agent -> its report.
    cannot : dict
        Agent -> why it cannot report.
    due : float
        When the phase's deadline is.
    left : float
        Seconds that were left when it was paused.
    reason : str
        Why it ended or stands still.
    outcome : str
        The name of its end, a cause in `TABLE`; empty before.
    at : float
        Time of the last event.
    """

    start: Started
    phase: Phase
    due: float
    at: float
    stages: tuple[Stage, ...] = ()
    reports: dict[str, Reported] = field(default_factory=dict)
    cannot: dict[str, str] = field(default_factory=dict)
    left: float = 0.0
    reason: str = ""
    outcome: str = ""

    @property
    def is_ended(self) -> bool:
        """Whether it has come to a named end."""
        return self.phase in TABLE.ended

    @property
    def is_open(self) -> bool:
        """Whether a stage is open, perhaps paused."""
        return bool(self.stages) and not self.stages[-1].closed

    @property
    def able(self) -> frozenset[str]:
        """Who was asked in the last stage, but for those that said they cannot."""
        return frozenset(self.stages[-1].asked) - set(self.cannot) if self.stages else frozenset()

    @property
    def awaited(self) -> frozenset[str]:
        """Who has yet to report."""
        return self.able - set(self.reports)

    @property
    def needed(self) -> int:
        """Reports that the open stage needs."""
        least = self.start.plan.min_reports
        return least if isinstance(least, int) else max(1, math.ceil(least * len(self.able) - 1e-9))
