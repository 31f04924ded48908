"""The difference of two models as lines of text."""

from __future__ import annotations

from collections.abc import Iterator

from console.operator.words import wrapped
from glassfleet.explain.difference import Difference, in_digits, name_of, rule_changes
from glassfleet.model.rules import Rule


def difference_lines(diff: Difference) -> list[str]:
    """Return a difference as lines of text, none wider than the terminal."""
    return [line for text in _texts(diff) for line in _fitted(text)]


def _texts(diff: Difference) -> Iterator[str]:
    yield f"{name_of(diff.old)} -> {name_of(diff.new)}"
    if diff.is_same:
        yield "the same model: their digests are equal"
    for change in diff.in_words():
        before = f"terms {change.before}" if change.part == "terms" else change.before
        part = "domain" if change.part in ("limits", "terms") else change.part
        yield f"{part} {change.name}: {before} -> {change.after}"
    for what, vehicles in (("joined", diff.joined), ("left", diff.left)):
        if vehicles:
            yield f"cohort, {what}: {', '.join(vehicles)}"
    yield f"rules: {len(diff.added)} added, {len(diff.gone)} gone, {len(diff.moved)} changed, {diff.kept} the same"
    for sign, rules in (("+", diff.added), ("-", diff.gone)):
        for rule in rules:
            yield f"{sign} {_head(rule)}"
            if rule.measured:
                yield f"    THEN {rule.output}  (support {rule.support:.3f}, weight {rule.weight:.3f})"
    for was, now in diff.moved:
        yield f"~ {_head(now)}"
        for name, pair in rule_changes(was, now).items():
            yield f"    {name}: {' -> '.join(in_digits(*pair))}"


def _head(rule: Rule) -> str:
    if not rule.measured:  # a structure, or what a network says
        return rule.output
    return "OTHERWISE" if rule.otherwise else f"IF {rule.antecedent}"


def _fitted(text: str) -> list[str]:
    """Return a text in lines; those after the first are set in, so that each entry is seen to begin."""
    indent = " " * (len(text) - len(text.lstrip()))
    return wrapped(text.strip(), indent)
