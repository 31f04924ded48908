"""What travels: the questions of TSK, reading them without trust, and whether an answer can be true."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from glassfleet.contract.checks import (
    at_most,
    check_names,
    check_qualities,
    check_regressions,
    check_told,
)
from glassfleet.contract.messages import COLUMNS, COUNTS, SUPPORT, Contribution, Task
from glassfleet.contract.tasks import (
    Remembered,
    SchemeQuestion,
    check_array,
    check_numeric,
    read_task_head,
    task_errors,
    task_head,
)
from glassfleet.errors import ContributionError, TaskError
from glassfleet.fuzzy.matching import WEIGHTS
from glassfleet.private.columns import CELLS, Common, LayeredQuestion, check_values, read_common
from glassfleet.schemes.tsk.clusters import CHANGE_BITS, HALF_BITS, SQUARE_BITS, grid_bits
from glassfleet.schemes.tsk.params import TskParameters
from glassfleet.schemes.tsk.rules import MAX_COEFFICIENT, TskRuleBase, has_otherwise, in_order

NAME = "tsk"
Kind = Literal["rules", "columns", "clusters", "strengths", "support", "sums", "weights"]
KINDS: tuple[Kind, ...] = get_args(Kind)

CLUSTER_SUMS = ("moment_high", "moment_low", "change")
"""Limbs of the sums of u^2 [z, 1] per cluster, shape (K, F + 2), and the squared change of memberships, shape (1,)."""

GRAM_SUMS = ("gram_high", "gram_low", "ws", "count")
"""Per rule: limbs of the Gram sums of sqrt(w) [x, 1, y] (upper triangle), sum of w, rows with w > 0."""

WEIGHT_SUMS = ("ws", "wq")
"""Per rule: sums of w and of w q."""

POWERS = 14
"""Powers of 8 from 1 down to the least strength that counts, :data:`~glassfleet.schemes.tsk.rules.DUST`."""

MAX_RULES = 1 << 16
"""Most rules of a model or a question."""


_ARRAYS: Mapping[str, tuple[Kind, ...]] = {
    "centres": ("clusters",),
    "antecedents": ("strengths", "support", "sums", "weights"),
    "coefficients": ("weights",),
    "cuts": ("support",),
    "columns": ("sums",),
}
"""Which questions hold which arrays; columns with support alone."""


@dataclass(frozen=True)
class TskQuestion(LayeredQuestion, SchemeQuestion):
    """A task of this scheme, read and checked; see :class:`~glassfleet.contract.tasks.SchemeQuestion`.

    Attributes
    ----------
    kind : {"rules", "columns", "clusters", "strengths", "support", "sums", "weights"}
        Which rules do you find; how many rows have which value; what do your rows say about these centres; which
        strengths have these rules; on how many rows do they rest; their regressions; how good they are.
    centres : ndarray of float64, shape (s, K, F + 1)
        Only for ``"clusters"``: the centres of the last s iterations, one or two, the newest last.
    antecedents : ndarray of int8, shape (r, F)
        From ``"strengths"``, without support from ``"sums"`` on: the rules, in lexicographic order, and OTHERWISE.
    coefficients : ndarray of float64, shape (r, F + 1)
        Only for ``"weights"``: their polynomials over the scaled inputs, intercept last.
    cuts : ndarray of int8, shape (r,)
        Only for ``"support"``: of each rule the last :func:`power <powers_of>` whose rows are heavy.
    columns : ndarray of bool, shape (r, F + 1)
        Only for ``"sums"`` with support: which inputs are columns of each rule's regression; the target is one of all.
    common : tuple of (int, int)
        Only for ``"support"``: columns (F: the target), and cells of their histograms that many rows are in.
    """

    kind: Kind
    parameters: TskParameters
    centres: NDArray[np.float64] | None = None
    antecedents: NDArray[np.int8] | None = None
    coefficients: NDArray[np.float64] | None = None
    cuts: NDArray[np.int8] | None = None
    columns: NDArray[np.bool_] | None = None
    common: Common = ()

    @property
    def gram_columns(self) -> int:
        """Columns of a rule's regression: inputs, intercept and target."""
        return self.n_features + 2

    @property
    def least_rows(self) -> int:
        """Fewest rows of a rule in a run with `support`: its regression's sums span fewer rows."""
        return max(self.parameters.support, self.gram_columns)

    def to_task(self) -> Task:
        """Return the task that asks this."""
        body: dict[str, Any] = task_head(self.parameters, self.domain, self.parameters.max_rows)
        for name in _ARRAYS:
            if (array := getattr(self, name)) is not None:
                body[name] = array
        if self.kind == SUPPORT:
            body["common"] = [list(one) for one in self.common]
        return Task(NAME, self.kind, body)

    @classmethod
    def from_task(cls, task: Task) -> TskQuestion:
        """Read `task`; raises :class:`TaskError` with the reason, and nothing else, whatever it holds."""
        kind, parameters, domain = read_task_head(task, NAME, KINDS, TskParameters)
        body = task.body
        arrays = {name: body.get(name) for name in _ARRAYS}
        with task_errors():
            check_numeric(domain, NAME)
            if kind in COUNTS | {"strengths"} and not parameters.support:
                raise TaskError("a question of runs with support")
            every = range(len(domain.features) + 1)
            common = read_common(body["common"], every, CELLS) if kind == SUPPORT else ()
            question = cls(kind, parameters, domain, **arrays, common=common)
            question._validate()
        return question

    def _validate(self) -> None:
        """Raise ValueError unless the arrays are those of this kind of question, and well-formed."""
        for name, kinds in _ARRAYS.items():
            is_asked = self.kind in kinds and (name != "columns" or self.parameters.support > 0)
            if (getattr(self, name) is not None) != is_asked:
                raise ValueError(f"{name} belong to a question for {' or '.join(kinds)}, and only there")
        width = self.n_features
        if self.centres is not None:
            check_array("centres", self.centres, np.float64, (None, self.parameters.n_clusters, width + 1))
            if not 1 <= len(self.centres) <= 2 or not ((self.centres >= 0.0) & (self.centres <= 1.0)).all():
                raise ValueError("centres are those of one or two iterations, in [0, 1]")
        if self.antecedents is not None:
            rules = len(check_antecedents(self.antecedents, width, self.parameters.n_sets, MAX_RULES, otherwise=True))
            if not rules:
                raise ValueError("there are no rules to ask about")
            if self.coefficients is not None:
                check_coefficients(self.coefficients, (rules, width + 1))
            self._validate_support(rules)

    def _validate_support(self, rules: int) -> None:
        if self.columns is not None:
            check_array("columns", self.columns, np.bool_, (rules, self.n_features + 1))
        if self.cuts is not None:
            cuts = check_array("cuts", self.cuts, np.int8, (rules,))
            if not ((cuts >= 0) & (cuts <= POWERS)).all():
                raise ValueError(f"a cut is not from 0 to {POWERS}")


def powers_of(strength: NDArray[np.float64]) -> NDArray[np.intp]:
    """Return in which power of 8 strengths are: 0 from 1 to 1/4, 1 from there to 1/32, and so on."""
    power: NDArray[np.intp] = (1 - np.frexp(strength)[1]) // 3
    return power


read_task = Remembered(TskQuestion.from_task)
"""``TskQuestion.from_task``, once for each task."""


def check_antecedents(
    antecedents: object, width: int, n_sets: int, most: int, *, otherwise: bool = False
) -> NDArray[np.int8]:
    """Return `antecedents`; raises ValueError, with the reason, unless they are at most `most` different rules.

    `otherwise`: whether the last of them may be OTHERWISE.
    """
    rules = check_array("antecedents", antecedents, np.int8, (None, width))
    if len(rules) > most:
        raise ValueError(f"{len(rules)} rules, at most {most} are possible")
    named = rules[:-1] if otherwise and has_otherwise(rules, n_sets) else rules
    if named.size and (int(named.min()) < 0 or int(named.max()) >= n_sets):
        raise ValueError(f"a fuzzy set is not in [0, {n_sets})")
    if not in_order(rules):
        raise ValueError("antecedents must differ and be in lexicographic order")
    return rules


def check_coefficients(coefficients: object, shape: tuple[int, int]) -> NDArray[np.float64]:
    """Return `coefficients`; raises ValueError, with the reason, unless they are finite and of `shape`."""
    checked = check_array("coefficients", coefficients, np.float64, shape)
    if not (np.abs(checked) <= MAX_COEFFICIENT).all():
        raise ValueError("a coefficient is larger than any least-squares solution")
    return checked


# --- can an answer be true? What rules and sums of rows in [0, 1] always obey, checked before they are merged ---------
#
# Bounds are exact where rounding is monotone (a smaller term is never rounded to a larger integer) and have a small
# tolerance elsewhere. They find broken agents and crude lies; they cannot find a plausible lie.


Sums = Mapping[str, NDArray[np.int64]]


def check_answer(question: TskQuestion, contribution: Contribution) -> None:
    """Raise :class:`ContributionError`, with the reason, unless `contribution` can be a true answer to `question`."""
    parameters = question.parameters
    if contribution.nullified:
        raise ContributionError("nullified statistics, but this scheme nullifies none")
    if question.kind == "rules":
        check_names("sums", contribution.sums, ())
        read_rules(question, contribution)
        return
    bits = parameters.fraction_bits
    if question.kind == "clusters":
        _check_clusters(question, contribution.sums, contribution.rows)
    elif question.kind == COLUMNS:
        check_values(contribution.sums["rows"], contribution.rows)
    elif question.kind == "strengths":
        check_told(contribution, 1, "present")
    elif question.kind == SUPPORT:
        check_told(contribution, question.most_told)
    elif question.kind == "sums":
        check_regressions("rule", contribution, question.gram_columns, bits, parameters.gram_bits)
    else:
        check_qualities("rule", contribution, bits)


def shapes_of(question: TskQuestion) -> dict[str, tuple[int, ...]]:
    """Return names and shapes of the sums that answer `question`; raises TaskError for a vehicle's own rules."""
    if question.kind == "clusters":
        shape = (question.parameters.n_clusters, question.n_features + 2)
        return dict(zip(CLUSTER_SUMS, (shape, shape, (1,)), strict=True))
    if question.kind == COLUMNS:
        return {"rows": (question.n_features + 1, CELLS)}
    if question.antecedents is None:
        raise TaskError("a vehicle's own rules are no sums")
    r, k = len(question.antecedents), question.gram_columns
    if question.kind == SUPPORT:
        return {"rows": (r * len(question.least_of), 2)}
    if question.kind == "strengths":
        return {"present": (r, POWERS)}
    if question.kind == "sums":
        triangle = (r, k * (k + 1) // 2)
        return dict(zip(GRAM_SUMS, (triangle, triangle, (r,), (r,)), strict=True))
    return dict.fromkeys(WEIGHT_SUMS, (r,))


def read_rules(question: TskQuestion, contribution: Contribution) -> TskRuleBase:
    """Return an agent's rules (with zeros for what pooled consequents leave out); raises ContributionError."""
    parameters, values, width = question.parameters, contribution.values, question.n_features
    averaged = parameters.consequents == "averaged"
    check_names("values", values, ("antecedents", *(("coefficients", *WEIGHTS) if averaged else ())))
    most = parameters.n_clusters if contribution.rows else 0
    try:
        antecedents = check_antecedents(values["antecedents"], width, parameters.n_sets, most)
        size = len(antecedents)
        coefficients = np.zeros((size, width + 1))
        shares = [np.zeros(size) for _ in WEIGHTS]
        if averaged:
            coefficients = check_coefficients(values["coefficients"], coefficients.shape)
            shares = [_check_share(name, values[name], size) for name in WEIGHTS]
    except ValueError as fault:
        raise ContributionError(str(fault)) from fault
    return TskRuleBase(antecedents, coefficients, *shares)


def _check_share(name: str, share: object, size: int) -> NDArray[np.float64]:
    checked = check_array(name, share, np.float64, (size,))
    if not ((checked >= 0.0) & (checked <= 1.0)).all():
        raise ValueError(f"{name} is not in [0, 1]")
    return checked


def _check_clusters(question: TskQuestion, sums: Sums, rows: int) -> None:
    assert question.centres is not None
    bits = grid_bits(question.n_features + 1)
    for name in ("moment_high", "moment_low"):
        limb = sums[name]
        at_most(limb[:, -1], rows << HALF_BITS, f"a cluster's mass in {name} exceeds the agent's rows")
        at_most(limb[:, :-1], limb[:, -1:] << bits, f"a cluster's {name} exceeds its mass")
    mass = int(sums["moment_high"][:, -1].sum() << HALF_BITS) + int(sums["moment_low"][:, -1].sum())
    # Squares of memberships that add up to one do so to one at most; each is rounded by half a unit.
    if mass > rows * ((1 << SQUARE_BITS) + question.parameters.n_clusters):
        raise ContributionError("the clusters' masses add up to more than the agent's rows")
    most = rows * ((2 << CHANGE_BITS) + 1) if len(question.centres) > 1 else 0
    if int(sums["change"][0]) > most:
        raise ContributionError("the change of memberships exceeds what the agent's rows can change")
