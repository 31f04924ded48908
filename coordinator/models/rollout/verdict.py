"""What the reports of a rollout, or the sums of a private run, say of a version: added up, judged, and in words."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from coordinator.models.rollout.state import Rollout
from coordinator.specification.rollout import BEATS, GATE, WORSE_THAN_ALONE
from glassfleet.evaluation.paired import (
    Estimate,
    PairedDifference,
    against,
    change_in_words,
    decided,
    from_sums,
    mean_of_cut,
    over_vehicles,
    relative,
)


@dataclass(frozen=True)
class Tally:
    """What the reports of the vehicles below a threshold say.

    Attributes
    ----------
    mean : float
        How much larger the candidate's error is, relative to the champion's, or to a former version's where that is
        more: the mean over the vehicles, each in [-1, 1]; of a gate the median beside the champion.
    worse : int
        Vehicles that are worse off by more than the plan allows one.
    beside_local : float or None
        The same median beside the models that the vehicles learn alone; None: nobody told of those.
    beside, formers : dict of int to Estimate
        How much worse the candidate is than the champion and each former version that half of the reports tell of, by
        their versions; and how much worse these are than the champion.
    """

    reports: int
    mean: float
    worse: int
    beside_local: float | None = None
    beside: dict[int, Estimate] = field(default_factory=dict)
    formers: dict[int, Estimate] = field(default_factory=dict)


def tally(state: Rollout) -> Tally:
    """Add up the reports."""
    plan, reports = state.start.plan, state.reports.values()
    worse = [relative(each.metric, each.candidate, each.champion) for each in reports]
    differences = {
        version: [each.beside[digest] for each in reports if digest in each.beside]
        for version, digest in ((state.start.champion, state.start.champion_digest), *state.start.formers)
    }
    differences = {version: each for version, each in differences.items() if each and 2 * len(each) >= len(reports)}
    beside = {
        version: over_vehicles([PairedDifference(*own[:2]) for own in each]) for version, each in differences.items()
    }
    formers = {
        version: over_vehicles([PairedDifference(*own[2:]) for own in each])
        for version, each in differences.items()
        if version != state.start.champion
    }
    # A mean weighs what each vehicle says, a median does not.
    if plan.gate:
        middle = statistics.median(worse or [0.0])
    else:
        middle = max(
            [mean_of_cut(worse), *(mean_of_cut([own[0] for own in differences[version]]) for version in formers)]
        )
    alone = [relative(each.metric, each.candidate, each.local) for each in reports]
    return Tally(
        len(worse),
        middle,
        sum(each > plan.vehicle_worse for each in worse),
        statistics.median(alone) if alone else None,
        beside,
        formers,
    )


def too_many_worse(state: Rollout, result: Tally, vehicles: int) -> str:
    """Say that too many of so many vehicles are worse off; empty: they are not."""
    plan = state.start.plan
    if result.worse <= plan.max_worse_share * vehicles:
        return ""
    text = f"worse for {result.worse} of {counted(vehicles, 'vehicle')} by more than {plan.vehicle_worse:.0%}"
    return f"{text}; at most {plan.max_worse_share:.0%} of them may be"


def judged(state: Rollout, result: Tally) -> tuple[str, str, int]:
    """Judge a stage that has its reports.

    Returns
    -------
    tuple of (str, str, int)
        The cause of the rollout's end, empty where the stage is passed; why, in words; which former version shall be
        current again, 0: none.
    """
    start = state.start
    suspect = start.suspect and f"; {start.suspect}"
    if not (start.plan.gate and start.champion):
        text = _too_bad(state, result)
        return ("too-bad", text + suspect, 0) if text else ("", _passed(state, result) + suspect, 0)
    present, text = start.champion, _summary(state, result) + suspect
    chosen = decided(result.beside, result.formers, present) if present in result.beside else present
    if chosen is None:
        return "", _passed(state, result) + suspect, 0
    if chosen == present:
        return "too-bad", text, 0
    better = f"{_change(state, result.formers[chosen].change)} against version {present}"
    return "former-better", f"version {chosen} is the best, {better}; version {start.version}: {text}", chosen


def nobody_can(state: Rollout, agents: tuple[str, ...]) -> str:
    """Say why none of these vehicles can score the candidate."""
    reasons = sorted({state.cannot[agent] for agent in agents})
    text = "; ".join(reasons[:3]) + ("; ..." if len(reasons) > 3 else "")
    return f"none of {counted(len(agents), 'vehicle')} can score it ({text})"


def counted(number: int, what: str) -> str:
    """Return so many of what.

    >>> counted(1, "vehicle"), counted(2, "vehicle")
    ('1 vehicle', '2 vehicles')
    """
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _too_bad(state: Rollout, result: Tally) -> str:
    """Say what the candidate is too bad beside, if it is: the champion, and of a first version what vehicles learn."""
    plan, is_first = state.start.plan, not state.start.champion
    most = min(plan.max_worse, -BEATS) if is_first else plan.max_worse
    if result.mean > most:
        return f"{_summary(state, result)}; the limit is {_change(state, most)}"
    most = plan.max_worse if state.start.suspect else WORSE_THAN_ALONE
    if is_first and result.beside_local is not None and result.beside_local > most:
        beside = f"worse than {_alone(state, result.beside_local)}"
        return f"{_summary(state, result)}; {beside}; the limit is {_change(state, most)}"
    return ""


def _passed(state: Rollout, result: Tally) -> str:
    text = _summary(state, result)
    if not state.start.plan.gate:
        return f"{text}, worse off: {result.worse}"
    if result.beside_local is not None and result.beside_local >= 0:
        text += f"; warning: no better than {_alone(state, result.beside_local)}: its page says what to try"
    return text


def _summary(state: Rollout, result: Tally) -> str:
    start, vehicles = state.start, counted(result.reports, "vehicle")
    if start.champion and not start.plan.gate:
        return f"{change_in_words('rmse', result.mean)} on average over {vehicles}"
    if start.champion:
        return against(_metric(state), result.beside) if result.beside else "no vehicle compared the two"
    constant = "the most frequent class" if _metric(state) == "f1" else "the mean"
    middle = "median of" if start.plan.gate else "mean over"
    return f"{_change(state, result.mean)} against always forecasting {constant}, {middle} {vehicles}"


def _alone(state: Rollout, worse: float) -> str:
    return f"what each vehicle learns alone ({_change(state, worse)}, the median)"


def _metric(state: Rollout) -> str:
    return statistics.mode(report.metric for report in state.reports.values())


def _change(state: Rollout, worse: float) -> str:
    return change_in_words(_metric(state), worse)


@dataclass(frozen=True)
class Verdict:
    """What the sums say.

    Attributes
    ----------
    reason : str
        In words.
    returns : str
        Digest of the former version that is to be current again; empty: none is.
    """

    passes: bool
    reason: str
    returns: str = ""


def judged_sums(
    scores: Mapping[str, Any], versions: Mapping[str, int], *, asked: str | None, current: str | None, cohort: int
) -> Verdict:
    """Judge the model of a private run.

    Parameters
    ----------
    scores : Mapping
        Of the run, see `glassfleet.evaluation.scores`; ``missing`` says why there are none.
    versions : mapping of str to int
        Of the name, by digest.
    asked : str or None
        Digest of the model that the name stood for when the run began.
    current : str or None
        Digest of the one that it stands for now.
    cohort : int
        Vehicles that the model was learned from: half of them must have compared.
    """
    if "missing" in scores:
        return Verdict(False, f"no-scores: {scores['missing']}")
    if asked != current:
        return Verdict(False, "not-compared: another version became current while this one was learned")
    other = "constant" if current is None else "champion"
    compared, worse = (int(scores[key].get(other, 0)) for key in ("compared", "worse"))
    if current is not None and "champion" not in scores:
        return Verdict(False, "not-compared: the current version has another target, or no vehicle can use it")
    if compared < max(1, GATE.min_reports * cohort):
        return Verdict(False, f"too-few-reports: {compared} of {cohort} vehicles compared the two")
    limit, metric = float(scores["worse_by"][other]), scores["metric"]
    change = relative(metric, scores["candidate"], scores[other])
    beside = "the current version" if current is not None else "a constant"
    more = f"by more than {limit:.0%}" if limit >= 0 else f"or better by less than {-limit:.0%}"
    text = (
        f"{change_in_words(metric, change)} against {beside} over all {scores['rows']} test rows; worse "
        f"{more} for {worse} of {compared} vehicles"
    )
    if current is not None:
        verdict = _beside_best(scores, versions, current, text)
        if not verdict.passes:
            return verdict
        text = verdict.reason
    elif 2 * worse > compared:
        return Verdict(False, f"too-bad: {text}; at most half may be")
    alone = None if "local" not in scores else relative(metric, scores["candidate"], scores["local"])
    if alone is None or (alone < 0 and current is not None):
        return Verdict(True, text)
    beside = f"what each vehicle learns alone ({change_in_words(metric, alone)})"
    compared, worse = (int(scores[key].get("local", 0)) for key in ("compared", "worse"))
    if current is None and 2 * worse > compared:
        more = f"by more than {scores['worse_by']['local']:.0%} for {worse} of {compared} vehicles"
        return Verdict(False, f"too-bad: worse than {beside}, {more}; at most half may be")
    return Verdict(True, text if alone < 0 else f"{text}; warning: no better than {beside}")


def _beside_best(scores: Mapping[str, Any], versions: Mapping[str, int], current: str, text: str) -> Verdict:
    """Judge a later version beside the present one and former ones."""
    compared, metric = int(scores["compared"]["champion"]), scores["metric"]
    beside, before = (
        {versions[digest]: from_sums(*sums) for digest, sums in scores[pairs].items() if 2 * sums[0] >= compared}
        for pairs in ("beside", "before")
    )
    present = versions[current]
    chosen = decided(beside, before, present)
    summary = f"{text}; {against(metric, beside)}"
    if chosen is None:
        return Verdict(True, summary)
    if chosen == present:
        return Verdict(False, f"too-bad: {summary}")
    digest = next(digest for digest, version in versions.items() if version == chosen)
    best = f"version {chosen} is the best: {change_in_words(metric, before[chosen].change)} against version {present}"
    return Verdict(False, f"former-better: {best}; {summary}", digest)
