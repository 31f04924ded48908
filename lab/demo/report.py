"""The end of a demonstration: what came of it, as text and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from console.operator.words import explanation_lines, rule_lines, wrapped
from glassfleet.data.dataset import Dataset
from glassfleet.model.baseline import explained, reference_of
from glassfleet.model.protocol import Model, nature, readable_rules
from glassfleet.model.rules import measures_note, most_used
from lab.demo.conduct import Result
from lab.demo.options import Settings
from lab.demo.reference import Verdict
from lab.experiments.folds import SETTINGS
from schemas.rounds import count
from schemas.text import counted

SCORES = {"rmse": "RMSE", "f1": "F1 (macro)"}
"""What the scores are called."""

OF_A_ROUND = (
    *("phase", "kind", "attempt", "asked", "accepted", "late", "duplicate", "rejected", "dropped"),
    *("seconds", "bytes", "dropped_agents", "late_agents"),
)
"""What the summary tells of a round, as the API shows it."""


def report_lines(result: Result, *, exact: bool, top: int) -> list[str]:
    """Return the report in lines: scores, cohort, digests, the most used rules, one forecast explained."""
    verdict = result.verdict
    record = result.record
    lines = ["", *score_lines(verdict, record.cohort)]
    lines += ["", f"cohort ({len(record.cohort)} of {len(result.rows)} vehicles): {', '.join(record.cohort)}"]
    dropped = record.training.dropped
    for reason in sorted(set(dropped.values())):
        lines.append(
            f"  not in it ({reason}): {', '.join(sorted(each for each in dropped if dropped[each] == reason))}"
        )
    took = f"{record.training.rounds} rounds in {result.seconds:.1f} s"
    lines += [
        "",
        f"model {record.name} v{record.version}: {_parts(verdict.model)}; {took}",
        f"  answers: {_answers(result)}",
        f"  learned by the fleet  {verdict.federated}",
        *([f"  learned centrally     {verdict.central}"] * bool(verdict.central)),
        f"  {_comparison(result, exact=exact)}",
        *_pooled(verdict),
    ]
    lines += ["", *_what_it_says(verdict.model, top)]
    chosen = _a_row(result)
    if chosen is not None:
        vehicle, number, data = chosen
        truth = data.y[number] if verdict.metric == "f1" else f"{data.y[number]:.4f}"
        lines += ["", f"one forecast explained ({vehicle}, test row {number + 1}; it turned out {truth}):"]
        model = verdict.personal.get(vehicle, verdict.model)
        if model is not verdict.model:
            lines.append(f"  by the model that {vehicle} made of the fleet's with its own rows: {_parts(model)}")
        explanation = explained(model, data.X[number], reference_of(result.record.parameters, model.domain))
        lines += [f"  {line}" for line in explanation_lines(explanation, model.domain, data.X[number].tolist(), keep=5)]
    return lines


def summary(result: Result, settings: Settings) -> dict[str, Any]:
    """Return the summary as JSON values."""
    verdict, record = result.verdict, result.record
    return {
        "rounds": [
            {"number": number} | {name: item[name] for name in OF_A_ROUND}
            for number, item in enumerate(result.status["rounds"], 1)
        ],
        "cohort": list(record.cohort),
        "model": {"name": record.name, "version": record.version, "digest": record.digest}
        | {"complexity": {name: float(value) for name, value in verdict.model.complexity().items()}},
        "verify": {
            "equal": verdict.equal,
            "federated": verdict.federated,
            "central": verdict.central or None,
            "promised": verdict.promised,
            "reason": "" if verdict.equal else _comparison(result, exact=settings.is_exact),
        },
        verdict.metric: {
            **{setting: verdict.mean(setting) for setting in SETTINGS},
            "per_vehicle": {
                vehicle: {**asdict(score), "in_cohort": vehicle in record.cohort}
                for vehicle, score in verdict.scores.items()
            },
        },
        "exact": settings.is_exact,
        "private": settings.spec.private is not None,
        "joined_bins": int(result.status["joined_bins"]),
        "dropped": list(result.killed),
        "slow": list(result.slow),
        "rejoined": list(result.returned),
        "scheme": record.scheme,
        "participation": result.status["participation"],
        "restarts": int(result.status["restarts"]),
        "seconds": round(result.seconds, 3),
        "broker": result.broker_kind,
        "seed": settings.options.seed,
    }


def _what_it_says(model: Model, top: int) -> list[str]:
    """Return the most used rules in lines, or the fittest structures, or that there are none."""
    kind, rules = nature(model), readable_rules(model)
    if kind == "network":
        return ["this model is a network: it has no rules"]
    if kind == "structures":
        lines = [_how_many(len(rules), top, "fittest", "structure")]
        for rule in rules[:top]:
            lines += wrapped(str(rule), "  ")
        return lines
    lines = [_how_many(len(rules), top, "most used", "rule")]
    for rule in sorted(rules, key=most_used)[:top]:
        lines += rule_lines(rule, "  ", short=True)
    return [*lines, *wrapped(measures_note(rules), "  ")]


def _how_many(number: int, top: int, order: str, what: str) -> str:
    if number == 1:
        return f"the only {what}:"
    return f"all {number} {what}s:" if number <= top else f"the {top} {order} of {number} {what}s:"


def score_lines(verdict: Verdict, cohort: Sequence[str]) -> list[str]:
    """Return the table of test scores; which rows its central model has learned from is said, for there are two."""
    domain = verdict.model.domain
    width = max(len(vehicle) for vehicle in verdict.scores)
    unit = f" in {domain.target.unit}" if domain.target is not None and domain.target.unit else ""
    what = f"test {SCORES[verdict.metric]} of {domain.target_name}{unit}"
    lines = [
        f"{what}: local (LL), federated (FL), central over {_everyone(len(verdict.scores))} (CL all)",
        f"  {'':<{width}}     LL      FL  CL all",
    ]
    for vehicle, score in verdict.scores.items():
        mark = "" if vehicle in cohort else "   not in the cohort"
        lines.append(f"  {vehicle:<{width}}  {'  '.join(map(_cell, asdict(score).values()))}{mark}")
    means = "  ".join(_cell(verdict.mean(setting)) for setting in SETTINGS)
    middle = "  ".join(_cell(verdict.median(setting)) for setting in SETTINGS)
    lines += [f"  {'mean':<{width}}  {means}", f"  {'median':<{width}}  {middle}"]
    if verdict.equal and verdict.pooled is None and len(cohort) < len(verdict.scores):
        lines.append("  central over the cohort's rows alone, which the dashboard calls CL: the same as FL")
    return lines


def _everyone(number: int) -> str:
    return f"the rows of all {number} vehicles" if number > 1 else "the rows of the only vehicle"


def _cell(value: float | None) -> str:
    return "     -" if value is None else f"{value:6.4f}"


def _parts(model: Model) -> str:
    return ", ".join(counted(value, name.replace("_", " ")) for name, value in model.complexity().items())


def _comparison(result: Result, *, exact: bool) -> str:
    verdict = result.verdict
    if verdict.equal:
        rows = "" if exact else ", of condensed rows"
        return f"equal: the fleet learned exactly the central model of its cohort{rows}"
    if result.status["participation"] == "elastic":
        return (
            "different, as participation was elastic: each round counted whoever answered it, so no single set of rows "
            "has this model"
        )
    if verdict.promised:
        return "DIFFERENT, and that must not be"
    return f"different: {verdict.title} does not promise the central model with these parameters"


def _answers(result: Result) -> str:
    """Return how many answers there were in all rounds, and what became of them, as the run's page counts them."""
    rounds = result.status["rounds"]
    counts = {name: sum(count(item, name) for item in rounds) for name in ("accepted", "late", "rejected", "dropped")}
    words = [f"{counts['accepted']} accepted", f"{counts['late']} too late and not counted"]
    words += [f"{counts['rejected']} rejected"] * bool(counts["rejected"])
    times = "time" if counts["dropped"] == 1 else "times"
    return f"{', '.join(words)}; {counts['dropped']} {times} a vehicle did not answer in time"


def _pooled(verdict: Verdict) -> list[str]:
    """Return how good the central model of the rows as they are is, where it is another model."""
    if verdict.pooled is None:
        return []
    fleet, score = _cell(verdict.mean("federated")), SCORES[verdict.metric]
    return [f"  mean test {score}: central model of the cohort's own rows {verdict.pooled:.4f}, fleet's {fleet}"]


def _a_row(result: Result) -> tuple[str, int, Dataset] | None:
    """Return a vehicle, row number and test rows: a forecast in the middle of all there, or of the rarer class."""
    for vehicle in [*result.record.cohort, *result.rows]:
        data = result.rows[vehicle].test.select(result.verdict.model.domain.names)
        if data.rows:
            model = result.verdict.personal.get(vehicle, result.verdict.model)
            predicted = np.asarray(model.predict(data.X))
            if result.verdict.metric == "f1":
                # The rarer class is the one that people ask about.
                names, counts = np.unique(predicted, return_counts=True)
                rows = np.flatnonzero(predicted == names[counts.argmin()])
                return vehicle, int(rows[rows.size // 2]), data
            order = np.argsort(predicted, kind="stable")
            return vehicle, int(order[data.rows // 2]), data
    return None
