"""What a model's name stands for: the version in use, the one that is tried, the one before, and who decided it.

Reads the coordinator, changes nothing; see `coordinator.models.aliases` and `coordinator.models.rollout`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from coordinator.core import Coordinator
from coordinator.journal.port import ROLLOUTS as PREFIX
from coordinator.journal.port import Decision
from coordinator.models.aliases import SIGNED
from coordinator.models.central import reference_of
from coordinator.models.registry import Registry
from schemas.errors import NotFoundError
from schemas.record import ModelRecord
from schemas.rounds import ALL

DECISIONS = 20
"""So many decisions are listed, the newest first; the API has all."""
ROLLOUTS = 5
"""So many rollouts that have ended are listed."""
TURNS = tuple(PREFIX + word for word in ("started", "pause", "resume", "stop"))
"""Decisions about a rollout that do not follow from what vehicles report."""
WORDS = {
    "published": "in use: published",
    "promoted": "in use: promoted",
    "rolled-back": "in use again: rolled back",
    "returned": "in use again: the best on new rows",
}


@dataclass(frozen=True)
class NameStanding:
    """What a name stands for now.

    Attributes
    ----------
    reference_to : str
        The name that vehicles compare this one with, when it is a central reference: nobody forecasts with it, and
        there is nothing to decide. Empty: the fleet has learned it.
    current, candidate, previous : int
        Versions; 0: there is none. ``previous`` is the one that a rollback goes to.
    sequence : int
        Number of the decision that made the current version so; it only grows.
    since : float
        When the current version became so, seconds since the epoch.
    reason : str
        Why, in somebody's words; empty: nobody said.
    waits : str
        Why the candidate did not become current, while it waits for an operator; empty: it does not wait.
    live : dict or None
        The rollout under way, as the API tells it.
    ended : list of dict
        Rollouts that have ended, the newest first.
    decisions : list of (float, str, int, str)
        When, what, which version (0: none), why; the newest first.
    turns : int
        How often a rollout of this name was started, paused, resumed or stopped.
    """

    name: str
    reference_to: str
    current: int
    candidate: int
    previous: int
    sequence: int
    since: float
    reason: str
    waits: str
    live: dict[str, Any] | None
    ended: list[dict[str, Any]]
    decisions: list[tuple[float, str, int, str]]
    turns: int

    def words(self, version: int) -> list[str]:
        """Return what a version is: champion, candidate, previous, or nothing; of a reference: that, or nothing."""
        if self.reference_to:
            return ["reference"] if version == self.current else []
        roles = (("champion", self.current), ("candidate", self.candidate), ("previous", self.previous))
        return [word for word, number in roles if number == version]

    @property
    def seen(self) -> str:
        """What an operator has seen who decides now; another text when anything was decided by then, even if undone.

        What vehicles report meanwhile does not change it, unless the rollout ends by it.
        """
        live = "" if self.live is None else self.live["rollout"]
        return f"{self.current}.{self.candidate}.{self.sequence}.{self.turns}.{live}"

    @property
    def announcement(self) -> str:
        """One sentence for those who listen."""
        if self.live is None:
            return f"Version {self.current} is in use." if self.current else "No version is in use."
        rollout, count = self.live, self.live["reports"]
        stands = f"{rollout['phase']}, stage {rollout['stage']}; {count} {'report' if count == 1 else 'reports'}"
        return f"Version {rollout['version']} is tried, {stands}."


def standing(coordinator: Coordinator, name: str) -> NameStanding:
    """Return what a name stands for; raises NotFoundError when there is no such model."""
    registry, aliases = coordinator.registry, coordinator.aliases
    compared = compared_with(registry, name)
    decisions = registry.history(name)
    current, candidate = aliases.current.get(name), aliases.candidate.get(name)
    documents = coordinator.rollouts.documents(name)
    live = next((each for each in documents if each["ended"] is None), None)
    lines = [line for each in decisions if not each.kind.startswith(PREFIX) for line in _lines(each)]
    since = next((each.wall for each in reversed(decisions) if each.kind == "current"), 0.0)
    return NameStanding(
        name=name,
        reference_to=compared,
        current=0 if current is None else current.version,
        # While the stage is opened nobody has the candidate yet, and there is no pointer to it.
        candidate=candidate.version if candidate is not None else live["version"] if live is not None else 0,
        previous=_before(registry, name),
        sequence=0 if current is None else current.sequence,
        since=since,
        reason="" if current is None else current.reason,
        waits="" if candidate is None else candidate.reason,
        live=live,
        ended=[each for each in documents if each["ended"] is not None][::-1][:ROLLOUTS],
        decisions=lines[::-1][:DECISIONS],
        turns=sum(each.kind in TURNS for each in decisions),
    )


def compared_with(registry: Registry, name: str) -> str:
    """Return the name that vehicles compare a reference with; empty: `name` is no reference.

    Raises
    ------
    NotFoundError
        No such model.
    """
    base = name.removesuffix(reference_of(""))
    whole = [each.version for each in registry.heads(name) if not each.is_damaged]
    if base == name or not whole:  # its name says so before its record is read
        return ""
    return base if ModelRecord.load(registry.get(name, whole[-1]).record).is_reference else ""


def _before(registry: Registry, name: str) -> int:
    try:
        return registry.before(name)
    except (NotFoundError, KeyError):
        return 0


def _lines(decision: Decision) -> list[tuple[float, str, int, str]]:
    body = decision.body
    version, reason = int(body.get("version", 0)), str(body.get("reason", ""))
    if decision.kind == "current":
        return [(decision.wall, WORDS.get(str(body.get("cause")), "in use"), version, reason)]
    if decision.kind == SIGNED:
        return [(decision.wall, "signed on an operator's word", version, reason)]
    if decision.kind == "candidate":
        below = body["trial"].get("below") if isinstance(body.get("trial"), dict) else None
        who = "the whole" if below == ALL else "a part of the"
        return [(decision.wall, "stays a candidate" if below == 0 else f"tried by {who} fleet", version, reason)]
    return [(decision.wall, "nothing is tried any more", 0, reason)] if decision.kind == "no-candidate" else []


def with_candidate(rollout: dict[str, Any]) -> list[tuple[str, int, float | None, float | None, float | None, str]]:
    """Return who has the candidate: vehicle, stage, both scores, how much worse the candidate is, what it says.

    Those that say something come first, the worst of them at the top; a vehicle is listed in its first stage.
    """
    stage_of: dict[str, int] = {}
    for number, stage in enumerate(rollout["stages"], start=1):
        for agent in stage["asked"]:
            stage_of.setdefault(agent, number)
    for agent in (*rollout["agents"], *rollout["cannot"]):
        stage_of.setdefault(agent, len(rollout["stages"]))
    lines = []
    for agent, number in stage_of.items():
        scores = rollout["agents"].get(agent)
        if scores is None:
            why = rollout["cannot"].get(agent)
            lines.append((agent, number, None, None, None, "no report yet" if why is None else f"cannot: {why}"))
            continue
        sign = -1.0 if scores["metric"] == "f1" else 1.0
        loss = sign * (scores["candidate"] - scores["champion"])
        worse = loss / abs(scores["champion"]) if scores["champion"] else None
        lines.append((agent, number, scores["candidate"], scores["champion"], worse, ""))
    return sorted(lines, key=lambda line: (line[4] is None, -(line[4] or 0.0), line[0]))
