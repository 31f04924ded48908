"""What is different between two versions of a model.

Sets that were only renamed are the same sets: the earlier version is read in the later one's terms, and the renaming is
told once, with the variable.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from coordinator.http.dashboard.library import Shelved
from glassfleet.data.domain import Variable
from glassfleet.reword import in_terms_of
from glassfleet.rules import Rule

MAX_SHOWN = 40

_Write = Callable[[float], str]
"""How a number is written."""


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
        Parameter of the scheme or, after ``run:``, of the run, before and after, where they differ.
    structures : tuple of int or None
        Of two populations: how many structures are new, gone, the same. None: they are no populations.
    has_rules : bool
        Either has rules; networks and populations have none.
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
    structures: tuple[int, int, int] | None
    has_rules: bool
    same_scheme: bool
    is_same: bool


def difference(before: Shelved, after: Shelved) -> Difference:
    """Return what is different."""
    earlier = in_terms_of(before.model, after.model.domain).rules() if before.rules else ()
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
        limits=_unequal(before, after, _limits),
        terms=_renamed(before, after),
        parameters=(
            *_unequal(before, after, _of_scheme),
            *((f"run: {name}", was, now) for name, was, now in _unequal(before, after, _of_run)),
        ),
        structures=_structures(before, after),
        has_rules=bool(before.rules or after.rules),
        same_scheme=before.record.scheme == after.record.scheme,
        is_same=before.record.digest == after.record.digest,
    )


def _structures(before: Shelved, after: Shelved) -> tuple[int, int, int] | None:
    if not before.structures or not after.structures:
        return None
    old, new = (
        Counter(tuple(side.model.domain.names[gene] if gene >= 0 else "" for gene in each.genes) for each in found)
        for side, found in ((before, before.structures), (after, after.structures))
    )
    return (new - old).total(), (old - new).total(), (new & old).total()


def _head(rule: Rule) -> tuple[tuple[str, str], ...]:
    return tuple((part.feature, part.term) for part in rule.conditions)


def _most_used(rules: list[Rule]) -> tuple[Rule, ...]:
    return tuple(sorted(rules, key=lambda rule: -rule.support)[:MAX_SHOWN])


def _figures(rule: Rule) -> tuple[float, ...]:
    return tuple(round(float(value), 6) for value in (rule.weight, rule.support, rule.confidence))


def _variables(shelved: Shelved) -> list[Variable]:
    domain = shelved.model.domain
    return [*domain.features, *([domain.target] if domain.target is not None else [])]


def _limits(shelved: Shelved, write: _Write) -> dict[str, str]:
    return {
        each.name: ", ".join(each.categories)
        if each.categories
        else f"{write(each.low)} to {write(each.high)}{f' {each.unit}' * bool(each.unit)}"
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


def _of_scheme(shelved: Shelved, write: _Write) -> dict[str, str]:
    return dict(_flat("", shelved.record.document["parameters"], write))


def _of_run(shelved: Shelved, write: _Write) -> dict[str, str]:
    return dict(_flat("", shelved.record.parameters, write))


def _flat(name: str, value: Any, write: _Write) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _flat(f"{name}.{key}" if name else str(key), inner, write)
    else:
        yield name, "none" if value is None else write(value) if isinstance(value, float) else str(value)


def _short(value: float) -> str:
    return f"{value:.6g}"


def _exact(value: float) -> str:
    return repr(value).removesuffix(".0")


def _unequal(
    before: Shelved, after: Shelved, read: Callable[[Shelved, _Write], dict[str, str]]
) -> tuple[tuple[str, str, str], ...]:
    """Return what differs; in all digits where the short texts are equal."""
    old, new, old_exact, new_exact = (read(side, write) for write in (_short, _exact) for side in (before, after))
    found = []
    for name in dict.fromkeys([*old, *new]):
        exact = old_exact.get(name, "–"), new_exact.get(name, "–")
        short = old.get(name, "–"), new.get(name, "–")
        if exact[0] != exact[1]:
            found.append((name, *(short if short[0] != short[1] else exact)))
    return tuple(found)
