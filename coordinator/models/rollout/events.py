"""What happens to a rollout, and what it wants done. Journals hold the events; times are the coordinator's, seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, get_args

from coordinator.journal.port import ROLLOUTS, Decision
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
class Opened:
    """These vehicles are up, and can be asked: a stage begins."""

    at: float
    agents: tuple[str, ...]


@dataclass(frozen=True)
class Reported:
    """A vehicle's scores of candidate and champion, on the same rows; and of a model of its own training rows alone.

    `local` is None in the journals of earlier software. `beside` has for the champion and each former version, by
    digest: how much worse the candidate is than it, the variance of that, and the same two of it and the champion.
    """

    at: float
    agent: str
    metric: str
    candidate: float
    champion: float
    local: float | None = None
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


Event: TypeAlias = Started | Opened | Reported | Cannot | Tick | Hurry | Pause | Resume | Stop | Superseded
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
        body["formers"] = tuple((version, digest) for version, digest in body.get("formers", ()))
    if kind is Opened:
        body["agents"] = tuple(body["agents"])
    event: Event = kind(at=decision.at, **body)
    return event
