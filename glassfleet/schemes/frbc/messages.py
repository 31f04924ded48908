"""What travels: the questions of FRBC, reading them without trust, and whether an answer can be true."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from glassfleet.contract.checks import check_names, check_told
from glassfleet.contract.messages import SUPPORT, Contribution, Task
from glassfleet.contract.tasks import SchemeQuestion, check_classes, read_task_head, task_errors, task_head
from glassfleet.errors import ContributionError, TaskError
from glassfleet.private.union import LIMB_BITS, SIZES, table_shape
from glassfleet.schemes.frbc.matching import read, sort_rules, unpack, word_count
from glassfleet.schemes.frbc.params import MAX_CELLS, MAX_CLASSES, MAX_RULES, FrbcParameters

NAME = "frbc"
Kind = Literal["rules", "union", "strengths", "prefixes", "support"]
KINDS: tuple[Kind, ...] = ("rules", "union", "strengths", "prefixes", "support")

CLASS_SUMS = ("class_rows", "unknown_rows")
"""Additive part of an answer about rules: rows per class, shape (C,), and of labels that are no class, shape (1,)."""

RULE_SUMS = ("rows", "num_high", "num_low")
"""Per rule: rows that found it, and the two limbs of Num (Eq. 2), the summed strength of its class."""

_LIMBS_PER_WORD = 3
_LIMB = (1 << 21) - 1
_SHIFTS = (0, 21, 42)
"""A packed word has at most 63 bits."""

ANTECEDENT_SUMS = ("den_high", "den_low")
"""Per antecedent: the two limbs of Den (Eq. 3), the summed strength of all rows."""


@dataclass(frozen=True)
class Candidates:
    """Rules that are not weighed yet, in the order of antecedent and class; one antecedent may have several classes.

    Attributes
    ----------
    words : ndarray of int64, shape (r, W)
        Packed antecedents.
    classes : ndarray of int16, shape (r,)
        Class numbers.
    antecedents : ndarray of int8, shape (r, F)
        The same antecedents, one set per input.
    """

    words: NDArray[np.int64]
    classes: NDArray[np.int16]
    antecedents: NDArray[np.int8]

    @property
    def size(self) -> int:
        """Number of rules."""
        return int(self.classes.shape[0])

    @cached_property
    def first(self) -> NDArray[np.intp]:
        """The first rule of each antecedent, shape (a,)."""
        new = np.ones(self.size, dtype=bool)
        new[1:] = (self.words[1:] != self.words[:-1]).any(axis=1)
        return np.flatnonzero(new)

    @cached_property
    def antecedent_of(self) -> NDArray[np.intp]:
        """The number of each rule's antecedent among the different ones, shape (r,)."""
        new = np.zeros(self.size, dtype=np.intp)
        new[self.first] = 1
        return np.cumsum(new) - 1

    def to_value(self) -> dict[str, Any]:
        """Return the rules as codec values."""
        return {"antecedents": self.words, "classes": self.classes}

    @classmethod
    def from_value(cls, value: Mapping[str, Any], n_features: int, n_sets: int, n_classes: int) -> Candidates:
        """Read :meth:`to_value`; raises ValueError with the reason, whatever it holds."""
        words, classes = value.get("antecedents"), value.get("classes")
        if not isinstance(words, np.ndarray) or words.dtype != np.int64 or words.ndim != 2:
            raise ValueError("antecedents must be an int64 array of two dimensions")
        if not isinstance(classes, np.ndarray) or classes.dtype != np.int16 or classes.shape != words.shape[:1]:
            raise ValueError("classes must be an int16 array, one per antecedent")
        if classes.size > MAX_RULES:
            raise ValueError(f"{classes.size} rules, at most {MAX_RULES} are possible")
        antecedents = unpack(words, n_features, n_sets)
        if classes.size and (int(classes.min()) < 0 or int(classes.max()) >= n_classes):
            raise ValueError(f"a rule's class is not in [0, {n_classes})")
        order, new = sort_rules(words, classes)
        if (order != np.arange(order.size)).any() or not new.all():
            raise ValueError("rules must be in the order of antecedent and class, each once")
        return cls(words, classes, antecedents)


@dataclass(frozen=True)
class FrbcQuestion(SchemeQuestion):
    """A task of this scheme, read and checked; see :class:`~glassfleet.contract.tasks.SchemeQuestion`.

    Attributes
    ----------
    kind : {"rules", "union", "strengths", "prefixes", "support"}
        Which rules do you find; the same as a table of sums; what do your rows say about these rules; how many rows
        have these classes and sets of the first inputs; for how many rows do these rules fire.
    rules : Candidates or None
        Only for ``"strengths"`` and ``"support"``: the union of the agents' rules.
    cells : int
        Only for ``"union"``: of the table, one of :data:`glassfleet.private.union.SIZES`; else 0.
    prefixes : ndarray of int16, shape (s, 1 + i), or None
        Only for ``"prefixes"``: a class, then the sets of the first i inputs; in lexicographic order.
    more : int
        Only for ``"prefixes"``: of how many further inputs the sets are asked, from 1; else 0.
    """

    kind: Kind
    parameters: FrbcParameters
    rules: Candidates | None = None
    cells: int = 0
    prefixes: NDArray[np.int16] | None = None
    more: int = 0

    @property
    def n_limbs(self) -> int:
        """Limbs of a rule's key in a table, see :func:`key_of`."""
        return _LIMBS_PER_WORD * word_count(self.n_features, self.parameters.n_sets) + 1

    @property
    def most_told(self) -> int:
        """At which number the counts of an answer end."""
        return self.parameters.support

    def to_task(self) -> Task:
        """Return the task that asks this."""
        body: dict[str, Any] = task_head(self.parameters, self.domain, self.parameters.max_rows)
        if self.rules is not None:
            body["rules"] = self.rules.to_value()
        if self.kind == "union":
            body["cells"] = self.cells
        if self.prefixes is not None:
            body |= {"prefixes": self.prefixes, "more": self.more}
        return Task(NAME, self.kind, body)

    @classmethod
    def from_task(cls, task: Task) -> FrbcQuestion:
        """Read `task`; raises :class:`TaskError` with the reason, and nothing else, whatever it holds."""
        kind, parameters, domain = read_task_head(task, NAME, KINDS, FrbcParameters)
        rules, cells, prefixes, more = None, 0, None, 0
        with task_errors():
            check_classes(domain, NAME, MAX_CLASSES)
            if kind in {"prefixes", SUPPORT} and not parameters.support:
                raise TaskError("a question of runs with support")
            if kind == "prefixes":
                prefixes, more = task.body["prefixes"], task.body["more"]
                _check_prefixes(prefixes, more, len(domain.features), parameters.n_sets, len(domain.classes))
            if kind in {"strengths", SUPPORT}:
                value = task.body["rules"]
                rules = Candidates.from_value(value, len(domain.features), parameters.n_sets, len(domain.classes))
            if kind == "union":
                cells = task.body["cells"]
                if cells not in SIZES:
                    raise TaskError(f"a table has one of {SIZES} cells")
        return cls(kind, parameters, domain, rules, cells, prefixes, more)


def _check_prefixes(prefixes: object, more: object, n_features: int, n_sets: int, n_classes: int) -> None:
    """Raise TaskError unless `prefixes` begin rules, and `more` inputs follow, with not too many counts in all."""
    if not isinstance(prefixes, np.ndarray) or prefixes.dtype != np.int16 or prefixes.ndim != 2 or not prefixes.size:
        raise TaskError("prefixes must be an int16 array of two dimensions, not empty")
    if type(more) is not int or not 1 <= more <= n_features - (prefixes.shape[1] - 1):
        raise TaskError("more must say of how many further inputs the sets are asked")
    if len(prefixes) * n_sets**more > MAX_CELLS:
        raise TaskError(f"more than {MAX_CELLS} counts are asked for")
    most = np.array([n_classes, *[n_sets] * (prefixes.shape[1] - 1)])
    if ((prefixes < 0) | (prefixes >= most)).any() or len(np.unique(prefixes, axis=0)) != len(prefixes):
        raise TaskError("prefixes must be different classes and sets")


def key_of(words: NDArray[np.int64], classes: NDArray[np.int16]) -> NDArray[np.int64]:
    """Return the keys of rules in a table, shape (r, 3 W + 1): each word in limbs of 21 bits, and the class."""
    parts = [(words >> shift) & _LIMB for shift in _SHIFTS]
    return np.concatenate([*parts, classes[:, None].astype(np.int64)], axis=1)


def rules_of(keys: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int16]]:
    """Undo :func:`key_of`; raises ValueError when the keys cannot be rules."""
    width = (keys.shape[1] - 1) // _LIMBS_PER_WORD
    if keys.size and (int(keys[:, :-1].max(initial=0)) > _LIMB or int(keys[:, -1].max()) >= MAX_CLASSES):
        raise ValueError("a key of the table is no rule")
    words = np.zeros((len(keys), width), dtype=np.int64)
    for part, shift in enumerate(_SHIFTS):
        words |= keys[:, part * width : (part + 1) * width] << shift
    return words, keys[:, -1].astype(np.int16)


# --- can an answer be true? What rules and sums of rows always obey, checked before they are merged with others' ------
#
# They find broken agents and crude lies; they cannot find a plausible lie. Bounds between sums are compared as float64
# with a tolerance for the rounding of rows to the grid.


_TOLERANCE = 1e-9


def check_answer(question: FrbcQuestion, contribution: Contribution) -> None:
    """Raise :class:`ContributionError`, with the reason, unless `contribution` can be a true answer to `question`."""
    if contribution.nullified:
        raise ContributionError("nullified statistics, but this scheme nullifies none")
    if question.kind == "rules":
        _check_rules(question, contribution)
    elif question.rules is not None and question.kind != SUPPORT:
        _check_sums(question, question.rules, contribution.sums, contribution.rows)
    else:
        _check_counts(question, contribution)


def _check_rules(question: FrbcQuestion, contribution: Contribution) -> None:
    parameters, rows = question.parameters, contribution.rows
    values = contribution.values
    owners = parameters.weights == "owners"
    expected = {"antecedents", "classes", *((*RULE_SUMS, *ANTECEDENT_SUMS) if owners else ())}
    check_names("values", values, expected)
    check_names("sums", contribution.sums, CLASS_SUMS)
    try:
        rules = Candidates.from_value(values, question.n_features, parameters.n_sets, question.n_classes)
    except ValueError as fault:
        raise ContributionError(str(fault)) from fault
    if rules.size > rows:
        raise ContributionError(f"{rules.size} rules from {rows} rows")
    _check_count("class_rows", contribution.sums["class_rows"], (question.n_classes,), rows)
    _check_count("unknown_rows", contribution.sums["unknown_rows"], (1,), rows)
    counted = int(contribution.sums["class_rows"].sum()) + int(contribution.sums["unknown_rows"].sum())
    if counted > rows:
        raise ContributionError(f"the rows per class add up to {counted}, of {rows} rows")
    if owners:
        _check_sums(question, rules, values, rows)


def _check_counts(question: FrbcQuestion, contribution: Contribution) -> None:
    rows, sums = contribution.rows, contribution.sums
    if "rows" in sums:
        check_told(contribution, question.most_told)
    if question.kind == SUPPORT:
        return
    known = int(sums["class_rows"].sum())
    if known + int(sums["unknown_rows"][0]) != rows:
        raise ContributionError(f"the rows per class do not add up to {rows} rows")
    if question.kind == "prefixes":
        return
    times = sums["table"][:, 0]
    if any(int(part.sum()) != known for part in np.split(times, 3)):
        raise ContributionError("a third of the table does not hold every row of a class once")
    if (sums["table"][:, 1:] > times[:, None] << LIMB_BITS).any():
        raise ContributionError("a cell of the table holds more than its rows can")


def shapes_of(question: FrbcQuestion) -> dict[str, tuple[int, ...]]:
    """Return names and shapes of the sums that answer `question`; raises TaskError for an agent's own rules."""
    if question.kind == "union":
        table = table_shape(question.cells, question.n_limbs)
        return {"class_rows": (question.n_classes,), "unknown_rows": (1,), "table": table}
    if question.prefixes is not None:
        counts = len(question.prefixes) * question.parameters.n_sets**question.more
        return {"class_rows": (question.n_classes,), "unknown_rows": (1,), "rows": (counts,)}
    if question.rules is None:
        raise TaskError("an agent's own rules are no sums")
    if question.kind == SUPPORT:
        return {"rows": (question.rules.size + question.rules.first.size,)}
    sizes = {RULE_SUMS: question.rules.size, ANTECEDENT_SUMS: question.rules.first.size}
    return {name: (size,) for names, size in sizes.items() for name in names}


def _check_count(name: str, counts: NDArray[np.int64], shape: tuple[int, ...], rows: int) -> None:
    if counts.shape != shape:
        raise ContributionError(f"{name} has shape {counts.shape}, expected {shape}")
    if ((counts < 0) | (counts > rows)).any():
        raise ContributionError(f"{name} must be in [0, {rows}], the rows of the agent")


def _check_sums(question: FrbcQuestion, rules: Candidates, sums: Mapping[str, Any], rows: int) -> None:
    bits = question.parameters.limb_bits
    for names, size in ((RULE_SUMS, rules.size), (ANTECEDENT_SUMS, rules.first.size)):
        for name in names:
            array = sums[name]
            if not isinstance(array, np.ndarray) or array.dtype != np.int64 or array.shape != (size,):
                raise ContributionError(f"{name} must be an int64 array of shape ({size},)")
            if name != "rows" and ((array < 0) | (array > rows << bits)).any():
                raise ContributionError(f"{name} is negative or above what {rows} rows can add up to")
    _check_count("rows", sums["rows"], (rules.size,), rows)
    if int(sums["rows"].sum()) > rows:
        raise ContributionError(f"the rows of the rules add up to more than the {rows} rows of the agent")
    if not rules.size:
        return
    num = read(sums["num_high"], sums["num_low"], bits)
    den = read(sums["den_high"], sums["den_low"], bits)
    unit = 0.5**question.parameters.fraction_bits
    slack = rows * unit
    if (den > rows * (1.0 + _TOLERANCE) + slack).any():
        raise ContributionError("a Den exceeds the agent's rows")
    if (np.add.reduceat(num, rules.first) > den * (1.0 + _TOLERANCE) + slack).any():
        raise ContributionError("the Num of an antecedent's rules exceed its Den")
    # A row belongs to the strongest of two sets of every input, so its strength is at least 0.5^F.
    least = sums["rows"] * 0.5**question.n_features
    if (num < least * (1.0 - _TOLERANCE) - slack).any():
        raise ContributionError("a rule's Num is below what the rows that found it must add up to")
