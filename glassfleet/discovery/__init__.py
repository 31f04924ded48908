"""Federated domain discovery: limits of every column from additive histograms, so that nobody pools rows.

It is a client and a server half like those of a scheme, and runs before the scheme when a run has no domain.

Theory of operation. A limit is a quantile of the fleet's rows. Counts per bin add up over vehicles exactly, whatever
the order, and the cumulative counts say in which bin a quantile lies:

1. *Coarse round*: every column is counted on a coarse grid. With declared bounds: ``COARSE_BINS`` equal bins. Without:
   a signed logarithmic grid, two bins per octave from 2^-30 to 2^54 (1e-9 to 1e16) on both sides of a bin for exact
   zero, so that nobody has to know ranges.
2. *Fine round*: ``bins`` equal bins between the coarse limits. Only those inside the two coarse bins that hold the
   quantiles are sent one by one; what lies between is one bin. A column that varies little beside its magnitude (a
   pressure around 1013 hPa) is not yet resolved by that and is refined again, up to ``max_rounds`` rounds in all. Most
   columns need two.

The limits are the outer edges of the bins that hold the quantiles, never somebody's exact extremes. A column whose two
quantiles cannot be told apart after ``max_rounds`` rounds is a constant: low == high.

Definition and error. For N counted rows the q-quantile is the value of rank max(1, ceil(q N)), the inverse of the
empirical distribution function (numpy's ``inverted_cdf``). Exact, and with the same vehicles in every round, ``low`` is
at most the lower quantile and ``high`` at least the upper one, each by no more than one fine bin. That is at most
``1/RESOLUTION`` of ``high - low`` (or, after the last round, 1e-9 of the magnitude). Values outside declared bounds are
counted in the edge bins, hence clipped, and reported.

Readable. Where a run finds its limits (``readable``), they are then widened to numbers that people recognise, each by
less than a hundredth of the range and never beyond declared bounds. A column between 0 and 1 keeps these as its ends.

One vehicle alone. From five vehicles on a limit also needs vehicles, and no vehicle counts for more than five times the
median vehicle's rows: :mod:`glassfleet.discovery.guard`. What did not count in one round is known to the next, where it
lies in the edge bins. The limit of rows, ``max_rows_each``, is part of what is found: the scheme's tasks state it. The
tasks of discovery do not, larger histograms are weighed down: those of k and of k + 1 rows would differ by one row.

Small counts. A bin with one row tells one column's value of one row to within a bin. With ``min_count`` m (default 3,
as for leaf statistics) a vehicle therefore joins bins with fewer than m rows to the next bin towards its own median
before it sends. So no count in 1 .. m - 1 leaves it and the total stays. Nor does one follow from the rows outside
declared bounds and the edge bin that they are in. The value returned for a rank then has a true rank within m - 1 of it
per vehicle, and a lone extreme is not followed. A vehicle with fewer than m rows counts nothing. The domain found then
depends, a little, on how rows are spread; promise 1 is stated *given* the domain and is untouched.
:meth:`DiscoveryParameters.exact` turns it off.

Classes. With ``labels`` the target is a class: the coarse round also asks for labels, and their union becomes the
domain's classes (:mod:`glassfleet.data.categories`). With ``either`` the vehicles decide: where nobody tells a label
the target is a number, whose limits are then found from the second round on.

Categories. With ``categories`` columns of text are taken: the coarse round also asks for their categories
(:mod:`glassfleet.data.categories`). The limits of such a column are the first and the last position.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from glassfleet.contract.messages import Done, Next, Task
from glassfleet.contract.scheme import Abilities, Cost, PrivateRuns
from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain
from glassfleet.discovery.client import DiscoveryClient, read_task, shapes_of
from glassfleet.discovery.params import RESOLUTION, DiscoveryParameters
from glassfleet.discovery.server import COARSE_BINS, DiscoveryServer
from schemas.errors import UsageError

__all__ = [
    "COARSE_BINS",
    "DECLARE_TEXTS",
    "DISCOVERY",
    "RESOLUTION",
    "Discovery",
    "DiscoveryClient",
    "DiscoveryParameters",
    "DiscoveryServer",
    "discover",
]


DECLARE_TEXTS: Final = (
    "a private run finds no classes and no categories, as vehicles would tell texts of their own: declare them, with "
    "the limits of all columns, in the run's domain: docs/explanation/private-runs.md, Columns of text"
)


class Discovery:
    """Domain discovery, shaped like a scheme: name, halves, parameters."""

    name: Final = "domain"
    title: Final = "Federated domain discovery"
    Parameters: Final = DiscoveryParameters
    client: Final = DiscoveryClient()
    server: Final = DiscoveryServer()

    def cost(self, task: Task, rows: int) -> Cost:
        """Return what an answer may take: each row is looked up in the grid of each column."""
        grids = read_task(task).grids
        counts = sum(grid.size for grid in grids.values())
        return Cost(5e-7 * (rows * len(grids) + counts), (rows * 60 + counts * 40) / 1e6)

    def private(self, parameters: DiscoveryParameters) -> DiscoveryParameters:
        """Return the parameters of a private run, in which vehicles withhold no small counts.

        What a vehicle alone must not decide is known from sums over vehicles; but nobody can weigh down one vehicle's
        counts, or name a vehicle that is far out. All columns are numbers: vehicles would tell texts of their own, and
        one that has text there does not answer.

        Raises
        ------
        UsageError
            The target is a class whose labels are to be found.
        """
        if parameters.labels and not parameters.classes:
            raise UsageError(DECLARE_TEXTS)
        return parameters.model_copy(update={"min_count": 0, "categories": False, "either": False, "summed": True})

    def layout(self, task: Task) -> dict[str, tuple[int, ...]]:
        """Return names and shapes of the sums of an answer to `task`; raises TaskError where it asks for texts."""
        return shapes_of(task)

    def exact(self, parameters: DiscoveryParameters) -> DiscoveryParameters:
        """Return `parameters` with nothing withheld or left out."""
        return parameters.exact()

    @property
    def abilities(self) -> Abilities:
        """What it can do beside."""
        return Abilities(cost=self.cost, private=PrivateRuns(self.layout, self.private))


DISCOVERY: Final = Discovery()
"""The halves of domain discovery."""


def discover(parameters: DiscoveryParameters, datasets: Sequence[Dataset]) -> Domain:
    """Find the domain of several datasets in this process, with the very same halves.

    Raises
    ------
    TaskError
        A dataset lacks a column.
    RunFailedError
        ``no-rows``: no dataset has enough rows to be counted.
    """
    rng = np.random.default_rng(0)
    step: Next | Done = DISCOVERY.server.start(parameters)
    while isinstance(step, Next):
        answers = [DISCOVERY.client.contribute(step.task, data, rng) for data in datasets]
        step = DISCOVERY.server.reduce(step.state, answers)
    domain: Domain = step.model
    return domain
