"""The coordinator's half: merges the agents' rules, weighs them with summed strengths, settles conflicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassfleet.contract.messages import SUPPORT, Contribution, Done, Next, Task
from glassfleet.contract.sums import Memory, Sums, add_up, ask, count_rows, with_digest
from glassfleet.data.domain import Domain
from glassfleet.private.support import decided, holds, noted
from glassfleet.private.union import SIZES, peel
from glassfleet.schemes.frbc.matching import pack, sort_rules, unpack, word_count
from glassfleet.schemes.frbc.messages import (
    ANTECEDENT_SUMS,
    RULE_SUMS,
    Candidates,
    FrbcQuestion,
    Kind,
    rules_of,
)
from glassfleet.schemes.frbc.model import FuzzyRuleClassifier, always, weigh
from glassfleet.schemes.frbc.params import MAX_CELLS, MAX_RULES, FrbcParameters
from schemas.codec import Value
from schemas.errors import RunFailedError


def first(parameters: FrbcParameters, domain: Domain, seed: int) -> Next:  # noqa: ARG001 - nothing is random
    """Ask for rules."""
    if parameters.support:
        classes = np.arange(len(domain.classes), dtype=np.int16)[:, None]
        return ask(_ask_prefixes(FrbcQuestion("prefixes", parameters, domain), classes), {})
    by_sum = parameters.union == "sum"
    return ask(FrbcQuestion("union" if by_sum else "rules", parameters, domain, cells=SIZES[0] if by_sum else 0), {})


def step(question: FrbcQuestion, memory: Memory, contributions: Sequence[Contribution]) -> Next | Done:
    """Return the next question, or the model."""
    parameters = question.parameters
    rows = count_rows(contributions, parameters.max_rows)
    if question.kind == SUPPORT:
        return _supported(question, memory, contributions, rows)
    if question.rules is not None:
        total = add_up(contributions)
        per_rule = dict(total) | {name: total[name][question.rules.antecedent_of] for name in ANTECEDENT_SUMS}
        return _finish(question, question.rules, per_rule, rows, with_digest(memory, rows, total))
    counts = add_up(contributions)
    if question.kind == "union":
        rules, per_rule = _peeled(question, counts.pop("table")), {}
        if rules is None:
            return ask(replace(question, cells=_next_size(question.cells)), {})
    elif question.kind == "prefixes":
        longer, per_rule = _follow_prefixes(question, counts.pop("rows")), {}
        if len(longer) and longer.shape[1] <= question.n_features:
            return ask(_ask_prefixes(question, longer), {})
        rules = _rules_found(question, longer) if len(longer) else _no_rules(question)
    else:
        rules, per_rule = _merge(question, contributions)
    merged = {**counts, **per_rule, **rules.to_value()}
    counted = {"class_rows": counts["class_rows"], "unknown_rows": int(counts["unknown_rows"][0])}
    memory = with_digest(counted, rows, merged)
    if parameters.weights == "owners" or rules.size == 0:
        return _finish(question, rules, per_rule, rows, memory)
    if rules.first.size * question.n_classes > MAX_CELLS:
        raise RunFailedError(
            f"{rules.first.size} antecedents of {question.n_classes} classes are more than {MAX_CELLS} sums; use "
            "fewer sets (n_sets) or fewer inputs"
        )
    kind: Kind = "support" if parameters.support else "strengths"
    return ask(FrbcQuestion(kind, parameters, question.domain, rules), memory)


def progress_of(question: FrbcQuestion, memory: Memory) -> dict[str, Value]:  # noqa: ARG001 - the question has it all
    """Say how many candidate rules there are, in all and per class."""
    rules = question.rules
    if rules is None:
        return {"rules": 0, "antecedents": 0, "lines": ["asking the agents for their rules"]}
    per_class = np.bincount(rules.classes, minlength=question.n_classes)
    lines = [f"{question.domain.classes[i]}: {per_class[i]} rules" for i in range(min(question.n_classes, 200))]
    return {"rules": rules.size, "antecedents": int(rules.first.size), "lines": lines}


def _supported(
    question: FrbcQuestion, memory: Mapping[str, Any], contributions: Sequence[Contribution], rows: int
) -> Next | Done:
    """Ask for the strengths of the rules that rest on enough rows."""
    assert question.rules is not None
    which = _decide(question, contributions)
    rules, memory = _kept(question.rules, which), {**memory, "withheld": [noted(which)]}
    if rules.size == 0:
        return _finish(question, rules, {}, rows, memory)
    return ask(FrbcQuestion("strengths", question.parameters, question.domain, rules), memory)


def _no_rules(question: FrbcQuestion) -> Candidates:
    words = np.zeros((0, word_count(question.n_features, question.parameters.n_sets)), dtype=np.int64)
    return Candidates(words, np.zeros(0, dtype=np.int16), np.zeros((0, question.n_features), dtype=np.int8))


def _peeled(question: FrbcQuestion, table: NDArray[np.int64]) -> Candidates | None:
    """Return the union of the agents' rules from the sum of their tables; None where the table is too small."""
    peeled = peel(table)
    if peeled is None:
        return None
    try:
        words, classes = rules_of(peeled[0])
        order, _ = sort_rules(words, classes)
        value = {"antecedents": words[order], "classes": classes[order]}
        return Candidates.from_value(value, question.n_features, question.parameters.n_sets, question.n_classes)
    except ValueError as fault:
        raise RunFailedError(f"the sum of the agents' tables holds what is no rule: {fault}") from fault


def _next_size(cells: int) -> int:
    larger = [size for size in SIZES if size > cells]
    if not larger:
        raise RunFailedError("the agents found more rules than a table holds; use fewer sets (n_sets) or fewer inputs")
    return larger[0]


def _merge(question: FrbcQuestion, contributions: Sequence[Contribution]) -> tuple[Candidates, Sums]:
    """Return the union of the agents' rules and, with owners' weights, Num, Den and rows added per rule (Eq. 5)."""
    parameters = question.parameters
    words = np.concatenate([contribution.values["antecedents"] for contribution in contributions])
    classes = np.concatenate([contribution.values["classes"] for contribution in contributions])
    order, new = sort_rules(words, classes)
    first = np.flatnonzero(new)
    if first.size > MAX_RULES:
        raise RunFailedError(
            f"the agents found {first.size} rules, at most {MAX_RULES} are possible; use fewer sets (n_sets) or "
            "fewer inputs"
        )
    words, classes = words[order[first]], classes[order[first]]
    rules = Candidates(words, classes, unpack(words, question.n_features, parameters.n_sets))
    if parameters.weights == "pooled":
        return rules, {}
    sums: Sums = {}
    for name in (*RULE_SUMS, *ANTECEDENT_SUMS):
        parts = []
        for contribution in contributions:
            values = contribution.values
            own = Candidates(values["antecedents"], values["classes"], np.empty((0, 0), dtype=np.int8))
            parts.append(values[name][own.antecedent_of] if name in ANTECEDENT_SUMS else values[name])
        joined = np.concatenate(parts)[order]
        sums[name] = np.add.reduceat(joined, first) if first.size else joined
    return rules, sums


def _finish(
    question: FrbcQuestion,
    rules: Candidates,
    sums: Mapping[str, NDArray[np.int64]],
    rows: int,
    memory: Mapping[str, Any],
) -> Done:
    """Weigh the rules, settle conflicts, reduce, and build the model."""
    parameters = question.parameters
    learned, conflicts = (weigh(rules, sums, rows, parameters)) if rules.size else (None, 0)
    kept = None if learned is None else learned.reduced(parameters.max_rules, parameters.min_support)
    base = kept if kept is not None and kept.size else always(memory["class_rows"])
    model = FuzzyRuleClassifier(parameters, question.domain, base)
    summary = {
        "sums_digest": memory["sums_digest"],
        "rows": rows,
        "unknown_rows": memory["unknown_rows"],
        "candidates": rules.size,
        "conflicts": conflicts,
        "reduced": (learned.size - kept.size) if learned is not None and kept is not None else 0,
        **model.complexity(),
        **({"withheld": memory["withheld"]} if "withheld" in memory else {}),
    }
    return Done(model, summary)


# --- runs with `support`: rules that enough rows found, and of which no sum rests on few rows -------------------------
#
# A table of all rules would tell the ones that a single row found. So rules are found input by input: vehicles count
# their rows by class and by the sets of the first inputs; what fewer than `support` rows of the fleet share is not
# followed further. Then vehicles say for how many rows each rule fires: a row has a strength in each cell next to its
# own, so that in a group few rows may fire where none found the rule.


_FEW_COUNTS = 1 << 13
"""Several inputs are asked about at once while no more counts are asked for."""


def _ask_prefixes(question: FrbcQuestion, prefixes: NDArray[np.int16]) -> FrbcQuestion:
    """Return the question how many rows share each of `prefixes`, shape (s, 1 + i), and the sets of the next inputs."""
    n_sets, left = question.parameters.n_sets, question.n_features - (prefixes.shape[1] - 1)
    if len(prefixes) * n_sets > MAX_CELLS:
        raise RunFailedError(f"{len(prefixes)} beginnings of rules are too many; use fewer sets (n_sets) or inputs")
    more = 1
    while more < left and len(prefixes) * n_sets ** (more + 1) <= _FEW_COUNTS:
        more += 1
    return FrbcQuestion("prefixes", question.parameters, question.domain, prefixes=prefixes, more=more)


def _follow_prefixes(question: FrbcQuestion, rows: NDArray[np.int64]) -> NDArray[np.int16]:
    """Return the longer prefixes that enough rows share, shape (s, 1 + i + more); `rows` from all vehicles."""
    assert question.prefixes is not None
    n_sets, more = question.parameters.n_sets, question.more
    kept = np.flatnonzero(rows >= question.parameters.support)
    digits = kept[:, None] // n_sets ** np.arange(more)[::-1] % n_sets
    return np.column_stack([question.prefixes[kept // n_sets**more], digits]).astype(np.int16)


def _rules_found(question: FrbcQuestion, prefixes: NDArray[np.int16]) -> Candidates:
    """Return the rules that prefixes of all inputs, shape (r, 1 + F), are."""
    antecedents, classes = prefixes[:, 1:].astype(np.int8), prefixes[:, 0].copy()
    words = pack(antecedents, question.parameters.n_sets)
    order, _ = sort_rules(words, classes)
    return Candidates(words[order], classes[order], antecedents[order])


def _decide(question: FrbcQuestion, contributions: Sequence[Contribution]) -> NDArray[np.bool_]:
    """Return which rules may be asked about, shape (r,): of an antecedent all or none."""
    rules = question.rules
    assert rules is not None

    def from_rows(parts: list[NDArray[np.int64]]) -> NDArray[np.bool_]:
        enough = holds(parts, question.parameters.support)
        fires = enough[rules.size :]
        np.logical_and.at(fires, rules.antecedent_of, enough[: rules.size])
        return fires[rules.antecedent_of]

    return decided(contributions, _places, question.to_task(), from_rows)


def _kept(rules: Candidates, which: NDArray[np.bool_]) -> Candidates:
    """Return some of the rules."""
    return Candidates(rules.words[which], rules.classes[which], rules.antecedents[which])


def _places(task: Task) -> list[Any]:
    """Return what each line of an answer is about; that of the other classes says which classes have rules."""
    rules = FrbcQuestion.from_task(task).rules
    assert rules is not None
    lines, classes = [tuple(line) for line in rules.antecedents.tolist()], rules.classes.tolist()
    with_rules: dict[tuple[int, ...], list[int]] = {}
    for line, one in zip(lines, classes, strict=True):
        with_rules.setdefault(line, []).append(one)
    return [*zip(lines, classes, strict=True), *((line, tuple(some)) for line, some in with_rules.items())]
