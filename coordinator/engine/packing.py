"""Accepted answers in little room: most of a coordinator's memory is those of a run that may still lose vehicles.

While a round is open each answer is by itself, its long arrays as narrow as their numbers. Once it is closed they are
only looked at when a loss is replayed: then the numbers of many vehicles lie side by side, and what Python needs for
each object is gone.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
from immutables import Map
from numpy.typing import NDArray

from coordinator.engine.state import Store, Stored, holds
from glassfleet.contract.messages import Contribution

_NOTHING: Final[Mapping[str, Any]] = {}


SIDE_BY_SIDE = 256
"""Vehicles whose answers lie side by side: few, so that little is in memory twice while they are laid there."""


class Numbers:
    """Arrays of one shape, each number in as many bytes as the one that needs most."""

    __slots__ = ("_low",)

    def __init__(self, arrays: Sequence[NDArray[np.int64]]) -> None:
        side_by_side = np.stack(arrays).astype("<i8", copy=False)
        most = max(int(side_by_side.max(initial=0)), ~int(side_by_side.min(initial=0)))
        width = most.bit_length() // 8 + 1  # with a bit for the sign
        self._low = side_by_side.view(np.uint8).reshape(*side_by_side.shape, 8)[..., :width].copy()

    def __getitem__(self, index: int) -> NDArray[np.int64]:
        """Return one of the arrays."""
        low = self._low[index]
        width = low.shape[-1]
        whole = np.empty((*low.shape[:-1], 8), np.uint8)
        whole[..., 8 - width :] = low
        return np.asarray(whole.view("<i8")[..., 0] >> 8 * (8 - width))  # repeats the sign, and drops what is below


class _Row(Mapping[str, NDArray[np.int64]]):
    """The sums of one of the vehicles that lie side by side."""

    __slots__ = ("_index", "_sums")

    def __init__(self, sums: Mapping[str, Numbers], index: int) -> None:
        self._sums, self._index = sums, index

    def __getitem__(self, name: str) -> NDArray[np.int64]:
        return self._sums[name][self._index]

    def __iter__(self) -> Iterator[str]:
        return iter(self._sums)

    def __len__(self) -> int:
        return len(self._sums)


class _Block:
    """Answers whose sums have the same names and shapes, side by side."""

    __slots__ = ("_counts", "_digests", "_kinds", "_sums", "_values")

    def __init__(self, answers: Sequence[Stored], sums: Mapping[str, Sequence[NDArray[np.int64]]]) -> None:
        contributions = [each.contribution for each in answers]
        self._digests = b"".join(bytes.fromhex(each.answer_digest) for each in answers)
        self._counts = np.array([(a.rows, c.rows, c.nullified) for a, c in zip(answers, contributions, strict=True)])
        self._kinds = [each.kind for each in contributions]
        self._values = [each.values or _NOTHING for each in contributions]
        self._sums = {name: Numbers(arrays) for name, arrays in sums.items()}

    def __getitem__(self, index: int) -> Stored:
        given, rows, nullified = self._counts[index].tolist()
        sums, values = _Row(self._sums, index), self._values[index]
        contribution = Contribution(self._kinds[index], rows, sums, values, nullified)
        return Stored(self._digests[32 * index : 32 * index + 32].hex(), given, contribution)


def _laid(answers: Sequence[Stored]) -> _Block | Sequence[Stored]:
    """Return answers side by side, or as they are where their sums differ in names or shapes."""
    tables = [each.contribution.sums for each in answers]
    if any(sums.keys() != tables[0].keys() for sums in tables):
        return answers
    arrays = {name: [sums[name] for sums in tables] for name in tables[0]}
    if any(len({array.shape for array in alike}) > 1 for alike in arrays.values()):
        return answers
    return _Block(answers, arrays)


class Packed(Mapping[str, Stored]):
    """The answers to a closed round by agent, in the order of id."""

    def __init__(self, answers: Mapping[str, Stored]) -> None:
        self._agents = agents = tuple(sorted(answers))
        starts = range(0, len(agents), SIDE_BY_SIDE)
        self._blocks = [_laid([answers[agent] for agent in agents[at : at + SIDE_BY_SIDE]]) for at in starts]

    def __contains__(self, agent: object) -> bool:
        """Whether an agent's answer is among them."""
        return isinstance(agent, str) and holds(self._agents, agent)

    def __getitem__(self, agent: str) -> Stored:
        """Return the answer of one agent."""
        if agent not in self:
            raise KeyError(agent)
        block, index = divmod(bisect_left(self._agents, agent), SIDE_BY_SIDE)
        return self._blocks[block][index]

    def __iter__(self) -> Iterator[str]:
        """Yield the agents."""
        return iter(self._agents)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._agents)


def packed(store: Store, open_digest: str) -> Store:
    """Return the answers to all rounds, those to closed ones packed; those to the open one can be added to."""
    closed = {
        digest: answers if isinstance(answers, Packed) else Packed(answers)
        for digest, answers in store.items()
        if digest != open_digest
    }
    return {**closed, open_digest: Map(store[open_digest].items())} if open_digest in store else closed
