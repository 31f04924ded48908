"""Scikit-learn style estimators of the papers: fuzzy regression tree, TSK system, Chi classifier, personal trees.

>>> from glassfleet.estimators.papers import ChiClassifier
>>> X = [[0.0], [0.1], [0.2], [2.8], [2.9], [3.0]]
>>> ChiClassifier(n_sets=2).fit(X, ["low", "low", "low", "high", "high", "high"]).predict([[0.3], [2.7]]).tolist()
['low', 'high']
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain
from glassfleet.estimators.base import RandomState, SchemeClassifier, SchemeEstimator, SchemeRegressor
from glassfleet.schemes.fedga import PersonalTree, Population
from glassfleet.simulation import Outcome, learn_local


@dataclass(kw_only=True, eq=False, repr=False)
class FuzzyRegressionTree(SchemeRegressor):
    """Fuzzy regression tree with linear leaves (scheme ``frt``).

    ``fit`` learns from all rows. ``fit_federated`` learns from several parties' condensed rows, so not quite the same;
    with ``exact=True`` the same tree, to the last bit.

    A leaf that few rows reached may forecast far outside the target's limits; ``predict`` then warns.

    Parameters
    ----------
    n_sets : int, default 5
        Fuzzy sets per input.
    min_samples_fraction : float, default 0.1
        Smallest share of the rows, in [0, 1], that a node needs to be split.
    min_gain : float, default 1e-4
        Smallest fuzzy variance reduction of a split, on the scaled target.
    max_depth : int or None, default None
        Deepest level; None: as many as there are inputs.
    order : {0, 1}, default 1
        Constant or linear leaves.
    inference : {"maximum_matching", "weighted_average"}, default "maximum_matching"
        One rule answers, or all that fire are averaged.
    exact : bool, default False
        Only for ``fit_federated``: rows are used as they are; many can be computed from what parties then tell.
    min_rows : int, default 3
        Without `exact`: fewest rows of a group of condensed rows, and behind a count of limits.

    See Also
    --------
    glassfleet.estimators.base.SchemeEstimator : for `input_quantiles`, `domain`, methods and attributes.
    """

    _scheme_name = "frt"

    n_sets: int = 5
    min_samples_fraction: float = 0.1
    min_gain: float = 1e-4
    max_depth: int | None = None
    order: Literal[0, 1] = 1
    inference: Literal["maximum_matching", "weighted_average"] = "maximum_matching"
    exact: bool = False
    min_rows: int = 3


@dataclass(kw_only=True, eq=False, repr=False)
class TSKRegressor(SchemeRegressor):
    """Takagi-Sugeno-Kang rules with linear consequents, antecedents from fuzzy C-means (scheme ``tsk``).

    ``fit`` learns from all rows. ``fit_federated`` learns from several parties' condensed rows, so not quite the same;
    with ``exact=True`` the same system, to the last bit: not with local antecedents or averaged consequents.

    Parameters
    ----------
    n_sets : int, default 3
        Fuzzy sets per input.
    n_clusters : int, default 30
        Clusters: the most rules that one party's rows give.
    tolerance : float, default 0.005
        Clustering ends when the memberships change less (Frobenius norm).
    max_iterations : int, default 1000
        Clustering ends after as many iterations.
    consequents : {"pooled", "averaged"}, default "pooled"
        Least squares over all parties' rows, or the parties' own polynomials averaged by rule weight.
    antecedents : {"federated", "local"} or None, default None
        All parties cluster together with exact sums, or each its own rows. None: together with pooled consequents, each
        its own with averaged ones.
    otherwise : bool, default True
        Pooled consequents only: one more rule answers for rows that no rule covers, instead of the best rule.
    inference : {"maximum_matching", "weighted_average"}, default "maximum_matching"
        One rule answers, or all that fire are averaged.
    exact : bool, default False
        Only for ``fit_federated``: rows are used as they are; many can be computed from what parties then tell.
    min_rows : int, default 3
        Without `exact`: fewest rows of a group of condensed rows, and behind a count of limits.
    random_state : int, RandomState instance or None, default 0
        Of the memberships that the clustering starts with.

    See Also
    --------
    glassfleet.estimators.base.SchemeEstimator : for `input_quantiles`, `domain`, methods and attributes.
    """

    _scheme_name = "tsk"

    n_sets: int = 3
    n_clusters: int = 30
    tolerance: float = 0.005
    max_iterations: int = 1000
    consequents: Literal["pooled", "averaged"] = "pooled"
    antecedents: Literal["local", "federated"] | None = None
    otherwise: bool = True
    inference: Literal["maximum_matching", "weighted_average"] = "maximum_matching"
    exact: bool = False
    min_rows: int = 3
    random_state: RandomState = 0

    def _parameters(self) -> Any:
        # The scheme keeps this seed among its parameters: they decide the model, whoever starts the run.
        return super()._parameters().model_copy(update={"cluster_seed": self._seed() % 2**32})


@dataclass(kw_only=True, eq=False, repr=False)
class ChiClassifier(SchemeClassifier):
    """Fuzzy rule-based classifier of Chi: one condition per input, the rule that fires most answers (scheme ``frbc``).

    ``fit`` learns from all rows. ``fit_federated`` learns from several parties' condensed rows, so not quite the same;
    with ``exact=True`` the same rules, to the last bit: not with ``weights="owners"``.

    Parameters
    ----------
    n_sets : int, default 3
        Fuzzy sets per input.
    weights : {"pooled", "owners"}, default "pooled"
        Rows of all parties weigh a rule, or those of the parties that found it.
    association : {"strength", "strength*weight"}, default "strength"
        What the rules compete by when a row is classified.
    exact : bool, default False
        Only for ``fit_federated``: rows are used as they are; many can be computed from what parties then tell.
    min_rows : int, default 3
        Without `exact`: fewest rows of a group of condensed rows, and behind a count of limits.
    max_rules : int or None, default None
        At most so many rules are kept, those with the largest support.
    min_support : float, default 0.0
        Rules with a smaller support, in [0, 1], are left out.

    See Also
    --------
    glassfleet.estimators.base.SchemeEstimator : for `input_quantiles`, `domain`, methods and attributes.
    """

    _scheme_name = "frbc"

    n_sets: int = 3
    weights: Literal["pooled", "owners"] = "pooled"
    association: Literal["strength", "strength*weight"] = "strength"
    exact: bool = False
    min_rows: int = 3
    max_rules: int | None = None
    min_support: float = 0.0

    def __sklearn_tags__(self) -> Any:
        """Return what scikit-learn asks: three sets of two inputs are too coarse for the blobs of its checks."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True
        return tags


# --- scikit-learn style estimators of FedGA's personal trees ----------------------------------------------------------


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
