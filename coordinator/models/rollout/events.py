"""What happens to a rollout, and what it wants done. Journals hold the events; times are the coordinator's, seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias, get_args

from coordinator.specification.rollout import RolloutPlan


@dataclass(frozen=True)
class Started:
    """An operator or a run wants a candidate tried; versions and digests of both models.

    The champion's are 0 and empty when no version is current: then the candidate is compared with the constant.
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


@dataclass(frozen=True)
class Opened:
    """These vehicles are up, and can be asked: a stage begins."""

    at: float
    agents: tuple[str, ...]


@dataclass(frozen=True)
class Reported:
    """A vehicle's scores of candidate and champion, on the same rows; and of a model of its own training rows alone.

    `local` is None in the journals of earlier software.
    """

    at: float
    agent: str
    metric: str
    candidate: float
    champion: float
    local: float | None = None


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


Effect: TypeAlias = Try | Withdraw | Promote
