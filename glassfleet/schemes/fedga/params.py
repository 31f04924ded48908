"""Parameters of FedGA trees, with the names the field uses."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from glassfleet.data.documents import RunParameters

MAX_DEPTH = 15
"""Deepest tree: its string of genes has 2^15 - 1 places."""

MAX_STRUCTURES = 4096
"""Most structures of a task: a population, its children, and those of vehicles that join later."""

Choice = Literal["vote", "always", "never"]


class FedgaParameters(RunParameters):
    """Parameters of a run of FedGA.

    Attributes
    ----------
    population : int or None
        Structures that survive a generation; None: 20 for classes, 40 for a numeric target.
    generations : int
        How often the population breeds.
    max_depth : int
        Deepest tree that cross-validation at a vehicle may choose.
    depth : int or None
        Depth of the trees; None: the median of what the vehicles choose by cross-validation.
    folds : int
        Of the cross-validation.
    validation : float
        Share of a vehicle's rows on which structures are scored; the others fit them.
    tournament : int
        Structures that compete to become a parent.
    mutation_rate : float
        Chance of a gene to be flipped or swapped.
    leaf_ratio : float
        Chance of a gene of a random structure to be nil.
    fit_on_all : {"vote", "always", "never"}
        Fit and score on all rows. By vote for a numeric target only, when more than half of the vehicles ask for it.
    elitism : {"vote", "always", "never"}
        Parents compete with their children for survival, instead of the best parent alone. By vote for a numeric
        target, when more than half of the vehicles ask for it; always for classes.
    row_epsilon : float or None
        Row counts that weigh the vehicles' scores carry Laplace noise of scale 1 / `row_epsilon`; None: no noise.
    min_rows : int
        A class count, or a sum of the target, that rests on fewer rows of a vehicle is nullified. 1: never.
    """

    population: int | None = Field(default=None, ge=2, le=1000)
    generations: int = Field(default=100, ge=0, le=5000)
    max_depth: int = Field(default=MAX_DEPTH, ge=2, le=MAX_DEPTH)
    depth: int | None = Field(default=None, ge=1, le=MAX_DEPTH)
    folds: int = Field(default=5, ge=2, le=20)
    validation: float = Field(default=0.2, gt=0.0, le=0.5)
    tournament: int = Field(default=3, ge=1, le=20)
    mutation_rate: float = Field(default=0.05, ge=0.0, le=1.0)
    leaf_ratio: float = Field(default=0.01, ge=0.0, lt=1.0)
    fit_on_all: Choice = "vote"
    elitism: Choice = "vote"
    row_epsilon: float | None = Field(default=1.0, ge=1e-3)
    min_rows: int = Field(default=3, ge=1, le=1_000_000)

    def size(self, *, classes: bool) -> int:
        """Return the size of the population."""
        return self.population if self.population is not None else 20 if classes else 40
