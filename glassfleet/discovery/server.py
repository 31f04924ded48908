"""The coordinator's half of discovery: adds the counts and places the limits."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from glassfleet.contract.messages import Contribution, Done, Next, State, Task
from glassfleet.data.categories import check_categories, check_labels, union_of, union_of_categories
from glassfleet.data.domain import INPUT_QUANTILES, Domain, Variable
from glassfleet.discovery.client import reached, read_task, stretches_of
from glassfleet.discovery.guard import (
    LEVERAGE,
    counted,
    fewest_vehicles,
    middles,
    noted,
    supported,
    taken_for,
    usual_rows,
    weighed_down,
)
from glassfleet.discovery.params import RESOLUTION, DiscoveryParameters
from glassfleet.errors import ContributionError
from glassfleet.numerics.grids import ZERO, Grid, narrowest, outward
from schemas.codec import Value, digest_of
from schemas.errors import RunFailedError

COARSE_BINS: Final = 256
"""Bins of the coarse round within declared bounds."""


class DiscoveryServer:
    """The coordinator's half: adds the counts and places the limits."""

    def start(self, parameters: DiscoveryParameters, domain: Domain | None = None, seed: int = 0) -> Next:
        """Return the coarse round. `domain` and `seed` are not used: nothing is known and nothing is drawn."""
        del domain, seed
        columns = {name: _coarse(parameters, name) for name in parameters.columns}
        known: State = {"found": {}, "outside": {}, "sums_digest": "", "max_rows_each": parameters.max_rows_each}
        return _ask(parameters, 1, columns, known)

    def check(self, task: Task, contribution: Contribution) -> None:
        """Raise ContributionError unless the counts can be true: shapes, signs, and totals equal to the rows."""
        question = read_task(task)
        grids, min_count = question.grids, question.min_count
        if contribution.kind != task.kind:
            raise ContributionError(f"kind is {contribution.kind!r}, asked was {task.kind!r}")
        labels = task.body.get("labels") in (True, "either")
        values = dict(contribution.values)
        if task.body.get("categories") is True:
            check_categories(values.pop("categories", None), list(grids), contribution.rows, min_count)
        if labels:
            check_labels(values, contribution.rows, min_count)
        more = set(contribution.sums) - {"counts", "outside"}
        known = {"vehicles", "row_counts"} if task.body.get("guarded") is True else set()
        known |= {"gaps"} if question.missing else set()
        if len(contribution.sums) - len(more) != 2 or not more <= known or (values and not labels):
            raise ContributionError("a histogram has the sums counts and outside, and nothing else")
        if contribution.nullified > 0 and min_count <= 1:
            raise ContributionError("nullified counts, but the task withholds none")
        sizes = [grid.size for grid in grids.values()]
        for name, shape in (("counts", (sum(sizes),)), ("outside", (len(grids), 2))):
            part = contribution.sums[name]
            if part.shape != shape:
                raise ContributionError(f"{name} has shape {part.shape}, expected {shape}")
            # The upper bound also keeps the totals below from overflowing.
            if part.min() < 0 or part.max() > contribution.rows:
                raise ContributionError(f"{name} must be in [0, {contribution.rows}], the rows of the agent")
            if min_count > 1 and bool(((part > 0) & (part < min_count)).any()):
                raise ContributionError(f"{name} holds a count below min_count {min_count}")
        self._check_totals(list(grids), sizes, min_count, contribution)
        _check_ones(contribution)

    @staticmethod
    def _check_totals(names: list[str], sizes: list[int], min_count: int, contribution: Contribution) -> None:
        expected = contribution.rows if contribution.rows >= min_count else 0
        starts = np.cumsum([0, *sizes[:-1]])
        totals = np.add.reduceat(contribution.sums["counts"], starts)
        tails = contribution.sums["outside"].sum(axis=1)
        gaps = contribution.sums.get("gaps")
        if gaps is None:
            gaps = np.zeros(len(names), dtype=np.int64)
        elif gaps.shape != (len(names),):
            raise ContributionError(f"gaps have shape {gaps.shape}, expected ({len(names)},)")
        lists = (each.tolist() for each in (totals, tails, gaps))
        for name, total, tail, has_gaps in zip(names, *lists, strict=True):
            # Rows with an empty cell are not counted.
            if total != expected and not (has_gaps and 0 <= total < contribution.rows):
                raise ContributionError(f"the counts of {name!r} add up to {total}, expected {expected}")
            if tail > contribution.rows:
                raise ContributionError(f"{tail} values of {name!r} outside the grid, of {contribution.rows} rows")

    def reduce(self, state: State, contributions: Sequence[Contribution]) -> Next | Done:
        """Place every limit; return the next round for columns that are not resolved, or Done with the Domain.

        Raises
        ------
        RunFailedError
            ``no-rows``: no vehicle counted a row. ``no-classes``: no vehicle told a label. ``no-categories``: none
            told a category of a column of text.
        """
        number = int(state["round"])
        parameters, class_rows, categories = _names_known(state, contributions)
        grids = {name: Grid.from_value(state["columns"][name]) for name in sorted(state["columns"])}
        limits: dict[str, Value] = dict(state["found"])
        outside: dict[str, Value] = dict(state["outside"])
        sums = _add_up(state, parameters, grids, contributions)
        summed: dict[str, Value] = {"before": state["sums_digest"], "counts": sums.counts, "outside": sums.outside}
        named: dict[str, Value] = {"class_rows": class_rows} if class_rows else {}
        named |= {"categories": categories} if categories else {}
        gaps = middles(state.get("gaps", {}), grids, contributions, sums.counts)
        named |= {"gaps": gaps} if gaps else {}
        digest = digest_of(summed | named)
        refined: dict[str, Grid] = {}
        if number == 1 and parameters.target not in grids and not parameters.classes:
            refined[parameters.target] = _coarse(parameters, parameters.target)
        dropped: dict[str, Value] = {}
        spans: dict[str, tuple[int, int, int, int]] = {}
        free: list[Value] = list(state.get("free", []))
        begin = 0
        for row, (name, grid) in enumerate(grids.items()):
            part, end = sums.counts[begin : begin + grid.size], begin + grid.size
            if name in categories:
                limits[name] = [0.0, len(categories[name]) - 1.0]
            else:
                if number == 1 and sums.outside[row].any():
                    outside[name] = sums.outside[row].tolist()
                rest = counted(part, state.get("dropped", {}).get(name, (0, 0)))
                reach = None if name in free else (sums.vehicles[name], sums.fewest)
                quantiles = parameters.quantiles_of(name)
                # An input's rows beyond these may be clipped, as they are elsewhere, if few vehicles reach them.
                usual = INPUT_QUANTILES if name != parameters.target else (0.0, 1.0)
                place = _place_guarded(grid, rest, reach, quantiles, usual, parameters, number)
                spans[name] = (begin, begin + place.first, begin + place.last + 1, end)
                if place.finer is None or number >= parameters.max_rounds:
                    # Still not told apart in the last round: a constant, at the lower edge.
                    limits[name] = _limits(grid, place, parameters, name)
                    if name in gaps:
                        limits[name] = [*limits[name], taken_for(gaps[name], *limits[name])]
                else:
                    refined[name] = place.finer
                    gone = part - place.counts  # in the edge bins: those that were gone before, or what is left of them
                    dropped[name] = [int(gone[: place.first].sum()), int(gone[place.last + 1 :].sum())]
                    free += [name] if place.is_free else []
            begin = end
        if parameters.guarded:
            named["guard"] = noted(state.get("guard", {}), contributions, spans, sums.most)
        ends = state["ends"] if number > 1 else _ends(parameters, grids, sums)
        if refined:
            known: State = {"found": limits, "outside": outside, "sums_digest": digest, "max_rows_each": sums.most}
            more = {"dropped": dropped, "free": free, "ends": ends}
            return _ask(parameters, number + 1, refined, {**known, **more, **named})
        rows = sum(contribution.rows for contribution in contributions)
        summary: dict[str, Value] = {"sums_digest": digest, "rounds": number, "rows": rows, "outside": outside, **named}
        return Done(_domain(parameters, limits, categories, ends), {**summary, "max_rows_each": sums.most})

    def progress(self, state: State) -> Mapping[str, Value]:
        """Say how many columns have their limits."""
        limits = state["found"]
        lines = [f"{name}: {low:.6g} to {high:.6g}" for name, (low, high, *_) in list(limits.items())[:200]]
        columns = len(limits) + len(state["columns"])
        return {"round": state["round"], "columns": columns, "found": len(limits), "lines": lines}


@dataclass(frozen=True)
class _Sums:
    """A round's counts: ``counts`` and ``outside`` as in an answer, ``vehicles`` by column; and what they weigh.

    ``fewest`` vehicles must reach a stretch for its rows to count; at most ``most`` rows of each do, 0: all.
    """

    counts: NDArray[np.int64]
    outside: NDArray[np.int64]
    vehicles: Mapping[str, NDArray[np.int64]]
    fewest: int
    most: int


def _add_up(
    state: State, parameters: DiscoveryParameters, grids: Mapping[str, Grid], contributions: Sequence[Contribution]
) -> _Sums:
    most = int(state.get("max_rows_each", 0))
    if parameters.guarded and not most:
        most = usual_rows(each.sums.get("row_counts", each.rows) for each in contributions)
    counts = np.zeros(sum(grid.size for grid in grids.values()), dtype=np.int64)
    outside = np.zeros((len(grids), 2), dtype=np.int64)
    stretches = stretches_of(grids)
    vehicles = np.zeros(stretches.shape, dtype=np.int64)
    for contribution in contributions:
        # Of a group's sum nobody can weigh down one vehicle's part.
        is_sum = contribution.vehicles is not None
        counts += contribution.sums["counts"] if is_sum else weighed_down(contribution, most, grids)
        outside += contribution.sums["outside"]
        ones = contribution.sums.get("vehicles")
        vehicles += reached(stretches, contribution.sums["counts"]) if ones is None else ones
    ends = np.cumsum([len(grid.stretches()) for grid in grids.values()])
    by_column = dict(zip(grids, np.split(vehicles, ends[:-1]), strict=True))
    with_rows = sum(
        int(contribution.rows > 0) if contribution.vehicles is None else contribution.vehicles
        for contribution in contributions
    )
    return _Sums(counts, outside, by_column, fewest_vehicles(with_rows) if parameters.guarded else 1, most)


def _ends(parameters: DiscoveryParameters, grids: Mapping[str, Grid], sums: _Sums) -> dict[str, Value]:
    """Return how far values of each input go, by the edges of the coarse round; empty unless that is asked."""
    ends: dict[str, Value] = {}
    begin = 0
    for name, grid in grids.items():
        part, begin = sums.counts[begin : begin + grid.size], begin + grid.size
        if parameters.excess and name != parameters.target and part.any():
            place = _place_guarded(
                grid, part, (sums.vehicles[name], sums.fewest), (0.0, 1.0), (0.0, 1.0), parameters, number=1
            )
            ends[name] = [place.low, place.high]
    return ends


def _check_ones(contribution: Contribution) -> None:
    """Raise ContributionError unless what each vehicle counts itself in, as one, can be the sum over that many."""
    vehicles = int(contribution.rows > 0) if contribution.vehicles is None else contribution.vehicles
    ones = [contribution.sums[name] for name in ("vehicles", "row_counts", "gaps") if name in contribution.sums]
    if any(np.count_nonzero((part < 0) | (part > vehicles)) for part in ones):
        raise ContributionError(f"ones of {vehicles} vehicles cannot add up to that")
    if "row_counts" in contribution.sums and int(contribution.sums["row_counts"].sum()) != vehicles:
        raise ContributionError("row_counts do not count every vehicle with rows once")


def _names_known(
    state: State, contributions: Sequence[Contribution]
) -> tuple[DiscoveryParameters, dict[str, Value], dict[str, Value]]:
    """Return the parameters with what is known now, the rows of each class, and the categories of columns of text."""
    parameters = DiscoveryParameters.model_validate(state["parameters"])
    class_rows: dict[str, Value] = dict(state.get("class_rows", {}))
    if _asks_labels(parameters):
        class_rows = union_of([contribution.values for contribution in contributions])
        if not class_rows and not parameters.either:
            raise RunFailedError(
                f"no vehicle has a label of {parameters.target!r} in {parameters.min_count} rows or more; add vehicles "
                "with data, or declare the classes",
                "no-classes",
            )
        # Known from here on, as if they had been declared; or the target is a number.
        found_out: dict[str, Any] = {"classes": tuple(class_rows)} if class_rows else {"either": False}
        if class_rows and parameters.either:  # the limits that were asked for are those of a number
            found_out["input_quantiles"] = INPUT_QUANTILES
        parameters = parameters.model_copy(update=found_out)
    categories: dict[str, Value] = dict(state.get("categories", {}))
    if parameters.categories and state["round"] == 1:
        categories = union_of_categories([contribution.values["categories"] for contribution in contributions])
    return parameters, class_rows, categories


def _asks_labels(parameters: DiscoveryParameters) -> bool:
    """Whether the labels of the target are still to be found."""
    return (parameters.labels or parameters.either) and not parameters.classes


def _coarse(parameters: DiscoveryParameters, name: str) -> Grid:
    """Return the grid of a column's first round."""
    if name not in parameters.bounds:
        return Grid()
    low, high = parameters.bounds[name]
    return Grid(low, high, COARSE_BINS, COARSE_BINS, COARSE_BINS)


def _ask(parameters: DiscoveryParameters, number: int, columns: Mapping[str, Grid], known: State) -> Next:
    """Return the round that asks for `columns`; `known` is what the state keeps beside them."""
    recipes = {name: grid.to_value() for name, grid in columns.items()}
    state: State = {"parameters": parameters.model_dump(mode="json"), "round": number, "columns": recipes, **known}
    body = {"columns": recipes, "target": parameters.target, "min_count": parameters.min_count, "round": number}
    if _asks_labels(parameters):
        body["labels"] = True if parameters.labels else "either"
    if parameters.categories and number == 1:
        body["categories"] = True
    if parameters.missing:
        body["missing"] = "summed" if parameters.summed else True
    if parameters.guarded and parameters.summed:
        body["guarded"] = True
    return Next(state, Task("domain", "histogram", body))


@dataclass(frozen=True)
class _Place:
    """Where a column's limits are on a grid.

    ``finer`` is the grid that they need, None when they are good enough; ``first`` and ``last`` are their bins, and
    ``counts`` what they were found in. ``high_start``: where the bin of ``high`` begins. ``is_free``: too many rows lie
    where few vehicles are to leave them out.
    """

    low: float
    high: float
    finer: Grid | None
    first: int
    last: int
    counts: NDArray[np.int64]
    high_start: float
    is_free: bool = False


def _place_guarded(  # noqa: PLR0917 - one call
    grid: Grid,
    counts: NDArray[np.int64],
    reach: tuple[NDArray[np.int64], int] | None,
    quantiles: tuple[float, float],
    usual: tuple[float, float],
    parameters: DiscoveryParameters,
    number: int,
) -> _Place:
    """Return the limits on `grid`; `reach` says how many vehicles are in each stretch, and how many must be.

    None: all rows count. Where `quantiles` are further out than the `usual` ones, what few vehicles reach is left out
    in equal bins, too, if the limits then still enclose those at the usual quantiles of all rows.
    """
    plain = _place(grid, counts, quantiles, parameters, number)
    kept = counts if reach is None else supported(grid, counts, *reach)
    if kept is None or kept is counts:
        return replace(plain, is_free=True)
    place = _place(grid, kept, quantiles, parameters, number)
    is_narrow = grid.bins == 0 or LEVERAGE * (place.high - place.low) < plain.high - plain.low
    if not is_narrow and (quantiles[0] < usual[0] or usual[1] < quantiles[1]):
        least = _place(grid, counts, usual, parameters, number)
        is_narrow = place.low <= least.low and least.high <= place.high
    return place if is_narrow else plain


def _place(
    grid: Grid,
    counts: NDArray[np.int64],
    quantiles: tuple[float, float],
    parameters: DiscoveryParameters,
    number: int,
) -> _Place:
    """Return the limits on `grid` of the rows `counts`."""
    bins = parameters.bins
    cumulative = np.cumsum(counts)
    total = int(cumulative[-1])
    if total == 0:
        raise RunFailedError("no vehicle counted a row; add vehicles with more, or give the run a domain", "no-rows")
    least = min(max(1, parameters.support), (total + 1) // 2)
    ranks = [min(total + 1 - least, max(least, math.ceil(quantile * total))) for quantile in quantiles]
    first, last = (int(np.searchsorted(cumulative, rank)) for rank in ranks)
    edges = grid.edges()
    if grid.bins == 0:
        # The bin of exact zero is a point, whatever its technical width.
        edges = np.where(np.abs(edges) == ZERO, 0.0, edges)
    low, low_end, high_start, high = (float(edges[i]) for i in (first, first + 1, last, last + 1))
    if low == high or (number > 1 and grid.width <= (high - low) / RESOLUTION):
        return _Place(low, high, None, first, last, counts, high_start)
    span = high - low
    if span <= narrowest(low, high, bins):
        return _Place(low, low, None, first, last, counts, high_start)
    left = min(bins, max(1, math.ceil((low_end - low) / span * bins)))
    right = min(bins, max(1, math.ceil((high - high_start) / span * bins)))
    return _Place(low, high, Grid(low, high, bins, left, right), first, last, counts, high_start)


def _limits(grid: Grid, place: _Place, parameters: DiscoveryParameters, name: str) -> list[Value]:
    """Return the limits of a column that needs no finer grid, or gets none."""
    low, high = place.low, place.high if place.finer is None else _last_high(grid, place)
    if parameters.readable and low < high:
        if low >= 0.0 and place.high_start <= 1.0 < high:
            high = 1.0
        least, most = parameters.bounds.get(name, (-math.inf, math.inf))
        wide = outward(low, high)
        low, high = max(wide[0], least), min(wide[1], most)
    return [low, high]


def _last_high(grid: Grid, place: _Place) -> float:
    """Return the upper limit of a column that the last round left unresolved: the lower when it is within two bins."""
    return place.low if place.high - place.low <= 2 * grid.width else place.high


def _domain(
    parameters: DiscoveryParameters,
    limits: Mapping[str, Value],
    categories: Mapping[str, Value],
    ends: Mapping[str, Value],
) -> Domain:
    def variable(name: str) -> Variable:
        low, high, *missing = limits[name]
        lowest, highest = (low, high) if name in categories else ends.get(name, (low, high))
        return Variable(
            name=name,
            low=low,
            high=high,
            missing=missing[0] if missing else None,
            unit=parameters.units.get(name, ""),
            terms=parameters.terms.get(name, ()),
            categories=tuple(categories.get(name, ())),
            lowest=lowest if lowest < low < high and not parameters.classes else None,
            highest=highest if low < high < highest and not parameters.classes else None,
        )

    features = tuple(variable(name) for name in parameters.features)
    if parameters.classes:
        classes = tuple(sorted(parameters.classes))
        return Domain(features=features, label=parameters.target, classes=classes)
    return Domain(features=features, target=variable(parameters.target))
