"""A run as the API shows it: JSON values, the same for a live run and for one of the past."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from coordinator.engine import Engine, RunState, asking
from coordinator.engine.draft import summary_of
from glassfleet.contract.scheme import too_large
from glassfleet.discovery.guard import in_words

Stands = tuple[str, str]
"""How an agent stands in a run, and why."""


def run_document(
    engine: Engine,
    state: RunState,
    *,
    started: float,
    ended: float | None,
    model: dict[str, Any] | None,
    lacks: str = "",
) -> dict[str, Any]:
    """Return everything an operator may know about a run.

    Parameters
    ----------
    started, ended : float
        Wall clock, seconds since the epoch; `ended` is None until the run's end is in the journal and its model is
        registered: only then is the run shown as ended, so that nobody sees a finished run without its model.
    model : dict or None
        ``{name, version, digest}`` once published.
    lacks : str
        What a run that goes on waits for that may not come; stands where the reason of its end will.
    """
    return {
        **run_head(state, started=started, ended=ended, model=model, lacks=lacks),
        "features": list(state.features),
        "domain": None if state.domain is None else state.domain.to_document(),
        "cohort": list(state.cohort),
        "domain_contributors": list(state.domain_contributors),
        "nullified": state.nullified,
        "joined_bins": state.joined_bins,
        "max_rows_each": state.max_rows_each or None,
        "far_out": [
            *map(list, stands_out(state)),
            *map(_quarantine, state.false_answers),
        ],
        "rows": rows_of(state),
        "restarts": state.restarts,
        "rounds": [summary.to_document() for summary in state.rounds],
        "open": _open(state),
        "progress": _progress(engine, state),
        "summary": plain(state.summary),
        "private": plain(state.private),
        "totals": [each.to_value() for each in state.summed],
        "runs_left": dict(state.runs_left),
        "spent_in": [],
        "false_answers": list(state.false_answers),
        "agents": {agent: {"status": status, "reason": why} for agent, (status, why) in stands(state).items()},
    }


def size_warning(engine: Engine, state: RunState, room: int) -> str:
    """Return a warning where an answer may have more than `room` bytes: by the domain, or what vehicles offer so far.

    Of what they offer nobody knows which columns have empty cells, or values beyond limits.
    """
    if (domain := state.domain or state.spec.domain) is not None:
        inputs, classes = len(domain.inputs), len(domain.classes)
    else:
        offered = max((len(offer.features) for offer in state.agents.values()), default=0)
        inputs, classes = len(state.features or state.spec.features or ()) or offered, 0
    return too_large(engine.lookup(state.spec.scheme), engine.parameters(state.spec), inputs, classes, room)


def run_head(
    state: RunState, *, started: float, ended: float | None, model: dict[str, Any] | None, lacks: str = ""
) -> dict[str, Any]:
    """Return the part of `run_document` that is as short in a large fleet as in a small one; the same parameters."""
    return {
        "run": state.run,
        "scheme": state.spec.scheme,
        "participation": state.spec.participation,
        "state": "running" if ended is None else "ended",
        "outcome": None if ended is None else state.phase,
        "reason": state.reason or lacks,
        "phase": state.phase,
        "spec": state.spec.to_document(),
        "started": _iso(started),
        "ended": None if ended is None else _iso(ended),
        "target": state.target,
        "model": model,
        "size": _size(state.model),
        "scores": plain(state.scores),
    }


def suspended_document(known: Mapping[str, Any], *, cancelled: str = "", ended: float | None = None) -> dict[str, Any]:
    """Return what can be told of a run that this software cannot go on with, in the form of `run_document`.

    Parameters
    ----------
    known : Mapping
        ``run``, ``spec`` (as far as it can be read), ``started`` and ``reason``; or such a document, to end it.
    cancelled : str
        An operator's words, once the run is ended.
    ended : float or None
        Wall clock, seconds since the epoch.
    """
    spec = known["spec"]
    return {
        "run": known["run"],
        "scheme": str(spec.get("scheme", "")),
        "participation": str(spec.get("participation", "")),
        "state": "suspended" if ended is None else "ended",
        "outcome": None if ended is None else "cancelled",
        "reason": known["reason"] if ended is None else cancelled,
        "phase": "suspended" if ended is None else "cancelled",
        "spec": plain(spec),
        "started": known["started"] if isinstance(known["started"], str) else _iso(known["started"]),
        "ended": None if ended is None else _iso(ended),
        "target": "",
        "domain": None,
        "nullified": 0,
        "joined_bins": 0,
        "max_rows_each": None,
        "restarts": 0,
        "open": None,
        "model": None,
        **{name: [] for name in ("features", "cohort", "domain_contributors", "far_out", "rounds")},
        **{name: [] for name in ("totals", "spent_in", "false_answers")},
        **{name: {} for name in ("rows", "progress", "size", "summary", "private", "runs_left", "scores", "agents")},
    }


def damaged_document(run: str, reason: str) -> dict[str, Any]:
    """Return what can be told of an ended run whose document is damaged, in the form of `run_document`."""
    document = suspended_document({"run": run, "spec": {}, "started": 0.0, "reason": reason})
    return {**document, "state": "ended", "outcome": "damaged", "phase": "damaged"}


def plain(value: Any) -> Any:
    """Return a codec value as JSON values."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, bytes):
        return value.hex()
    return value


def time_in_words(time: float, now: float) -> str:
    """Return a time for people, with its date when that is not today's.

    Parameters
    ----------
    time, now : float
        Seconds since the epoch.

    Examples
    --------
    >>> time_in_words(1.7e9, 1.7e9), time_in_words(1.7e9 + 3 * 86400, 1.7e9)
    ('22:13:20 UTC', '2023-11-17 22:13:20 UTC')
    """
    at, today = (datetime.fromtimestamp(each, tz=UTC) for each in (time, now))
    return f"{at:%H:%M:%S} UTC" if at.date() == today.date() else f"{at:%Y-%m-%d %H:%M:%S} UTC"


def _quarantine(agent: str) -> list[str]:
    what = "its answers were false, or it ended private runs by refusing"
    return [agent, f"{what}: later private runs leave it out, until one is started that has it in readmit"]


def _iso(time: float) -> str:
    return datetime.fromtimestamp(time, tz=UTC).isoformat(timespec="milliseconds")


def _open(state: RunState) -> dict[str, Any] | None:
    current = state.open
    if current is None:
        return None
    summary = summary_of(state, state.at).to_document()
    for unknown in ("seconds", "bytes", "request_bytes", "late_agents"):
        del summary[unknown]
    return {**summary, "opened_at": current.opened_at, "closes_at": current.closes_at}


def _progress(engine: Engine, state: RunState) -> dict[str, Any]:
    if not state.levels:
        return {}
    try:
        if state.phase in ("checking", "scoring"):  # what was learned before is what has grown
            is_searching = state.domain is None
            state = replace(state, phase="domain" if is_searching else "learning", levels=state.levels[:-1])
        server = engine.server(state)
        progress = getattr(server, "progress", None)
        return {} if progress is None else dict(plain(dict(progress(state.levels[-1].state))))
    except Exception as fault:  # noqa: BLE001  a display must not stop a run
        return {"fault": f"{type(fault).__name__}: {fault}"[:200]}


def _size(model: Any) -> dict[str, Any]:
    """Return the finished model's size measures: rules, for example."""
    try:
        return {} if model is None else dict(plain(dict(model.complexity())))
    except Exception:  # noqa: BLE001  a display must not stop a run
        return {}


def rows_of(state: RunState) -> dict[str, int]:
    """Return the training rows that vehicles told; of a private run none does."""
    return {} if state.spec.private is not None else {agent: rows for agent, (rows, _) in sorted(state.frozen.items())}


def stands_out(state: RunState) -> list[tuple[str, str]]:
    """Return the vehicles that stand out in a run by their rows or sums, each with why."""
    harm = state.harmful
    return in_words(state.guard, state.max_rows_each) + ([(harm.agent, harm.in_words("it"))] if harm else [])


def stands(state: RunState) -> dict[str, Stands]:
    """Say how each agent stands: ``member``, ``lost``, ``answered``, ``dropped``, ``late``, ``asked`` or ``idle``."""
    unable = asking.unable(state)
    agents: dict[str, Stands] = {agent: ("idle", unable.get(agent, "")) for agent in sorted(state.agents)}
    for summary in state.rounds:
        agents |= dict.fromkeys(summary.accepted_agents, ("answered", ""))
        agents |= {agent: ("dropped", reason) for agent, reason in summary.dropped_agents.items()}
        agents |= dict.fromkeys(
            summary.late_agents, ("late", f"answered {summary.phase} {summary.number} after its end")
        )
    agents |= dict.fromkeys(state.cohort, ("member", ""))
    if state.open is not None:
        answered, dropped = set(state.accepted), state.open.dropped
        for agent in state.open.asked:
            status = "answered" if agent in answered else "dropped" if agent in dropped else "asked"
            agents[agent] = (status, dropped.get(agent, ""))
    return agents | {agent: ("lost", reason) for agent, reason in state.lost.items()}
