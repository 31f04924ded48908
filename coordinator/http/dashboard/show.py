"""What the pages say, as plain values: runs, models, forecasts. Reads the coordinator, changes nothing."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from urllib.parse import quote

from markupsafe import Markup

from coordinator.core import Coordinator
from coordinator.runs.attendance import reason_words
from glassfleet.data.domain import Domain
from glassfleet.explain import InputChange, RowExplanation
from glassfleet.explain.text import cut, minus, number
from glassfleet.model.protocol import OWN_TREE
from glassfleet.private.words import WHY_NO_VEHICLES, figures, left_out, protection, question, runs_left
from schemas.errors import NotFoundError
from schemas.record import ModelRecord
from schemas.rounds import count, missed

T = TypeVar("T")
PER_PAGE = 50
NAMED = 8
"""So many agents are named for one reason; the others are counted."""


@dataclass(frozen=True)
class ListPage(Generic[T]):
    """A part of a list.

    Attributes
    ----------
    number, last : int
        Which page this is, and how many there are; from 1.
    total : int
        Items on all pages.
    """

    items: list[T]
    number: int
    last: int
    total: int

    @classmethod
    def of(cls, items: Sequence[T], number: int, per_page: int = PER_PAGE) -> ListPage[T]:
        """Cut a list; a number that is too high means the last page."""
        last = max(1, -(-len(items) // per_page))
        number = min(max(number, 1), last)
        return cls(list(items[(number - 1) * per_page : number * per_page]), number, last, len(items))


def why(row: Mapping[str, Any]) -> list[tuple[str, int, Markup]]:
    """Return why agents do not count in a round: reason, how many, who."""
    grouped: defaultdict[str, list[str]] = defaultdict(list)
    for agent, reason in missed(row).items():
        grouped[reason_words(reason or "dropped")].append(agent)
    return [
        (reason, len(names), links(names, NAMED)) for reason, names in sorted(grouped.items(), key=lambda i: -len(i[1]))
    ]


def private_words(document: Mapping[str, Any]) -> list[str]:
    """Return what protected a private run's answers, who was left out, and its scores; empty for other runs."""
    terms = document.get("private") or document["spec"].get("private") or {}
    scores = document.get("scores") or {}
    why = WHY_NO_VEHICLES if "metric" in scores else ""
    if not terms:
        return []
    lines = (protection(terms), *left_out(document["agents"]), runs_left(document), figures(scores), why)
    return [each for each in lines if each]


def opened(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return which sums left the vehicles of a run, by kind of question: how many, over whom, and bytes of answers."""
    private = document.get("private") or document["spec"].get("private") or {}
    over = f"{private['floor']} or more vehicles" if private else "one vehicle"
    lines: dict[str, dict[str, Any]] = {}
    for each in document["rounds"]:
        if each["phase"] == "pairing":
            continue
        what = "limits of the columns" if each["phase"] == "domain" else question(each["kind"])
        line = lines.setdefault(what, {"what": what, "questions": 0, "over": over, "bytes": 0})
        line["questions"] += 1
        line["bytes"] += each["bytes"]
    return list(lines.values())


def fleet_scores(record: ModelRecord, domain: Domain) -> str:
    """Return the scores of a model of a private run, and why they are nobody's."""
    unit = domain.target.unit if domain.target is not None else ""
    return f"{figures(record.parameters.get('scores', {}), unit)}. {WHY_NO_VEHICLES.capitalize()}"


def rows(document: Mapping[str, Any]) -> int:
    """Return the training rows of a run's cohort; of all who told theirs, while there is no cohort."""
    if document.get("private"):
        return int(document["private"]["rows"])
    counts: Mapping[str, int] = document["rows"]
    cohort = document.get("cohort") or counts
    return sum(counts.get(agent, 0) for agent in cohort)


def named(names: Sequence[str]) -> str:
    """Return the first few names, and how many more there are."""
    shown = ", ".join(cut(name, 40) for name in names[:NAMED])
    return shown if len(names) <= NAMED else f"{shown} and {len(names) - NAMED} more"


def links(agents: Sequence[str], most: int) -> Markup:
    """Return vehicles' names, each a link to its page: the first few, and how many more there are.

    >>> links(["v-1", "v-2"], 1)
    Markup('<a href="/vehicles/v-1">v-1</a> and 1 more')
    """
    shown = Markup(", ").join(
        Markup('<a href="/vehicles/{}">{}</a>').format(quote(agent, safe=""), cut(agent, 40)) for agent in agents[:most]
    )
    return shown if len(agents) <= most else shown + f" and {len(agents) - most} more"


def not_in(coordinator: Coordinator, record: ModelRecord) -> list[tuple[str, str]]:
    """Return who is not in a model though it was asked, and why: the words of the run's page while there is one."""
    agents: Mapping[str, Mapping[str, str]] = {}
    with suppress(NotFoundError):
        agents = coordinator.runs.document(record.run)["agents"]
    return [
        (agent, reason_words(agents.get(agent, {}).get("reason") or reason))
        for agent, reason in record.training.dropped.items()
    ]


def awaited(document: Mapping[str, Any]) -> list[str]:
    """Return the vehicles whose answers to the open round may still come."""
    current = document["open"]
    return sorted({*current["asked_agents"]} - {*current["accepted_agents"]} - {*current["dropped_agents"]})


def standing(document: Mapping[str, Any]) -> list[tuple[str, int]]:
    """Return how many agents of a run stand how, the most first."""
    return Counter(each["status"] for each in document["agents"].values()).most_common()


def trouble(document: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return the agents of a run that were lost, dropped or late: agent, status, reason."""
    return [
        (agent, each["status"], reason_words(each["reason"]))
        for agent, each in document["agents"].items()
        if each["status"] in ("lost", "dropped", "late")
    ]


def absences(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return who missed rounds of a run, though it is not among the `trouble`: agent, which rounds it missed."""
    known = {agent for agent, _, _ in trouble(document)}
    absent: defaultdict[str, list[str]] = defaultdict(list)
    for row in document["rounds"]:
        for agent in missed(row):
            if agent not in known:
                absent[agent].append(f"{row['phase']} {row['number']}")
    return [(agent, named(list(dict.fromkeys(rounds)))) for agent, rounds in sorted(absent.items())]


def all_answered(document: Mapping[str, Any]) -> bool:
    """Whether everybody who was asked has answered, in every round that has closed."""
    rounds = document["rounds"]
    return bool(rounds) and all(row["accepted"] == row["asked"] and not row["late"] for row in rounds)


def held(explanation: RowExplanation) -> dict[str, list[tuple[str, float]]]:
    """Return to which degree a row fulfils each condition of the rule that explains it, by input: term, degree."""
    degrees: defaultdict[str, list[tuple[str, float]]] = defaultdict(list)
    for part, degree in zip(explanation.fired.rule.conditions, explanation.fired.memberships, strict=True):
        degrees[part.feature].append((part.term, degree))
    return degrees


def why_that_rule(explanation: RowExplanation) -> str:
    """Return why a rule answered whose conditions the row does not meet; empty: it meets them."""
    if not explanation.fallback:
        return ""
    notes = (note for note in explanation.notes if "fires for this row" in note)
    return next(notes, f"no rule fires for this row, so rule {explanation.fired.rule.index} answers")


def is_crisp(explanation: RowExplanation) -> bool:
    """Whether every condition of the rule that answered holds or does not, so that there are no degrees to tell."""
    parts = explanation.fired.rule.conditions
    return bool(parts) and all(part.crisp for part in parts)


def silent_shares(explanation: RowExplanation) -> tuple[str, ...]:
    """Return why no input has a share in a forecast, where that is so and there is something to say of it."""
    if explanation.nature == "structures" or any(explanation.shares.values()):
        return ()
    return tuple(note for note in explanation.notes if "share" in note)


def spans(explanation: RowExplanation) -> dict[str, tuple[float, float]]:
    """Return where the crisp conditions of the rule that answered hold, by input: from, to."""
    limits: dict[str, tuple[float, float]] = {}
    for part in explanation.fired.rule.conditions:
        if part.crisp:
            low, high = limits.get(part.feature, (part.low, part.high))
            limits[part.feature] = (max(low, part.low), min(high, part.high))
    return limits


def own_tree() -> str:
    """Return where the trees are that vehicles make of a population, as a sentence without its dot."""
    return f"{OWN_TREE[0].upper()}{OWN_TREE[1:]}"


def before(change: InputChange) -> str:
    """Return what an input is before a change, in as many digits as elsewhere where they tell the two apart.

    A category stays as it is, and a number that its text writes without an exponent does not get one.
    """
    if change.before is None:
        return change.before_text
    whole, short = f"{change.before:.6g}", number(change.before)
    is_number = change.before_text == f"{whole} {change.unit}".rstrip()
    if not is_number or short == number(change.after) or ("e" in short and "e" not in whole):
        return minus(change.before_text, change.before)
    return f"{short} {change.unit}".rstrip()


def sentence(document: Mapping[str, Any]) -> str:
    """Return how a run stands, for those who listen."""
    if document["outcome"] == "damaged":
        return "What was written about the run is damaged."
    if document["state"] == "ended":
        return f"The run has {'been ' if document['outcome'] == 'cancelled' else ''}{document['outcome']}."
    if document["state"] == "suspended":
        return "The run is suspended."
    if document["rounds"]:
        last = document["rounds"][-1]
        return (
            f"{str(last['phase']).capitalize()} round {last['number']} closed: {last['accepted']} in, "
            f"{last['late']} late, {count(last, 'dropped')} dropped, {last['rejected']} rejected."
        )
    return f"The run is {document['phase']}."
