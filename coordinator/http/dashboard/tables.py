"""Runs and models as tables: a line each, filtered, sorted and compared. Reads the coordinator, changes nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from typing import Any, Final, NamedTuple

from coordinator.core import Coordinator
from coordinator.fleet.differences import in_one_metric
from coordinator.http.dashboard import show
from coordinator.http.dashboard.library import Library
from coordinator.http.dashboard.show import ListPage
from coordinator.journal.port import StoredModel, overview
from glassfleet.contract import catalogue
from glassfleet.evaluation.paired import relative
from glassfleet.explain.text import cut, number
from schemas.errors import GlassfleetError, NotFoundError
from schemas.rounds import bytes_each


class Score(NamedTuple):
    """How good a version is: its metric, means over the vehicles together and alone, or a private run's figures."""

    metric: str
    together: float
    alone: float | None

    @property
    def worse(self) -> float | None:
        """How much worse together is than alone, relative to it; negative: better."""
        return None if self.alone is None else relative(self.metric, self.together, self.alone)

    @property
    def loss(self) -> float:
        """The less, the better."""
        return -self.together if self.metric == "f1" else self.together


@dataclass(frozen=True)
class RunLine:
    """A run with the version that it made, or a version with its run.

    Attributes
    ----------
    run, name, state, reason, scheme, participation, target : str
        `name` is the model's; `state` how the run ended, or stands; empty what is not known.
    version : int
        0: none yet.
    rules : int or None
        Of a model of rules.
    parameters : str
        Those of the scheme that are not its defaults.
    started : str
        ISO 8601; empty: not known.
    took : float or None
        Seconds; None while it goes on.
    versions : int
        How many the name has; of models.
    """

    run: str
    name: str
    version: int = 0
    state: str = ""
    reason: str = ""
    scheme: str = ""
    participation: str = ""
    target: str = ""
    score: Score | None = None
    rules: int | None = None
    parameters: str = ""
    rounds: int | None = None
    cohort: int | None = None
    started: str = ""
    took: float | None = None
    versions: int = 0
    is_damaged: bool = False


Scores = Mapping[tuple[str, int, str], Score]
"""By name, version and digest."""


def runs(coordinator: Coordinator, number: int, **asked: str) -> ListPage[RunLine]:
    """Return a page of the runs that are asked for, see `chosen`; of the newest first no others are looked at."""
    scores = means(coordinator)
    if {**asked, "sort": asked.get("sort", "started")} == {"text": "", "state": "", "sort": "started"}:
        page = ListPage.of(coordinator.runs.newest(), number)
        lines = [_line(run, scores) for run in coordinator.runs.overviews(page.items)]
        return ListPage(lines, page.number, page.last, page.total)
    lines = [_line(run, scores) for run in reversed(coordinator.runs.overviews())]
    return ListPage.of(chosen(lines, **asked), number)


def models(coordinator: Coordinator, library: Library) -> list[RunLine]:
    """Return a line for each name of a model: of the version that is in use, else of the newest."""
    runs = {each["run"]: each for each in coordinator.runs.overviews()}
    scores, current = means(coordinator), coordinator.aliases.current
    lines = []
    for name, heads in coordinator.registry.by_name().items():
        pointer = current.get(name)
        shown = next((each for each in heads if pointer and each.version == pointer.version), heads[-1])
        line = _line(runs[shown.run], scores) if shown.run in runs else _loaded(shown, scores, library)
        lines.append(replace(line, name=name, version=shown.version, versions=len(heads), is_damaged=shown.is_damaged))
    return lines


def _line(run: Mapping[str, Any], scores: Scores) -> RunLine:
    model, size, summed = run["model"] or {}, run["size"] or {}, run["scores"] or {}
    score = scores.get((model["name"], model["version"], model["digest"])) if model else None
    if "candidate" in summed:  # of a private run: nobody tells its own
        score = Score(summed["metric"], summed["candidate"], summed.get("local"))
    started, ended = (run[what] and datetime.fromisoformat(run[what]) for what in ("started", "ended"))
    marks = ["private"] if run["private"] else []
    return RunLine(
        run=run["run"],
        name=model.get("name") or run["name"] or "",
        version=model.get("version", 0),
        state=run["outcome"] or run["state"] or "",
        reason=run["reason"] or "",
        scheme=run["scheme"] or "",
        participation=run["participation"] or "",
        target=run["target"] or "",
        score=score,
        rules=_rules(size),
        parameters=", ".join([*marks, *changed(run["scheme"] or "", run["parameters"] or {})]),
        rounds=run["rounds"],
        cohort=run["cohort"],
        started=run["started"] or "",
        took=max(0.0, (ended - started).total_seconds()) if started and ended else None,
    )


def _loaded(head: StoredModel, scores: Scores, library: Library) -> RunLine:
    """Return what a record says of itself: its run is forgotten, or there was none."""
    line = RunLine(run="", name=head.name, score=scores.get((head.name, head.version, head.digest)))
    with suppress(GlassfleetError):  # a damaged one, or of a scheme that is not installed
        loaded = library.get(head.name, head.version)
        return replace(
            line,
            scheme=loaded.record.scheme,
            target=loaded.model.domain.target_name,
            rules=_rules(loaded.model.complexity()),
            cohort=len(loaded.record.cohort),
            started=loaded.record.created,
        )
    return line


def _rules(size: Mapping[str, Any]) -> int | None:
    rules: int | None = size.get("rules", size.get("leaves"))
    return rules


def means(coordinator: Coordinator) -> Scores:
    """Return the means of what vehicles measured, in the metric of most of them."""
    by_model: dict[tuple[str, int, str], dict[str, dict[str, Any]]] = {}
    for agent, known in coordinator.fleet.known().items():
        for (name, version), each in known.evaluations.items():
            by_model.setdefault((name, version, each["digest"]), {})[agent] = each
    result = {}
    for key, scores in by_model.items():
        metric, same = in_one_metric(scores)
        together, alone = (sum(each[what] for each in same.values()) / len(same) for what in ("federated", "local"))
        result[key] = Score(metric, together, alone)
    return result


def changed(scheme: str, parameters: Mapping[str, Any]) -> list[str]:
    """Return the parameters that are not the scheme's defaults: ``["max_rules=20"]``."""
    usual = _defaults(scheme)
    given = json.loads(json.dumps(dict(parameters)))
    return [f"{name}={_text(value)}" for name, value in given.items() if name not in usual or usual[name] != value]


@cache
def _defaults(scheme: str) -> dict[str, Any]:
    try:
        parameters: dict[str, Any] = catalogue.load(scheme).Parameters().model_dump(mode="json")
    except (NotFoundError, ValueError):
        return {}
    return parameters


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


SORTS: Final[Mapping[str, tuple[Callable[[RunLine], Any], bool]]] = {
    "started": (lambda line: line.started, True),
    "run": (lambda line: line.run, False),
    "state": (lambda line: line.state, False),
    "model": (lambda line: (line.name, line.version), False),
    "target": (lambda line: line.target, False),
    "scheme": (lambda line: line.scheme, False),
    "score": (lambda line: line.score and line.score.loss, False),
    "worse": (lambda line: line.score and line.score.worse, True),
    "rules": (lambda line: line.rules, False),
    "rounds": (lambda line: line.rounds, True),
    "cohort": (lambda line: line.cohort, True),
    "took": (lambda line: line.took, True),
    "versions": (lambda line: line.versions, True),
}
"""What a table can be sorted by, and whether the largest stands first."""
STATES = ("running", "finished", "failed", "cancelled", "suspended", "damaged")


def chosen(lines: Iterable[RunLine], *, text: str = "", state: str = "", sort: str = "started") -> list[RunLine]:
    """Return the lines that have every word of `text`, sorted; what a line does not have stands last.

    Parameters
    ----------
    text : str
        Words that stand in ids, names, targets, schemes, parameters and reasons.
    state : str
        One of `STATES`; empty: all.
    sort : str
        One of `SORTS`, with ``-`` before it the other way round; anything else as ``started``. Scores are sorted
        target by target: those of two targets say nothing about each other.
    """
    words = text.lower().split()
    fitting = [line for line in lines if state in ("", line.state) and _has(line, words)]
    key, is_reversed = SORTS.get(sort.removeprefix("-"), SORTS["started"])
    known = [line for line in fitting if key(line) not in (None, "")]
    known.sort(key=key, reverse=is_reversed != sort.startswith("-"))
    if sort.removeprefix("-") == "score":
        known.sort(key=lambda line: (line.target, line.score.metric if line.score else ""))
    return [*known, *(line for line in fitting if key(line) in (None, ""))]


def _has(line: RunLine, words: Sequence[str]) -> bool:
    if not words:
        return True
    parts = (line.run, line.name, line.target, line.scheme, line.participation, line.parameters, line.reason)
    text = " ".join(parts).lower()
    return all(word in text for word in words)


class SettingDifference(NamedTuple):
    """What is told of two runs: what, both as texts, and whether they differ."""

    what: str
    one: str
    other: str

    @property
    def differs(self) -> bool:
        """Whether they do."""
        return self.one != self.other


@dataclass(frozen=True)
class RunPair:
    """Two runs side by side: their lines, what came of them, and the settings that differ."""

    one: RunLine
    other: RunLine
    facts: list[SettingDifference]
    settings: list[SettingDifference]


def pair(coordinator: Coordinator, one: str, other: str) -> RunPair:
    """Compare two runs; raises NotFoundError when there is no such run."""
    scores = means(coordinator)
    documents = [coordinator.runs.document(run) for run in (one, other)]
    lines = [_line(overview(document), scores) for document in documents]
    facts = [dict(_facts(*each)) for each in zip(documents, lines, strict=True)]
    settings = [dict(_settings(document["spec"])) for document in documents]
    names = dict.fromkeys((*settings[0], *settings[1]))
    differences = [SettingDifference(name, *(each.get(name, "–") for each in settings)) for name in names]
    shown = [
        SettingDifference(name, *(each.get(name, "–") for each in facts))
        for name in dict.fromkeys((*facts[0], *facts[1]))
    ]
    return RunPair(lines[0], lines[1], shown, [each for each in differences if each.differs])


def _facts(document: Mapping[str, Any], line: RunLine) -> Iterator[tuple[str, str]]:
    yield "Ended as", f"{line.state}{f': {cut(line.reason, 200)}' if line.reason else ''}"
    yield "Scheme", f"{line.scheme}, {line.participation}"
    yield "Target", line.target or "–"
    yield "Inputs", number(len(document["features"]) or None)
    if line.score is not None:
        yield f"Score ({line.score.metric.upper()}, mean of the vehicles)", number(line.score.together)
        yield "Alone", number(line.score.alone)
    for name, value in (document.get("size") or {}).items():
        yield name.replace("_", " ").capitalize(), number(value)
    yield "Rows", number(show.rows(document) or None)
    yield "Vehicles in the cohort", number(line.cohort)
    yield "Rounds", number(line.rounds)
    yield "Bytes received", number(sum(row["bytes"] for row in document["rounds"]))
    to_each, from_each = bytes_each(document["rounds"])
    yield "Bytes of requests to each vehicle, of answers from it", f"{number(to_each or None)} and {number(from_each)}"


def _settings(spec: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the settings of a run by name; parameters with the scheme's defaults."""
    for name, value in spec.items():
        if name in ("run", "nonce", "guarded"):
            continue
        if name == "parameters":
            parts = {**_defaults(str(spec.get("scheme", ""))), **value}
        else:
            parts = value if name in ("rounds", "private", "rollout") and isinstance(value, dict) else {"": value}
        for part, each in parts.items():
            yield f"{name}.{part}".removesuffix("."), cut(_text(each), 300) if each not in (None, [], {}) else "–"
