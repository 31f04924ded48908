"""What vehicles measured with a model version: alone (LL), together (FL), and centrally (CL) as far as that is known.

Nobody has the rows of all vehicles, so a central score is never computed here. It is known in two cases: where the
fleet's model *is* the central one (promise of equality), each vehicle's FL score is its CL score; and where an operator
has registered a model that was learned centrally elsewhere, vehicles score it on the same test rows as any other. Of
such a reference itself, what vehicles send as the score of the published model is the central score.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypedDict

from coordinator.core import Coordinator
from coordinator.fleet.differences import far_out, in_lines, in_one_metric
from coordinator.http.dashboard.comparison import Comparison, alone
from coordinator.http.dashboard.library import Library, LoadedModel
from coordinator.models.central import reference_of
from glassfleet.contract import catalogue
from glassfleet.contract.scheme import promises_central
from glassfleet.private.words import WHY_NO_VEHICLES, figures
from schemas.errors import GlassfleetError

OTHER = "another label"
"""What test rows are whose label the model does not know."""

Source = Literal["equality", "reference", "itself", ""]


class VehicleScores(NamedTuple):
    """One vehicle: its scores, how much worse together is than alone, relative to it, and its test rows.

    `central` is None where it is unknown. `only` is the class of all of its test rows, whose F1 then means little;
    empty: they are of several, or it did not tell.
    """

    agent: str
    alone: float
    together: float
    worse: float
    central: float | None
    rows: int
    only: str = ""


class Confused(NamedTuple):
    """Test rows of one class: how many the model says to be of each, and the share of them that it is right about."""

    label: str
    counts: list[int]
    right: float


@dataclass(frozen=True)
class Confusion:
    """Test rows by what they are and what the model says.

    Attributes
    ----------
    answers : list of str
        The classes that the model can say.
    lines : list of Confused
        What rows are: the classes that some are, last those of labels that the model does not know.
    precise : list of (float or None)
        Of the rows that are said to be of a class, the share that are; None: none is.
    """

    answers: list[str]
    lines: list[Confused]
    rows: int
    precise: list[float | None]

    @classmethod
    def of(cls, classes: tuple[str, ...], counts: Sequence[Sequence[int]]) -> Confusion:
        """Return it from counts as vehicles send them, see `schemas.messages.Evaluation`."""
        lines = [
            Confused(label, list(line)[:-1], line[place] / sum(line) if place < len(classes) else 0.0)
            for place, (label, line) in enumerate(zip([*classes, OTHER], counts, strict=True))
            if sum(line)
        ]
        answered = [sum(line[place] for line in counts) for place in range(len(classes))]
        precise = [counts[place][place] / total if total else None for place, total in enumerate(answered)]
        return cls(list(classes), lines, sum(map(sum, counts)), precise)


@dataclass(frozen=True)
class FleetScores:
    """What vehicles measured with a model version on rows of their own.

    Attributes
    ----------
    metric : str
        ``rmse`` or ``f1``; empty without scores.
    lines : list of Line
        Those that lose by learning together first.
    beside_alone : Comparison or None
        The vehicles alone and together; of a private run, the fleet's figures.
    central : float or None
        Mean over the vehicles whose central score is known.
    source : str
        Why the central scores are known: ``equality``, ``reference``, ``itself`` (the model is a reference); empty:
        they are not.
    about : str
        What is to be said about the central scores, in one sentence.
    far_out : list of (str, str)
        See `coordinator.fleet.differences.far_out`.
    confusion : Confusion or None
        Of a model of classes: the test rows of all vehicles that told theirs; of a private run, the fleet's.
    """

    metric: str
    lines: list[VehicleScores]
    beside_alone: Comparison | None = None
    central: float | None = None
    source: Source = ""
    about: str = ""
    far_out: list[tuple[str, str]] = field(default_factory=list)
    confusion: Confusion | None = None

    @property
    def known(self) -> int:
        """Vehicles whose central score is known."""
        return sum(line.central is not None for line in self.lines)


def scores(coordinator: Coordinator, loaded: LoadedModel) -> FleetScores:
    """Return the scores of a model version, of that very document."""
    record = loaded.record
    if record.is_private:
        about = f"{figures(record.parameters.get('scores', {}))}. {WHY_NO_VEHICLES.capitalize()}."
        summed = record.parameters.get("scores", {}).get("confusion")
        confused = None if summed is None else Confusion.of(loaded.model.domain.classes, summed)
        return FleetScores("", [], alone(record), about=about, confusion=confused)
    own = coordinator.fleet.evaluations(record.name, record.version, record.digest)
    central, source, about = known_centrally(coordinator, loaded, own)
    metric, own = in_one_metric(own)
    if not metric:
        return FleetScores("", [], source=source, about=about)
    compared = Comparison.of(metric, ((agent, each["local"], each["federated"]) for agent, each in own.items()))
    pairs = [] if compared is None else compared.lines
    classes = loaded.model.domain.classes
    # One that counts other classes has another model.
    tables = {agent: each.get("confusion") for agent, each in own.items()}
    counts = {agent: each for agent, each in tables.items() if each and len(each) == len(classes) + 1}
    lines = [
        VehicleScores(*pair, central.get(pair.agent), rows, _only(classes, counts.get(pair.agent), rows))
        for pair in pairs
        for rows in [int(own[pair.agent]["rows"])]
    ]
    summed = [[sum(cells) for cells in zip(*each, strict=True)] for each in zip(*counts.values(), strict=True)]
    known = [line.central for line in lines if line.central is not None]
    return FleetScores(
        metric,
        lines,
        compared,
        central=sum(known) / len(known) if known else None,
        source=source,
        about=about,
        far_out=far_out(own),
        confusion=Confusion.of(classes, summed) if counts else None,
    )


def _only(classes: Sequence[str], counts: Sequence[Sequence[int]] | None, rows: int) -> str:
    """Return the class of all test rows of a vehicle; empty: they are of several, or nobody knows."""
    return next((label for label, line in zip([*classes, OTHER], counts or [], strict=False) if sum(line) == rows), "")


class VehicleDocument(TypedDict):
    """What is told of one vehicle; `federated` is None of a reference, `central` where it is not known."""

    rows: int
    local: float
    federated: float | None
    central: float | None
    only: str


class ScoresDocument(TypedDict):
    """What ``GET /api/models/{name}/{version}/scores`` returns; see docs/reference/http-api.md."""

    name: str
    version: int
    digest: str
    metric: str
    source: Source
    about: str
    notes: list[str]
    vehicles: dict[str, VehicleDocument]


def as_document(coordinator: Coordinator, loaded: LoadedModel) -> ScoresDocument:
    """Return the scores of a model version as JSON values: what the dashboard shows, for programs."""
    known = scores(coordinator, loaded)
    return {
        "name": loaded.name,
        "version": loaded.version,
        "digest": loaded.record.digest,
        "metric": known.metric,
        "source": known.source,
        "about": known.about,
        "notes": in_lines(known.far_out),
        "vehicles": {
            line.agent: {
                "rows": line.rows,
                "local": line.alone,
                "federated": None if known.source == "itself" else line.together,
                "central": line.central,
                "only": line.only,
            }
            for line in sorted(known.lines)
        },
    }


def with_central(
    coordinator: Coordinator, library: Library, evaluations: Mapping[str, Mapping[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Return what vehicles have sent about a model version, each with its central score (None: unknown) and why.

    Parameters
    ----------
    evaluations : mapping of str to mapping
        As `Fleet.evaluations` returns it.
    """
    central: Mapping[str, float] = {}
    source: Source = ""
    for first in list(evaluations.values())[:1]:
        # A vehicle may name a model that there is not, or one of a scheme that is not installed here.
        with suppress(GlassfleetError):
            loaded = library.get(first["name"], first["version"])
            own = {agent: each for agent, each in evaluations.items() if each["digest"] == loaded.record.digest}
            central, source, _ = known_centrally(coordinator, loaded, own)
    return {
        agent: {**each, "central": central.get(agent), "source": source if agent in central else ""}
        for agent, each in evaluations.items()
    }


def is_condensed(loaded: LoadedModel) -> bool:
    """Whether the model was learned from condensed rows, though its scheme can learn from the rows as they are."""
    parameters = getattr(loaded.model, "parameters", None)
    return parameters is not None and catalogue.load(loaded.record.scheme).exact(parameters) != parameters


def why_not_equal(loaded: LoadedModel) -> str:
    """Return why the model need not be the cohort's central one; empty: it is, by the promise of equality."""
    scheme = catalogue.load(loaded.record.scheme)
    parameters = getattr(loaded.model, "parameters", None)
    if loaded.record.is_reference:
        return "it was learned in one place, and vehicles only score it"
    if scheme.abilities.equals_central is None:
        return f"{loaded.record.scheme} does not promise it, whatever its parameters are"
    if parameters is None or not promises_central(scheme, parameters):
        return f"{loaded.record.scheme} does not promise it with these parameters"
    if loaded.record.parameters.get("participation") != "cohort":
        return "the run was elastic, so its rounds may rest on different vehicles"
    if is_condensed(loaded):
        return "the vehicles protect their rows, so it is the central model of condensed rows, not of their own"
    return ""


def known_centrally(
    coordinator: Coordinator, loaded: LoadedModel, own: Mapping[str, Mapping[str, Any]]
) -> tuple[dict[str, float], Source, str]:
    """Return the central scores as far as they are known, why they are, and a sentence about it.

    Parameters
    ----------
    loaded : LoadedModel
        The model version.
    own : mapping of str to mapping
        What vehicles have sent about this very document, by agent.

    Returns
    -------
    tuple of (dict of str to float, str, str)
        By agent, of those in `own`; `FleetScores.source`; `FleetScores.about`.
    """
    same = {agent: float(each["federated"]) for agent, each in own.items()}
    if loaded.record.is_reference:
        return same, "itself", "This model was learned in one place, so its scores are central ones (CL)."
    why = why_not_equal(loaded)
    if not why:
        return same, "equality", "The central model of the cohort's rows is this very model, so CL is FL."
    reference = coordinator.models.champion(reference_of(loaded.name))
    if reference is None or not reference.is_reference:
        return {}, "", f"Central (CL) is not known: nobody has the rows of all vehicles, and {why}."
    known = coordinator.fleet.evaluations(reference.name, reference.version)
    errors = {
        agent: float(known[agent]["federated"])
        for agent, each in own.items()
        # Other test rows make scores that cannot be compared.
        if agent in known and (known[agent]["digest"], known[agent]["metric"], known[agent]["rows"])
        == (reference.digest, each["metric"], each["rows"])
    }  # fmt: skip
    text = f"CL is a model that was learned centrally elsewhere ({reference.scheme}), registered as {reference.name}"
    about = str(reference.parameters.get("about", ""))
    text += f" version {reference.version}{f': {about}' if about else ''}."
    return errors, "reference", text if errors else f"{text} No vehicle has scored it on the same test rows yet."
