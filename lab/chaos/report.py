"""The report: JSON for machines, a page for people."""

from __future__ import annotations

import platform
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lab.chaos.audit import Findings
from lab.chaos.certificate_office import StolenIdentity
from lab.chaos.conduct import Played

FAULTS_OF = ("lost", "double_counted", "unequal", "exposed", "leaked", "intruded", "harmed")
"""Findings that must be empty."""

_JUDGED = ("accepted", "duplicate", "late", "rejected", "withdrawn")


def document(  # noqa: PLR0917 - what was asked for, what happened, what was found
    seed: int,
    faults: int,
    vehicles: int,
    played: Played,
    findings: Findings,
    stolen_identities: Sequence[StolenIdentity] | None = None,
    *,
    private: bool = False,
    standby: bool = False,
    workers: bool = False,
) -> dict[str, Any]:
    """Return everything as JSON values; ``schedule`` is enough to see what a replay of the seed will do."""
    outcomes = [run["outcome"] for run in findings.runs]
    equal = [run["equal"] for run in findings.runs if run.get("equal") is not None]
    return {
        "seed": seed,
        "replay": f"glassfleet lab chaos --faults {faults} --seed {seed} --vehicles {vehicles}"
        + (" --secure" if stolen_identities is not None else "")
        + (" --private" if private else "")
        + (" --standby" if standby else "")
        + (" --workers" if workers else ""),
        "broker": played.broker_kind,
        "private": private,
        "vehicles": vehicles,
        "seconds": round(played.seconds, 1),
        "machine": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        "ok": is_ok(played, findings, private=private),
        "faults": {
            "injected": len(played.injected),
            "by_kind": _counts(fault["kind"] for fault in played.injected),
            "by_state": _counts(fault["met"]["phase"] for fault in played.injected),
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
            "sent": findings.sent,
            "sends": findings.sends,
            "accepted": findings.accepted,
            **{what: findings.judged.get(what, 0) for what in ("duplicate", "late", "rejected")},
            "unknown_run": findings.judged.get("unknown-run", 0),
            "withdrawn": findings.withdrawn,
            "lost": len(findings.lost),
            "double_counted": len(findings.double_counted),
        },
        "messages": findings.messages,
        "security": None if stolen_identities is None else _security(stolen_identities, findings),
        "digests": {"compared": len(equal), "equal": equal.count(True)},
        "recovery_seconds": {kind: percentiles(values) for kind, values in played.recoveries.items()},
        "died_by_themselves": played.died,
        "broker_died_by_itself": played.broker_died,
        "findings": {name: getattr(findings, name) for name in FAULTS_OF},
        "schedule": played.injected,
    }


def is_ok(played: Played, findings: Findings, *, private: bool = False) -> bool:
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
    ordered = sorted(values)
    at_95 = ordered[min(len(ordered) - 1, round(0.95 * (len(ordered) - 1)))]
    return {
        "count": len(ordered),
        "p50": round(statistics.median(ordered), 3),
        "p95": round(at_95, 3),
        "max": round(ordered[-1], 3),
    }


def lines(report: dict[str, Any]) -> list[str]:
    """Return the report as a page for people."""
    contributions, runs, digests = report["contributions"], report["runs"], report["digests"]
    kinds = ", ".join(f"{count} {kind}" for kind, count in report["faults"]["by_kind"].items())
    states = ", ".join(f"{count} in {state}" for state, count in report["faults"]["by_state"].items())
    kept = report["faults"]
    messages = ", ".join(f"{count} {what}" for what, count in report["messages"].items()) or "untouched"
    course = f"{runs['restarts']} replays; cohorts of {runs['cohorts']}"
    page = [
        f"faults         {kept['injected']} in {report['seconds']:g} s (broker: {report['broker']}): {kinds}",
        f"               {states}",
        f"runs           {runs['started']} started, {runs['finished']} finished, {len(runs['failed'])} failed",
        f"               {len(runs['hung'])} hung; {course}",
        f"contributions  {contributions['sent']} sent ({contributions['sends']} times), "
        + ", ".join(f"{contributions[what]} {what}" for what in _JUDGED),
        f"               {contributions['lost']} lost, {contributions['double_counted']} counted twice",
        f"messages       {messages}",
        f"digests        {digests['equal']} of {digests['compared']} equal the central model of their cohort",
    ]
    if (security := report["security"]) is not None:
        refused = ", ".join(f"{count} {code}" for code, count in security["refused"].items()) or "none"
        page.append(
            f"shut out       {security['revoked']} revoked vehicles, {security['watched']} of them watched meanwhile; "
            f"{security['refused_by_broker']} stolen identities refused; messages refused: {refused}"
        )
    for kind, values in report["recovery_seconds"].items():
        if values["count"]:
            page.append(
                f"recovery       {kind}: p50 {values['p50']:g} s, p95 {values['p95']:g} s ({values['count']} times, "
                f"from the {'kill' if kind == 'take-over' else 'start after a kill'} until connected)"
            )
    if runs["over_the_same_rows"]:
        page.append(f"the same rows  {runs['over_the_same_rows']} private runs over rows of which sums were known")
    if report["broker_died_by_itself"]:
        page.append(f"broker         died {report['broker_died_by_itself']} times by itself, and was started again")
    for name in FAULTS_OF:
        page += [f"FOUND          {name}: {finding}" for finding in report["findings"][name]]
    page += [f"FOUND          died: {words}" for words in report["died_by_themselves"]]
    for run in runs["failed"]:
        word = "too few" if report["private"] and _too_few(run) else "FOUND"
        page.append(f"{word:15}{run['run']}: {run['outcome']} {run['reason']}")
    page += [f"FOUND          {run} has no end" for run in runs["hung"]]
    page.append("all held" if report["ok"] else f"something did not hold; replay: {report['replay']}")
    return page


def _security(stolen_identities: Sequence[StolenIdentity], findings: Findings) -> dict[str, Any]:
    return {
        "revoked": len(stolen_identities),
        "watched": sum(stolen.begins is not None for stolen in stolen_identities),
        "refused_by_broker": sum("was revoked" in stolen.answer for stolen in stolen_identities),
        "refused": findings.refused,
    }


def _counts(words: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(words).items()))
