"""What vehicles measured with a model version: alone (LL), together (FL), and centrally (CL) as far as that is known.

Nobody has the rows of all vehicles, so a central score is never computed here. It is known in two cases: where the
fleet's model *is* the central one (promise of equality), each vehicle's FL score is its CL score; and where an operator
has registered a model that was learned centrally elsewhere, vehicles score it on the same test rows as any other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from coordinator.central import is_reference, reference_of
from coordinator.core import Coordinator
from coordinator.dashboard.library import Shelved
from glassfleet import catalogue
from glassfleet.scheme import promises_central
from schemas.record import ModelRecord

Source = Literal["equality", "reference", ""]


class Line(NamedTuple):
    """One vehicle: its scores, `central` None where unknown, and its test rows."""

    agent: str
    alone: float
    together: float
    central: float | None
    rows: int


@dataclass(frozen=True)
class Scores:
    """What vehicles measured with a model version on rows of their own.

    Attributes
    ----------
    metric : str
        ``rmse`` or ``f1``; empty without scores.
    lines : list of Line
        Those that lose by learning together first.
    alone, together : float
        Means over the vehicles.
    better : int
        Vehicles that are better together than alone.
    central : float or None
        Mean over the vehicles whose central score is known.
    source : str
        Why the central scores are known: ``equality``, ``reference``; empty: they are not.
    about : str
        What is to be said about the central scores, in one sentence.
    """

    metric: str
    lines: list[Line]
    alone: float = 0.0
    together: float = 0.0
    better: int = 0
    central: float | None = None
    source: Source = ""
    about: str = ""

    @property
    def known(self) -> int:
        """Vehicles whose central score is known."""
        return sum(line.central is not None for line in self.lines)


def scores(coordinator: Coordinator, shelved: Shelved) -> Scores:
    """Return the scores of a model version, of that very document."""
    record = shelved.record
    found = coordinator.fleet.evaluations(record.name, record.version)
    own = {agent: each for agent, each in found.items() if each["digest"] == record.digest}
    metrics = Counter(each["metric"] for each in own.values())
    if not metrics:
        return Scores("", [])
    metric = metrics.most_common(1)[0][0]
    own = {agent: each for agent, each in own.items() if each["metric"] == metric}
    central, source, about = _central(coordinator, shelved, own)
    sign = 1 if metric == "rmse" else -1
    lines = [
        Line(agent, float(each["local"]), float(each["federated"]), central.get(agent), int(each["rows"]))
        for agent, each in own.items()
    ]
    lines.sort(key=lambda line: sign * (line.alone - line.together))
    known = [line.central for line in lines if line.central is not None]
    return Scores(
        metric,
        lines,
        alone=sum(line.alone for line in lines) / len(lines),
        together=sum(line.together for line in lines) / len(lines),
        better=sum(1 for line in lines if sign * (line.alone - line.together) > 0),
        central=sum(known) / len(known) if known else None,
        source=source,
        about=about,
    )


def why_not_equal(shelved: Shelved) -> str:
    """Return why the fleet's model need not be the central one; empty: it is, by the promise of equality."""
    scheme = catalogue.load(shelved.record.scheme)
    parameters = getattr(shelved.model, "parameters", None)
    if parameters is None or not promises_central(scheme, parameters):
        return f"{shelved.record.scheme} does not promise it with these parameters"
    if shelved.record.parameters.get("participation") != "cohort":
        return "the run was elastic, so its rounds may rest on different vehicles"
    if scheme.exact(parameters) != parameters:
        return "statistics of few rows are nullified at the vehicles"
    return ""


def _central(
    coordinator: Coordinator, shelved: Shelved, own: Mapping[str, Mapping[str, Any]]
) -> tuple[dict[str, float], Source, str]:
    why = why_not_equal(shelved)
    if not why:
        same = {agent: float(each["federated"]) for agent, each in own.items()}
        return same, "equality", "The central model of the cohort's rows is this very model, so CL is FL."
    reference = _reference(coordinator, shelved.name)
    if reference is None or reference.name == shelved.name:
        return {}, "", f"Central (CL) is not known: nobody has the rows of all vehicles, and {why}."
    said = coordinator.fleet.evaluations(reference.name, reference.version)
    found = {
        agent: float(said[agent]["federated"])
        for agent, each in own.items()
        # Other test rows make scores that cannot be compared.
        if agent in said and (said[agent]["digest"], said[agent]["metric"], said[agent]["rows"])
        == (reference.digest, each["metric"], each["rows"])
    }  # fmt: skip
    text = f"CL is a model that was learned centrally elsewhere ({reference.scheme}), registered as {reference.name}"
    about = str(reference.parameters.get("about", ""))
    text += f" version {reference.version}{f': {about}' if about else ''}."
    return found, "reference", text if found else f"{text} No vehicle has scored it on the same test rows yet."


def _reference(coordinator: Coordinator, name: str) -> ModelRecord | None:
    """Return the central model that vehicles compare a name with; None: nobody has registered one."""
    pointer = coordinator.registry.aliases.current.get(reference_of(name))
    if pointer is None:
        return None
    record = ModelRecord.load(coordinator.registry.get(pointer.name, pointer.version).record)
    return record if is_reference(record) else None
