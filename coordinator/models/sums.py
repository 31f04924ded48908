"""Whether a model of a private run becomes current: decided from the summed scores, as no vehicle tells its own.

The rule is that of the gate (`coordinator.specification.rollout.GATE`). A first version is compared with a constant and
with what each vehicle learns alone. The median vehicle decides, asked as a count, which is a sum: for at most half of
the vehicles with test rows may the model be worse by more than the gate allows. A later one is compared with the
present version and former ones, by sums of differences and of their variances (`glassfleet.evaluation.paired`). One
false answer can turn such a sum, and nobody can find it there; nor is a vehicle named whose sums ruined the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from coordinator.specification.rollout import GATE
from glassfleet.evaluation.paired import against, change_in_words, decided, from_sums, relative


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


def judged(
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
