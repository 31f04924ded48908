"""What differs between two versions of a model: rules matched by their antecedents, in words and numbers.

Sets that were only renamed are the same sets: the older model is read in the newer one's terms, and the renaming is
told once, with the domain.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from console.model.words import wrapped
from glassfleet.reword import in_terms_of
from glassfleet.rules import Condition, Rule
from glassfleet.scheme import Model
from schemas.record import ModelRecord

_NAMED = {"digest", "version", "run", "scheme", "created", "software"}
_UNTOLD = {"digest", "version", "sums_digest"}
_OF_VARIABLE = {"low", "high", "unit", "terms"}

ABSENT = (None, "absent")
"""What stands for a map that is not there: of a whole entry, and of a key."""

_CHARS = 300


def difference(old: tuple[ModelRecord, Model], new: tuple[ModelRecord, Model]) -> dict[str, Any]:
    """Return what differs, as JSON values.

    Returns
    -------
    dict
        ``same``: whether the digests are equal; ``record``, ``parameters``, ``domain``: name -> [old, new];
        ``cohort``: who joined and left; ``rules``: added, gone and changed ones, and how many are the same; those of
        the older model in the newer one's terms.
    """
    (a, first), (b, second) = old, new
    first = in_terms_of(first, second.domain)
    return {
        "old": _name(a),
        "new": _name(b),
        "same": a.digest == b.digest,
        "record": {
            key: [getattr(a, key), getattr(b, key)] for key in sorted(_NAMED) if getattr(a, key) != getattr(b, key)
        },
        "parameters": _changed(a.document["parameters"], b.document["parameters"]),
        "training": _changed({**a.parameters, **a.training.model_dump()}, {**b.parameters, **b.training.model_dump()}),
        "domain": _domains(a.document["domain"], b.document["domain"]),
        "cohort": {"joined": sorted({*b.cohort} - {*a.cohort}), "left": sorted({*a.cohort} - {*b.cohort})},
        "size": _changed(dict(first.complexity()), dict(second.complexity())),
        "rules": _rules(first.rules(), second.rules()),
    }


def difference_lines(told: dict[str, Any]) -> list[str]:
    """Return a difference as lines of text, none wider than the terminal."""
    return [line for text in _texts(told) for line in _fitted(text)]


def _texts(told: dict[str, Any]) -> Iterator[str]:
    yield f"{told['old']} -> {told['new']}"
    if told["same"]:
        yield "the same model: their digests are equal"
    for part in ("record", "parameters", "training", "size"):
        for name, (was, now) in told[part].items():
            # They stand in the first line, and a digest of 64 digits says nothing to a reader.
            if name not in _UNTOLD:
                for key, before, after in _leaves(name, was, now):
                    yield f"{part} {key}: {before} -> {after}"
    for name, (was, now) in told["domain"].items():
        yield from _of_variable(name, was, now)
    for what in ("joined", "left"):
        if told["cohort"][what]:
            yield f"cohort, {what}: {', '.join(told['cohort'][what])}"
    yield from _of_rules(told["rules"])


def _of_rules(rules: dict[str, Any]) -> Iterator[str]:
    yield (
        f"rules: {len(rules['added'])} added, {len(rules['gone'])} gone, {len(rules['changed'])} changed, "
        f"{rules['same']} the same"
    )
    for sign, key in (("+", "added"), ("-", "gone")):
        for rule in rules[key]:
            yield f"{sign} IF {rule['if']}"
            yield f"    THEN {rule['then']}  (support {rule['support']:.3f}, weight {rule['weight']:.3f})"
    for rule in rules["changed"]:
        yield f"~ IF {rule['if']}"
        for name, (was, now) in rule["changes"].items():
            yield f"    {name}: {' -> '.join(_pair(was, now))}"


def _of_variable(name: str, was: Any, now: Any) -> Iterator[str]:
    """Yield what differs of a variable: limits and unit together, its terms, then all else that a domain holds."""
    if _has_limits(was) or _has_limits(now):
        before, after = _limits(was), _limits(now)
        if before == after:
            before, after = _limits(was, exact=True), _limits(now, exact=True)
        if before != after:
            yield f"domain {name}: {before} -> {after}"
        if not (_has_limits(was) and _has_limits(now)):
            return
        if was.get("terms") != now.get("terms"):
            yield f"domain {name}: terms {_terms(was)} -> {_terms(now)}"
        was, now = ({key: part for key, part in each.items() if key not in _OF_VARIABLE} for each in (was, now))
    for key, before, after in _leaves(name, was, now):
        yield f"domain {key}: {before} -> {after}"


def _leaves(name: str, was: Any, now: Any) -> list[tuple[str, str, str]]:
    """Return what differs, maps key by key and lists of named maps by name and order: path, value before and after."""
    if was == now:
        return []
    left, right = _as_map(was), _as_map(now)
    found = []
    # A map that is on one side only is told key by key as well.
    if (left is not None or right is not None) and all(side in ABSENT for side in (was, now) if _as_map(side) is None):
        left, right = left or {}, right or {}
        for key in dict.fromkeys([*left, *right]):
            found += _leaves(f"{name}.{key}", left.get(key, ABSENT[1]), right.get(key, ABSENT[1]))
        if isinstance(was, list) and isinstance(now, list):
            orders = ([key for key in left if key in right], [key for key in right if key in left])
            if orders[0] != orders[1]:
                found.append((f"{name}, order", *_pair(*(", ".join(order) for order in orders))))
    return found or [(name, *_pair(was, now))]


def _as_map(value: Any) -> dict[str, Any] | None:
    """Return a map, or a list of maps that have names, each its own, as one; None when it is neither."""
    if isinstance(value, dict):
        return value
    if not (isinstance(value, list) and value and all(isinstance(part, dict) and "name" in part for part in value)):
        return None
    named = {str(part["name"]): part for part in value}
    return named if len(named) == len(value) else None


def _rules(old: Sequence[Rule], new: Sequence[Rule]) -> dict[str, Any]:
    before, after = _by_antecedent(old), _by_antecedent(new)
    added, gone, changed, same = [], [], [], 0
    for key in dict.fromkeys([*before, *after]):
        # Several rules may have one antecedent (a class each): equal ones first, then in their order.
        left, right = list(before.get(key, [])), list(after.get(key, []))
        for rule in list(left):
            twin = next((other for other in right if _told(other) == _told(rule)), None)
            if twin is not None:
                left.remove(rule)
                right.remove(twin)
                same += 1
        for one, other in zip(left, right, strict=False):
            changed.append({"if": _words(other), "changes": _changed(_told(one), _told(other))})
        gone += [{"if": _words(rule), **_told(rule)} for rule in left[len(right) :]]
        added += [{"if": _words(rule), **_told(rule)} for rule in right[len(left) :]]
    ranked = sorted(changed, key=lambda rule: str(rule["if"]))
    return {
        "added": sorted(added, key=lambda rule: -rule["support"]),
        "gone": sorted(gone, key=lambda rule: -rule["support"]),
        "changed": ranked,
        "same": same,
    }


def _by_antecedent(rules: Sequence[Rule]) -> dict[frozenset[tuple[str, str]], list[Rule]]:
    found: dict[frozenset[tuple[str, str]], list[Rule]] = defaultdict(list)
    for rule in rules:
        found[frozenset(_key(part) for part in rule.conditions)].append(rule)
    return found


def _key(part: Condition) -> tuple[str, str]:
    return part.feature, part.term


def _words(rule: Rule) -> str:
    return " AND ".join(f"{part.feature} is {part.term}" for part in rule.conditions) or "always"


def _told(rule: Rule) -> dict[str, Any]:
    return {
        "then": rule.output,
        "weight": round(float(rule.weight), 6),
        "support": round(float(rule.support), 6),
        "confidence": round(float(rule.confidence), 6),
    }


def _domains(old: dict[str, Any], new: dict[str, Any]) -> dict[str, list[Any]]:
    return _changed(_variables(old), _variables(new))


def _variables(domain: dict[str, Any]) -> dict[str, Any]:
    target = domain.get("target")
    found = {str(part["name"]): part for part in domain.get("features", [])}
    if isinstance(target, dict):
        found[f"{target['name']} (target)"] = target
    rest = {key: value for key, value in domain.items() if key not in ("features", "target")}
    return {**found, **rest}


def _changed(old: dict[str, Any], new: dict[str, Any]) -> dict[str, list[Any]]:
    names = dict.fromkeys([*old, *new])
    return {name: [old.get(name), new.get(name)] for name in names if old.get(name) != new.get(name)}


def _has_limits(value: Any) -> bool:
    return isinstance(value, dict) and {"low", "high"} <= set(value)


def _limits(value: Any, *, exact: bool = False) -> str:
    if _has_limits(value):
        unit = f" {value['unit']}" if value.get("unit") else ""
        low, high = (_short(float(value[edge]), exact=exact) for edge in ("low", "high"))
        return f"{low} to {high}{unit}"
    return "absent" if value is None else _short(value, exact=exact)


def _terms(variable: dict[str, Any]) -> str:
    return ", ".join(variable.get("terms") or ()) or "standard"


def _pair(was: Any, now: Any) -> tuple[str, str]:
    """Return two values that differ as texts that differ: short if that will do, else to their last digit."""
    before, after = _short(was), _short(now)
    return (before, after) if before != after else (_short(was, exact=True), _short(now, exact=True))


def _short(value: Any, *, exact: bool = False) -> str:
    if isinstance(value, float):
        return repr(value) if exact else f"{value:.6g}"
    if isinstance(value, list):
        return f"[{', '.join(_short(part, exact=exact) for part in value)}]"
    if exact and isinstance(value, str):
        return repr(value)
    text = "none" if value is None else str(value)
    return text if exact or len(text) <= _CHARS else f"{text[: _CHARS - 3]}..."


def _fitted(text: str) -> list[str]:
    """Return a text in lines; those after the first are set in, so that each entry is seen to begin."""
    indent = " " * (len(text) - len(text.lstrip()))
    return wrapped(text.strip(), indent)


def _name(record: ModelRecord) -> str:
    return f"{record.name} v{record.version} ({record.digest[:12]})"
