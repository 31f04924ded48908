"""What a learned estimator can say: its rules, explanations, pictures, and its model as a file. Needs scikit-learn."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, Self

import narwhals as nw
import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, is_classifier
from sklearn.utils.validation import check_is_fitted

from glassfleet.data.categories import code_of
from glassfleet.data.domain import Domain
from glassfleet.estimators.frames import row_of
from glassfleet.explain import (
    Counterfactual,
    Goal,
    ModelSummary,
    RowExplanation,
    as_row,
    counterfactual,
    effect,
    explain_row,
    importance,
    starting_row,
    summary,
)
from glassfleet.export import export, read_model, to_c, to_fml
from glassfleet.export.formats import effect_picture, shares_picture, tree_picture
from glassfleet.model.baseline import BESIDE, ReferenceRow, reference_of
from glassfleet.model.intervals import tell_forecasts
from glassfleet.model.protocol import nature
from glassfleet.model.rules import Rule
from schemas.codec import document_digest
from schemas.errors import GlassfleetError


class SvgText(str):
    """A drawing as SVG text; a notebook shows it."""

    __slots__ = ()

    def _repr_svg_(self) -> str:
        return str(self)


@contextmanager
def value_errors() -> Iterator[None]:
    """Turn our errors into the ValueError that users of scikit-learn expect."""
    try:
        yield
    except GlassfleetError as fault:
        raise ValueError(str(fault)) from fault


class LearnedEstimator(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """An estimator once it has learned; :class:`~glassfleet.estimators.base.SchemeEstimator` learns."""

    _scheme_name = ""

    domain_: Domain
    target_name_: str
    reference_: ReferenceRow | None
    n_features_in_: int

    def show_rules(self, top: int | None = None) -> None:
        """Print the rules, the most used first; only the first `top` of them, where it is given."""
        print(self.summary(top))  # noqa: T201  to show is what it is for

    def summary(self, top: int | None = None) -> ModelSummary:
        """Tell the model as a whole: its size, rules (at most `top`), and how it uses the inputs."""
        check_is_fitted(self)
        return summary(self.model_, top=top)

    @property
    def feature_importances_(self) -> NDArray[np.float64]:
        """By how much each input alone moves the answer, shape (F,), adding up to one: see `importance` in explain."""
        check_is_fitted(self)
        moved = importance(self.model_, self.reference_, self.domain_.names)
        if not moved:
            raise AttributeError("vehicles make trees of these structures; they have no importances of their own")
        values = np.array([moved[name] for name in self.domain_.names])
        return values / (values.sum() or 1.0)

    def rules_frame(self, library: Literal["pandas", "polars", "pyarrow"] = "pandas") -> Any:
        """Return the rules as a data frame: a line for each condition and each term of what a rule says.

        Parameters
        ----------
        library : {"pandas", "polars", "pyarrow"}
            Which makes the frame.

        Returns
        -------
        data frame
            With the columns `rule` (from 0), `says` (the target, or the class whose score it is) and `input` (empty:
            the constant). `low` and `high` are where the condition on the input holds to a degree (NaN: none). Then
            `coefficient` (in own units; NaN: none) and `weight` (of the rule, [0, 1]).
        """
        check_is_fitted(self)
        lines: list[tuple[int, str, str, float, float, float, float]] = []
        for rule in self.rules_:
            where = {part.feature: (part.low, part.high) for part in rule.conditions if not part.about_cell}
            for says in rule.consequent.scores or (rule.consequent,):
                constant = says.value if isinstance(says.value, int | float) else np.nan
                terms = [
                    ("", constant),
                    *((own.name, own.per_unit) for own in says.slopes or ()),
                ]
                terms += [(name, np.nan) for name in where if name not in dict(terms)]
                lines += [
                    (rule.index, says.target, name, *where.get(name, (np.nan, np.nan)), value, rule.weight)
                    for name, value in terms
                ]
        names = ("rule", "says", "input", "low", "high", "coefficient", "weight")
        columns = dict(zip(names, map(list, zip(*lines, strict=True)), strict=True))
        return nw.from_dict(columns, backend=library).to_native()

    def explain(self, x: Any) -> RowExplanation:
        """Say why the model predicts what it does for one row.

        The base is its prediction for the mean of the training rows, where the scheme tells that row; the shares say
        how `x` differs from it: see :func:`glassfleet.explain.explained`.

        Parameters
        ----------
        x : array-like of shape (F,), mapping of column to value, series, or data frame of one row

        Raises
        ------
        ValueError
            It is not one row, or lacks an input.
        """
        row = self._row(x)
        return explain_row(self.model_, row, self.reference_)

    def counterfactual(self, x: Any, goal: str | None = None) -> Counterfactual:
        """Find the smallest change of a row that gives another outcome.

        Parameters
        ----------
        x : one row, as for :meth:`explain`
        goal : str or None
            A class; ``">3.5"`` or ``"<3.5"``; ``"+0.5"`` or ``"-10%"`` (of the target's range); ``"+-0.5"``, either
            way. None: another class, or a tenth of the range either way.

        Raises
        ------
        ValueError
            It is not one row, or the goal is none of these.
        """
        row = self._row(x)
        with value_errors():
            sought = None if goal is None else Goal.parse(str(goal), self.domain_)
            return counterfactual(self.model_, row, sought)

    def plot_tree(self) -> SvgText:
        """Draw the rules as a tree; where they are a list, it asks the inputs one after the other.

        Raises
        ------
        ValueError
            The model is a network.
        """
        check_is_fitted(self)
        with value_errors():
            return SvgText(tree_picture(self.model_))

    def plot_explanation(self, x: Any) -> SvgText:
        """Draw how the inputs' shares of one row add up to its forecast.

        Parameters
        ----------
        x : one row, as for :meth:`explain`

        Raises
        ------
        ValueError
            It is not one row, or its forecast has no shares.
        """
        explained = self.explain(x)
        with value_errors():
            return SvgText(shares_picture(explained))

    def plot_effect(self, feature: str | int, row: Any = None) -> SvgText:
        """Draw how the answer moves with one input while the others stay.

        Parameters
        ----------
        feature : str or int
            Name or number of the input.
        row : one row, as for :meth:`explain`, or None
            What the others are; None: the mean of the training rows, or an example where the scheme tells no mean.

        Raises
        ------
        ValueError
            There is no such input, or `row` is not one row.
        """
        check_is_fitted(self)
        domain = self.domain_
        stay = (
            starting_row(self.model_, self.reference_) if row is None else ReferenceRow(self._row(row), "the row given")
        )
        with value_errors():
            names: dict[str | int, str] = dict(enumerate(domain.names))
            curve = effect(self.model_, stay.row, names.get(feature, str(feature)))
        return SvgText(effect_picture(self.model_, curve, stay.words))

    def to_c(self, prefix: str = "model") -> str:
        """Return the model as a C99 header; its names begin with `prefix`."""
        check_is_fitted(self)
        with value_errors():
            return to_c(self.model_, prefix)

    def to_fml(self) -> str:
        """Return the model as FML (IEEE 1855)."""
        check_is_fitted(self)
        with value_errors():
            return to_fml(self.model_)

    def save(self, path: str | Path) -> None:
        """Write a JSON file with the model, for :meth:`load` and for ``glassfleet model explain``."""
        check_is_fitted(self)
        whole = json.loads(export(self.model_, "json"))
        Path(path).write_text(json.dumps(whole | self._saved(), indent=2, ensure_ascii=False), encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Return an estimator with the model of a file: saved, exported by a fleet as JSON, or a fleet's record.

        It has this class's default parameters; they are for the next ``fit``.

        Raises
        ------
        ValueError
            The file holds no model, or one of another scheme.
        OSError
            It cannot be read.
        """
        data = Path(path).read_bytes()
        learner = cls()
        with value_errors():
            record, model = read_model(data, str(path))
            if model.scheme != cls._scheme_name:
                raise ValueError(
                    f"{path} holds a model of scheme {model.scheme}, and {cls.__name__} is for {cls._scheme_name}"
                )
            if bool(model.domain.classes) != is_classifier(learner):
                kind = "classes" if model.domain.classes else "numbers"
                raise ValueError(f"{path} holds a model that forecasts {kind}, which {cls.__name__} does not")
            whole = json.loads(data) if data.lstrip()[:1] == b"{" else {}
            learner._take(model, whole if record is None else {**whole, **record.parameters})
        return learner

    def _take(self, model: Any, whole: Mapping[str, Any]) -> None:
        """Answer with a model out of a file; `whole` is the file, where it is JSON."""
        self.domain_ = model.domain
        self.target_name_ = model.domain.target_name
        self.n_features_in_ = len(model.domain.names)
        if whole.get("named_columns", True):
            self.feature_names_in_ = np.array(model.domain.names, dtype=object)
        self._answer_with(model, whole)

    def _saved(self) -> dict[str, Any]:
        """Return what the model's document does not know."""
        return {"named_columns": hasattr(self, "feature_names_in_"), **self._beside}

    def _html_repr(self) -> str:
        """Return what a notebook shows of a fitted estimator: its picture and its rules."""
        if not hasattr(self, "model_"):
            return str(super()._html_repr())
        html = self.summary()._repr_html_()
        if nature(self.model_) == "network":
            return html
        code = base64.b64encode(tree_picture(self.model_).encode()).decode("ascii")
        return f'<img alt="" style="max-width: 100%" src="data:image/svg+xml;base64,{code}">{html}'

    def _row(self, x: Any) -> NDArray[np.float64]:
        """Return the numbers of one row, shape (F,)."""
        check_is_fitted(self)
        given, x = x, row_of(x)
        if np.ndim(x) == 2 and np.shape(x)[0] != 1:
            raise ValueError(f"one row is needed, got {np.shape(x)[0]}")
        if x is not given:
            for each in self.domain_.features:  # a row of a table is taken as `predict` takes it, whatever its texts
                if each.categories and isinstance(x.get(each.name), str):
                    x[each.name] = code_of(x[each.name], each.categories)
        with value_errors():
            return as_row(self.domain_, x)

    def _answer_with(self, model: Any, beside: Mapping[str, Any]) -> None:
        """Answer with a model and what is recorded beside it: see :func:`glassfleet.model.baseline.recorded`."""
        self._beside = {name: beside[name] for name in BESIDE if name in beside}
        self.reference_ = reference_of(beside, model.domain)
        tell_forecasts(model, beside)
        self.model_ = model
        self.digest_ = document_digest(model.to_document())
        self.rules_: list[Rule] = list(model.rules())
        self.complexity_ = dict(model.complexity())
