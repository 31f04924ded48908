"""The leakage report: attacks on a transcript, and how many rows they read, whose, and how often they are wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.spatial import KDTree

from glassfleet.contract.scheme import Scheme
from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain
from lab.audit import banded, tree
from lab.audit.strengths import rows_behind_strengths
from lab.audit.sums import Rows, cells, columns, covariances, groups, remainders, spans
from lab.audit.transcript import Members, Opened, View, differences, total, views
from schemas.leakage import SavedLine

# Reconstruction from a finished tree, after Di Gennaro et al., "TimberStrike: Dataset Reconstruction Attack Revealing
# Privacy Leakage in Federated Tree-Based Systems" (arXiv 2506.07605). Each leaf gets as many rows as it holds; values
# near the true ones are counted after the best matching. Not taken: its search for rows that fit the leaves of many
# trees at once, and the labels that gradients tell. In their place stand the means of all columns at each leaf (rule),
# which sums of products tell. Who knows nothing but the mean of all rows has about a quarter of the values near.

NEAR = 0.319
"""Standard deviations of a column within which a value counts as near: the tolerance of the paper."""

MOST_ROWS = 500
"""Rows that are matched; of more, so many are drawn, as in the paper. Matching grows with the cube."""

_LAST = frozenset({"leaves", "sums"})
"""Questions of tree and frt, and of tsk, about the leaves or rules that the model has in the end."""


def leaf_means(view: View) -> Rows:
    """Return the mean row of each leaf or rule, once for each row that it holds by weight, shape (m, F + 1)."""
    result = []
    for some in groups([(task, sums) for task, sums in view if task.kind in _LAST]):
        weights = some.grams[:, -2, -2]
        for gram, weight in zip(some.grams[weights > some.noise], weights[weights > some.noise], strict=True):
            result.append(np.repeat(some.rows_on(gram[-2:-1]), max(1, round(weight)), axis=0))
    return np.concatenate(result) if result else np.empty((0, 0))


def near(made: Rows, rows: Rows) -> tuple[float, float]:
    """Return the share of values of `rows` that the best matching with `made` meets; and that their mean meets.

    Parameters
    ----------
    made, rows : ndarray of float64, shapes (m, F + 1) and (n, F + 1)
        NaN in `made` meets nothing.
    """
    if not len(made) or not len(rows):
        return 0.0, 0.0
    rng = np.random.default_rng(0)
    some = rows[rng.permutation(len(rows))[:MOST_ROWS]]
    made = made[rng.permutation(len(made))[: len(some)]]
    width = NEAR * rows.std(axis=0)
    met = (np.abs(some[:, None] - made[None]) <= width).sum(axis=2)
    first, second = linear_sum_assignment(met, maximize=True)
    guessed = np.abs(some - rows.mean(axis=0)) <= width
    return float(met[first, second].sum() / some.size), float(guessed.mean())


TOLERANCE = 1e-3
"""A row counts as read when every input and the target are this near, as a share of their ranges."""

_PART = 1e-7
"""The same where only one column is told. Where some are, it must be the only row so near, too."""

ALL: Final = "all vehicles together"
OPENED: Final = "all that was opened"


@dataclass(frozen=True)
class Attack:
    """One way to compute rows.

    Attributes
    ----------
    name : str
    schemes : tuple of str
        Whose sums it reads.
    rows : callable
        From a view to candidate rows, shape (m, F + 1), scaled; NaN: nothing is told of the column.
    crosses : bool
        Whether it takes several views, of sets of vehicles that have some in common.
    kind : str
        Only where such a question was asked; empty: any.
    """

    name: str
    schemes: tuple[str, ...]
    rows: Callable[..., Rows]
    crosses: bool = False
    kind: str = ""


PRODUCTS = ("frt", "tsk")

ATTACKS = (
    Attack("bins", ("tree",), tree.bins, kind="bins"),
    Attack("cells", ("frt",), cells),
    Attack("remainders", ("frt",), remainders),
    Attack("spans", PRODUCTS, spans, crosses=True),
    Attack("spans", ("tree",), tree.spans, crosses=True),
    Attack("margins", ("tree",), banded.margins, crosses=True, kind="bands"),
    Attack("remainders", ("tree",), banded.remainders, crosses=True, kind="bands"),
    Attack("columns", PRODUCTS, columns),
    Attack("columns", ("tree",), banded.columns),
    Attack("classes", ("tree",), banded.classes, kind="joint"),
    Attack("covariances", PRODUCTS, covariances, crosses=True),
    Attack("trees", ("frt", "tsk"), leaf_means),
    Attack("trees", ("tree",), tree.leaf_means),
    Attack("strengths", ("frbc",), rows_behind_strengths),
)


class AttackLine(SavedLine):
    """What one attack came to on one kind of sums, and whose rows it read: this is not handed on.

    Attributes
    ----------
    owners : dict of str to (int, int)
        Rows read whole and rows that there are, by vehicle; empty where sums are of several vehicles: a row that is
        read from them has no name.
    """

    owners: dict[str, tuple[int, int]]


def protection_of(scheme: Scheme, parameters: Any, nullified: int, *, private: bool = False) -> str:
    """Return how the vehicles of a run protected their rows, in a word or two.

    ``condensed``; ``exact``: not at all; ``nullified``, as frt's paper has it; ``own``: in another way of the scheme's;
    ``private`` and ``private, support K``: exact sums over groups, of which nobody sees a part.

    Parameters
    ----------
    scheme : Scheme
    parameters : scheme.Parameters
    nullified : int
        Statistics that they set to zero.
    private : bool
        Whether it was a private run.
    """
    if private:
        support = getattr(parameters, "support", 0)
        return f"private, support {support}" if support else "private"
    group_rows = getattr(parameters, "group_rows", None)
    if group_rows is not None and group_rows > 1:
        return "condensed"
    if nullified:
        return "nullified"
    return "exact" if group_rows is not None or parameters == scheme.exact(parameters) else "own"


def truth(domain: Domain, data: Dataset) -> Rows:
    """Return a vehicle's rows as they enter its sums: inputs and target scaled, a class as its number."""
    own = data.select([variable.name for variable in domain.features]).X
    inputs = np.minimum(domain.scale_inputs(domain.completed(own)), 1.0)
    if domain.target is not None:
        return np.column_stack([inputs, domain.scale_target(data.y)])
    labels, known = data.y.astype(np.str_), np.array(domain.classes, dtype=np.str_)
    numbers = np.array([np.flatnonzero(known == label)[0] if label in known else -1 for label in labels])
    return np.column_stack([inputs, numbers.astype(np.float64)])


def matches(candidates: Rows, rows: Rows) -> tuple[set[int], set[int], int]:
    """Compare what an attack found with the rows that there are, equal ones as one.

    Returns
    -------
    set of int, set of int, int
        Places of the rows read whole; of those of which some columns were read; candidates that are no row.
    """
    whole: set[int] = set()
    parts: set[int] = set()
    false = 0
    if not len(candidates) or not len(rows):
        return whole, parts, len(candidates)
    different, first = np.unique(rows, axis=0, return_index=True)
    is_told = ~np.isnan(candidates)
    for kept in np.unique(is_told, axis=0):
        some = candidates[(is_told == kept).all(axis=1)][:, kept]
        tree = KDTree(different[:, kept])
        distance, at = tree.query(some, p=np.inf)
        within = TOLERANCE if kept.sum() > 1 else _PART
        hit: NDArray[np.bool_] = distance < within
        false += int((~hit).sum())
        if kept.all():
            whole |= set(first[at[hit]].tolist())
        else:
            alone = tree.query_ball_point(some, within, p=np.inf, return_length=True) == 1
            parts |= set(first[at[hit & alone]].tolist())
    return whole, parts - whole, false


def audit(protection: str, opened: Sequence[Opened], rows: Mapping[str, Rows]) -> list[AttackLine]:
    """Run all attacks on a transcript.

    Parameters
    ----------
    protection : str
        Of the run, for the lines.
    opened : sequence of Opened
        What left the vehicles, but for the search for limits; all of one scheme.
    rows : mapping of str to ndarray of float64, shape (n, F + 1)
        The rows of each vehicle that took part, by :func:`truth`.

    Returns
    -------
    list of Line
        None of a scheme that no attack here is about.
    """
    if not opened:
        return []
    sets = {one.members for one in opened}
    is_plain = all(len(members) == 1 for members in sets)
    kinds = {"each vehicle" if is_plain else "each group": list(opened), "who left": differences(opened)}
    if frozenset().union(*sets) not in sets:
        kinds[ALL] = total(opened)
    asked, scheme = {"", *(one.task.kind for one in opened)}, opened[0].task.scheme
    attacks = [attack for attack in ATTACKS if scheme in attack.schemes and attack.kind in asked]
    lines: list[AttackLine] = []
    for seen, some in kinds.items():
        known = views(some)
        lines += [
            _line(protection, seen, attack, [(members, attack.rows(view)) for members, view in known.items()], rows)
            for attack in attacks
            if known
        ]
    every = views([*opened, *differences(opened)])
    if not is_plain and len(every) > 1:
        members = frozenset().union(*sets)
        lines += [
            _line(protection, OPENED, attack, [(members, attack.rows(*every.values()))], rows)
            for attack in attacks
            if attack.crosses
        ]
    return lines


def _line(
    protection: str, seen: str, attack: Attack, known: Sequence[tuple[Members, Rows]], rows: Mapping[str, Rows]
) -> AttackLine:
    """Return what the candidates that an attack found of some sets of vehicles come to."""
    read: set[tuple[str, int]] = set()
    parts: set[tuple[str, int]] = set()
    false, chance, nears = 0, 0, []
    rng = np.random.default_rng(0)
    for members, candidates in known:
        places = [(agent, place) for agent in sorted(members) for place in range(len(rows[agent]))]
        theirs = np.concatenate([rows[agent] for agent in sorted(members)])
        whole, some, wrong = matches(candidates, theirs)
        read |= {places[at] for at in whole}
        parts |= {places[at] for at in some}
        false += wrong
        chance += len(matches(candidates, rng.permuted(theirs, axis=0))[0])
        if attack.name == "trees" and len(candidates):
            nears.append((near(candidates, theirs), len(theirs)))
    everybody = sorted(frozenset().union(*(members for members, _ in known)))
    is_named = all(len(members) == 1 for members, _ in known)
    share, guess = (
        sum(each[place] * count for each, count in nears) / max(1, sum(count for _, count in nears)) if nears else None
        for place in (0, 1)
    )
    return AttackLine(
        protection=protection,
        seen=seen,
        attack=attack.name,
        read=len(read),
        parts=len(parts - read),
        rows=sum(len(rows[agent]) for agent in everybody),
        false=false,
        chance=chance,
        owners={agent: (sum(own == agent for own, _ in read), len(rows[agent])) for agent in everybody if is_named},
        near=share,
        guessed=guess,
    )
