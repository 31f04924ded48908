"""Scikit-learn style estimators of FedGA's personal trees."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain
from glassfleet.estimators.base import RandomState, SchemeClassifier, SchemeEstimator, SchemeRegressor
from glassfleet.schemes.fedga import PersonalTree, Population
from glassfleet.simulation import Outcome, learn_local


@dataclass(kw_only=True, eq=False, repr=False)
class FedGATree(SchemeEstimator):
    """Personal trees, their structures evolved in the fleet (scheme ``fedga``); use one of its two subclasses.

    ``fit`` grows the tree of one party alone: a CART, its depth chosen by cross-validation. ``fit_federated`` evolves
    a population of structures with all parties; each party then fits the structure that suits its rows best, and has a
    tree of its own, so there is no one model that could be that of all rows. The estimator speaks for one party at a
    time: for the first after ``fit_federated``, for others through :meth:`speak_for`, for a vehicle that joins later
    through :meth:`personalise`.

    Parameters
    ----------
    population : int or None, default None
        Structures that survive a generation; None: 20 for classes, 40 for numbers.
    generations : int, default 100
        How often the population breeds.
    max_depth : int, default 15
        Deepest tree that cross-validation may choose.
    depth : int or None, default None
        Depth of the trees; None: what cross-validation chooses. ``fit`` always asks cross-validation.
    folds : int, default 5
        Of the cross-validation.
    row_epsilon : float or None, default 1.0
        Only for ``fit_federated``: row counts carry Laplace noise of scale 1 / `row_epsilon`; None: no noise.
    min_rows : int, default 3
        Only for ``fit_federated``: parties withhold counts and sums that rest on fewer rows.
    random_state : int, RandomState instance or None, default 0
        Of the evolution, and of the parties' splits into rows that fit and rows that score.

    Attributes
    ----------
    population_ : Population
        After ``fit_federated``: the structures that survived.
    trees_ : list of PersonalTree or Population
        After ``fit_federated``: each party's own model, in the order of the parties.

    See Also
    --------
    glassfleet.estimators.base.SchemeEstimator : for `input_quantiles`, `domain`, further methods and attributes.
    """

    _scheme_name = "fedga"

    population: int | None = None
    generations: int = 100
    max_depth: int = 15
    depth: int | None = None
    folds: int = 5
    row_epsilon: float | None = 1.0
    min_rows: int = 3
    random_state: RandomState = 0

    def speak_for(self, party: int) -> Self:
        """Return a copy that predicts and explains with the tree of the party numbered `party`, from 0.

        Raises
        ------
        ValueError
            ``fit_federated`` was not called, or there is no such party.
        """
        trees: list[PersonalTree | Population] = getattr(self, "trees_", [])
        if not 0 <= party < len(trees):
            raise ValueError(f"there is no party {party}; fit_federated has learned with {len(trees)} parties")
        return self._copy_with(trees[party])

    def personalise(self, X: Any, y: Any) -> Self:
        """Return a copy that predicts with the tree that a party with these rows makes of the population.

        Parameters
        ----------
        X : array-like of shape (n, F)
            The same columns as before.
        y : array-like of shape (n,)
            Targets; rows with a class that the fleet does not know are left out.

        Raises
        ------
        ValueError
            ``fit_federated`` was not called, or the rows do not fit.
        """
        if not hasattr(self, "population_"):
            raise ValueError("there is no population to make a tree of; call fit_federated first")
        return self._copy_with(self.population_.personalise(self._dataset(X, y, reset=False)))

    def _copy_with(self, tree: PersonalTree | Population) -> Self:
        other = copy.copy(self)
        other._answer_with(tree, {})  # noqa: SLF001  a copy of ourselves
        return other

    def _central(self, parameters: Any, domain: Domain, data: Dataset) -> Outcome:
        return learn_local(self._scheme(), parameters, domain, {"": data}, self._seed())[""]

    def _keep(self, domain: Domain, outcome: Outcome, parts: Sequence[Dataset] = ()) -> Self:
        for left in ("population_", "trees_"):  # of an earlier fit
            self.__dict__.pop(left, None)
        super()._keep(domain, outcome, parts)
        if parts:
            self.population_: Population = outcome.model
            self.trees_ = [self.population_.personalise(part) for part in parts]
            self._answer_with(self.trees_[0], {})
        return self


class FedGATreeClassifier(FedGATree, SchemeClassifier):
    """Personal classification tree, its structure evolved in the fleet (scheme ``fedga``).

    See Also
    --------
    FedGATree : for parameters, attributes and methods.
    """


class FedGATreeRegressor(FedGATree, SchemeRegressor):
    """Personal regression tree, its structure evolved in the fleet (scheme ``fedga``).

    See Also
    --------
    FedGATree : for parameters, attributes and methods.
    """
