"""What to tell whoever is on duty, and when: once when it came and lasts, and each cause at most once a day. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, NamedTuple

from coordinator.duty.causes import Look
from coordinator.journal.port import Decision
from coordinator.models.aliases import CURRENT

DAY: Final = 86400.0
"""Seconds between two messages about one cause. So long a run that failed, or a version that went back, counts."""

LASTS: Final = 900.0
"""Seconds after which a cause lasts: what comes with a new version has gone by then."""

LASTS_LONG: Final = 1.5 * DAY
"""The same for vehicles that are down, or were late or dropped: every fleet has some each night."""

NAMED: Final = 40
"""So many lines are in one message; the others are counted."""

FORGOTTEN: Final = 30 * DAY

EVENTS = FAILED, BACK = "run-failed", "rolled-back"
"""What happens at a moment; all else lasts until it is mended."""

_RETREATS: Final = {"rolled-back": "was rolled back", "returned": "went back to the best on new rows"}


class Key(NamedTuple):
    """What a message is about at most once a day: a vehicle or model, and the kind of cause."""

    whom: str
    kind: str


@dataclass(frozen=True)
class Sent:
    """When a cause was told, seconds since the epoch, and whether it went since."""

    at: float
    is_over: bool = False


@dataclass(frozen=True)
class NoticeMemory:
    """What is known of causes: since when those are there that were not told, and which were told.

    `sent` is kept over a restart; `since` begins anew.
    """

    since: Mapping[Key, float] = field(default_factory=dict)
    sent: Mapping[Key, Sent] = field(default_factory=dict)

    def to_values(self) -> list[dict[str, Any]]:
        """Return what is kept, as JSON values."""
        return [{**key._asdict(), "at": each.at, "over": each.is_over} for key, each in sorted(self.sent.items())]

    @classmethod
    def of(cls, values: Iterable[Mapping[str, Any]]) -> NoticeMemory:
        """Rebuild it from what was kept."""
        return cls(sent={Key(each["whom"], each["kind"]): Sent(each["at"], each["over"]) for each in values})


def conditions(
    look: Look,
    runs: Iterable[Mapping[str, Any]],
    decisions: Iterable[Decision],
    rollouts: Iterable[Mapping[str, Any]],
    now: float,
) -> dict[Key, str]:
    """Return all that may be told now, in words.

    Parameters
    ----------
    runs : iterable of mapping
        Overviews of the last runs, the oldest first.
    decisions : iterable of Decision
        By which the present versions became so.
    rollouts : iterable of mapping
        Their documents; ``ended`` in seconds since the epoch, as `now`.
    """
    found: dict[Key, str] = {}
    for run in runs:
        if run["outcome"] == "failed" and now - datetime.fromisoformat(run["ended"]).timestamp() < DAY:
            words = f"run {run['run']} of model {run['name']} failed: {run['reason']} (/runs/{run['run']})"
            found[Key(str(run["name"]), FAILED)] = words
    for each in decisions:
        retreat = _RETREATS.get(str(each.body.get("cause"))) if each.kind == CURRENT else None
        if retreat is not None and now - each.wall < DAY:
            number, reason = each.body["version"], each.body["reason"]
            words = f"model {each.name} {retreat}: version {number} is in use ({reason}) (/models/{each.name}/{number})"
            found[Key(each.name, BACK)] = words
    for rollout in rollouts:
        if rollout["phase"] == "rolled-back" and not rollout["plan"]["gate"] and now - rollout["ended"] < DAY:
            name, number, reason = (rollout[what] for what in ("model", "version", "reason"))
            words = f"version {number} of model {name} was tried and rolled back: {reason} (/models/{name}/{number})"
            found[Key(name, BACK)] = words
    for agent, causes in look.causes.items():
        for cause in causes:
            words = f"{agent}: {cause.words} ({cause.page or f'/vehicles/{agent}'})"
            found.setdefault(Key(agent, cause.kind), words)
    return found


def due(
    memory: NoticeMemory, found: Collection[Key], known: Collection[str], now: float
) -> tuple[list[Key], NoticeMemory]:
    """Return what is to be told now, and what is known once it was.

    Parameters
    ----------
    found : collection of Key
        What `conditions` returned.
    known : collection of str
        Vehicles of which something is known. What was told of others stays for `FORGOTTEN`: the coordinator has just
        begun, say.
    """
    since = {key: memory.since.get(key, now) for key in found}
    sent: dict[Key, Sent] = {}
    for key, each in memory.sent.items():
        is_away = key.kind not in EVENTS and key.whom not in known
        if key in found or now - each.at < (FORGOTTEN if is_away else DAY):
            sent[key] = each if key in found or is_away else Sent(each.at, is_over=True)
    result = [
        key
        for key in found
        if now - since[key] >= _lasts(key.kind)
        and (key not in sent or (now - sent[key].at >= DAY and (sent[key].is_over or key.kind in EVENTS)))
    ]
    # One that came again within the day waits for its turn.
    kept = {key: at for key, at in since.items() if key not in sent or sent[key].is_over}
    return sorted(result), NoticeMemory(kept, sent | {key: Sent(now) for key in result})


def message(fleet: str, words: Sequence[str]) -> tuple[str, str]:
    """Return title and text of a message."""
    first, more = words[0], f" and {len(words) - 1} more" if len(words) > 1 else ""
    rest = [f"and {len(words) - NAMED} more: glassfleet fleet"] if len(words) > NAMED else []
    return f"Fleet {fleet}: {first.partition(' (/')[0][:120]}{more}", "\n".join([*words[:NAMED], *rest])


def _lasts(kind: str) -> float:
    if kind in EVENTS:
        return 0.0
    return LASTS_LONG if kind in {"down", "missed"} else LASTS
