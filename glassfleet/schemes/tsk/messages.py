"""What travels: the questions of TSK, and reading them without trust."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from glassfleet.scheme import Task
from glassfleet.schemes.tsk.params import Parameters
from glassfleet.schemes.tsk.rules import MAX_COEFFICIENT, has_otherwise, in_order
from glassfleet.untrusted import (
    Remembered,
    SchemeQuestion,
    check_array,
    check_numeric,
    read_task_head,
    task_errors,
    task_head,
)

NAME = "tsk"
Kind = Literal["rules", "clusters", "sums", "weights", "support"]
KINDS: tuple[Kind, ...] = ("rules", "clusters", "sums", "weights", "support")

CLUSTER_SUMS = ("moment_high", "moment_low", "change")
"""Limbs of the sums of u^2 [z, 1] per cluster, shape (K, F + 2), and the squared change of memberships, shape (1,)."""

GRAM_SUMS = ("gram_high", "gram_low", "ws", "count")
"""Per rule: limbs of the Gram sums of sqrt(w) [x, 1, y] (upper triangle), sum of w, rows with w > 0."""

WEIGHT_SUMS = ("ws", "wq")
"""Per rule: sums of w and of w q."""

MAX_RULES = 1 << 16
"""Most rules of a model or a question."""


_ARRAYS: Mapping[str, tuple[Kind, ...]] = {
    "centres": ("clusters",),
    "antecedents": ("sums", "weights", "support"),
    "coefficients": ("weights",),
}
"""Which questions hold which arrays."""


@dataclass(frozen=True)
class Question(SchemeQuestion):
    """A task of this scheme, read and checked; see :class:`~glassfleet.untrusted.SchemeQuestion`.

    Attributes
    ----------
    kind : {"rules", "clusters", "sums", "weights", "support"}
        Which rules do you find; what do your rows say about these centres; the regressions of these rules; how good
        they are; on how many rows they rest.
    centres : ndarray of float64, shape (s, K, F + 1)
        Only for ``"clusters"``: the centres of the last s iterations, one or two, the newest last.
    antecedents : ndarray of int8, shape (r, F)
        Not for ``"rules"`` and ``"clusters"``: the rules, in lexicographic order, and OTHERWISE.
    coefficients : ndarray of float64, shape (r, F + 1)
        Only for ``"weights"``: their polynomials over the scaled inputs, intercept last.
    """

    kind: Kind
    parameters: Parameters
    centres: NDArray[np.float64] | None = None
    antecedents: NDArray[np.int8] | None = None
    coefficients: NDArray[np.float64] | None = None

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
        body: dict[str, Any] = {**task_head(self.parameters, self.domain), "max_rows": self.parameters.max_rows}
        for name in _ARRAYS:
            if (array := getattr(self, name)) is not None:
                body[name] = array
        return Task(NAME, self.kind, body)

    @classmethod
    def from_task(cls, task: Task) -> Question:
        """Read `task`; raises :class:`TaskError` with the reason, and nothing else, whatever it holds."""
        kind, parameters, domain = read_task_head(task, NAME, KINDS, Parameters)
        body = task.body
        centres, antecedents, coefficients = (body.get(name) for name in _ARRAYS)
        question = cls(kind, parameters, domain, centres, antecedents, coefficients)
        with task_errors():
            check_numeric(domain, NAME)
            question._validate()
        return question

    def _validate(self) -> None:
        """Raise ValueError unless the arrays are those of this kind of question, and well-formed."""
        for name, kinds in _ARRAYS.items():
            if (getattr(self, name) is not None) != (self.kind in kinds):
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


read_task = Remembered(Question.from_task)
"""``Question.from_task``, once for each task."""


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
