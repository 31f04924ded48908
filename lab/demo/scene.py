"""What a demonstration is given: what to show, and somebody who looks on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from glassfleet.data.lags import Memory
from lab.demo.plan import Plan

FLEET, COORDINATOR, OPERATOR = "demo", "coordinator", "demo-operator"


class Watcher(Protocol):
    """Who looks on: a live display, or plain lines."""

    def step(self, line: str) -> None:
        """Take what is done next, before there is a run or after it."""
        ...

    def say(self, line: str) -> None:
        """Take one line about what happened."""
        ...

    def serve(self, address: str) -> None:
        """Take the dashboard's address."""
        ...

    def look(self, status: Mapping[str, Any], vehicles: Mapping[str, str]) -> None:
        """Take the run as it stands, and what each vehicle's process is doing, in a word or two."""
        ...


@dataclass(frozen=True)
class Settings:
    """What is demonstrated.

    Attributes
    ----------
    files : mapping of str to Path
        Vehicle id -> its data.
    plan : Plan
    work : Path
        Folder for logs and state.
    scheme : str
    parameters : mapping
        Of the scheme, as the run is started with.
    participation : "cohort" or "elastic"
    model : str
        Name to publish under.
    deadline : float
        Seconds per round, > 0.
    pace : float
        Seconds that every vehicle takes to answer, so that people can watch and kills fall into open rounds.
    broker_kind : "auto", "embedded" or "mosquitto"
    bounds : mapping or None
        As the run's specification takes it: column -> [low, high], or an object with unit and terms too.
    target : str or None
    labels : bool
        The target is a class.
    memory : Memory or None
        Lagged features of the run.
    seed : int
    timeout : float
        Seconds for the whole run.
    secure : bool
        Mutual TLS with certificates made for the occasion; needs Mosquitto.
    private : bool
        Nobody sees a single vehicle's numbers.
    support : int
        Of a private run: fewest rows on which anything rests that is asked.
    """

    files: Mapping[str, Path]
    plan: Plan
    work: Path
    scheme: str
    parameters: Mapping[str, Any]
    participation: str
    model: str
    deadline: float
    pace: float
    broker_kind: str
    bounds: Mapping[str, Any] | None
    target: str | None
    labels: bool
    memory: Memory | None
    seed: int
    timeout: float
    secure: bool
    private: bool
    support: int

    @property
    def slowness(self) -> float:
        """Seconds that each answer of a slow vehicle is on its way: beyond every deadline."""
        return self.deadline + 0.4
