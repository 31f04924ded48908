"""Parameters of the TSK fuzzy rule-based system."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from glassfleet.data.documents import RunParameters
from glassfleet.fuzzy.partition import MAX_SETS
from glassfleet.numerics.statistics import capacity, gram_capacity
from glassfleet.schemes.tsk.clusters import cluster_capacity

MAX_CLUSTERS = 1000
"""Most clusters of a vehicle's fuzzy C-means, hence most rules that it can find."""


class TskParameters(RunParameters):
    """Parameters of a run of TSK.

    Attributes
    ----------
    n_sets : int
        Fuzzy sets per input, T.
    n_clusters : int
        Clusters of fuzzy C-means: the most rules that one set of rows gives.
    tolerance : float
        Clustering ends when the Frobenius norm of the change of all memberships is below this.
    max_iterations : int
        Clustering of one set of rows ends after as many iterations.
    patience : int
        Common clustering also ends when as many iterations in a row left all antecedents as they were: what follows
        moves centres a little and costs a round each.
    max_rounds : int
        Common clustering ends after as many iterations, each of which is a round.
    cluster_seed : int
        Of the memberships, or centres, that the clustering starts with.
    consequents : {"pooled", "averaged"}
        ``"pooled"``: the least-squares polynomials of all agents' rows, from exact sums. ``"averaged"`` (the paper):
        each agent fits its own, and those of equal antecedents are averaged by rule weight (Eq. 10, 11).
    antecedents : {"federated", "local"}
        ``"federated"`` (the default with pooled consequents): all agents cluster together with exact sums, one round
        per iteration; the model then equals the central one, bit for bit. ``"local"`` (the paper; the default with
        averaged ones): each agent clusters its own rows; the model has the union of what they find.
    otherwise : bool
        Pooled consequents: one more rule, OTHERWISE, answers where no rule fires. Without it, and with averaged
        consequents (the paper), the rule with the largest weight does.
    inference : {"maximum_matching", "weighted_average"}
        One rule answers, or all that fire are averaged by strength (Eq. 3).
    nullify : bool
        Agents protect their rows: see `min_rows`. False: they do not.
    min_rows : int
        Agents answer from condensed rows (:mod:`glassfleet.data.condense`), of groups of at least this many, and of
        more rows than there are columns. 1: from their own.
    fraction_bits : int
        Grid of strengths in sums: multiples of 2^-bits. The default is finer than the smallest strength that counts.
    gram_bits : int
        Grid of the entries of the regressions.
    support : int
        Of private runs, which set it; clustering together only. Rules are left out that rest on fewer rows, and have no
        slopes where rows are fewer than columns. Costs three rounds, and two more where rules are left out. A run ends
        if few rows of a group differ from all others in a column. 0: all is asked.
    """

    later = ("support",)

    n_sets: int = Field(default=3, ge=2, le=MAX_SETS)
    n_clusters: int = Field(default=30, ge=1, le=MAX_CLUSTERS)
    tolerance: float = Field(default=0.005, ge=0.0)
    max_iterations: int = Field(default=1000, ge=1, le=5000)
    patience: int = Field(default=10, ge=1, le=5000)
    max_rounds: int = Field(default=100, ge=1, le=5000)
    cluster_seed: int = Field(default=0, ge=0, lt=2**32)
    consequents: Literal["pooled", "averaged"] = "pooled"
    antecedents: Literal["local", "federated"] = "federated"
    otherwise: bool = True
    inference: Literal["maximum_matching", "weighted_average"] = "maximum_matching"
    nullify: bool = True
    min_rows: int = Field(default=3, ge=1, le=1_000_000)
    fraction_bits: int = Field(default=40, ge=16, le=40)
    gram_bits: int = Field(default=30, ge=16, le=32)
    support: int = Field(default=0, ge=0, le=1_000_000)

    @model_validator(mode="before")
    @classmethod
    def _antecedents_go_with_consequents(cls, given: Any) -> Any:
        if isinstance(given, Mapping) and given.get("antecedents") is None:
            return {**given, "antecedents": "local" if given.get("consequents") == "averaged" else "federated"}
        return given

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.antecedents == "federated" and self.consequents == "averaged":
            raise ValueError('antecedents="federated" goes with consequents="pooled"; averaging is of local rules')
        if self.antecedents == "local" and self.support:
            raise ValueError('support goes with antecedents="federated"')
        return self

    @property
    def max_rows(self) -> int:
        """Largest total number of rows of a run for which no sum can overflow."""
        return min(capacity(self.fraction_bits), gram_capacity(self.gram_bits), cluster_capacity())

    @property
    def group_rows(self) -> int:
        """Fewest rows of a group of condensed rows; 1: rows are not condensed."""
        return self.min_rows if self.nullify else 1
