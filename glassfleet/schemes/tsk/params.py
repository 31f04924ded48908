"""Parameters of the TSK fuzzy rule-based system."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from glassfleet.fuzzy.partition import MAX_SETS
from glassfleet.schemes.tsk.clusters import cluster_capacity
from glassfleet.statistics import capacity, gram_capacity

MAX_CLUSTERS = 1000
"""Most clusters of a vehicle's fuzzy C-means, hence most rules that it can find."""


class Parameters(BaseModel):
    """What a run of TSK can be told.

    Attributes
    ----------
    n_sets : int
        Fuzzy sets per input, T.
    n_clusters : int
        Clusters of fuzzy C-means: the most rules that one set of rows gives.
    tolerance : float
        Clustering ends when the Frobenius norm of the change of all memberships is below this.
    max_iterations : int
        Clustering ends after as many iterations. With ``antecedents="federated"`` each is a round.
    cluster_seed : int
        Of the memberships that the clustering starts with.
    consequents : {"pooled", "averaged"}
        ``"pooled"``: the least-squares polynomials of all agents' rows, from exact sums. ``"averaged"`` (the paper):
        each agent fits its own, and those of equal antecedents are averaged by rule weight (Eq. 10, 11).
    antecedents : {"local", "federated"}
        ``"local"`` (the paper): each agent clusters its own rows; the model has the union of what they find.
        ``"federated"``: all agents cluster together with exact sums, one round per iteration; the model then equals the
        central one, bit for bit.
    inference : {"maximum_matching", "weighted_average"}
        One rule answers, or all that fire are averaged by strength (Eq. 3).
    nullify : bool
        Agents keep back what rests on fewer than `min_rows` rows.
    min_rows : int
        Fewest rows, with a strength above zero, behind a rule or sum that an agent tells. 1: tells all.
    fraction_bits : int
        Grid of strengths in sums: multiples of 2^-bits. The default is finer than the smallest strength that counts.
    gram_bits : int
        Grid of the entries of the regressions.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    n_sets: int = Field(default=3, ge=2, le=MAX_SETS)
    n_clusters: int = Field(default=30, ge=1, le=MAX_CLUSTERS)
    tolerance: float = Field(default=0.005, ge=0.0)
    max_iterations: int = Field(default=1000, ge=1, le=5000)
    cluster_seed: int = Field(default=0, ge=0, lt=2**32)
    consequents: Literal["pooled", "averaged"] = "pooled"
    antecedents: Literal["local", "federated"] = "local"
    inference: Literal["maximum_matching", "weighted_average"] = "maximum_matching"
    nullify: bool = True
    min_rows: int = Field(default=3, ge=1, le=1_000_000)
    fraction_bits: int = Field(default=40, ge=16, le=40)
    gram_bits: int = Field(default=30, ge=16, le=32)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.antecedents == "federated" and self.consequents == "averaged":
            raise ValueError('antecedents="federated" goes with consequents="pooled"; averaging is of local rules')
        return self

    @property
    def max_rows(self) -> int:
        """Largest total number of rows of a run for which no sum can overflow."""
        return min(capacity(self.fraction_bits), gram_capacity(self.gram_bits), cluster_capacity())

    @property
    def threshold(self) -> int:
        """Fewest rows that may leave an agent as a rule or as a sum."""
        return self.min_rows if self.nullify else 1
