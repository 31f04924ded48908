"""What is different between two versions of a model.

Sets that were only renamed are the same sets: the earlier version is read in the later one's terms, and the renaming is
told once, with the variable.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from coordinator.dashboard.library import Shelved
from glassfleet.domain import Variable
from glassfleet.explain import Rule, in_terms_of

MAX_SHOWN = 40


@dataclass(frozen=True)
class Difference:
    """The later version against the earlier one.

    Attributes
    ----------
    added, removed : tuple of Rule
        Rules whose conditions only one of them has; the most used first, at most `MAX_SHOWN`.
    changed : tuple of (Rule, Rule)
        The same conditions with another consequent: before, after.
    counts : tuple of int
        How many were added, removed, changed, kept.
    restated : int
        How many of those that were kept have another support, weight or confidence.
    complexity : tuple of (str, number or None, number or None)
        Measure, before, after.
    limits : tuple of (str, str, str)
        Variable, its limits (or categories) before and after, where they differ.
    terms : tuple of (str, str, str)
        Variable, the names of its sets before and after, where they differ.
    parameters : tuple of (str, str, str)
        Parameter of the scheme or the run, before and after, where they differ.
    same_scheme : bool
    is_same : bool
        The digests are equal.
    """

    added: tuple[Rule, ...]
    removed: tuple[Rule, ...]
    changed: tuple[tuple[Rule, Rule], ...]
    counts: tuple[int, int, int, int]
    restated: int
    complexity: tuple[tuple[str, float | None, float | None], ...]
    limits: tuple[tuple[str, str, str], ...]
    terms: tuple[tuple[str, str, str], ...]
    parameters: tuple[tuple[str, str, str], ...]
    same_scheme: bool
    is_same: bool


def difference(before: Shelved, after: Shelved) -> Difference:
    """Return what is different."""
    earlier = in_terms_of(before.model, after.model.domain).rules()
    old, new = ({_head(rule): rule for rule in rules} for rules in (earlier, after.rules))
    both = [(old[head], new[head]) for head in new if head in old]
    changed = [(was, now) for was, now in both if was.output != now.output]
    added = [rule for head, rule in new.items() if head not in old]
    removed = [rule for head, rule in old.items() if head not in new]
    measures = (dict(each.model.complexity()) for each in (before, after))
    was, now = measures
    return Difference(
        added=_most_used(added),
        removed=_most_used(removed),
        changed=tuple(sorted(changed, key=lambda pair: -pair[1].support)[:MAX_SHOWN]),
        counts=(len(added), len(removed), len(changed), len(both) - len(changed)),
        restated=sum(was.output == now.output and _figures(was) != _figures(now) for was, now in both),
        complexity=tuple((name, was.get(name), now.get(name)) for name in dict.fromkeys([*was, *now])),
        limits=_unequal(_limits(before), _limits(after)),
        terms=_renamed(before, after),
        parameters=_unequal(_parameters(before), _parameters(after)),
        same_scheme=before.record.scheme == after.record.scheme,
        is_same=before.record.digest == after.record.digest,
    )


def _head(rule: Rule) -> tuple[tuple[str, str], ...]:
    return tuple((part.feature, part.term) for part in rule.conditions)


def _most_used(rules: list[Rule]) -> tuple[Rule, ...]:
    return tuple(sorted(rules, key=lambda rule: -rule.support)[:MAX_SHOWN])


def _figures(rule: Rule) -> tuple[float, ...]:
    return tuple(round(float(value), 6) for value in (rule.weight, rule.support, rule.confidence))


def _variables(shelved: Shelved) -> list[Variable]:
    domain = shelved.model.domain
    return [*domain.features, *([domain.target] if domain.target is not None else [])]


def _limits(shelved: Shelved) -> dict[str, str]:
    return {
        each.name: ", ".join(each.categories)
        if each.categories
        else f"{each.low:.4g} to {each.high:.4g}{f' {each.unit}' * bool(each.unit)}"
        for each in _variables(shelved)
    }


def _renamed(before: Shelved, after: Shelved) -> tuple[tuple[str, str, str], ...]:
    old, new = ({each.name: ", ".join(each.terms or ()) for each in _variables(side)} for side in (before, after))
    return tuple(
        (name, old[name] or "standard", new[name] or "standard")
        for name in new
        # A variable that is new, or gone, stands among the limits.
        if name in old and old[name] != new[name]
    )


def _parameters(shelved: Shelved) -> dict[str, str]:
    record = shelved.record
    return dict(_flat("", {**record.document["parameters"], **record.parameters}))


def _flat(name: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _flat(f"{name}.{key}" if name else str(key), inner)
    else:
        yield name, "none" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


def _unequal(old: Mapping[str, str], new: Mapping[str, str]) -> tuple[tuple[str, str, str], ...]:
    names = dict.fromkeys([*old, *new])
    return tuple(
        (name, old.get(name, "–"), new.get(name, "–")) for name in names if old.get(name, "–") != new.get(name, "–")
    )
