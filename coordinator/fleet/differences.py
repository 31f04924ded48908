"""Vehicles whose columns differ from most others', by what their birth certificates say: before they learn together."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

from coordinator.engine import Offer
from coordinator.fleet.directory import Fleet
from glassfleet.discovery.guard import MAX_NAMED, MIN_FLEET

FEWEST: Final = 3
"""Of fewer vehicles nobody can say what most have."""


def differences(offers: Mapping[str, Offer]) -> Iterator[tuple[str, str]]:
    """Yield vehicles that differ from more than half of all, and in what.

    Parameters
    ----------
    offers : mapping of str to Offer
        Of the vehicles that are known, those that are down too.
    """
    counts = Counter(offer for offer in offers.values() if offer.features)
    if counts.total() < FEWEST:
        return
    most = _most(counts)
    words = {offer: text for offer in counts if (text := _differs(offer, most))}
    yield from ((agent, words[offer]) for agent, offer in offers.items() if offer in words)


def _most(counts: Counter[Offer]) -> Offer:
    """Return the offer that more than half of all make, part by part; a part on which they do not agree is empty."""
    half = counts.total() / 2
    targets, features, plans = Counter[str](), Counter[str](), Counter[str]()
    kinds: dict[str, Counter[str]] = {}
    for offer, count in counts.items():
        targets[offer.target] += count
        plans[offer.plan] += count
        features.update(dict.fromkeys(offer.features, count))
        for name, kind in offer.kind_of.items():
            kinds.setdefault(name, Counter())[kind] += count

    def agreed(votes: Counter[str]) -> str:
        (choice, number), *_ = votes.most_common(1)
        return choice if number > half else ""

    columns = tuple(sorted(name for name, number in features.items() if number > half))
    target = agreed(targets)
    of_columns = tuple(agreed(kinds[name]) if name in kinds else "" for name in (*columns, target))
    return Offer(frozenset(), columns, target, of_columns, (), agreed(plans))


def _differs(offer: Offer, most: Offer) -> str:
    if most.target and offer.target not in ("", most.target):
        return f"has the target {offer.target!r}, most have {most.target!r}"
    missing = sorted({*most.features} - {*offer.features, offer.target})
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        return f"has no column {missing[0]!r}{more}, which most have"
    if odd := offer.odd_in(most.kind_of):
        return odd
    if offer.far:
        return f"has a value in {offer.far[0]!r} that is far from all its others, and repeated: does it mean no value?"
    if most.plan and offer.plan != most.plan:
        return "has rows that were made by another plan than most" if offer.plan else "has rows that no plan made"
    return ""


E = TypeVar("E", bound=Mapping[str, Any])

FAR: Final = 3
"""An error is far out above so many times the median vehicle's. Ten sound fleets of 15 were measured (five data sets,
vehicles with rows drawn at random or with a part of an input's range each). The largest error was at most twice the
median in eight, four and six times in two, and then at most half of its constant's."""


def in_one_metric(evaluations: Mapping[str, E]) -> tuple[str, dict[str, E]]:
    """Return the metric of most scores (empty: there are none), and the scores in it: those in another say nothing."""
    metrics = Counter(each["metric"] for each in evaluations.values())
    metric = metrics.most_common(1)[0][0] if metrics else ""
    return metric, {agent: each for agent, each in evaluations.items() if each["metric"] == metric}


def far_out(evaluations: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Return each vehicle whose score is far out, and by how much in words, the worst first.

    Nobody is named where there are less than `MIN_FLEET`.

    That is an error above `FAR` times the fleet's median, and above the error of the constant at the vehicle itself. A
    target that varies more at one vehicle than at others makes both of its errors larger, and is no fault. Of F1 the
    error is what it lacks of 1. A median stays sound while less than half of the vehicles are wrong.

    Parameters
    ----------
    evaluations : mapping of str to mapping
        What vehicles have sent about one model document, by agent, as `Fleet.evaluations` has it. Who did not tell the
        constant's score is not named.

    Examples
    --------
    >>> sound = {"metric": "rmse", "federated": 0.5, "constant": 1.2}
    >>> fleet = {f"v{number}": sound for number in range(1, 5)} | {"v5": {**sound, "federated": 40.0}}
    >>> far_out(fleet)
    [('v5', "its RMSE is 40, the median vehicle's is 0.5; always forecasting the mean would have 1.2")]
    """
    metric, of_fleet = in_one_metric(evaluations)
    if len(of_fleet) < MIN_FLEET:
        return []
    median = statistics.median(each["federated"] for each in of_fleet.values())
    least = FAR * _error(metric, median)
    outliers = [
        (agent, each["federated"], each["constant"])
        for agent, each in of_fleet.items()
        if each["constant"] is not None
        and _error(metric, each["federated"]) > max(least, _error(metric, each["constant"]))
    ]
    outliers.sort(key=lambda one: (-_error(metric, one[1]), one[0]))
    name, constant = metric.upper(), "the most frequent class" if metric == "f1" else "the mean"
    beside = f"the median vehicle's is {median:.4g}; always forecasting {constant} would have"
    return [(agent, f"its {name} is {score:.4g}, {beside} {other:.4g}") for agent, score, other in outliers[:MAX_NAMED]]


FEWEST_ROWS: Final = 20
"""Test rows that make a vehicle's error an error, and not chance."""


def changed(sent: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[tuple[str, str]]:
    """Return each vehicle on which one and the same version has become far worse, and by how much in words.

    That is the version that was in use when the vehicle scored last. Its error is above `FAR` times that of the
    vehicle's first score, and above `FAR` times as much as this changed at the median of the other vehicles: what all
    of them meet is nobody's fault. Measured on six data sets, in 3 and in 8 vehicles, with rows in their order and
    drawn at random: 2 of 4,129 nights of a vehicle would be named.

    Parameters
    ----------
    sent : mapping of str to sequence of mapping
        By agent, what it has sent about the versions of one model, the newest last, as `Fleet.evaluations` has it.

    Examples
    --------
    >>> none = {"champion": None, "champion_digest": ""}
    >>> one = {"metric": "rmse", "version": 1, "digest": "a", "first": 0.5, "federated": 0.5, "rows": 90, **none}
    >>> two = {**one, "version": 2, "digest": "b", "champion_digest": "a", "champion": 8.0}
    >>> changed({"v1": [one, two], "v2": [one, {**two, "champion": 0.6}]})
    [('v1', 'its RMSE with version 1 was 0.5 at first and is 8 now: have its data changed?')]
    """
    found = {agent: pair for agent, scores in sent.items() if (pair := _beside_itself(scores)) is not None}
    factors = sorted((now / was, agent) for agent, (was, now, _) in found.items())

    def usual(place: int) -> float:
        # The median of the others, which are sorted already: a page asks for 10,000 vehicles.
        others = len(factors) - 1
        middle = [factors[at + (at >= place)][0] for at in {(others - 1) // 2, others // 2}] if others else [1.0]
        return max(1.0, statistics.fmean(middle))

    far = [(-factor, agent) for place, (factor, agent) in enumerate(factors) if factor > FAR * usual(place)]
    return [(agent, found[agent][2]) for _, agent in sorted(far)[:MAX_NAMED]]


def _beside_itself(scores: Sequence[Mapping[str, Any]]) -> tuple[float, float, str] | None:
    """Return the errors, at first and now, of the version that was in use when a vehicle scored last; and in words."""
    newest = scores[-1]
    digest, score = newest["champion_digest"], newest["champion"]
    if score is None:
        digest, score = newest["digest"], newest["federated"]
    known = (each for each in scores if (each["digest"], each["metric"]) == (digest, newest["metric"]))
    was = next(known, None)
    if was is None or min(was["rows"], newest["rows"]) < FEWEST_ROWS:
        return None
    name, first = f"{was['metric'].upper()} with version {was['version']}", was["first"]
    words = f"its {name} was {first:.4g} at first and is {score:.4g} now: have its data changed?"
    before, now = _error(was["metric"], first), _error(was["metric"], score)
    return (before, now, words) if before else None


def _error(metric: str, score: float) -> float:
    """Return what F1 lacks of 1; an error as it is."""
    return 1.0 - score if metric == "f1" else score


def in_lines(outliers: Iterable[tuple[str, str]]) -> list[str]:
    """Return what `far_out` says as documents have it."""
    return [f"{agent}: {words}" for agent, words in outliers]


def far_out_of(fleet: Fleet, model: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """Return `far_out` of a model version (``name``, ``version``, ``digest``); nothing where there is none."""
    return [] if model is None else far_out(fleet.evaluations(model["name"], model["version"], model["digest"]))


def with_scores(document: Mapping[str, Any], fleet: Fleet) -> dict[str, Any]:
    """Return a run's document; `far_out` has the vehicles, too, whose scores of the run's model are far out."""
    return {**document, "far_out": [*document["far_out"], *far_out_of(fleet, document["model"])]}


def with_lines(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a run's document of `with_scores`; its `notes` are `far_out` as lines."""
    return {**document, "notes": in_lines(document["far_out"])}
