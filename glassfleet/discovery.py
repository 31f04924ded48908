"""Federated domain discovery: limits of every column from additive histograms, so that nobody pools rows.

It is a client and a server half like those of a scheme, and runs before the scheme when a run has no domain.

Theory of operation. A limit is a quantile of the fleet's rows. Counts per bin add up over vehicles exactly, whatever
the order, and the cumulative counts say in which bin a quantile lies:

1. *Coarse round*: every column is counted on a coarse grid. With declared bounds: ``COARSE_BINS`` equal bins. Without:
   a signed logarithmic grid, two bins per octave from 2^-30 to 2^50 (1e-9 to 1e15) on both sides of a bin for exact
   zero, so that nobody has to know ranges.
2. *Fine round*: ``bins`` equal bins between the coarse limits. Only those inside the two coarse bins that hold the
   quantiles are sent one by one; what lies between is one bin. A column that varies little beside its magnitude (a
   pressure around 1013 hPa) is not yet resolved by that and is refined again, up to ``max_rounds`` rounds in all. Most
   columns need two.

The limits are the outer edges of the bins that hold the quantiles, never somebody's exact extremes. A column whose two
quantiles cannot be told apart after ``max_rounds`` rounds is a constant: low == high.

Definition and error. For N counted rows the q-quantile is the value of rank max(1, ceil(q N)), the inverse of the
empirical distribution function (numpy's ``inverted_cdf``). With ``min_count`` 0 and the same vehicles in every round,
``low`` is at most the lower quantile and ``high`` at least the upper one, each by no more than one fine bin, which is
at most ``1/RESOLUTION`` of ``high - low``. Values outside declared bounds are counted in the edge bins, hence clipped,
and reported.

Small counts. A bin with one row tells one column's value of one row to within a bin. With ``min_count`` m (default 3,
as for leaf statistics) a vehicle therefore joins bins with fewer than m rows to the next bin towards its own median
before it sends: no count in 1 .. m - 1 leaves it and the total stays. The value returned for a rank then has a true
rank within m - 1 of it per vehicle, and a lone extreme is not followed. A vehicle with fewer than m rows counts
nothing. The domain found then depends, a little, on how rows are spread; promise 1 is stated *given* the domain and
is untouched. :meth:`DiscoveryParameters.exact` turns it off.

Classes. With ``labels`` the target is a class: the coarse round also asks for labels (:mod:`glassfleet.labels`), and
their union becomes the domain's classes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

from glassfleet.data import Dataset
from glassfleet.domain import Domain, Variable
from glassfleet.grids import ZERO, Grid, join_small, narrowest
from glassfleet.labels import check_labels, count_labels, union_of
from glassfleet.scheme import Contribution, ContributionError, Done, Next, State, Task, TaskError
from schemas import limits
from schemas.codec import Value, digest_of
from schemas.errors import RunFailedError

COARSE_BINS: Final = 256
"""Bins of the coarse round within declared bounds."""

RESOLUTION: Final = 128
"""A limit is accepted when a fine bin is at most this fraction of the range found."""

MAX_COUNTS: Final = 2**22
"""Most counts that a vehicle computes for one task (32 MiB)."""


class DiscoveryParameters(BaseModel):
    """What to find, and how finely.

    Attributes
    ----------
    features : tuple of str
        Input columns, in the order that the domain shall have.
    target : str
        Target column.
    bounds : dict of str to (float, float)
        Declared bounds, low < high, of any of the columns, in the column's unit. Not needed; they save bytes and clip
        nonsense.
    input_quantiles, target_quantiles : (float, float)
        Which quantiles become the limits, in [0, 1], lower first.
    bins : int
        Bins of the fine rounds.
    max_rounds : int
        Most rounds; a third is opened only for columns that two do not resolve.
    min_count : int
        Vehicles send no count in 1 .. ``min_count - 1``. 0 or 1 turns this off: the domain then equals, bit for bit,
        that of the pooled rows.
    units : dict of str to str
        Units, for texts.
    terms : dict of str to tuple of str
        Names for the fuzzy sets of a column, lowest first.
    classes : tuple of str
        Labels when the target is a class: it then has no limits to be found.
    labels : bool
        The target is a class; unless `classes` declares its labels they are found, as the union of the vehicles'.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    features: tuple[str, ...] = Field(min_length=1, max_length=limits.MAX_FEATURES)
    target: str = Field(min_length=1, max_length=200)
    bounds: dict[str, tuple[float, float]] = Field(default_factory=dict)
    input_quantiles: tuple[float, float] = (0.025, 0.975)
    target_quantiles: tuple[float, float] = (0.0, 1.0)
    bins: int = Field(default=1024, ge=2 * RESOLUTION, le=2**16)
    max_rounds: int = Field(default=4, ge=2, le=5)
    min_count: int = Field(default=3, ge=0, le=2**20)
    units: dict[str, str] = Field(default_factory=dict)
    terms: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    classes: tuple[str, ...] = ()
    labels: bool = False

    @model_validator(mode="after")
    def _consistent(self) -> DiscoveryParameters:
        known = {*self.features, self.target}
        if len(known) != len(self.features) + 1:
            raise ValueError("features and target must be different names, each given once")
        for option, names in (("bounds", self.bounds), ("units", self.units), ("terms", self.terms)):
            unknown = sorted(set(names) - known)
            if unknown:
                raise ValueError(f"{option} names {unknown[0]!r}, which is neither a feature nor the target")
        for name, (low, high) in self.bounds.items():
            if not (low < high and math.isfinite(high - low)):
                raise ValueError(f"bounds of {name!r} must be finite with low < high, got {low} and {high}")
            if high - low <= narrowest(low, high, self.bins):
                raise ValueError(f"bounds of {name!r} are too close to each other to hold {self.bins} bins")
        for option, (lower, upper) in (("input", self.input_quantiles), ("target", self.target_quantiles)):
            if not 0 <= lower <= upper <= 1:
                raise ValueError(f"{option}_quantiles must satisfy 0 <= lower <= upper <= 1, got {lower} and {upper}")
        return self

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns whose limits are to be found."""
        return self.features if self.classes or self.labels else (*self.features, self.target)

    def quantiles_of(self, column: str) -> tuple[float, float]:
        """Return the two quantiles that limit `column`."""
        return self.target_quantiles if column == self.target else self.input_quantiles

    def exact(self) -> DiscoveryParameters:
        """Return these parameters with no count withheld: the domain then equals that of the pooled rows."""
        return self.model_copy(update={"min_count": 0})


class DiscoveryClient:
    """The vehicle's half: counts rows by bin."""

    def contribute(self, task: Task, data: Dataset, rng: np.random.Generator) -> Contribution:
        """Count the rows of `data` on the grids of `task`.

        Returns
        -------
        Contribution
            Sums ``counts`` (int64: the grids of all asked columns, by name, one after the other) and ``outside``
            (int64, shape (columns, 2): rows below and above the grid, which are in the edge bins as well).
            ``nullified`` is the number of small counts that were not sent as they are. Values ``labels`` and
            ``label_rows`` when the task asks for labels.

        Raises
        ------
        TaskError
            The vehicle lacks a column, the target is text, or the task is malformed.
        """
        del rng
        grids, target, min_count = _read_task(task)
        counts: list[NDArray[np.int64]] = []
        outside = np.zeros((len(grids), 2), dtype=np.int64)
        nullified = 0
        for row, (name, grid) in enumerate(grids.items()):
            edges = grid.edges()
            values = _column(data, name, target)
            bins = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, grid.size - 1)
            count = np.bincount(bins, minlength=grid.size).astype(np.int64)
            tails = (int((values < edges[0]).sum()), int((values > edges[-1]).sum()))
            joined = join_small(count, min_count)
            nullified += joined
            for side, tail in enumerate(tails):
                if 0 < tail < min_count:
                    nullified += 1
                else:
                    outside[row, side] = tail
            counts.append(count)
        told: dict[str, Value] = {}
        if task.body.get("labels") is True:
            told, withheld = count_labels(data, target, min_count)
            nullified += withheld
        sums = {"counts": np.concatenate(counts), "outside": outside}
        return Contribution(task.kind, data.rows, sums, told, nullified)


def _read_task(task: Task) -> tuple[dict[str, Grid], str, int]:
    if task.scheme != "domain" or task.kind != "histogram":
        raise TaskError(f"not a task of domain discovery: {task.scheme!r}, {task.kind!r}")
    columns, target, min_count = (task.body.get(key) for key in ("columns", "target", "min_count"))
    if not isinstance(columns, Mapping) or not 1 <= len(columns) <= limits.MAX_FEATURES + 1:
        raise TaskError("the task names no columns")
    if not isinstance(target, str) or type(min_count) is not int:
        raise TaskError("the task lacks its target or min_count")
    grids = {name: Grid.from_value(columns[name]) for name in sorted(columns)}
    if sum(grid.size for grid in grids.values()) > MAX_COUNTS:
        raise TaskError(f"the task asks for more than {MAX_COUNTS} counts")
    return grids, target, min_count


def _column(data: Dataset, name: str, target: str) -> NDArray[np.float64]:
    if name == target:
        if data.target != target:
            raise TaskError(f"the target here is {data.target!r}, not {target!r}")
        if data.y.dtype.kind != "f":
            raise TaskError(f"target {target!r} is not numeric; declare its classes instead")
        return data.y.astype(np.float64, copy=False)
    if name not in data.features:
        raise TaskError(f"column {name!r} is missing here")
    return data.X[:, data.features.index(name)]


class DiscoveryServer:
    """The coordinator's half: adds the counts and places the limits."""

    def start(self, parameters: DiscoveryParameters, domain: Domain | None = None, seed: int = 0) -> Next:
        """Return the coarse round. `domain` and `seed` are not used: nothing is known and nothing is drawn."""
        del domain, seed
        columns: dict[str, Grid] = {}
        for name in parameters.columns:
            if name in parameters.bounds:
                low, high = parameters.bounds[name]
                columns[name] = Grid(low, high, COARSE_BINS, COARSE_BINS, COARSE_BINS)
            else:
                columns[name] = Grid()
        return _ask(parameters, 1, columns, found={}, outside={}, digest="")

    def check(self, task: Task, contribution: Contribution) -> None:
        """Raise ContributionError unless the counts can be true: shapes, signs, and totals equal to the rows."""
        grids, _, min_count = _read_task(task)
        if contribution.kind != task.kind:
            raise ContributionError(f"kind is {contribution.kind!r}, asked was {task.kind!r}")
        labels = task.body.get("labels") is True
        if labels:
            check_labels(contribution.values, contribution.rows, min_count)
        if set(contribution.sums) != {"counts", "outside"} or (contribution.values and not labels):
            raise ContributionError("a histogram has the sums counts and outside, and nothing else")
        if contribution.nullified > 0 and min_count <= 1:
            raise ContributionError("nullified counts, but the task withholds none")
        sizes = [grid.size for grid in grids.values()]
        for name, shape in (("counts", (sum(sizes),)), ("outside", (len(grids), 2))):
            part = contribution.sums[name]
            if part.shape != shape:
                raise ContributionError(f"{name} has shape {part.shape}, expected {shape}")
            # The upper bound also keeps the totals below from overflowing.
            if bool(((part < 0) | (part > contribution.rows)).any()):
                raise ContributionError(f"{name} must be in [0, {contribution.rows}], the rows of the agent")
            if bool(((part > 0) & (part < min_count)).any()):
                raise ContributionError(f"{name} holds a count below min_count {min_count}")
        self._check_totals(list(grids), sizes, min_count, contribution)

    @staticmethod
    def _check_totals(names: list[str], sizes: list[int], min_count: int, contribution: Contribution) -> None:
        expected = contribution.rows if contribution.rows >= min_count else 0
        ends = np.cumsum(np.array(sizes, dtype=np.intp))
        totals = np.add.reduceat(contribution.sums["counts"], ends - np.array(sizes, dtype=np.intp))
        tails = contribution.sums["outside"].sum(axis=1)
        for name, total, tail in zip(names, totals, tails, strict=True):
            if total != expected:
                raise ContributionError(f"the counts of {name!r} add up to {total}, expected {expected}")
            if tail > contribution.rows:
                raise ContributionError(f"{tail} values of {name!r} outside the grid, of {contribution.rows} rows")

    def reduce(self, state: State, contributions: Sequence[Contribution]) -> Next | Done:
        """Place every limit; return the next round for columns that are not resolved, or Done with the Domain.

        Raises
        ------
        RunFailedError
            ``no-rows``: no vehicle counted a row. ``no-classes``: no vehicle told a label.
        """
        parameters = DiscoveryParameters.model_validate(state["parameters"])
        class_rows: dict[str, Value] = dict(state.get("class_rows", {}))
        if _asks_labels(parameters):
            class_rows = union_of([contribution.values for contribution in contributions])
            if not class_rows:
                raise RunFailedError(
                    f"no-classes: no vehicle has a label of {parameters.target!r} in {parameters.min_count} rows or "
                    "more; add vehicles with data, or declare the classes"
                )
            # Known from here on, as if they had been declared.
            parameters = parameters.model_copy(update={"classes": tuple(class_rows)})
        grids = {name: Grid.from_value(state["columns"][name]) for name in sorted(state["columns"])}
        found: dict[str, Value] = dict(state["found"])
        outside: dict[str, Value] = dict(state["outside"])
        counts = np.zeros(sum(grid.size for grid in grids.values()), dtype=np.int64)
        tails = np.zeros((len(grids), 2), dtype=np.int64)
        for contribution in contributions:
            counts = counts + contribution.sums["counts"]
            tails = tails + contribution.sums["outside"]
        number = int(state["round"])
        summed: dict[str, Value] = {"before": state["sums_digest"], "counts": counts, "outside": tails}
        digest = digest_of(summed | ({"class_rows": class_rows} if class_rows else {}))
        refined: dict[str, Grid] = {}
        start = 0
        for row, (name, grid) in enumerate(grids.items()):
            part = counts[start : start + grid.size]
            start += grid.size
            if number == 1 and tails[row].any():
                outside[name] = [int(tails[row, 0]), int(tails[row, 1])]
            low, high, finer = _place(grid, part, parameters.quantiles_of(name), parameters.bins, number)
            if finer is None or number >= parameters.max_rounds:
                # Still not told apart in the last round: a constant, at the lower edge.
                found[name] = [low, high if finer is None else _last_high(grid, low, high)]
            else:
                refined[name] = finer
        if refined:
            step = _ask(parameters, number + 1, refined, found=found, outside=outside, digest=digest)
            return Next({**step.state, "class_rows": class_rows}, step.task) if class_rows else step
        rows = sum(contribution.rows for contribution in contributions)
        summary: dict[str, Value] = {"sums_digest": digest, "rounds": number, "rows": rows, "outside": outside}
        if class_rows:
            summary["class_rows"] = class_rows
        return Done(_domain(parameters, found), summary)

    def progress(self, state: State) -> Mapping[str, Value]:
        """Say how many columns have their limits."""
        found = state["found"]
        lines = [f"{name}: {low:.6g} to {high:.6g}" for name, (low, high) in list(found.items())[:200]]
        columns = len(found) + len(state["columns"])
        return {"round": state["round"], "columns": columns, "found": len(found), "lines": lines}


def _asks_labels(parameters: DiscoveryParameters) -> bool:
    """Whether the labels of the target are still to be found."""
    return parameters.labels and not parameters.classes


def _ask(
    parameters: DiscoveryParameters,
    number: int,
    columns: Mapping[str, Grid],
    *,
    found: Mapping[str, Value],
    outside: Mapping[str, Value],
    digest: str,
) -> Next:
    recipes = {name: grid.to_value() for name, grid in columns.items()}
    state: State = {
        "parameters": parameters.model_dump(mode="json"),
        "round": number,
        "columns": recipes,
        "found": dict(found),
        "outside": dict(outside),
        "sums_digest": digest,
    }
    body = {"columns": recipes, "target": parameters.target, "min_count": parameters.min_count, "round": number}
    if _asks_labels(parameters):
        body["labels"] = True
    return Next(state, Task("domain", "histogram", body))


def _place(
    grid: Grid, counts: NDArray[np.int64], quantiles: tuple[float, float], bins: int, number: int
) -> tuple[float, float, Grid | None]:
    """Return both limits on `grid` and the finer grid that they need, or None when they are good enough."""
    cumulative = np.cumsum(counts)
    total = int(cumulative[-1])
    if total == 0:
        raise RunFailedError("no-rows: no vehicle counted a row; add vehicles with more rows, or give the run a domain")
    ranks = [min(total, max(1, math.ceil(quantile * total))) for quantile in quantiles]
    first, last = (int(np.searchsorted(cumulative, rank)) for rank in ranks)
    edges = grid.edges()
    if grid.bins == 0:
        # The bin of exact zero is a point, whatever its technical width.
        edges = np.where(np.abs(edges) == ZERO, 0.0, edges)
    low, low_end, high_start, high = (float(edges[i]) for i in (first, first + 1, last, last + 1))
    if low == high or (number > 1 and grid.width <= (high - low) / RESOLUTION):
        return low, high, None
    span = high - low
    if span <= narrowest(low, high, bins):
        return low, low, None
    left = min(bins, max(1, math.ceil((low_end - low) / span * bins)))
    right = min(bins, max(1, math.ceil((high - high_start) / span * bins)))
    return low, high, Grid(low, high, bins, left, right)


def _last_high(grid: Grid, low: float, high: float) -> float:
    """Return the upper limit of a column that the last round left unresolved: `low` when it is within two bins."""
    return low if high - low <= 2 * grid.width else high


def _domain(parameters: DiscoveryParameters, found: Mapping[str, Value]) -> Domain:
    def variable(name: str) -> Variable:
        low, high = found[name]
        return Variable(
            name=name,
            low=low,
            high=high,
            unit=parameters.units.get(name, ""),
            terms=parameters.terms.get(name, ()),
        )

    features = tuple(variable(name) for name in parameters.features)
    if parameters.classes:
        return Domain(features=features, label=parameters.target, classes=tuple(sorted(parameters.classes)))
    return Domain(features=features, target=variable(parameters.target))


class Discovery:
    """Domain discovery, shaped like a scheme: name, halves, parameters."""

    name: Final = "domain"
    title: Final = "Federated domain discovery"
    Parameters: Final = DiscoveryParameters

    @property
    def client(self) -> DiscoveryClient:
        """The client half."""
        return DiscoveryClient()

    @property
    def server(self) -> DiscoveryServer:
        """The server half."""
        return DiscoveryServer()

    def exact(self, parameters: DiscoveryParameters) -> DiscoveryParameters:
        """Return `parameters` with no count withheld."""
        return parameters.exact()


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
