"""The form for a new run: its fields, what is typed into them as a specification, and what is wrong with it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError

from coordinator.core import Coordinator
from coordinator.http.errors import plainer
from coordinator.journal.port import DECLARED, overview
from coordinator.specification.rollout import RolloutPlan
from coordinator.specification.run import PrivatePolicy, RoundPolicy, RunSpec, with_participation
from glassfleet.contract import catalogue
from glassfleet.data.documents import Parameter, parameters_of
from glassfleet.schemes import DEFAULT
from schemas.errors import GlassfleetError, NotFoundError, UsageError
from schemas.rounds import Window
from schemas.text import first_fault

if TYPE_CHECKING:
    from coordinator.http.dashboard.pages import Dashboard

LIKE = 30
"""So many runs, the newest, can be chosen to begin with their fields."""
RECENT = 5
"""So many of them are looked at for limits, units and words of columns."""

WORDS = {
    "model": ("Name of the model", "Each run that finishes adds a version to it."),
    "target": ("Target column", "Empty: the target that most vehicles have."),
    "features": ("Input columns", "Names with commas between them. Empty: the columns that most vehicles have."),
    "participation": ("Participation", "cohort: one set of vehicles for the whole model; elastic: whoever answers."),
    "rounds.min_agents": (
        "Quorum: vehicles that must answer",
        (
            "A share of the known vehicles (50 %), a number (8), or a share of those asked in each round (0.5). Empty: "
            "half of those that learned the model in use, or else of the known ones, and at least two."
        ),
    ),
    "rounds.gather_agents": ("Vehicles to wait for at the start", ""),
    "rounds.gather_timeout": ("Seconds to wait for them", "Then the run fails."),
    "rounds.sample": ("Ask only so many vehicles", "A number, or a share of those who can answer (50 %). Empty: all."),
    "rounds.target": ("Close a round after so many answers", "Empty: when all have answered."),
    "max_rows_each": (
        "Most rows of a vehicle that count",
        "Empty: five times the median, where there are five vehicles or more.",
    ),
    "window.rows": ("Only the last rows of each vehicle", "So many. Empty: all."),
    "window.days": ("Only rows of the last days", "So many days before the start. Empty: of any age."),
    "window.time": ("Column that tells when a row was", "In seconds since 1970. Empty: the only one of such a name."),
    "without": ("Vehicles left out", "Ids with commas between them."),
    "rounds.deadline": ("Seconds for each round", "Who has not answered by then is dropped from the round."),
    "rounds.grace": ("Seconds of grace", "Answers that come so much later still count."),
    "rounds.on_missed_quorum": ("With fewer answers than the quorum", "extend: wait once more; fail: end the run."),
    "rounds.extensions": ("Extensions of a round", "How often it waits once more, at most."),
    "rounds.max_restarts": ("Replays", "How often the run goes back after it has lost a vehicle, at most."),
    "private.floor": ("Vehicles in a sum", "Fewest vehicles over which anything is summed."),
    "private.company": ("Vehicles that leave together", "So many, at least, when some are lost."),
    "private.patience": ("Extensions for them", "How often a round waits once more when fewer are missing."),
    "private.support": ("Rows on which anything rests", "Nothing is asked that rests on fewer rows. 0: no such bound."),
    "readmit": (
        "Vehicles that may come back",
        "Ids of those that earlier private runs have to do without: false answers, or refusals that ended them.",
    ),
    "rollout.stages": ("Stages", "Shares of the fleet that try the model, one after the other."),
    "rollout.min_reports": ("Reports that a stage needs", "A number, or a share of those asked."),
    "rollout.max_worse": ("Error that may grow", "Averaged over the vehicles; 0.05 is 5 %."),
    "rollout.max_worse_share": ("Vehicles that may be worse off", "A share of those that reported."),
    "rollout.vehicle_worse": ("When a vehicle is worse off", "Its error has grown by so much."),
    "rollout.deadline": ("Seconds for each stage", "Then it is judged by the reports that have come."),
    "run": ("Id of the run", "Empty: made up."),
    "seed": ("Seed", "For what is random at the coordinator."),
}
"""Label of each field, and what it says beside its range."""

SECTIONS: Mapping[str, type[BaseModel]] = {
    "rounds": RoundPolicy,
    "window": Window,
    "private": PrivatePolicy,
    "rollout": RolloutPlan,
}
TICKED = ("private", "rollout")
"""Sections that count only when their box is ticked."""


ID_WORDS = "1 to 64 letters, digits, '.', '_' or '-', of which the first is a letter or digit"


class FieldError(UsageError):
    """A form that cannot be meant; `field` is the name of the field at fault, empty where there is no single one."""

    def __init__(self, text: str, field: str = "") -> None:
        super().__init__(text)
        self.field = field


@dataclass(frozen=True)
class Field:
    """A field of the form: its name, its place in the specification, what it says, and how it is read."""

    name: str
    place: tuple[str, ...]
    label: str
    about: str
    parameter: Parameter


def fields_of(scheme: str) -> dict[str, Field]:
    """Return the fields of the form for a scheme, by name; raises NotFoundError when there is no such scheme."""
    sections: list[tuple[tuple[str, ...], type[BaseModel]]] = [((), RunSpec)]
    sections += [((name,), model) for name, model in SECTIONS.items()]
    fields = {}
    for place, model in sections:
        for each in parameters_of(model):
            name = ".".join((*place, each.name))
            if name in WORDS:
                fields[name] = Field(name, (*place, each.name), *WORDS[name], each)
    for each in parameters_of(catalogue.load(scheme).Parameters):
        if each.name != "support":  # of private runs, which set it
            name = f"parameters.{scheme}.{each.name}"
            fields[name] = Field(name, ("parameters", each.name), each.name, each.about, each)
    # Left out, it is the scheme's only one.
    one = fields["participation"]
    fields["participation"] = replace(one, parameter=replace(one.parameter, is_optional=True, default=""))
    return fields


def defaults(scheme: str = DEFAULT) -> dict[str, str]:
    """Return what the form for a scheme has at first."""
    texts = {name: field.parameter.default for name, field in fields_of(scheme).items()}
    return {**texts, "scheme": scheme, "shown": scheme, "private": "", "rollout": "", "words": ""}


def texts_of(document: Mapping[str, Any]) -> dict[str, str]:
    """Return the form with the fields of a run that there was.

    Parameters
    ----------
    document : Mapping
        Of the run.

    Raises
    ------
    UsageError
        This software cannot read its settings.
    """
    spec = RunSpec.from_document({**document["spec"], "nonce": ""})
    whole = spec.model_dump(mode="json", exclude={"domain", "bounds", "run"})
    try:
        whole["parameters"] = catalogue.load(spec.scheme).Parameters.model_validate(spec.parameters).model_dump()
    except ValidationError as fault:
        raise UsageError(f"the parameters of run {spec.run} cannot be used: {first_fault(fault)}") from fault
    texts = defaults(spec.scheme)
    for name, field in fields_of(spec.scheme).items():
        part: Any = whole
        for key in field.place:
            part = part.get(key) if isinstance(part, dict) else None
        if part is not None:
            texts[name] = field.parameter.write(part)
    boxes = {name: "yes" if whole[name] else "" for name in TICKED}
    return {**texts, **boxes, "words": spec.run if overview(document)["declares"] else ""}


def spec_of(texts: Mapping[str, str], known: int = 0, words: Mapping[str, Any] | None = None) -> RunSpec:
    """Return the run that a form asks for.

    Parameters
    ----------
    texts : Mapping of str to str
        As `defaults`, of the scheme that is named; what is missing has its default.
    known : int
        Vehicles of which a quorum such as ``50 %`` is a share.
    words : Mapping or None
        Specification of the run whose limits, units and words are taken over.

    Raises
    ------
    FieldError
        It cannot be meant; the text names the field.
    """
    scheme = texts["scheme"]
    fields = fields_of(scheme)
    document: dict[str, Any] = {"scheme": scheme, "participation": None}
    document |= {name: value for name in DECLARED if (value := (words or {}).get(name))}
    for name in TICKED:
        if texts.get(name):
            document[name] = {}
    for name, field in fields.items():
        text, section = texts.get(name, field.parameter.default).strip(), field.place[0]
        if text == field.parameter.default or (section in TICKED and section not in document):
            continue
        try:
            value = field.parameter.read(text, field.label)
            if name == "rounds.min_agents" and text.endswith("%"):
                value = max(1, math.ceil(value * known - 1e-9))
                document.setdefault("rounds", {}).setdefault("gather_agents", value)
        except UsageError as fault:
            raise FieldError(str(fault), name) from fault
        _put(document, field.place, value)
    try:
        spec = RunSpec.from_document(with_participation(document, catalogue.load))
        catalogue.load(scheme).Parameters.model_validate(spec.parameters)
    except (UsageError, ValidationError) as fault:
        cause = fault if isinstance(fault, ValidationError) else fault.__cause__
        if not isinstance(cause, ValidationError):
            raise FieldError(str(fault)) from fault
        raise _named(cause, fields, ("parameters",) if cause is fault else ()) from fault
    return spec


def _put(document: dict[str, Any], place: tuple[str, ...], value: Any) -> None:
    for key in place[:-1]:
        document = document.setdefault(key, {})
    document[place[-1]] = value


def _named(fault: ValidationError, fields: Mapping[str, Field], before: tuple[str, ...]) -> FieldError:
    """Return what pydantic found first with the name of the field."""
    error = fault.errors(include_url=False, include_input=False)[0]
    place = (*before, *map(str, error["loc"]))
    text = ID_WORDS if error["type"] == "string_pattern_mismatch" else plainer(error["msg"])
    # Where a rule concerns more than one field, its text begins with the name of the first.
    places = [place[:length] for length in range(len(place), 0, -1)] + [(*place, text.split(" ")[0])]
    field = next((each for of in places for each in fields.values() if each.place == of), None)
    return FieldError(text) if field is None else FieldError(f"{field.label}: {text}", field.name)


def typed(given: Mapping[str, str]) -> dict[str, str]:
    """Return the form as it was sent: browsers leave out boxes that are not ticked."""
    scheme = given.get("scheme", DEFAULT)
    boxes = [name for name, field in fields_of(scheme).items() if field.parameter.kind == "flag"]
    # Fields of another scheme were sent: this one's are at their defaults, and have not been seen.
    boxes = boxes if given.get("shown") == scheme else []
    return {**defaults(scheme), **dict.fromkeys((*boxes, *TICKED), ""), **given}


def begin(coordinator: Coordinator, like: str, scheme: str) -> dict[str, str]:
    """Return the form to begin with: of a run that there was, or of a scheme.

    Units and words of the last run that has some are kept in either case.

    Raises
    ------
    NotFoundError
        No such run, or scheme.
    UsageError
        This software cannot read the run's settings.
    """
    texts = texts_of(coordinator.runs.document(like)) if like else defaults(scheme or DEFAULT)
    return texts if texts["words"] else {**texts, "words": next(_with_words(coordinator), "")}


def words_of(coordinator: Coordinator, run: str, features: str = "") -> dict[str, Any]:
    """Return the limits, units and words of a run, of the columns that there are now.

    Raises
    ------
    FieldError
        No such run.
    """
    if not run:
        return {}
    try:
        spec = coordinator.runs.document(run)["spec"]
    except NotFoundError as fault:
        raise FieldError(f"Limits, units and words: {fault}", "words") from fault
    offers = coordinator.fleet.offers().values()
    columns = {name for offer in offers for name in (*offer.features, offer.target)}
    if features.strip():
        columns = {*(part.strip() for part in features.split(",")), *(offer.target for offer in offers)}
    bounds = {name: known for name, known in (spec.get("bounds") or {}).items() if name in columns or not columns}
    return {"domain": spec.get("domain"), "bounds": bounds}


def _with_words(coordinator: Coordinator) -> Iterator[str]:
    """Yield the last runs that have limits, units or words, the newest first."""
    runs = coordinator.runs
    yield from (each["run"] for each in runs.overviews(runs.newest(RECENT)) if each["declares"])


@dataclass(frozen=True)
class Who:
    """Who would take part: known vehicles, those up, those down by name, and how many up have not the scheme."""

    known: int
    up: int
    down: list[str]
    cannot: int
    target: str
    features: tuple[str, ...]


def who(coordinator: Coordinator, scheme: str) -> Who:
    """Return who would take part in a run of a scheme that began now."""
    known, offers = coordinator.fleet.known(), coordinator.fleet.offers()
    offered = Counter((offer.target, offer.features) for offer in offers.values() if offer.features)
    target, features = max(offered, key=offered.__getitem__, default=("", ()))
    return Who(
        len(known),
        len(offers),
        sorted(set(known) - set(offers)),
        sum(scheme not in offer.schemes for offer in offers.values()),
        target,
        tuple(name for name in features if name != target),
    )


def start(dashboard: Dashboard, texts: Mapping[str, str]) -> str:
    """Start the run that a form asks for, and return its id.

    Raises
    ------
    GlassfleetError
        It cannot be started; a `FieldError` where a field is at fault.
    """
    coordinator = dashboard.coordinator
    words = words_of(coordinator, texts["words"], texts["features"])
    spec = spec_of(texts, len(coordinator.fleet.known()), words)
    run: str = dashboard.service.call(lambda core: core.start_run(spec))
    return run


def shown(coordinator: Coordinator, texts: Mapping[str, str], wrong: GlassfleetError | None = None) -> dict[str, Any]:
    """Return what the page shows of a form."""
    scheme = texts["scheme"]
    fields = fields_of(scheme)
    runs, with_words = coordinator.runs.newest(LIKE), [*_with_words(coordinator)]
    if texts["words"] and texts["words"] not in with_words:
        with_words.append(texts["words"])
    return {
        "texts": texts,
        "fields": fields,
        "parameters": [name for name, field in fields.items() if field.place[0] == "parameters"],
        "changed": {name for name, field in fields.items() if texts[name] != field.parameter.default},
        "schemes": [(name, catalogue.load(name).title) for name in catalogue.names()],
        "title": catalogue.load(scheme).title,
        "who": who(coordinator, scheme),
        "runs": [(run["run"], run["scheme"], run["name"] or "") for run in coordinator.runs.overviews(runs)],
        "with_words": with_words,
        "models": coordinator.registry.names(),
        "wrong": "" if wrong is None else str(wrong),
        "wrong_field": getattr(wrong, "field", ""),
    }
