"""Parameters of the differentially private tree, and what its budget is spent on."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from glassfleet.data.documents import RunParameters

Noise = Literal["local", "aggregate", "paper", "none"]


class DpTreeParameters(RunParameters):
    """Parameters of a run of dp_tree.

    Attributes
    ----------
    epsilon : float
        Budget of the whole run for adding or removing one row. Replacing a row costs twice as much, and that is what
        counts where numbers of rows are known, as they are here.
    noise : {"local", "aggregate", "paper", "none"}
        Whose noise gives the guarantee. ``local``: every answer is private by itself. ``aggregate``: only the sum of
        all answers is; for private runs, in which nobody sees anything else. ``paper``: noise divided by t - 1, as
        printed; **not private** to any useful degree. ``none``: no noise, for comparisons.
    max_depth : int
        Deepest level of a leaf.
    n_bins : int
        Bins per input, with about equal shares of the rows; splits are at their edges.
    edge_share : float
        Share of the budget that finds the edges; the tree has the rest.
    losses : int or None
        So many questions of a private run can be asked again after vehicles were lost; the budget is divided among
        these as well. None: 3 in a private run; others ask nothing again.
    """

    later = ("losses",)

    epsilon: float = Field(default=1.0, ge=1e-3, le=1e3)
    noise: Noise = "local"
    max_depth: int = Field(default=6, ge=1, le=12)
    n_bins: int = Field(default=5, ge=2, le=32)
    edge_share: float = Field(default=0.1, gt=0.0, lt=1.0)
    losses: int | None = Field(default=None, ge=0, le=100)

    @property
    def once(self) -> float:
        """Budget of asking every question once; the rest is for the dearest one, `losses` times more."""
        dearest = max(self.edge_share, (1.0 - self.edge_share) / (self.max_depth + 1))
        return self.epsilon / (1.0 + (self.losses or 0) * dearest)

    def edge_epsilon(self, features: int) -> float:
        """Return the budget of one input's histogram; every row is in one bin of each input."""
        return self.once * self.edge_share / features

    @property
    def level_epsilon(self) -> float:
        """Budget of one of the two questions of a level: e1 = epsilon_tree / (2 (d + 1))."""
        return self.once * (1.0 - self.edge_share) / (2 * (self.max_depth + 1))

    def node_epsilon(self, *, last: bool) -> float:
        """Return the budget of the class counts of a level's nodes; the last level asks nothing else."""
        return 2.0 * self.level_epsilon if last else self.level_epsilon

    def cell_epsilon(self, features: int) -> float:
        """Return the budget of one input's counts per bin and class."""
        return self.level_epsilon / features
