"""The report: JSON for machines, a page for people."""

from __future__ import annotations

import platform
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from lab.chaos.audit import Findings
from lab.chaos.certificate_office import StolenIdentity
from lab.chaos.conduct import Played, Settings
from lab.chaos.schedule import MODES

FAULTS_OF = ("lost", "double_counted", "unequal", "exposed", "leaked", "intruded", "harmed")
"""Findings that must be empty."""

_JUDGED = ("accepted", "duplicate", "late", "rejected", "withdrawn")


def document(
    settings: Settings, played: Played, findings: Findings, stolen_identities: Sequence[StolenIdentity]
) -> dict[str, Any]:
    """Return everything as JSON values; ``schedule`` is enough to see what a replay of the seed will do."""
    outcomes = [run["outcome"] for run in findings.runs]
    equal = [run["equal"] for run in findings.runs if run.get("equal") is not None]
    faults, vehicles, private = len(settings.schedule), len(settings.files), "private" in settings.modes
    modes = "".join(f" --{mode}" for mode in MODES if mode in settings.modes)
    return {
        "seed": settings.seed,
        "replay": f"glassfleet lab chaos --faults {faults} --seed {settings.seed} --vehicles {vehicles}{modes}",
        "broker": played.broker_kind,
        "private": private,
        "vehicles": vehicles,
        "seconds": round(played.seconds, 1),
        "machine": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        "ok": is_ok(played, findings, private=private),
        "faults": {
            "injected": len(played.injected),
            "by_kind": dict(sorted(Counter(fault["kind"] for fault in played.injected).items())),
            "by_state": dict(sorted(Counter(fault["met"]["phase"] for fault in played.injected).items())),
        },
        "runs": {
            "started": len(played.runs),
            "finished": outcomes.count("finished"),
            "failed": [run for run in findings.runs if run["outcome"] != "finished"],
            "hung": played.hung,
            "restarts": sum(run.get("restarts", 0) for run in findings.runs),
            "cohorts": sorted({len(run.get("cohort", ())) for run in findings.runs}),
            "over_the_same_rows": findings.again,
        },
        "contributions": {
            **{what: getattr(findings, what) for what in ("sent", "sends", "accepted")},
            **{what: findings.judged.get(what, 0) for what in ("duplicate", "late", "rejected")},
            "unknown_run": findings.judged.get("unknown-run", 0),
            "withdrawn": findings.withdrawn,
            "lost": len(findings.lost),
            "double_counted": len(findings.double_counted),
        },
        "messages": findings.messages,
        "security": {
            "revoked": len(stolen_identities),
            "watched": sum(stolen.begins is not None for stolen in stolen_identities),
            "refused_by_broker": sum("was revoked" in stolen.answer for stolen in stolen_identities),
            "refused": findings.refused,
        }
        if "secure" in settings.modes
        else None,
        "digests": {"compared": len(equal), "equal": equal.count(True)},
        "recovery_seconds": {kind: percentiles(values) for kind, values in played.recoveries.items()},
        "died_by_themselves": played.died,
        "broker_died_by_itself": played.broker_died,
        "findings": {name: getattr(findings, name) for name in FAULTS_OF},
        "schedule": played.injected,
    }


def is_ok(played: Played, findings: Findings, *, private: bool) -> bool:
    """Whether everything that must hold held: a named end for each run, nothing lost, nothing twice, digests equal.

    Every run must finish; a private one may also end because its vehicles refuse to tell of too few of them, or because
    a certificate was revoked after its vehicle had announced itself, and before the others looked at it.
    """
    return not (
        played.hung
        or played.died
        or any(getattr(findings, name) for name in FAULTS_OF)
        or any(run["outcome"] != "finished" and not (private and _too_few(run)) for run in findings.runs)
    )


def _too_few(run: Mapping[str, Any]) -> bool:
    reason = str(run["reason"])
    refused = any(f"refused: {code}" in reason for code in ("single-out", "bad-member"))
    return run["outcome"] == "failed" and (reason.startswith("too-few-for-privacy") or refused)


def percentiles(values: Sequence[float]) -> dict[str, float | int | None]:
    """Return count, p50, p95 and maximum, seconds."""
    if not values:
        return {"count": 0, "p50": None, "p95": None, "max": None}
    at_95 = float(np.quantile(values, 0.95, method="nearest"))
    each = {"p50": statistics.median(values), "p95": at_95, "max": max(values)}
    return {"count": len(values), **{name: round(value, 3) for name, value in each.items()}}


def lines(report: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of the report as a page for people."""
    contributions, runs, digests, faults = (report[each] for each in ("contributions", "runs", "digests", "faults"))

    def counts(numbers: Mapping[str, int], between: str = " ") -> str:
        return ", ".join(f"{count}{between}{what}" for what, count in numbers.items())

    yield from (
        f"faults         {faults['injected']} in {report['seconds']:g} s (broker: {report['broker']}): "
        + counts(faults["by_kind"]),
        f"               {counts(faults['by_state'], ' in ')}",
        f"runs           {runs['started']} started, {runs['finished']} finished, {len(runs['failed'])} failed",
        f"               {len(runs['hung'])} hung; {runs['restarts']} replays; cohorts of {runs['cohorts']}",
        f"contributions  {contributions['sent']} sent ({contributions['sends']} times), "
        + counts({what: contributions[what] for what in _JUDGED}),
        f"               {contributions['lost']} lost, {contributions['double_counted']} counted twice",
        f"messages       {counts(report['messages']) or 'untouched'}",
        f"digests        {digests['equal']} of {digests['compared']} equal the central model of their cohort",
    )
    if (security := report["security"]) is not None:
        yield (
            f"shut out       {security['revoked']} revoked vehicles, {security['watched']} of them watched meanwhile; "
            f"{security['refused_by_broker']} stolen identities refused; messages refused: "
            + (counts(security["refused"]) or "none")
        )
    for kind, values in report["recovery_seconds"].items():
        if values["count"]:
            yield (
                f"recovery       {kind}: p50 {values['p50']:g} s, p95 {values['p95']:g} s ({values['count']} times, "
                f"from the {'kill' if kind == 'take-over' else 'start after a kill'} until connected)"
            )
    if runs["over_the_same_rows"]:
        yield f"the same rows  {runs['over_the_same_rows']} private runs over rows of which sums were known"
    if report["broker_died_by_itself"]:
        yield f"broker         died {report['broker_died_by_itself']} times by itself, and was started again"
    for name in FAULTS_OF:
        yield from (f"FOUND          {name}: {finding}" for finding in report["findings"][name])
    yield from (f"FOUND          died: {words}" for words in report["died_by_themselves"])
    for run in runs["failed"]:
        word = "too few" if report["private"] and _too_few(run) else "FOUND"
        yield f"{word:15}{run['run']}: {run['outcome']} {run['reason']}"
    yield from (f"FOUND          {run} has no end" for run in runs["hung"])
    yield "all held" if report["ok"] else f"something did not hold; replay: {report['replay']}"
