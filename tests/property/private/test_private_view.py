"""What a coordinator sees depends on the sums that it opens, and on nothing else of anybody's rows.

Exact, not statistical: the key streams are replaced by a table of uniform words. For two fleets whose opened sums are
equal there is a shift of the table's words under which the coordinator sees the same bytes; a shift leaves uniform
words uniform, so both views have one distribution.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassfleet import catalogue
from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain, Variable
from glassfleet.private import answering, masks
from glassfleet.private.groups import Edition, Terms, parameters_digest
from glassfleet.private.masks import RunKey
from glassfleet.private.simulation import Heard, PrivateFleet, Vehicle
from glassfleet.scheme import private_parameters

SCHEME = catalogue.load("frt")
PARAMETERS = private_parameters(SCHEME, SCHEME.Parameters(max_depth=1))
TERMS = Terms("fleet", "run", "nonce", "frt", parameters_digest(PARAMETERS))
DOMAIN = Domain(
    features=tuple(Variable(name=name, low=0.0, high=1.0) for name in "ab"),
    target=Variable(name="y", low=0.0, high=2.0),
)

Stream = tuple[Edition, str, str, str]
Vectors = dict[tuple[str, str], Any]


class Table:
    """Uniform words in place of key streams, one row for each edition, task and pair; and a shift of some of them."""

    def __init__(self, seed: int) -> None:
        self.words = np.random.default_rng(seed)
        self.rows: dict[Any, Any] = {}
        self.shifts: dict[Any, Any] = {}

    def key(self, pair: bytes, edition: Edition, task_digest: str, one: str, other: str) -> Any:
        del pair
        return (edition.members, edition.number, task_digest, *sorted((one, other)))

    def stream(self, key: Any, size: int) -> Any:
        if key not in self.rows:
            self.rows[key] = self.words.integers(0, 2**64, size, dtype=np.uint64)
        return self.rows[key] + self.shifts.get(key, np.uint64(0))


def run(
    patch: pytest.MonkeyPatch, table: Table, keys: dict[str, RunKey], parts: dict[str, Dataset], left: dict[str, int]
) -> tuple[list[Heard], Vectors, PrivateFleet]:
    """Return what the coordinator heard, and each vehicle's vector by id and task."""
    vectors: Vectors = {}

    def mask(vector: Any, agent: str, edition: Edition, pairs: Any, task_digest: str) -> Any:
        vectors[agent, task_digest] = vector.view(np.uint64)
        return masks.mask(vector, agent, edition, pairs, task_digest)

    patch.setattr(masks, "stream_key", table.key)
    patch.setattr(masks, "stream", table.stream)
    patch.setattr(answering, "mask", mask)
    heard: list[Heard] = []
    vehicles = [Vehicle(agent, rows, keys[agent], left.get(agent)) for agent, rows in parts.items()]
    fleet = PrivateFleet(TERMS, vehicles, watch=heard.append)
    fleet.learn(SCHEME, PARAMETERS, DOMAIN)
    return heard, vectors, fleet


def shift(table: Table, heard: list[Heard], one: Vectors, other: Vectors, colluders: set[str]) -> None:
    """Shift the words so that `other` looks like `one`: along a path through the members, silent ones at its end.

    Words that a colluder shares stay as they are: it knows them.
    """
    asked = {(each.edition.members, each.edition.number, each.task.digest) for each in heard}
    for members, number, task in asked:
        spoke = [agent for agent in members if (agent, task) in one and (agent, task) in other]
        path = [agent for agent in (*spoke, *(set(members) - set(spoke))) if agent not in colluders]
        rest = np.zeros_like(one[spoke[0], task])
        for here, there in pairwise(path):
            if here in spoke:
                rest = rest + other[here, task] - one[here, task]
            if here not in spoke:
                break
            key = (members, number, task, *sorted((here, there)))
            table.shifts[key] = -rest if here < there else rest


@settings(max_examples=10)
@given(data=st.data())
def test_view_is_the_same_for_other_rows_with_the_same_sums(data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    agents = [f"v{i:02d}" for i in range(data.draw(st.integers(12, 16)))]
    X = rng.random((300, 2))
    owner = rng.integers(0, len(agents), 300)
    rows = [Dataset(("a", "b"), "y", X[owner == i], X.sum(axis=1)[owner == i]) for i in range(len(agents))]
    parts = dict(zip(agents, rows, strict=True))
    left = dict.fromkeys(agents[-3:], data.draw(st.integers(0, 4))) if data.draw(st.booleans()) else {}
    colluders = set(data.draw(st.lists(st.sampled_from(agents), max_size=5)))
    keys = {agent: RunKey.generate() for agent in agents}

    with pytest.MonkeyPatch.context() as patch:
        table = Table(1)
        first, vectors, fleet = run(patch, table, keys, parts, left)
        # The same rows at other vehicles: of those that stayed, and of those that left together.
        moved = dict(parts)
        for part in (set(fleet.cohort), set(agents) - set(fleet.cohort)):
            together = sorted(part - colluders)
            order = data.draw(st.permutations(together))
            moved |= {agent: parts[source] for agent, source in zip(together, order, strict=True)}
        plain, others, _ = run(patch, table, keys, moved, left)
        shift(table, first, vectors, others, colluders)
        second, _, _ = run(patch, table, keys, moved, left)

    assert [(each.agent, each.task.digest) for each in first] == [(each.agent, each.task.digest) for each in second]
    assert all(np.array_equal(one.words, other.words) for one, other in zip(first, second, strict=True))
    if any(moved[agent] is not parts[agent] and moved[agent].rows + parts[agent].rows for agent in fleet.cohort):
        assert any(not np.array_equal(one.words, other.words) for one, other in zip(first, plain, strict=True))
