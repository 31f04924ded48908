"""What is different between two versions of a model."""

from __future__ import annotations

from dataclasses import dataclass

from coordinator.dashboard.library import Shelved
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
    complexity : tuple of (str, number or None, number or None)
        Measure, before, after.
    limits : tuple of (str, str, str)
        Variable, its limits before and after, where they differ.
    same_scheme : bool
    is_same : bool
        The digests are equal.
    """

    added: tuple[Rule, ...]
    removed: tuple[Rule, ...]
    changed: tuple[tuple[Rule, Rule], ...]
    counts: tuple[int, int, int, int]
    complexity: tuple[tuple[str, float | None, float | None], ...]
    limits: tuple[tuple[str, str, str], ...]
    same_scheme: bool
    is_same: bool


def difference(before: Shelved, after: Shelved) -> Difference:
    """Return what is different."""
    # Sets that were only renamed are the same sets: the earlier version is read in the later one's terms.
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
        complexity=tuple((name, was.get(name), now.get(name)) for name in dict.fromkeys([*was, *now])),
        limits=_limits(before, after),
        same_scheme=before.record.scheme == after.record.scheme,
        is_same=before.record.digest == after.record.digest,
    )


def _head(rule: Rule) -> tuple[tuple[str, str], ...]:
    return tuple((part.feature, part.term) for part in rule.conditions)


def _most_used(rules: list[Rule]) -> tuple[Rule, ...]:
    return tuple(sorted(rules, key=lambda rule: -rule.support)[:MAX_SHOWN])


def _limits(before: Shelved, after: Shelved) -> tuple[tuple[str, str, str], ...]:
    found: list[dict[str, str]] = []
    for each in (before, after):
        domain = each.model.domain
        variables = [*domain.features, *([domain.target] if domain.target is not None else [])]
        found.append(
            {item.name: f"{item.low:.4g} to {item.high:.4g}{f' {item.unit}' * bool(item.unit)}" for item in variables}
        )
    old, new = found
    names = dict.fromkeys([*old, *new])
    return tuple(
        (name, old.get(name, "–"), new.get(name, "–")) for name in names if old.get(name, "–") != new.get(name, "–")
    )
