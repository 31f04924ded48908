"""Models in words: rules, explanations, scores, differences; as lines and as JSON, the same for every scheme."""

from __future__ import annotations

import math
import shlex
import shutil
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import ValidationError

from glassfleet.data.domain import Domain, Variable
from glassfleet.explain import Counterfactual
from glassfleet.explain.difference import Difference, in_digits, name_of, rule_changes
from glassfleet.model.explanation import Activation, Explanation, chance_lines
from glassfleet.model.rules import STRONGEST, Condition, Rule
from schemas.errors import UsageError
from schemas.text import text_of

LONG = 6
"""An antecedent of more conditions is told in running text where words are to be few."""

UNKNOWN = "-"
"""Stands for a number that there is none of."""

OTHERWISE = "OTHERWISE"

RUNNERS_UP = 2
"""So many are told there."""


def rule_lines(rule: Rule, indent: str = "", *, short: bool = False, full: bool = False) -> list[str]:
    """Return a rule as lines: condition by condition, then what follows; a structure as its text.

    A consequent is told by its strongest terms, unless in `full`; if `short`, a long antecedent without the numbers of
    its terms.
    """
    if rule.fitness is not None:
        return wrapped(rule.output, indent)
    words = [_condition(part) for part in rule.conditions] or ["always"]
    lines = [f"{indent}  {'IF ' if number == 0 else 'AND'} {word}" for number, word in enumerate(words)]
    if short and len(words) > LONG:
        lines = wrapped(f"IF {rule.antecedent}", f"{indent}  ")
    lines = [] if rule.otherwise else lines
    return [f"{indent}rule {rule.index}  {rule.measures or UNKNOWN}", *lines, *_then(rule, f"{indent}  ", full=full)]


def _then(rule: Rule, indent: str, *, full: bool = False) -> list[str]:
    """Return what a rule says, each score on lines of its own."""
    first, *scores = rule.consequent.parts(None if full else STRONGEST)
    lines = wrapped(f"{OTHERWISE if rule.otherwise else 'THEN'} {first}", indent)
    return [*lines, *(line for score in scores for line in wrapped(score, f"{indent}     "))]


def explanation_lines(
    explanation: Explanation, domain: Domain, row: Sequence[float], keep: int | None = None
) -> list[str]:
    """Return an explanation as lines: forecast, rule in words, memberships, shares by input, notes, runners-up.

    With `keep`, only so many shares are told one by one, and a long antecedent in running text. Of a model that is no
    rules, no rule is told; its notes say what it is.
    """
    target = domain.target
    unit = f" {target.unit}" if target is not None and target.unit else ""
    sure = f", {explanation.interval_text}" if explanation.interval else ""
    values = {each.name: f"= {each.text(value)}" for each, value in zip(domain.features, row, strict=True)}
    if explanation.chances:
        chance = f"probability {explanation.chances[0].probability:.3f}"
        table = [f"  {line}" for line in chance_lines(explanation.chances)]
        head = f"{domain.target_name} = {explanation.prediction}, {chance}"
        return [head, *table, *_speaking(explanation), *_share_lines(explanation, unit, keep, values)]
    lines = [f"{domain.target_name} = {_number(explanation.prediction)}{unit}{sure}"]
    if explanation.fired.rule.measured:
        lines += _because(explanation, keep)
    if explanation.shares:
        lines += _share_lines(explanation, unit, keep, values)
    for note in explanation.other_notes:  # the line that begins with "because" has told the fallback
        lines += wrapped(f"note: {note}", "")
    if explanation.runners_up:
        lines.append("runners-up:")
        for other in explanation.runners_up if keep is None else explanation.runners_up[:RUNNERS_UP]:
            words = OTHERWISE if other.rule.otherwise else f"IF {other.rule.antecedent}"
            # A regression's consequents are long polynomials; a class is one word, and says which ones come next.
            then = "" if not isinstance(explanation.prediction, str) else " THEN " + other.rule.output
            lines += wrapped(f"rule {other.rule.index} ({_strength(other)}): {words}{then}", "  ")
    return lines


def _speaking(explanation: Explanation) -> list[str]:
    """Return the rules whose scores together gave the probabilities, each with its degree and the class of its rows."""
    fitting = (explanation.fired, *explanation.runners_up)
    lines = ["by the rules that fit the row, each to its degree:"]
    for each in fitting:
        rule, degrees = each.rule, zip(each.rule.conditions, each.memberships, strict=True)
        asked = " AND ".join(f"{part.text} ({degree:.2f})" for part, degree in degrees) or "always"
        whose = f"{100 * rule.confidence:.0f} % of its rows are {rule.consequent.value}"
        lines += wrapped(f"{each.strength:.3f}  rule {rule.index}: IF {asked}; {whose}", "  ")
    rest = 1.0 - math.fsum(each.strength for each in fitting)
    return [*lines, *([f"  {rest:.3f}  other rules together"] * (rest >= 5e-4))]


def _because(explanation: Explanation, keep: int | None) -> list[str]:
    """Return the rule that answered, and why it did."""
    rule = explanation.fired.rule
    if rule.otherwise:
        return [f"because no other rule fires, by rule {rule.index}:", *_then(rule, "  ")]
    if explanation.fallback:
        lines = [f"because no rule fires for this row, by rule {rule.index}, which has the highest weight:"]
    else:
        lines = [f"because of rule {rule.index} ({_strength(explanation.fired)}):"]
    degrees = list(zip(rule.conditions, explanation.fired.memberships, strict=False))
    if keep is not None and len(degrees) > LONG:
        joined = " AND ".join(f"{part.text} ({degree:.2f})" for part, degree in degrees)
        lines += wrapped(f"IF {joined}", "  ")
    else:
        for number, (part, degree) in enumerate(degrees):
            lines.append(f"  {'IF ' if number == 0 else 'AND'} {part.text}  (to the degree {degree:.2f})")
    return [*lines, *_then(rule, "  ")]


def _share_lines(explanation: Explanation, unit: str, keep: int | None, values: dict[str, str]) -> list[str]:
    """Return base, shares, and what they add up to; `values` are told where there is nothing to compare with."""
    if explanation.measure:
        # Not the forecast itself, so not in its unit: a number of its own for the class.
        unit, total = "", math.fsum((explanation.base, *explanation.shares.values()))
        what = f"the {explanation.measure}"
    else:
        total, what = float(explanation.prediction), "the forecast"
    head = f"shares of the inputs (with the base they add up to {what}):"
    ranked = sorted(explanation.shares.items(), key=lambda item: -abs(item[1]))
    moved = [(name, share) for name, share in ranked if share]
    # One input alone is named rather than called "the others".
    shown = moved if keep is None or len(moved) <= keep + 1 else moved[:keep]
    if explanation.chances:
        first, second, *_ = explanation.chances
        head = f"what speaks for {first.label} (+) and for {second.label} (-), together {what}:"
        shown = sorted(shown, key=lambda item: -item[1])
    lines = wrapped(head, "")
    lines += wrapped(f"{explanation.base:+.4f}{unit}  base: {explanation.base_text}", "  ")
    texts = explanation.differences if explanation.reference else values
    lines.extend(f"  {share:+.4f}{unit}  {name} {texts.get(name, '')}".rstrip() for name, share in shown)
    if len(shown) < len(moved):
        lines.append(f"  {sum(share for _, share in moved[len(shown) :]):+.4f}{unit}  the others together")
    return [*lines, f"  {total:+.4f}{unit}  together"]


def counterfactual_lines(result: Counterfactual, domain: Domain, *, is_asked: bool) -> list[str]:
    """Return the way to another outcome as lines, and other ways.

    Unless it `is_asked` for that outcome, they say which one was sought in its place, and how to ask for one.
    """
    lines = [f"for another outcome ({result.goal}):"]
    if not is_asked:
        other = next((name for name in domain.classes if name != result.prediction), "other")
        lines += wrapped(
            f"(none was named, so any other class was looked for; --goal {shlex.quote(other)} asks for one)"
            if domain.target is None
            else "(none was named, so a move by a tenth of the target's range was looked for, up or down within it; "
            "--goal +10%, -10%, '>VALUE' or '<VALUE' asks for one way)",
            "  ",
        )
    if result.already:
        return [*lines, "  nothing is to be changed: the row reaches it as it is"]
    if result.best is None:
        lines.append("  no change of the inputs within their ranges was found")
        if result.closest is not None:
            lines.append(f"  the nearest forecast that was seen is {result.closest:.6g}")
        return lines
    unit = f" {result.unit}" if result.unit else ""
    for number, way in enumerate((result.best, *result.alternatives)):
        words = " and ".join(
            f"{part.feature} = {part.after_text} instead of {part.before_text}" for part in way.changes
        )
        answer = way.prediction if isinstance(way.prediction, str) else f"{_number(way.prediction)}{unit}"
        lines += wrapped(f"{'or ' if number else ''}{words}: {result.target} = {answer}", "  ")
    return lines


def input_words(variable: Variable, levels: Sequence[float] = ()) -> str:
    """Return which values an input has: limits, or texts in the order of their `levels`, the first of unknown ones."""
    if not variable.categories:
        return f"{variable.low:.6g} to {variable.high:.6g} {variable.unit}".rstrip()
    if not levels:
        return ", ".join(variable.categories)
    by_level = sorted(zip(levels[1:], variable.categories, strict=True))
    return ", ".join([*(f"{text} {level:.3g}" for level, text in by_level), f"any other {levels[0]:.3g}"])


def reworded(domain: Domain, given: Any, where: str) -> Domain:
    """Return the domain with the terms and units of a file: a domain document, or ``{column: {unit, terms}}``.

    Raises
    ------
    UsageError
        The file names no such column, or has other members.
    """
    if not isinstance(given, dict):
        raise UsageError(f"{where}: write a JSON object by column")
    if "features" in given:
        result = [*given["features"], *([given["target"]] if given.get("target") else [])]
        given = {part.get("name"): part for part in result if isinstance(part, dict)}
    known = {variable.name for variable in domain.variables}
    unknown = sorted(str(name) for name in set(given) - known)
    if unknown:
        raise UsageError(f"{where}: the model has no variable {unknown[0]!r}; it has: {', '.join(sorted(known))}")

    def spoken(variable: Variable) -> Variable:
        part = given.get(variable.name, {})
        if not isinstance(part, dict):
            raise UsageError(f'{where}: {variable.name}: write {{"unit": "dB", "terms": ["poor", "good"]}}')
        words = {key: part[key] for key in ("unit", "terms") if key in part}
        try:
            return Variable.model_validate({**variable.model_dump(), **words})
        except ValidationError as fault:
            raise UsageError(f"{where}: {variable.name}: {text_of(fault.errors(include_url=False)[0])}") from fault

    return domain.reworded(spoken)


def _strength(item: Activation) -> str:
    """Say how strongly a rule fired, and what it was chosen by when that is not the strength itself."""
    words = f"strength {item.strength:.3f}"
    if item.normalised_strength is None:
        return words
    return f"{words}, {item.normalised_strength:.3g} times its mean"


def wrapped(text: str, indent: str) -> list[str]:
    """Return a text in lines as wide as the terminal, the first set in by `indent`, the others a little further."""
    # Two columns less, as a report indents what it quotes.
    width = max(60, min(116, shutil.get_terminal_size((118, 24)).columns - 2))
    return textwrap.wrap(text, width, initial_indent=indent, subsequent_indent=f"{indent}     ", break_long_words=False)


def _condition(part: Condition) -> str:
    if part.crisp or part.in_numbers:  # "at most 0.03 s" has said its numbers already
        return part.text
    return f"{part.text} ({_where(part)})"


def _where(part: Condition) -> str:
    unit = f" {part.unit}" if part.unit else ""
    if part.low == part.high:
        return f"{part.low:.4g}{unit}"
    return f"{part.low:.4g} to {part.high:.4g}{unit}, most at {part.peak:.4g}{unit}"


def _number(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.4f}"


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
