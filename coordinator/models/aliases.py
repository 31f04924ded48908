"""What a model's name stands for: the current version (champion), and the one that is tried (candidate).

Folded from the journal's decisions. Each change gets a sequence number, one more than the last of that name and at
least the Unix time in milliseconds. Agents refuse a current pointer with a lower one than they have seen, and a
coordinator with a new journal must not be refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from coordinator.journal.port import Decision
from schemas.errors import NotFoundError
from schemas.messages import ModelPointer, Trial

CURRENT, CANDIDATE, NO_CANDIDATE = "current", "candidate", "no-candidate"
SIGNED = "signed"
"""An operator let a version be signed again whose signature could not be verified."""
Cause = Literal["published", "promoted", "rolled-back", "returned"]
"""Why a version is current. ``returned``: the gate found a former version to be the best; ``promoted`` and
``rolled-back``: an operator's word, or a staged rollout."""


@dataclass
class Aliases:
    """The pointers of all names.

    Parameters
    ----------
    now, wall : callable
        The coordinator's own time, and the wall clock, seconds.

    Attributes
    ----------
    current, candidate : dict of str to ModelPointer
        Replaced, never changed: the API's threads read them.
    """

    now: Callable[[], float]
    wall: Callable[[], float]
    current: dict[str, ModelPointer] = field(default_factory=dict)
    candidate: dict[str, ModelPointer] = field(default_factory=dict)
    had_candidate: set[str] = field(default_factory=set)
    _sequence: dict[str, int] = field(default_factory=dict)

    def apply(self, decisions: Iterable[Decision]) -> None:
        """Take over decisions that are in the journal; those of rollouts change nothing here."""
        current, candidate = self.current.copy(), self.candidate.copy()
        for each in decisions:
            if each.kind == CURRENT:
                current[each.name] = _pointer(each)
            elif each.kind == CANDIDATE:
                candidate[each.name] = _pointer(each)
                self.had_candidate.add(each.name)
            elif each.kind == NO_CANDIDATE:
                candidate.pop(each.name, None)
                self.had_candidate.add(each.name)
            else:
                continue
            self._sequence[each.name] = max(self._sequence.get(each.name, 0), int(each.body.get("sequence", 0)))
        self.current, self.candidate = current, candidate

    def of(self, name: str) -> ModelPointer:
        """Return the pointer to the current version; raises NotFoundError when none is current."""
        if name not in self.current:
            raise NotFoundError(
                f"no version of model {name!r} is current: glassfleet model history {name} says why, "
                f"glassfleet model promote {name}@VERSION makes one current"
            )
        return self.current[name]

    def to_current(self, name: str, version: int, digest: str, cause: Cause, reason: str = "") -> Decision:
        """Return the decision that a version is current from now on."""
        body = {"version": version, "digest": digest, "cause": cause, "reason": reason[:500]}
        return self.decision(name, CURRENT, {**body, "sequence": self._next(name)})

    def to_candidate(self, name: str, version: int, digest: str, trial: Trial, reason: str = "") -> Decision:
        """Return the decision that a version is tried; or, by nobody any more, why it did not become current."""
        body = {"version": version, "digest": digest, "trial": trial.model_dump(mode="json"), "reason": reason[:500]}
        return self.decision(name, CANDIDATE, {**body, "sequence": self._next(name)})

    def to_none(self, name: str, reason: str = "") -> Decision:
        """Return the decision that nothing is tried any more."""
        return self.decision(name, NO_CANDIDATE, {"reason": reason[:500], "sequence": self._next(name)})

    def decision(self, name: str, kind: str, body: dict[str, Any]) -> Decision:
        """Return a decision that is made now."""
        return Decision(name, kind, self.now(), self.wall(), body)

    def pinned(self) -> set[tuple[str, int]]:
        """Return the versions that a name stands for: they must stay, however old they are."""
        return {(name, version) for name in {*self.current, *self.candidate} for version in self.pinned_of(name)}

    def pinned_of(self, name: str) -> set[int]:
        """Return the versions that one name stands for, and those that its candidate is compared with."""
        pointers = [each for each in (self.current.get(name), self.candidate.get(name)) if each is not None]
        formers = [former for each in pointers if each.trial is not None for former in each.trial.formers]
        return {each.version for each in pointers} | {each.version for each in formers}

    def _next(self, name: str) -> int:
        return max(self._sequence.get(name, 0) + 1, int(self.wall() * 1000))


def _pointer(decision: Decision) -> ModelPointer:
    body = {key: value for key, value in decision.body.items() if key != "cause"}
    return ModelPointer.model_validate({"name": decision.name, **body})
