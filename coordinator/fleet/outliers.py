"""Vehicles whose scores are far out: a broken sensor shows as an error many times that of the others.

Vehicles whose rows are far out are found with the limits of the columns (`glassfleet.discovery.guard`). People are told
of both in the same place: `far_out` and `notes` of a run.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar

from coordinator.fleet.directory import Fleet
from glassfleet.discovery.guard import MAX_NAMED, MIN_FLEET

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
        constant's score (earlier software) is not named.

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

    def error(score: float) -> float:
        return 1.0 - score if metric == "f1" else score

    median = statistics.median(each["federated"] for each in of_fleet.values())
    least = FAR * error(median)
    outliers = [
        (agent, each["federated"], each["constant"])
        for agent, each in of_fleet.items()
        if each["constant"] is not None and error(each["federated"]) > max(least, error(each["constant"]))
    ]
    outliers.sort(key=lambda one: (-error(one[1]), one[0]))
    name, constant = metric.upper(), "the most frequent class" if metric == "f1" else "the mean"
    beside = f"the median vehicle's is {median:.4g}; always forecasting {constant} would have"
    return [(agent, f"its {name} is {score:.4g}, {beside} {other:.4g}") for agent, score, other in outliers[:MAX_NAMED]]


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
