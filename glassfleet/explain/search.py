"""The search for a counterfactual: through the model's own predictions, knowing nothing else of its scheme.

Candidates are: one input moved along a grid of its range (with the peaks of its fuzzy sets and both sides of its
thresholds), and two of the most effective inputs moved together. Also the nearest point of every rule's region, and a
fixed sequence of points all over the domain. Each candidate that reaches the goal is then *relaxed*: inputs go back to
where they were while the goal still holds, the others move back as far as it holds. The cheapest of those, rounded to
short numbers where that keeps the goal, is the answer. What is promised of it is in :mod:`.counterfactual`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from glassfleet.data.cells import MISSING
from glassfleet.explain.partitions import partitions
from glassfleet.explain.views import Goal
from glassfleet.model.protocol import Model
from glassfleet.model.rules import Rule

Floats = NDArray[np.float64]

PER_INPUT: Final = 0.1
"""What changing one more input costs, in units of one input's whole range: few inputs are preferred."""

OTHER: Final = 0.5
"""What another category costs, and a cell that was empty beside how far it is from what it was taken for."""

_GRID, _PAIR_GRID, _PAIR_INPUTS, _POINTS, _RULES, _STEPS, _ROUNDS = 33, 9, 6, 1024, 256, 32, 4
_MOST_ALTERNATIVES = 3


@dataclass
class Search:
    """One search; counts what it asks of the model."""

    model: Model
    x: Floats
    before: float | str
    goal: Goal
    low: Floats
    high: Floats
    span: Floats
    whole: NDArray[np.bool_]
    start: Floats
    emptied: Floats
    free: list[int]
    most: int
    asked: int = 0
    closest: float | None = None
    _missed: float = np.inf

    @classmethod
    def of(
        cls, model: Model, x: Floats, before: float | str, goal: Goal, *, keep: frozenset[str], most: int | None
    ) -> Search:
        """Prepare a search: `keep` names inputs that must stay, `most` is how many may change."""
        features = model.domain.features
        low = np.array([variable.low for variable in features])
        high = np.array([variable.high for variable in features])
        free = [i for i, variable in enumerate(features) if variable.high > variable.low and variable.name not in keep]
        whole = np.array([bool(variable.categories) for variable in features])
        span = np.where(high > low, high - low, 1.0)
        taken_for = np.array([np.nan if each.missing is None else each.missing for each in features])
        start = np.where(np.isnan(x), taken_for, x)
        # A cell that has a value is not emptied: nobody can act on that.
        emptied = [each.categories.index(MISSING) if MISSING in each.categories else np.nan for each in features]
        most = len(free) if most is None else most
        return cls(model, x, before, goal, low, high, span, whole, start, np.array(emptied), free, most)

    def run(self) -> list[Floats]:
        """Return the best row, then the best of those that change other inputs."""
        if bool(self._good(self.x[None, :])[0]) or not self.free:
            return []
        cheapest: dict[tuple[int, ...], tuple[float, Floats]] = {}
        for candidates, tries in self._candidates():
            good = candidates[self._good(candidates)]
            if not len(good):
                continue
            for line in np.argsort(self.cost(good), kind="stable")[:tries]:
                point = self._settled(good[line])
                changed = tuple(np.flatnonzero(self.changed(point)).tolist())
                if len(changed) > self.most or not bool(self._good(point[None, :])[0]):
                    continue
                cost = float(self.cost(point[None, :])[0])
                if changed not in cheapest or cost < cheapest[changed][0]:
                    cheapest[changed] = (cost, point)
        ranked = sorted(cheapest.items(), key=lambda item: (item[1][0], item[0]))
        chosen: list[tuple[tuple[int, ...], Floats]] = []
        for changed, (_, point) in ranked:
            # A way that changes all that a cheaper one changes, and more, tells nothing new.
            if not any(set(other) <= set(changed) for other, _ in chosen):
                chosen.append((changed, point))
        return [point for _, point in chosen[: _MOST_ALTERNATIVES + 1]]

    # --- asking -----------------------------------------------------------------------------------------------------

    def changed(self, rows: Floats) -> NDArray[np.bool_]:
        """Return which cells of rows, shape (.., F), are otherwise: an empty cell (NaN) is one that was empty."""
        return np.asarray((rows != self.x) & ~np.isnan(rows), dtype=bool)

    def _good(self, rows: Floats) -> NDArray[np.bool_]:
        self.asked += len(rows)
        after, emptied = self.model.predict(rows), ((rows == self.emptied) & self.changed(rows)).any(axis=1)
        if not isinstance(self.before, str):
            distance = np.where(emptied, np.inf, self.goal.distance(self.before, after))
            nearest = int(distance.argmin())
            if distance[nearest] < self._missed:
                self.closest, self._missed = float(after[nearest]), float(distance[nearest])
        return np.asarray(self.goal.reached(self.before, after) & ~emptied, dtype=bool)

    def cost(self, rows: Floats) -> Floats:
        """Return what rows cost, shape (n,): moves as shares of ranges, and something for each changed input."""
        moved = np.where(self.whole, 0.0, np.abs(rows - self.start) / self.span)
        moved += OTHER * (self.whole | np.isnan(self.x))
        cost: Floats = np.where(self.changed(rows), moved + PER_INPUT, 0.0).sum(axis=1)
        return cost

    # --- candidates -------------------------------------------------------------------------------------------------

    def _candidates(self) -> Iterator[tuple[Floats, int]]:
        """Yield candidates, shape (n, F), and how many of them are worth relaxing."""
        grids = self._grids()
        single = [self._with({i: value}) for i in self.free for value in grids[i]]
        for i in self.free:  # one input at a time, so that every input has its chance among the cheapest
            yield np.array([self._with({i: value}) for value in grids[i]]), 2
        if self.most < 2 or len(self.free) < 2:
            return
        rules = self._near_rules()
        if len(rules):
            yield rules, 8
        for i, j in itertools.combinations(self._effective(np.array(single)), 2):
            values = itertools.product(_thin(grids[i]), _thin(grids[j]))
            yield np.array([self._with({i: a, j: b}) for a, b in values]), 1
        yield self._scattered(), 8

    def _with(self, values: dict[int, float]) -> Floats:
        row = self.x.copy()
        for i, value in values.items():
            row[i] = value
        return row

    def _grids(self) -> dict[int, Floats]:
        grids = {}
        for i, partition in enumerate(partitions(self.model)):
            if self.whole[i]:
                grids[i] = np.arange(self.low[i], self.high[i] + 1.0)
                continue
            cuts = np.array(partition.thresholds)
            points = np.concatenate(
                [
                    np.linspace(self.low[i], self.high[i], _GRID),
                    [part.peak for part in partition.sets],
                    cuts,
                    np.nextafter(cuts, np.inf),
                ]
            )
            inside = points[(points >= self.low[i]) & (points <= self.high[i])]
            grids[i] = np.unique(inside)
        return grids

    def _effective(self, single: Floats) -> list[int]:
        """Return the inputs that move the answer most when moved alone, most first."""
        self.asked += len(single)
        after = self.model.predict(single)
        if isinstance(self.before, str):
            return self.free[:_PAIR_INPUTS] if not self._by_use() else self._by_use()[:_PAIR_INPUTS]
        moved = np.abs(after - self.before)
        which = np.argmax(self.changed(single), axis=1)
        reach = {i: float(moved[which == i].max(initial=0.0)) for i in self.free}
        return sorted(self.free, key=lambda i: (-reach[i], i))[:_PAIR_INPUTS]

    def _by_use(self) -> list[int]:
        """Return the inputs by how often rules of other outcomes name them otherwise than the row is."""
        place = {name: i for i, name in enumerate(self.model.domain.names)}
        count = dict.fromkeys(self.free, 0.0)
        for rule in self.model.rules():
            for part in rule.conditions:
                i = place[part.feature]
                if i in count and not part.about_cell and not part.low < self.x[i] < part.high:
                    count[i] += rule.support
        return sorted(self.free, key=lambda i: (-count[i], i))

    def _near_rules(self) -> Floats:
        """Return the row moved into the region of each rule, nearest first."""
        place = {name: i for i, name in enumerate(self.model.domain.names)}
        rows = [row for rule in self.model.rules() if (row := self._into(rule, place)) is not None]
        if not rows:
            return np.empty((0, len(self.x)))
        points = np.unique(np.array(rows), axis=0)
        return points[np.argsort(self.cost(points), kind="stable")[:_RULES]]

    def _into(self, rule: Rule, place: dict[str, int]) -> Floats | None:
        row = self.x.copy()
        for part in rule.conditions:
            i = place[part.feature]
            is_empty = bool(np.isnan(row[i]))
            if part.about_cell:
                if (part.term == "missing") != is_empty:
                    if not is_empty or i not in self.free:
                        return None
                    row[i] = self.start[i]
                continue
            at = self.start[i] if is_empty else row[i]
            low, high = max(part.low, self.low[i]), min(part.high, self.high[i])
            if part.crisp:
                # A row at the lower limit is not in the region (above it), at the upper one it is.
                value = min(max(at, np.nextafter(low, np.inf) if part.low > self.low[i] else low), high)
                value = float(np.ceil(value)) if self.whole[i] and value != at else value
            else:
                value = min(max(part.peak, self.low[i]), self.high[i])
            if value != at:
                if i not in self.free or not self.low[i] <= value <= self.high[i]:
                    return None
                row[i] = value
        return row

    def _scattered(self) -> Floats:
        """Return points all over the domain, the same ones every time."""
        rng = np.random.default_rng(0)
        rows = np.tile(self.x, (_POINTS, 1))
        drawn = self.low + rng.random((_POINTS, len(self.x))) * (self.high - self.low)
        drawn = np.where(self.whole, np.rint(drawn), drawn)
        rows[:, self.free] = drawn[:, self.free]
        return rows

    # --- relaxing ---------------------------------------------------------------------------------------------------

    def _settled(self, row: Floats) -> Floats:
        """Return the row relaxed and rounded, with no input changed that need not be."""
        point = self._rounded(self._nearer(self._fewer(row)))
        # What moved since may have made another input's change idle; each time one goes back for good.
        while (fewer := self._fewer(point)) is not point:
            point = self._rounded(self._nearer(fewer))
        return point

    def _fewer(self, row: Floats) -> Floats:
        """Return the row with as many inputs as they were as the goal allows; the row itself when none can go back."""
        while True:
            changed = np.flatnonzero(self.changed(row))
            if len(changed) <= 1:
                return row
            back = np.tile(row, (len(changed), 1))
            back[np.arange(len(changed)), changed] = self.x[changed]
            good = np.flatnonzero(self._good(back))
            if not good.size:
                return row
            row = back[good[self.cost(back[good]).argmin()]]

    def _nearer(self, row: Floats) -> Floats:
        """Return the row with its changed inputs as near to what they were as the goal allows, the largest first."""
        changed = np.flatnonzero(self.changed(row))
        for i in sorted(changed, key=lambda i: -abs(row[i] - self.start[i]) / self.span[i]):
            row = self._towards(row, int(i))
        return row

    def _towards(self, row: Floats, i: int) -> Floats:
        """Move input `i` back as far as the goal holds: the nearest of some steps, then steps before that one."""
        if self.whole[i]:
            return row
        end, start = row[i], min(max(self.start[i], self.low[i]), self.high[i])
        for _ in range(_ROUNDS):
            steps = np.linspace(start, end, _STEPS)
            trial = np.tile(row, (_STEPS, 1))
            trial[:-1, i] = steps[:-1]
            nearest = int(self._good(trial).argmax())
            row, end, start = trial[nearest], trial[nearest, i], steps[max(nearest - 1, 0)]
            if start == end:
                break
        return row

    def _rounded(self, row: Floats) -> Floats:
        """Return the row with short numbers, rounded away from where it came from, where the goal still holds."""
        for i in np.flatnonzero(self.changed(row) & ~self.whole):
            nudge = np.ceil if row[i] > self.start[i] else np.floor
            steps = 10.0 ** (np.floor(np.log10(self.span[i])) - np.arange(2, 7))
            # Decimal text and number agree: 0.30000000000000004 is nobody's wish.
            shorter = np.array([float(f"{nudge(row[i] / step) * step:.12g}") for step in steps])
            shorter = shorter[(shorter >= self.low[i]) & (shorter <= self.high[i]) & (shorter != self.x[i])]
            trial = np.tile(row, (len(shorter), 1))
            trial[:, i] = shorter
            good = np.flatnonzero(self._good(trial)) if len(trial) else np.empty(0, dtype=np.intp)
            if good.size:
                row = trial[good[0]]
        return row


def _thin(grid: Floats) -> Floats:
    return grid if len(grid) <= _PAIR_GRID else grid[np.linspace(0, len(grid) - 1, _PAIR_GRID).astype(np.intp)]
