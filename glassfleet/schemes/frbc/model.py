"""The finished classifier: it predicts, explains itself, and is a document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from glassfleet.contract.tasks import check_classes
from glassfleet.data.documents import Strict, document_errors, document_of, read_document_head
from glassfleet.data.domain import Domain
from glassfleet.fuzzy import condition, fuzzify
from glassfleet.fuzzy.matching import ranking
from glassfleet.fuzzy.partition import Memberships
from glassfleet.model.explanation import RUNNERS_UP, Activation, Explanation, no_rule_fires
from glassfleet.model.rules import Consequent, Rule
from glassfleet.model.tables import RuleList, RuleTables
from glassfleet.numerics.statistics import blocks
from glassfleet.schemes.frbc.matching import AntecedentTree, pack, read, sort_rules
from glassfleet.schemes.frbc.messages import Candidates
from glassfleet.schemes.frbc.params import MAX_CLASSES, MAX_RULES, FrbcParameters

_ROW_BLOCK = 1 << 12


class FuzzyRuleClassifier:
    """A fuzzy rule-based classifier: thousands of rules with one condition per input, of which one answers.

    Made by a run or by a document; not changed afterwards.

    Parameters
    ----------
    parameters : Parameters
        Of the run.
    domain : Domain
        Inputs and classes.
    base : RuleBase
        The rules, at least one.
    """

    scheme = "frbc"

    def __init__(self, parameters: FrbcParameters, domain: Domain, base: RuleBase) -> None:
        self.parameters = parameters
        self.domain = domain
        self.base = base
        self._labels = np.array(domain.classes, dtype=np.str_)
        self._tree = AntecedentTree(base.antecedents, parameters.n_sets)
        self._order, self._rank = ranking(base.weight)

    # --- predicting -------------------------------------------------------------------------------------------------

    def predict(self, X: NDArray[np.float64]) -> NDArray[Any]:
        """Classify rows `X`, shape (n, F), in the inputs' own units; returns labels (text), shape (n,)."""
        return self._labels[self.base.classes[self.winners(X)]]

    def winners(self, X: NDArray[np.float64]) -> NDArray[np.intp]:
        """Return the number of the rule that answers each row of `X`, shape (n,); the default where none fires."""
        X = self.domain.check_rows(X)
        result = np.full(X.shape[0], self._order[0], dtype=np.intp)
        if self.base.unconditional:
            return result
        for block in blocks(X.shape[0], _ROW_BLOCK):
            members = fuzzify(self.domain.scale_inputs(X[block]), self.parameters.n_sets)
            for row, rule in self._winners(members):
                result[block.start + row] = rule
        return result

    def _association(self, rule: NDArray[np.intp], strength: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return what the rules compete by."""
        return strength if self.parameters.association == "strength" else strength * self.base.weight[rule]

    def _winners(self, members: Memberships) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]:
        """Yield rows for which a rule fires, and the rule: highest association, ties by rule weight, then the first."""
        for part in self._tree.match(members, _ROW_BLOCK):
            value = self._association(part.antecedent, part.strength)
            start = np.flatnonzero(np.diff(part.row, prepend=-1))
            best = np.maximum.reduceat(value, start)
            top = value == np.repeat(best, np.diff(start, append=value.size))
            rank = np.where(top, self._rank[part.antecedent], self.base.size)
            yield part.row[start], self._order[np.minimum.reduceat(rank, start)]

    # --- explaining -------------------------------------------------------------------------------------------------

    def explain(self, x: NDArray[np.float64]) -> Explanation:
        """Say why the model answers as it does for the one row `x`, shape (F,).

        ``shares`` compares the rule that decided with the strongest rule of any other class, in bits: each input's
        share is log2 of the ratio of its memberships in the two, positive where it speaks for the prediction. ``base``
        is log2 of the ratio of the rules' weights where the association counts them. They add up to log2 of the ratio
        of the two associations. There are none when no rule of another class fires.
        """
        row = np.asarray(x, dtype=np.float64).reshape(1, -1)
        winner = int(self.winners(row)[0])
        members = fuzzify(self.domain.scale_inputs(row), self.parameters.n_sets)
        ranked = self._fired(members)
        label = str(self._labels[self.base.classes[winner]])
        if not ranked:
            if self.base.unconditional:
                note = "the only rule has no conditions, so there is nothing to share out among the inputs"
                return Explanation(label, self._activation(members, winner, 1.0), notes=(note,))
            notes = (no_rule_fires(winner), "no rule fires, so there is nothing to share out among the inputs")
            return Explanation(label, self._activation(members, winner, 0.0), fallback=True, notes=notes)
        shares, base = self._shares(members, [rule for rule, _ in ranked])
        activations = [self._activation(members, rule, strength) for rule, strength in ranked[: RUNNERS_UP + 1]]
        if not shares:
            note = "no rule of another class fires for this row, so there is no lead to share out among the inputs"
            return Explanation(label, activations[0], tuple(activations[1:]), notes=(note,))
        return Explanation(
            label,
            activations[0],
            tuple(activations[1:]),
            shares,
            base,
            measure="log2 of the deciding rule's association over that of the strongest rule of another class",
        )

    def _fired(self, members: Memberships) -> list[tuple[int, float]]:
        """Return the rules that fire for the one row and their strengths, the one that decides first."""
        if self.base.unconditional:
            return []
        parts = list(self._tree.match(members, 1))
        if not parts:
            return []
        (part,) = parts
        order = np.lexsort((self._rank[part.antecedent], -self._association(part.antecedent, part.strength)))
        return [(int(part.antecedent[i]), float(part.strength[i])) for i in order]

    def _degrees(self, members: Memberships, rule: int) -> list[float]:
        return [members.degree(feature, 0, int(j)) for feature, j in enumerate(self.base.antecedents[rule])]

    def _activation(self, members: Memberships, rule: int, strength: float) -> Activation:
        return Activation(self._readable(rule), strength, tuple(self._degrees(members, rule)))

    def _shares(self, members: Memberships, ranked: list[int]) -> tuple[dict[str, float], float]:
        winner, classes, weight = ranked[0], self.base.classes, self.base.weight
        second = next((rule for rule in ranked if classes[rule] != classes[winner]), None)
        if second is None:
            return {}, 0.0
        ratio = np.log2(self._degrees(members, winner)) - np.log2(self._degrees(members, second))
        counted = self.parameters.association != "strength" and weight[winner] > 0 and weight[second] > 0
        base = float(np.log2(weight[winner] / weight[second])) if counted else 0.0
        return {name: float(share) for name, share in zip(self.domain.names, ratio, strict=True)}, base

    # --- reading ----------------------------------------------------------------------------------------------------

    def _readable(self, number: int) -> Rule:
        base, n_sets = self.base, self.parameters.n_sets
        return Rule(
            index=number,
            conditions=tuple(
                condition(self.domain.features[feature], int(j), n_sets)
                for feature, j in enumerate(base.antecedents[number])
            ),
            consequent=Consequent(self.domain.label or "class", self._labels[base.classes[number]]),
            weight=float(base.weight[number]),
            support=float(base.support[number]),
            confidence=float(base.weight[number]),
        )

    @cached_property
    def _rules(self) -> tuple[Rule, ...]:
        return tuple(self._readable(number) for number in range(self.base.size))

    def rules(self) -> Sequence[Rule]:
        """Return the rules, in the lexicographic order of their sets."""
        return self._rules

    def complexity(self) -> Mapping[str, int | float]:
        """Return rules, rule length (conditions of a rule), and parameters (sets, class and weight of every rule)."""
        rules, length = self.base.antecedents.shape
        return {"rules": rules, "rule_length": length, "parameters": rules * (length + 2)}

    # --- reducing ---------------------------------------------------------------------------------------------------

    def reduced(self, max_rules: int) -> FuzzyRuleClassifier:
        """Return the classifier that the run would have made with `max_rules`: the best supported rules only.

        Raises
        ------
        ValueError
            `max_rules` is below 1.
        """
        if max_rules < 1:
            raise ValueError(f"max_rules must be at least 1, got {max_rules}")
        parameters = self.parameters.model_copy(update={"max_rules": max_rules})
        return FuzzyRuleClassifier(parameters, self.domain, self.base.reduced(max_rules))

    def tables(self) -> RuleTables:
        """Return the model as plain tables, for exports; strengths count times weights where these compete, too."""
        base = self.base
        weights = tuple(base.weight.tolist())
        return RuleTables(
            evaluator="class_vote",
            conditions=RuleList(self.parameters.n_sets, tuple(map(tuple, base.antecedents.tolist()))),
            weights=weights,
            votes=tuple(base.classes.tolist()),
            factors=() if self.parameters.association == "strength" else weights,
        )

    # --- the document -----------------------------------------------------------------------------------------------

    def to_document(self) -> dict[str, Any]:
        """Return the model as JSON values; its digest is the model's identity."""
        return write_document(self.parameters, self.domain, self.base)


# --- the model as a document: JSON values, complete and readable without this package ---------------------------------


SCHEME = "frbc"
FORMAT = 1


class _FrbcRule(Strict):
    sets: tuple[int, ...]
    class_: int = Field(alias="class", ge=0)
    weight: float = Field(ge=0.0, le=1.0)
    support: float = Field(ge=0.0, le=1.0)


class _FrbcBody(Strict):
    rules: tuple[_FrbcRule, ...] = Field(min_length=1, max_length=MAX_RULES)


def write_document(parameters: FrbcParameters, domain: Domain, base: RuleBase) -> dict[str, Any]:
    """Return ``{scheme, format, parameters, domain, model}``.

    ``model.rules`` is in the lexicographic order of ``sets``: one set number per input, in the order of
    ``domain.features``, 0 the lowest; ``class`` is a position in ``domain.classes``. A single rule without sets always
    holds.
    """
    lines = zip(
        base.antecedents.tolist(), base.classes.tolist(), base.weight.tolist(), base.support.tolist(), strict=True
    )
    rules = [
        {"sets": sets, "class": number, "weight": weight, "support": support} for sets, number, weight, support in lines
    ]
    return document_of(SCHEME, FORMAT, parameters, domain, {"rules": rules})


def read_document(document: Mapping[str, Any]) -> tuple[FrbcParameters, Domain, RuleBase]:
    """Read a document; raises :class:`DocumentError` with the reason, and nothing else, whatever it holds."""
    parameters, domain, model = read_document_head(document, SCHEME, FORMAT, FrbcParameters)
    with document_errors():
        body = _FrbcBody.model_validate(model)
        check_classes(domain, SCHEME, MAX_CLASSES)
        base = _read_rules(body, domain, parameters.n_sets)
    return parameters, domain, base


def _read_rules(body: _FrbcBody, domain: Domain, n_sets: int) -> RuleBase:
    """Return the rules; raises ValueError."""
    width = len(domain.features)
    if len(body.rules) == 1 and not body.rules[0].sets:
        width = 0
    for number, rule in enumerate(body.rules):
        if len(rule.sets) != width or not all(0 <= j < n_sets for j in rule.sets):
            raise ValueError(
                f"rule {number} does not name one of {n_sets} sets for each of {len(domain.features)} inputs"
            )
        if rule.class_ >= len(domain.classes):
            raise ValueError(f"rule {number} names class {rule.class_}, there are {len(domain.classes)}")
    antecedents = np.array([rule.sets for rule in body.rules], dtype=np.int8).reshape(len(body.rules), width)
    if width:
        order, new = sort_rules(pack(antecedents, n_sets), np.zeros(len(body.rules), dtype=np.int16))
        if (order != np.arange(order.size)).any() or not new.all():
            raise ValueError("rules must be in the lexicographic order of their sets, each antecedent once")
    return RuleBase(
        antecedents,
        np.array([rule.class_ for rule in body.rules], dtype=np.intp),
        np.array([rule.weight for rule in body.rules]),
        np.array([rule.support for rule in body.rules]),
    )


# --- from summed statistics to rules: weights, conflicts, reduction ---------------------------------------------------


@dataclass(frozen=True)
class RuleBase:
    """Rules in the order of antecedents, each antecedent once.

    Attributes
    ----------
    antecedents : ndarray of int8, shape (r, F)
        One fuzzy set per input. No inputs at all, shape (1, 0): the one rule that always holds.
    classes : ndarray of intp, shape (r,)
        Class numbers.
    weight : ndarray of float64, shape (r,)
        Rule weight Num / Den, the rule's confidence, [0, 1].
    support : ndarray of float64, shape (r,)
        Share of all rows that found the rule, [0, 1].
    """

    antecedents: NDArray[np.int8]
    classes: NDArray[np.intp]
    weight: NDArray[np.float64]
    support: NDArray[np.float64]

    @property
    def size(self) -> int:
        """Number of rules."""
        return int(self.classes.shape[0])

    @property
    def unconditional(self) -> bool:
        """Whether this is the one rule without conditions."""
        return int(self.antecedents.shape[1]) == 0

    def take(self, lines: NDArray[np.intp]) -> RuleBase:
        """Return the given rules, in the order given."""
        return RuleBase(self.antecedents[lines], self.classes[lines], self.weight[lines], self.support[lines])

    def ranking(self) -> NDArray[np.intp]:
        """Return the rules from the most to the least worth keeping: support, then weight, then first."""
        return np.lexsort((np.arange(self.size), -self.weight, -self.support))

    def reduced(self, max_rules: int | None, min_support: float = 0.0) -> RuleBase:
        """Return the rules with a support of `min_support` at least, `max_rules` at most; may be none."""
        kept = self.ranking()[:max_rules]
        return self.take(np.sort(kept[self.support[kept] >= min_support]))


def weigh(
    candidates: Candidates, sums: Mapping[str, NDArray[np.int64]], rows: int, parameters: FrbcParameters
) -> tuple[RuleBase, int]:
    """Weigh the candidates (Eq. 5) and settle conflicts; return the rules and the number of conflicts settled.

    Of rules with the same antecedent the one with the highest weight stays; ties go to the larger Num, then to the
    smaller class number. Candidates that fire for no row (Den is zero) are no rules.

    Parameters
    ----------
    candidates : Candidates
        Rules to weigh.
    sums : Mapping of str to ndarray of int64, shape (r,)
        ``rows`` and the limbs of Num and Den, all of them per rule.
    rows : int
        Rows of the agents that answered, >= 1.
    """
    bits = parameters.limb_bits
    num = read(sums["num_high"], sums["num_low"], bits)
    den = read(sums["den_high"], sums["den_low"], bits)
    # Num is at most Den, but beyond 2^53 units both are rounded: hence the minimum.
    weight = np.minimum(num / np.where(den > 0, den, 1.0), 1.0)
    at = candidates.antecedent_of
    order = np.lexsort((candidates.classes, -num, -weight, at))
    new = np.ones(order.size, dtype=bool)
    new[1:] = at[order][1:] != at[order][:-1]
    best = order[new]
    conflicts = order.size - best.size
    best = best[den[best] > 0]
    base = RuleBase(
        candidates.antecedents[best],
        candidates.classes[best].astype(np.intp),
        weight[best],
        sums["rows"][best].astype(np.float64) / float(rows),
    )
    return base, conflicts


def always(class_rows: NDArray[np.int64]) -> RuleBase:
    """Return the one rule without conditions: the class of most rows (the first of equals), its share as weight."""
    total = int(class_rows.sum())
    best = int(np.argmax(class_rows))
    share = np.array([int(class_rows[best]) / total if total else 0.0])
    return RuleBase(np.zeros((1, 0), dtype=np.int8), np.array([best], dtype=np.intp), share, share)
