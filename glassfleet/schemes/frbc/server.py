"""The coordinator's half: merges the agents' rules, weighs them with summed strengths, settles conflicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassfleet.contract.messages import SUPPORT, Contribution, Done, Next
from glassfleet.contract.sums import Memory, Sums, add_up, ask, count_rows, with_digest
from glassfleet.data.domain import Domain
from glassfleet.private.support import noted
from glassfleet.private.union import SIZES, peel
from glassfleet.schemes.frbc.matching import sort_rules, unpack, word_count
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
from glassfleet.schemes.frbc.support import ask_prefixes, decide, follow_prefixes, kept, rules_found
from schemas.codec import Value
from schemas.errors import RunFailedError


def first(parameters: FrbcParameters, domain: Domain, seed: int) -> Next:  # noqa: ARG001 - nothing is random
    """Ask for rules."""
    if parameters.support:
        classes = np.arange(len(domain.classes), dtype=np.int16)[:, None]
        return ask(ask_prefixes(FrbcQuestion("prefixes", parameters, domain), classes), {})
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
        longer, per_rule = follow_prefixes(question, counts.pop("rows")), {}
        if len(longer) and longer.shape[1] <= question.n_features:
            return ask(ask_prefixes(question, longer), {})
        rules = rules_found(question, longer) if len(longer) else _no_rules(question)
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
    which = decide(question, contributions)
    rules, memory = kept(question.rules, which), {**memory, "withheld": [noted(which)]}
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
