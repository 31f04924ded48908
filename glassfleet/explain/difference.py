"""What differs between two models, as data: rules matched by their antecedents, and everything else key by key.

Sets that were only renamed are the same sets: the older model is read in the newer one's terms, and the renaming is
told once, with the variable. The command line writes this as text, the dashboard as a page. And what has moved in the
data since a model was learned, rule by rule and input by input: `moved`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from glassfleet.data.domain import Domain
from glassfleet.evaluation.drift import COLUMNS, Moved, drifted
from glassfleet.explain.partitions import in_terms_of
from glassfleet.model.baseline import BESIDE
from glassfleet.model.protocol import Model, Nature, nature, readable_rules
from glassfleet.model.rules import Rule, most_used
from schemas.record import ModelRecord

RECORD_FIELDS = ("created", "digest", "run", "scheme", "software", "version")
"""Of a record, fields that say which model it is and where it comes from."""

Part = Literal["record", "parameters", "training", "size", "limits", "terms", "domain"]
Pair = tuple[Rule, Rule]
Changes = dict[str, tuple[Any, Any]]
"""Name to the value before and after, None where there is none."""

_NO_READER = ("digest", "version", "sums_digest", "drift")
"""They stand in the heading, or are digits that say nothing to a reader: what has moved is told in sentences."""
_OF_VARIABLE = ("low", "high", "unit", "terms")
_ABSENT = (None, "absent")
"""What stands for a map that is not there: of a whole entry, and of a key."""
_CHARS = 300


@dataclass(frozen=True)
class Change:
    """A value that differs, in words.

    Attributes
    ----------
    part : str
        ``limits`` and ``terms`` are those of variables; ``domain`` is what else a domain holds.
    name : str
        Of the value; keys of nested values are joined by dots.
    before, after : str
        Never equal: numbers have six digits, and all of them where six are the same.
    """

    part: Part
    name: str
    before: str
    after: str


@dataclass(frozen=True)
class Difference:
    """The newer model against the older one. Rules of the older one are in the newer one's terms.

    Attributes
    ----------
    old, new : ModelRecord
    natures : (Nature, Nature)
        What kinds of model they are. Of populations, `added` to `kept` are structures, matched by their inputs.
    added, gone : tuple of Rule
        Rules whose antecedent only one of them has; the most used first.
    changed : tuple of (Rule, Rule)
        The same antecedent with another consequent: before, after; the most used first.
    restated : tuple of (Rule, Rule)
        The same antecedent and consequent with another weight, support or confidence.
    kept : int
        Rules in which nothing differs.
    size : dict
        Measure of complexity to (before, after), equal ones too.
    record, parameters, training, domain : dict
        Name to (before, after) where they differ: fields of the record, parameters of the scheme, how it was trained,
        variables and what else the domain holds.
    """

    old: ModelRecord
    new: ModelRecord
    natures: tuple[Nature, Nature]
    added: tuple[Rule, ...]
    gone: tuple[Rule, ...]
    changed: tuple[Pair, ...]
    restated: tuple[Pair, ...]
    kept: int
    size: Changes
    record: Changes
    parameters: Changes
    training: Changes
    domain: Changes

    @property
    def is_same(self) -> bool:
        """Whether the digests are equal."""
        return self.old.digest == self.new.digest

    @property
    def moved(self) -> list[Pair]:
        """All rules of one antecedent in which something differs, by their antecedents."""
        return sorted(self.changed + self.restated, key=lambda pair: pair[1].antecedent)

    @property
    def joined(self) -> list[str]:
        """Vehicles of the newer model's cohort alone."""
        return sorted({*self.new.cohort} - {*self.old.cohort})

    @property
    def left(self) -> list[str]:
        """Vehicles of the older model's cohort alone."""
        return sorted({*self.old.cohort} - {*self.new.cohort})

    def in_words(self, *parts: Part) -> list[Change]:
        """Return what differs besides the rules, as short texts; of some parts only, when they are named."""
        lines = [
            Change(part, *texts)
            for part, changes in self._values().items()
            for name, (was, now) in changes.items()
            if name not in _NO_READER
            for texts in _leaves(name, was, now)
        ]
        lines += [change for name, (was, now) in self.domain.items() for change in _of_variable(name, was, now)]
        return [change for change in lines if not parts or change.part in parts]

    def _values(self) -> dict[Part, Changes]:
        return {"record": self.record, "parameters": self.parameters, "training": self.training, "size": self.size}

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form, ``glassfleet model diff --json``."""
        values = {**self._values(), "domain": self.domain}
        return {
            "old": name_of(self.old),
            "new": name_of(self.new),
            "same": self.is_same,
            **{
                part: {name: [*pair] for name, pair in changes.items() if pair[0] != pair[1]}
                for part, changes in values.items()
            },
            "cohort": {"joined": self.joined, "left": self.left},
            "rules": {
                "added": [{"if": rule.antecedent, **figures(rule)} for rule in self.added],
                "gone": [{"if": rule.antecedent, **figures(rule)} for rule in self.gone],
                "changed": [
                    {"if": now.antecedent, "changes": {name: [*pair] for name, pair in rule_changes(was, now).items()}}
                    for was, now in self.moved
                ],
                "same": self.kept,
            },
        }


def difference(old: tuple[ModelRecord, Model], new: tuple[ModelRecord, Model]) -> Difference:
    """Return what differs between two models, each with its record."""
    (a, before), (b, after) = old, new
    before = in_terms_of(before, after.domain)
    sizes = dict(before.complexity()), dict(after.complexity())
    added, gone, pairs = _matched(before, after)
    return Difference(
        old=a,
        new=b,
        natures=(nature(before), nature(after)),
        added=tuple(sorted(added, key=most_used)),
        gone=tuple(sorted(gone, key=most_used)),
        changed=tuple(sorted(filter(_moved, pairs), key=lambda pair: most_used(pair[1]))),
        restated=tuple(pair for pair in pairs if not _moved(pair) and figures(pair[0]) != figures(pair[1])),
        kept=sum(figures(was) == figures(now) for was, now in pairs),
        size={name: (sizes[0].get(name), sizes[1].get(name)) for name in dict.fromkeys([*sizes[0], *sizes[1]])},
        record=_changes(*({key: getattr(each, key) for key in RECORD_FIELDS} for each in (a, b))),
        parameters=_changes(a.document["parameters"], b.document["parameters"]),
        training=_changes(*(_training(each) for each in (a, b))),
        domain=_changes(*(_variables(each.document["domain"]) for each in (a, b))),
    )


def _training(record: ModelRecord) -> dict[str, Any]:
    """Return how a model was trained, without what fleets' rows say beside: these are hardly ever the same."""
    settings = {**record.parameters, **record.training.model_dump()}
    return {name: value for name, value in settings.items() if name not in BESIDE}


def name_of(record: ModelRecord) -> str:
    """Return a model's name, version and the first digits of its digest."""
    return f"{record.name} v{record.version} ({record.digest[:12]})"


def figures(rule: Rule) -> dict[str, Any]:
    """Return a rule's consequent with its weight, support and confidence to six digits after the point."""
    numbers = {name: round(float(getattr(rule, name)), 6) for name in ("weight", "support", "confidence")}
    return {"then": rule.output, **numbers}


def rule_changes(was: Rule, now: Rule) -> Changes:
    """Return what differs between two rules of one antecedent."""
    return _changes(figures(was), figures(now))


def in_digits(was: Any, now: Any) -> tuple[str, str]:
    """Return two values that differ as texts that differ: short if that will do, else to their last digit."""
    before, after = _short(was), _short(now)
    return (before, after) if before != after else (_short(was, exact=True), _short(now, exact=True))


# --- rules -----------------------------------------------------------------------------------------------------------


def _matched(before: Model, after: Model) -> tuple[list[Rule], list[Rule], list[Pair]]:
    """Return rules that are new, those that are gone, and the others in pairs."""
    old, new = _by_antecedent(before), _by_antecedent(after)
    added: list[Rule] = []
    gone: list[Rule] = []
    pairs: list[Pair] = []
    for key in dict.fromkeys([*old, *new]):
        # Several rules may have one antecedent (one for each class): those that are most alike make a pair.
        left, right = old.get(key, []), new.get(key, [])
        for alike in (figures, lambda rule: rule.output, lambda _: None):
            pairs += _pairs(left, right, alike)
        gone += left
        added += right
    return added, gone, pairs


def _pairs(left: list[Rule], right: list[Rule], alike: Callable[[Rule], object]) -> Iterator[Pair]:
    """Take pairs that are alike out of both lists."""
    for rule in list(left):
        twin = next((other for other in right if alike(other) == alike(rule)), None)
        if twin is not None:
            left.remove(rule)
            right.remove(twin)
            yield rule, twin


def _by_antecedent(model: Model) -> dict[Hashable, list[Rule]]:
    groups: dict[Hashable, list[Rule]] = defaultdict(list)
    for rule in readable_rules(model):
        key: Hashable = rule.otherwise, frozenset((part.feature, part.term) for part in rule.conditions)
        if rule.fitness is not None:  # a structure: it is what it asks, whatever its number and fitness
            genes = model.to_document()["model"]["structures"][rule.index - 1]
            key = tuple(model.domain.names[gene] if gene >= 0 else "" for gene in genes)
        groups[key].append(rule)
    return groups


def _moved(pair: Pair) -> bool:
    # The words of a structure hold its number and its fitness, which are not what it is.
    return pair[0].output != pair[1].output and pair[0].fitness is None


# --- values ----------------------------------------------------------------------------------------------------------


def _changes(old: dict[str, Any], new: dict[str, Any]) -> Changes:
    names = dict.fromkeys([*old, *new])
    return {name: (old.get(name), new.get(name)) for name in names if old.get(name) != new.get(name)}


def _variables(domain: dict[str, Any]) -> dict[str, Any]:
    target = domain.get("target")
    variables = {str(part["name"]): part for part in domain.get("features", [])}
    if isinstance(target, dict):
        variables[f"{target['name']} (target)"] = target
    rest = {key: value for key, value in domain.items() if key not in ("features", "target")}
    return {**variables, **rest}


def _of_variable(name: str, was: Any, now: Any) -> Iterator[Change]:
    """Yield what differs of a variable: limits and unit together, its terms, then all else that a domain holds."""
    if _has_limits(was) or _has_limits(now):
        before, after = _limits(was), _limits(now)
        if before == after:
            before, after = _limits(was, exact=True), _limits(now, exact=True)
        if before != after:
            yield Change("limits", name, before, after)
        if not (_has_limits(was) and _has_limits(now)):
            return
        if was.get("terms") != now.get("terms"):
            yield Change("terms", name, *(", ".join(each.get("terms") or ()) or "standard" for each in (was, now)))
        was, now = ({key: part for key, part in each.items() if key not in _OF_VARIABLE} for each in (was, now))
    yield from (Change("domain", *texts) for texts in _leaves(name, was, now))


def _has_limits(value: Any) -> bool:
    return isinstance(value, dict) and {"low", "high"} <= set(value)


def _limits(value: Any, *, exact: bool = False) -> str:
    if _has_limits(value):
        unit = f" {value['unit']}" if value.get("unit") else ""
        low, high = (_short(float(value[edge]), exact=exact) for edge in ("low", "high"))
        return f"{low} to {high}{unit}"
    return "absent" if value is None else _short(value, exact=exact)


def _leaves(name: str, was: Any, now: Any) -> list[tuple[str, str, str]]:
    """Return what differs, maps key by key: path, value before and after."""
    sides = (was, now)
    if was == now:
        return []
    # A map that is on one side only is told key by key as well.
    if any(isinstance(side, dict) for side in sides) and all(isinstance(x, dict) or x in _ABSENT for x in sides):
        left, right = (side if isinstance(side, dict) else {} for side in sides)
        pairs = {key: (left.get(key, _ABSENT[1]), right.get(key, _ABSENT[1])) for key in (*left, *right)}
        lines = [line for key, pair in pairs.items() for line in _leaves(f"{name}.{key}", *pair)]
        if lines:
            return lines
    return [(name, *in_digits(was, now))]


def _short(value: Any, *, exact: bool = False) -> str:
    if isinstance(value, float):
        return repr(value) if exact else f"{value:.6g}"
    if isinstance(value, list):
        return f"[{', '.join(_short(part, exact=exact) for part in value)}]"
    if exact and isinstance(value, str):
        return repr(value)
    text = "none" if value is None else str(value)
    return text if exact or len(text) <= _CHARS else f"{text[: _CHARS - 3]}..."


def moved(records: Iterable[tuple[str, Mapping[str, Any]]], digest: str, domain: Domain) -> list[str]:
    """Return a sentence for each rule and input that moved.

    Parameters
    ----------
    records : iterable of (str, mapping)
        When a later version was learned, ISO 8601, and the parameters of its record, oldest first.
    digest : str
        Of the model.
    domain : Domain
        Of the model.
    """
    later = [(created, each["drift"]) for created, each in records if each.get("drift", {}).get("of") == digest]
    if not later:
        return []
    rules = int(later[-1][1]["rules"])
    lines = rules + len(domain.features)
    nights = [(created, np.array(each["sums"], dtype=np.int64)) for created, each in later if each["rules"] == rules]
    nights = [(created, sums) for created, sums in nights if sums.shape == (lines, COLUMNS)]
    return [
        _sentence(each, rules, domain, nights[each.since][0]) for each in drifted([sums for _, sums in nights], rules)
    ]


def _sentence(moved: Moved, rules: int, domain: Domain, since: str) -> str:
    if moved.line < rules:
        share = abs(math.expm1(moved.change))
        name = f"rule {moved.line}: its error" if rules > 1 else "the error"
        what = f"{name} is {share:.0%} {'larger' if moved.change > 0 else 'smaller'}"
    else:
        name, way = domain.features[moved.line - rules].name, "higher" if moved.change > 0 else "lower"
        what = f"{name} is {way} by {abs(moved.change):.1f} standard deviations"
    where = f"on {moved.moved} of {moved.vehicles} vehicles" if moved.moved else f"over {moved.vehicles} vehicles"
    return f"{what} than when the model was learned, {where}, since {since[:10]}"
