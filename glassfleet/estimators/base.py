"""What all scikit-learn style estimators share: rows in, a scheme's run, a model out. Needs scikit-learn.

An estimator is a dataclass whose fields are its parameters. It names its scheme in ``_scheme_name`` and takes some of
the scheme's parameters by their own names; those that it does not take have the scheme's defaults.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils import check_random_state, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from glassfleet.contract import catalogue
from glassfleet.contract.scheme import Scheme, promises_central
from glassfleet.data.categories import encode_inputs
from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain
from glassfleet.discovery import DiscoveryParameters, discover
from glassfleet.estimators.frames import coded, label_texts, name_of, text_columns, without_sign_of_zero
from glassfleet.estimators.learned import LearnedEstimator, value_errors
from glassfleet.model.baseline import recorded
from glassfleet.model.intervals import errors_on, far_outside, intervals
from glassfleet.numerics.grids import LOG_EDGES
from glassfleet.simulation import Outcome, central, federated

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
    model_ : glassfleet.model.protocol.Model
        The learned model.
    digest_ : str
        SHA-256 of its document, in hexadecimal: equal digests, equal models.
    rules_ : list of glassfleet.model.rules.Rule
        Its rules; none for a black box.
    reference_ : glassfleet.model.baseline.ReferenceRow or None
        The mean of the training rows, with which explanations compare; None where the scheme does not tell it.
    complexity_ : dict of str to float
        Size measures by name.
    outcome_ : glassfleet.simulation.Outcome
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
        return self._fit(X, y, lambda data: (data, data))

    def _fit(self, X: Any, y: Any, weigh: Callable[[Dataset], tuple[Dataset, Dataset]]) -> Self:
        """Learn; `weigh` makes of the rows those to learn from, and those in which limits and classes are found."""
        parameters = self._parameters()
        self.target_name_ = name_of(y)
        data, counted = weigh(self._dataset(X, y, reset=True))
        with value_errors():
            domain = self.domain or self._discovered([counted], exact=True)
            outcome = self._central(parameters, domain, data)
        return self._keep(domain, outcome)

    def fit_federated(self, parties: Sequence[tuple[Any, Any]]) -> Self:
        """Learn from several parties' condensed rows: not quite what :meth:`fit` learns, unless ``exact=True``.

        So that no row of theirs can be computed, parties answer from made-up rows, drawn with the mean and scatter of
        groups of their own, and tell no count below ``min_rows``. Limits and model then differ from those of ``fit``:
        less with thousands of rows each, much with tens. With ``exact=True`` rows are used as they are, and the
        document is that of ``fit`` on all rows, to the last bit (``digest_``). Estimators without this parameter cannot
        promise that; their class says why.

        Parameters
        ----------
        parties : sequence of (X, y)
            As for :meth:`fit`; the same columns everywhere. Some may have no rows.

        Raises
        ------
        ValueError
            The data or a parameter cannot be used, or there is no party.
        """
        if not parties:
            raise ValueError("parties is empty; at least one (X, y) is needed")
        if any(len(party) > 2 for party in parties):
            raise ValueError("a party is (X, y): only fit takes sample_weight, as vehicles' rows have none")
        exact = getattr(self, "exact", False)
        parameters = self._scheme().exact(self._parameters()) if exact else self._parameters()
        self.target_name_ = name_of(parties[0][1])
        parts = self._datasets(parties)
        fleet = {f"party-{index:05d}": part for index, part in enumerate(parts)}
        with value_errors():
            domain = self.domain or self._discovered(parts, exact=exact)
            outcome = federated(self._scheme(), parameters, domain, fleet, self._seed())
        return self._keep(domain, outcome, parts)

    def _central(self, parameters: Any, domain: Domain, data: Dataset) -> Outcome:
        return central(self._scheme(), parameters, domain, data, self._seed())

    def _datasets(self, parties: Sequence[tuple[Any, Any]]) -> list[Dataset]:
        texts = text_columns([X for X, _ in parties]) if self._scheme().abilities.categories else ()
        return [self._dataset(X, y, texts, reset=index == 0, least=0) for index, (X, y) in enumerate(parties)]

    def _dataset(self, X: Any, y: Any, texts: Collection[str] = (), *, reset: bool, least: int = 1) -> Dataset:
        """Return rows as schemes take them, `least` or more; columns `texts` are of text, whatever is in them."""
        raise NotImplementedError

    def _discovered(self, parts: Sequence[Dataset], *, exact: bool) -> Domain:
        """Return the domain as a fleet finds it; an `exact` one depends on all rows alone, however they are split."""
        for data in parts:
            numbers = {data.target: data.y} if data.y.dtype.kind == "f" else {}
            for name, column in (dict(zip(data.features, data.X.T, strict=True)) | numbers).items():
                if (column > LOG_EDGES[-1]).any() or (column < -LOG_EDGES[-1]).any():
                    raise ValueError(
                        f"column {name!r} has a value beyond 1e16: give it in another unit, or give domain"
                    )
        search = self._discovery(parts[0])
        return discover(search.exact() if exact else search, parts)

    def _discovery(self, data: Dataset) -> DiscoveryParameters:
        return DiscoveryParameters(
            features=data.features,
            target=data.target,
            input_quantiles=self.input_quantiles,
            min_count=getattr(self, "min_rows", MIN_ROWS),
            categories=self._scheme().abilities.categories,
            missing=self._scheme().abilities.missing_cells,
            excess=self._scheme().abilities.excess,
        )

    def __sklearn_tags__(self) -> Any:
        """Return what scikit-learn asks: NaN is taken where the scheme takes empty cells."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self._scheme().abilities.missing_cells
        return tags

    @property
    def _finite(self) -> bool | str:
        """What scikit-learn's validation is told of the cells that may be there."""
        return "allow-nan" if self._scheme().abilities.missing_cells else True

    def _checked(
        self, X: Any, y: Any, texts: Collection[str], *, reset: bool, least: int, is_number: bool = False
    ) -> tuple[NDArray[np.float64], NDArray[Any], dict[str, tuple[str, ...]]]:
        """Return rows and targets that scikit-learn finds valid, `least` or more, and the texts by column."""
        X, categories = coded(X, self._scheme(), type(self).__name__, texts)
        rows, target = validate_data(
            self,
            X,
            y,
            dtype=np.float64,
            y_numeric=is_number,
            reset=reset,
            ensure_all_finite=self._finite,
            ensure_min_samples=least,
        )
        return rows, target, categories

    def _rows(self, X: Any) -> NDArray[np.float64]:
        """Return rows to predict, shape (n, F), with categories as the domain numbers them."""
        check_is_fitted(self)
        texts = [each.name for each in self.domain_.features if each.categories]
        X, categories = coded(X, self._scheme(), type(self).__name__, texts)
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

    def _scheme(self) -> Scheme:
        return catalogue.load(self._scheme_name)

    def _parameters(self) -> Any:
        known = self._scheme().Parameters.model_fields
        chosen = {name: value for name, value in self.get_params(deep=False).items() if name in known}
        try:
            parameters = self._scheme().Parameters.model_validate(chosen)
        except ValidationError as fault:
            first = fault.errors(include_url=False)[0]
            raise ValueError(f"parameter {'.'.join(map(str, first['loc']))}: {first['msg']}") from fault
        if getattr(self, "exact", False) and not promises_central(self._scheme(), self._scheme().exact(parameters)):
            words = {name: value for name, value in chosen.items() if isinstance(value, str)}
            given = [f"{name}={value!r}" for name, value in words.items() if value != getattr(type(self), name)]
            raise ValueError(
                f"exact=True: with {', '.join(given)} parties do not learn what one learns from all rows; leave one out"
            )
        return parameters

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
        """Predict rows `X`, shape (n, F); returns shape (n,), in the target's own unit.

        Warns where forecasts are far outside the target's limits, as lines that few rows gave may be.
        """
        rows = self._rows(X)
        forecasts: NDArray[np.float64] = self.model_.predict(rows)
        if not self.domain_.excess and (far := far_outside(self.domain_, forecasts)):
            warnings.warn(f"{far}; FuzzyTreeRegressor does not leave them so", UserWarning, stacklevel=2)
        return forecasts

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

    def _dataset(self, X: Any, y: Any, texts: Collection[str] = (), *, reset: bool, least: int = 1) -> Dataset:
        rows, target, categories = self._checked(X, y, texts, reset=reset, least=least, is_number=True)
        return self._named(rows, target.astype(np.float64), categories)


class SchemeClassifier(ClassifierMixin, SchemeEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A scheme that learns a class. The labels may be of any type that scikit-learn takes; schemes see them as text.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels, sorted. After :meth:`fit_federated` without those that no party has in ``min_rows`` rows.
    """

    def predict(self, X: Any) -> NDArray[Any]:
        """Classify rows `X`, shape (n, F); returns labels of ``classes_``, shape (n,)."""
        rows = self._rows(X)
        number = {text: index for index, text in enumerate(label_texts(self.classes_))}
        return np.asarray(self.classes_)[[number[text] for text in self.model_.predict(rows).tolist()]]

    def _datasets(self, parties: Sequence[tuple[Any, Any]]) -> list[Dataset]:
        # One type for all labels: else 1 of one party and 1.0 of another would be two classes.
        columns = [column_or_1d(y) for _, y in parties]
        together = without_sign_of_zero(np.concatenate([column for column in columns if len(column)] or columns))
        ends = np.cumsum([len(column) for column in columns])
        labels = np.split(together, ends[:-1])
        parts = super()._datasets([(X, own) for (X, _), own in zip(parties, labels, strict=True)])
        self._seen = np.unique(together)
        return parts

    def _dataset(self, X: Any, y: Any, texts: Collection[str] = (), *, reset: bool, least: int = 1) -> Dataset:
        rows, labels, categories = self._checked(X, y, texts, reset=reset, least=least)
        check_classification_targets(labels)
        labels = without_sign_of_zero(labels)
        self._seen = np.unique(labels)
        return self._named(rows, np.array(label_texts(labels), dtype=np.str_), categories)

    def _discovery(self, data: Dataset) -> DiscoveryParameters:
        return super()._discovery(data).model_copy(update={"labels": True})

    def _keep(self, domain: Domain, outcome: Outcome, parts: Sequence[Dataset] = ()) -> Self:
        label = dict(zip(label_texts(self._seen), self._seen, strict=True))
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
