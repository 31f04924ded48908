"""What all scikit-learn style estimators share: rows in, a scheme's run, a model out. Needs scikit-learn.

An estimator is a dataclass whose fields are its parameters. It names its scheme in ``_scheme_name`` and takes some of
the scheme's parameters by their own names; those that it does not take have the scheme's defaults.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils import check_random_state, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from glassfleet import catalogue
from glassfleet.data.categories import MAX_LENGTH, encode_inputs
from glassfleet.data.cells import MISSING, truth_of
from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain, Variable, quantile_variables
from glassfleet.discovery import DiscoveryParameters, discover
from glassfleet.estimators.learned import LearnedEstimator, value_errors
from glassfleet.intervals import errors_on, intervals
from glassfleet.local import Outcome, central, federated
from glassfleet.reference import recorded
from glassfleet.scheme import Scheme
from glassfleet.traits import takes_categories, takes_missing
from schemas.limits import MAX_CATEGORIES

RandomState: TypeAlias = int | np.random.RandomState | None
"""scikit-learn's word for a seed; None: another one at every fit."""

MIN_ROWS = 3
"""Limits that parties find together rest on no count of fewer rows, unless the estimator has a ``min_rows``."""


@dataclass(kw_only=True, eq=False, repr=False)
class SchemeEstimator(LearnedEstimator):
    """A scheme as an estimator. Subclasses have ``_scheme_name`` and further parameters.

    Parameters
    ----------
    input_quantiles : (float, float), default (0.025, 0.975)
        Quantiles of each input that become the domain's limits; fuzzy rules and networks clip values outside.
    domain : Domain or None, default None
        Limits, and classes (as texts), to use instead of finding them.

    Attributes
    ----------
    n_features_in_ : int
    feature_names_in_ : ndarray of str, shape (n_features_in_,)
        Only when `X` has column names that are text.
    target_name_ : str
        The name of `y` (a series, or a frame of one column), else ``"y"``.
    domain_ : Domain
        The limits used.
    model_ : glassfleet.scheme.Model
        The learned model.
    rules_ : list of glassfleet.explain.Rule
        Its rules; none for a black box.
    reference_ : glassfleet.reference.Reference or None
        The mean of the training rows, with which explanations compare; None where the scheme does not tell it.
    complexity_ : dict of str to float
        Size measures by name.
    outcome_ : glassfleet.local.Outcome
        Rounds, bytes and nullified statistics of the run. Not after :meth:`load`.
    """

    _scheme_name = ""

    input_quantiles: tuple[float, float] = (0.025, 0.975)
    domain: Domain | None = None

    def fit(self, X: Any, y: Any) -> Self:
        """Learn from all rows (central learning).

        Parameters
        ----------
        X : array-like of shape (n, F)
            Finite numbers, in their own units. A data frame's column names are kept, and its columns of text are
            categories, where the scheme takes them. NaN is an empty cell, where the scheme takes such.
        y : array-like of shape (n,)
            Finite numbers, or class labels for a classifier.

        Raises
        ------
        ValueError
            The data or a parameter cannot be used.
        """
        parameters = self._parameters()
        self.target_name_ = _name_of(y)
        data = self._dataset(X, y, reset=True)
        domain = self.domain or self._own_domain(data)
        with value_errors():
            outcome = self._central(parameters, domain, data)
        return self._keep(domain, outcome)

    def fit_federated(self, parties: Sequence[tuple[Any, Any]]) -> Self:
        """Learn from the rows of several parties, none of which sees another's.

        Limits of the columns (and a classifier's classes) are found from additive histograms unless ``domain`` is
        given.

        Parameters
        ----------
        parties : sequence of (X, y)
            As for :meth:`fit`; the same columns everywhere.

        Raises
        ------
        ValueError
            The data or a parameter cannot be used, or there is no party.
        """
        if not parties:
            raise ValueError("parties is empty; at least one (X, y) is needed")
        parameters = self._parameters()
        self.target_name_ = _name_of(parties[0][1])
        parts = self._datasets(parties)
        fleet = {f"party-{index:05d}": part for index, part in enumerate(parts)}
        with value_errors():
            domain = self.domain or discover(self._discovery(parts[0]), parts)
            outcome = federated(self._scheme(), parameters, domain, fleet, self._seed())
        return self._keep(domain, outcome, parts)

    def _central(self, parameters: Any, domain: Domain, data: Dataset) -> Outcome:
        return central(self._scheme(), parameters, domain, data, self._seed())

    def _datasets(self, parties: Sequence[tuple[Any, Any]]) -> list[Dataset]:
        return [self._dataset(X, y, reset=index == 0) for index, (X, y) in enumerate(parties)]

    def _dataset(self, X: Any, y: Any, *, reset: bool) -> Dataset:
        raise NotImplementedError

    def _own_domain(self, data: Dataset) -> Domain:
        raise NotImplementedError

    def _discovery(self, data: Dataset) -> DiscoveryParameters:
        return DiscoveryParameters(
            features=data.features,
            target=data.target,
            input_quantiles=self.input_quantiles,
            min_count=getattr(self, "min_rows", MIN_ROWS),
            categories=takes_categories(self._scheme()),
            missing=takes_missing(self._scheme()),
        )

    def __sklearn_tags__(self) -> Any:
        """Return what scikit-learn asks: NaN is taken where the scheme takes empty cells."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = takes_missing(self._scheme())
        return tags

    @property
    def _finite(self) -> bool | str:
        """What scikit-learn's validation is told of the cells that may be there."""
        return "allow-nan" if takes_missing(self._scheme()) else True

    def _coded(self, X: Any, learned: Collection[str] = ()) -> tuple[Any, dict[str, tuple[str, ...]]]:
        """Return a data frame with its texts as positions among them, and the texts by column; other rows as given.

        Columns `learned` are texts, though only whole numbers may be here.
        """
        categories: dict[str, tuple[str, ...]] = {}
        if not hasattr(X, "select_dtypes"):
            return X, categories
        for name, column in X.items():
            if column.dtype.kind in "mM":
                raise ValueError(f"column {name!r} holds times: make numbers of it, e.g. the hour, or leave it out")
            if column.dtype.kind in "bfc" or (column.dtype.kind in "iu" and name not in learned):
                continue
            if name not in learned and not any(isinstance(cell, str) for cell in column):
                continue
            truth = (
                None if takes_categories(self._scheme()) else truth_of(cell for cell in column if isinstance(cell, str))
            )
            if truth is not None:
                X = X.assign(**{name: column.map(truth)})
                continue
            if not takes_categories(self._scheme()):
                raise ValueError(
                    f"column {name!r} holds text, and {type(self).__name__} takes numbers: leave it out, or encode it"
                )
            if column.isna().any():
                if not takes_missing(self._scheme()):
                    raise ValueError(f"column {name!r} has empty cells: fill them, or leave these rows out")
                column = column.astype(object).where(column.notna(), MISSING)  # noqa: PLW2901
            texts, codes = np.unique(column.astype(str).to_numpy(dtype=np.str_), return_inverse=True)
            X, categories[name] = X.assign(**{name: codes}), tuple(texts.tolist())
        return X, categories

    def _rows(self, X: Any) -> NDArray[np.float64]:
        """Return rows to predict, shape (n, F), with categories as the domain numbers them."""
        check_is_fitted(self)
        X, categories = self._coded(X, [each.name for each in self.domain_.features if each.categories])
        rows = validate_data(self, X, dtype=np.float64, reset=False, ensure_all_finite=self._finite)
        with value_errors():
            return encode_inputs(self._named(rows, np.zeros(len(rows)), categories), self.domain_)

    def _named(
        self, rows: NDArray[np.float64], target: NDArray[Any], categories: Mapping[str, tuple[str, ...]]
    ) -> Dataset:
        given = getattr(self, "feature_names_in_", None)
        names = [f"x{index}" for index in range(rows.shape[1])] if given is None else [str(name) for name in given]
        # A target called like an input would be ambiguous in the rules.
        named = self.target_name_
        return Dataset(
            tuple(names), f"target of {named}" if named in names else named, rows, target, categories=categories
        )

    def _predicted(self, X: Any) -> NDArray[Any]:
        rows = self._rows(X)
        predicted: NDArray[Any] = self.model_.predict(rows)
        return predicted

    def _features(self, data: Dataset) -> tuple[Variable, ...]:
        """Return exact quantiles of one party's own rows; all categories."""
        for name, texts in data.categories.items():
            if len(texts) > MAX_CATEGORIES:
                raise ValueError(f"column {name!r} has {len(texts)} different texts, at most {MAX_CATEGORIES} can be")
        return quantile_variables(data.features, data.X, self.input_quantiles, data.categories)

    def _scheme(self) -> Scheme:
        return catalogue.load(self._scheme_name)

    def _parameters(self) -> Any:
        known = self._scheme().Parameters.model_fields
        chosen = {name: value for name, value in self.get_params(deep=False).items() if name in known}
        try:
            return self._scheme().Parameters.model_validate(chosen)
        except ValidationError as fault:
            first = fault.errors(include_url=False)[0]
            raise ValueError(f"parameter {'.'.join(map(str, first['loc']))}: {first['msg']}") from fault

    def _seed(self) -> int:
        """Return the run's seed; estimators without chance have no ``random_state``, and any seed will do."""
        state = getattr(self, "random_state", 0)
        if isinstance(state, int | np.integer) and not isinstance(state, bool) and state >= 0:
            return int(state)
        return int(check_random_state(state).randint(2**31 - 1))

    def _keep(self, domain: Domain, outcome: Outcome, parts: Sequence[Dataset] = ()) -> Self:  # noqa: ARG002
        """Keep what was learned; `parts` are the parties' rows, for schemes that make more of the model with them."""
        self.domain_ = domain
        self.outcome_ = outcome
        self._answer_with(outcome.model, recorded(outcome.summary))
        return self


class SchemeRegressor(RegressorMixin, SchemeEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A scheme that learns a number."""

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Predict rows `X`, shape (n, F); returns shape (n,), in the target's own unit."""
        return self._predicted(X)

    def calibrate(self, X: Any, y: Any) -> Self:
        """Count the errors on rows that the model was not fitted to; intervals and the rules' errors rest on them.

        Parameters
        ----------
        X : array-like of shape (n, F)
        y : array-like of shape (n,)
        """
        check_is_fitted(self)
        errors = errors_on(self.model_, self._rows(X), column_or_1d(y).astype(np.float64))
        known = {name: value for name, value in self._beside.items() if name != "errors"}
        self._answer_with(self.model_, {**known, **recorded({}, errors)})
        return self

    def predict_interval(self, X: Any) -> NDArray[np.float64]:
        """Return where nine of ten true values of rows `X` are, shape (n, 2); needs :meth:`calibrate`.

        Raises
        ------
        ValueError
            The model has no rules to count errors by, or was not calibrated with enough rows.
        """
        check_is_fitted(self)
        limits = intervals(self.model_, self._rows(X))
        if not np.isfinite(limits).all():
            raise ValueError("no intervals are known: call calibrate(X, y) with at least 19 rows; networks have none")
        return limits

    def _dataset(self, X: Any, y: Any, *, reset: bool) -> Dataset:
        X, categories = self._coded(X)
        rows, target = validate_data(
            self, X, y, dtype=np.float64, y_numeric=True, reset=reset, ensure_all_finite=self._finite
        )
        return self._named(rows, target.astype(np.float64), categories)

    def _own_domain(self, data: Dataset) -> Domain:
        target = Variable(name=data.target, low=float(data.y.min()), high=float(data.y.max()))
        return Domain(features=self._features(data), target=target)


class SchemeClassifier(ClassifierMixin, SchemeEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A scheme that learns a class. The labels may be of any type that scikit-learn takes; schemes see them as text.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels, sorted. After :meth:`fit_federated` without those that no party has in ``min_rows`` rows.
    """

    def predict(self, X: Any) -> NDArray[Any]:
        """Classify rows `X`, shape (n, F); returns labels of ``classes_``, shape (n,)."""
        answers = self._predicted(X)
        number = {text: index for index, text in enumerate(_texts(self.classes_))}
        return np.asarray(self.classes_)[[number[text] for text in answers.tolist()]]

    def _datasets(self, parties: Sequence[tuple[Any, Any]]) -> list[Dataset]:
        # One type for all labels: else 1 of one party and 1.0 of another would be two classes.
        columns = [column_or_1d(y) for _, y in parties]
        together = np.concatenate(columns)
        ends = np.cumsum([len(column) for column in columns])
        labels = np.split(together, ends[:-1])
        parts = super()._datasets([(X, own) for (X, _), own in zip(parties, labels, strict=True)])
        self._seen = np.unique(together)
        return parts

    def _dataset(self, X: Any, y: Any, *, reset: bool) -> Dataset:
        X, categories = self._coded(X)
        rows, labels = validate_data(self, X, y, dtype=np.float64, reset=reset, ensure_all_finite=self._finite)
        check_classification_targets(labels)
        self._seen = np.unique(labels)
        return self._named(rows, np.array(_texts(labels), dtype=np.str_), categories)

    def _own_domain(self, data: Dataset) -> Domain:
        return Domain(features=self._features(data), label=data.target, classes=tuple(sorted(set(data.y.tolist()))))

    def _discovery(self, data: Dataset) -> DiscoveryParameters:
        return super()._discovery(data).model_copy(update={"labels": True})

    def _keep(self, domain: Domain, outcome: Outcome, parts: Sequence[Dataset] = ()) -> Self:
        label = dict(zip(_texts(self._seen), self._seen, strict=True))
        del self._seen
        unseen = [text for text in domain.classes if text not in label]
        if unseen and not all(isinstance(value, str) for value in label.values()):
            raise ValueError(f"the domain has the class {unseen[0]!r}, and no row does; its label's type is not known")
        kept = [label.get(text, text) for text in domain.classes]
        # Labels out of an array of objects keep their type.
        plain = all(isinstance(value, np.generic) for value in label.values())
        self.classes_ = np.unique(np.asarray(kept, dtype=None if plain else object))
        return super()._keep(domain, outcome, parts)

    def _saved(self) -> dict[str, Any]:
        return super()._saved() | {"labels": self.classes_.tolist()}

    def _take(self, model: Any, whole: Mapping[str, Any]) -> None:
        self.classes_ = np.unique(np.asarray(whole.get("labels", model.domain.classes)))
        super()._take(model, whole)


def _name_of(y: Any) -> str:
    """Return the name of a column of targets as pandas knows it."""
    names = getattr(y, "columns", [getattr(y, "name", None)])
    return names[0] if len(names) == 1 and isinstance(names[0], str) and names[0] else "y"


def _texts(labels: Iterable[Any]) -> list[str]:
    """Return labels as the texts that name them in documents and rules: 1 is ``"1"``."""
    texts = [str(label) for label in labels]
    for text in texts:
        if not 0 < len(text) <= MAX_LENGTH:
            raise ValueError(f"a class label must be a text of 1 to {MAX_LENGTH} characters, got {text[:20]!r}")
    return texts
