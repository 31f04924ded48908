"""What the coordinator remembers of an evolution, and how it goes on. All of it is in the state: it can be replayed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassfleet.crisp.forest import NIL, Forest, Genes
from glassfleet.schemes.fedga.params import FedgaParameters
from schemas.codec import Value

_TRIES = 20
"""Flips before a child that is nobody new is given up."""


@dataclass(frozen=True)
class Evolution:
    """Population and scores.

    Attributes
    ----------
    depth, n_features : int
    strings : ndarray of int16, shape (S, 2^depth - 1)
        The population, then the candidates that wait for their scores.
    settled : int
        How many of them are the population.
    agents : tuple of str
        Who has answered so far.
    weights : ndarray of float64, shape (A,)
        Their (noisy) numbers of rows.
    scores : ndarray of float64, shape (S, A)
    known : ndarray of bool, shape (S, A)
        Which of the scores are there; the others are 0.
    introduced : tuple of str
        Agents whose own structure has been taken in.
    generator : Mapping
        State of the random number generator.
    """

    depth: int
    n_features: int
    strings: Strings
    settled: int
    agents: tuple[str, ...]
    weights: NDArray[np.float64]
    scores: NDArray[np.float64]
    known: NDArray[np.bool_]
    introduced: tuple[str, ...]
    generator: Mapping[str, Any]

    def to_value(self) -> dict[str, Value]:
        """Return the evolution as codec values."""
        return {
            "depth": self.depth,
            "features": self.n_features,
            "strings": self.strings,
            "settled": self.settled,
            "agents": list(self.agents),
            "weights": self.weights,
            "scores": self.scores,
            "known": self.known,
            "introduced": list(self.introduced),
            "generator": dict(self.generator),
        }

    @classmethod
    def from_value(cls, value: Mapping[str, Any]) -> Evolution:
        """Undo :meth:`to_value`."""
        names = {name: tuple(value[name]) for name in ("agents", "introduced")}
        others = {name: part for name, part in value.items() if name != "features"}
        return cls(n_features=value["features"], **{**others, **names})

    @property
    def fitness(self) -> NDArray[np.float64]:
        """Mean score of each string over the agents who scored it, weighted by rows; -inf where nobody did."""
        weight = self.known * self.weights
        total = weight.sum(axis=1)
        mean = (weight * self.scores).sum(axis=1) / np.where(total > 0, total, 1.0)
        return np.where(total > 0, mean, -np.inf)

    def structures(self) -> list[Genes]:
        """Return the structure of each string."""
        return structures_of(self.strings, self.depth)

    def with_agents(self, names: Iterable[str], weights: Iterable[float]) -> Evolution:
        """Note who answered; an agent that is known keeps its weight."""
        new = {name: weight for name, weight in zip(names, weights, strict=True) if name not in self.agents}
        if not new:
            return self
        size = len(self.strings)
        return replace(
            self,
            agents=(*self.agents, *new),
            weights=np.concatenate([self.weights, np.array(list(new.values()))]),
            scores=np.concatenate([self.scores, np.zeros((size, len(new)))], axis=1),
            known=np.concatenate([self.known, np.zeros((size, len(new)), dtype=np.bool_)], axis=1),
        )

    def with_scores(self, asked: NDArray[np.intp], answers: Mapping[str, NDArray[np.float64]]) -> Evolution:
        """Note the scores of the strings `asked`, by agent."""
        scores, known = self.scores.copy(), self.known.copy()
        position = {name: index for index, name in enumerate(self.agents)}
        for name, given in answers.items():
            scores[asked, position[name]] = given
            known[asked, position[name]] = True
        return replace(self, scores=scores, known=known)

    def survive(self, size: int, *, elitism: bool) -> Evolution:
        """Keep the best `size` strings of different structure; without elitism only one parent may be among them."""
        fitness = self.fitness
        order = np.argsort(-fitness, kind="stable")  # ties: the older first
        if not elitism and len(order) - self.settled >= size:
            parents = order[order < self.settled]
            order = np.array([line for line in order if line >= self.settled or line in parents[:1]], dtype=np.intp)
        structures = self.structures()
        kept: dict[bytes, int] = {}
        for line in order:
            kept.setdefault(structures[line].tobytes(), int(line))
        chosen = np.array(list(kept.values())[:size], dtype=np.intp)
        return self.take(chosen, len(chosen))

    def take(self, lines: NDArray[np.intp], settled: int) -> Evolution:
        """Return the given strings, in that order."""
        return replace(
            self, strings=self.strings[lines], scores=self.scores[lines], known=self.known[lines], settled=settled
        )

    def join(self, strings: Strings) -> Evolution:
        """Add strings that nobody has scored, except those whose structure is there already."""
        seen = {genes.tobytes() for genes in self.structures()}
        new = []
        for line, genes in enumerate(structures_of(strings, self.depth)):
            if genes.tobytes() not in seen:
                seen.add(genes.tobytes())
                new.append(line)
        size, agents = len(new), len(self.agents)
        return replace(
            self,
            strings=np.concatenate([self.strings, strings[new]]),
            scores=np.concatenate([self.scores, np.zeros((size, agents))]),
            known=np.concatenate([self.known, np.zeros((size, agents), dtype=np.bool_)]),
        )

    def breed(self, parameters: FedgaParameters, size: int) -> Evolution:
        """Add children, `size` of them where enough differ from all others."""
        rng = generator_of(dict(self.generator))
        parents, fitness = self.strings[: self.settled], self.fitness[: self.settled]
        if self.settled < size:  # a small population still has a full generation of children
            more = np.arange(size) % self.settled
            parents, fitness = parents[more], fitness[more]
        children = breed(parents, fitness, self.n_features, parameters, rng)
        grown = self.join(children)
        for _ in range(_TRIES):
            missing = self.settled + size - len(grown.strings)
            if missing <= 0:
                break
            again = flip(children[:missing], self.n_features, max(parameters.mutation_rate, 0.05), rng)
            again[:, 0] = np.where(again[:, 0] < 0, children[:missing, 0], again[:, 0])
            children = np.concatenate([again, children[missing:]])
            grown = grown.join(again)
        return replace(grown, generator=generator_state(rng))


def begin(
    parameters: FedgaParameters,
    *,
    depth: int,
    n_features: int,
    size: int,
    own: Sequence[Strings],
    rng: np.random.Generator,
) -> Evolution:
    """Return the first candidates: the agents' structures and random ones."""
    nobody = np.zeros((0, 0))
    empty = Evolution(
        depth, n_features, np.zeros((0, (1 << depth) - 1), dtype=np.int16), 0, (), np.zeros(0), nobody,
        np.zeros((0, 0), dtype=np.bool_), (), {},
    )  # fmt: skip
    drawn = random_strings(size, depth, n_features, parameters.leaf_ratio, rng)
    return replace(empty.join(np.concatenate([*own, drawn])), generator=generator_state(rng))


# --- strings of genes: random ones, crossover, mutation, and the structures that they stand for -----------------------
#
# A string has one gene for each place of a complete tree of the run's depth, in pre-order: a feature, or -1 for nil.
# Places below a nil are detached: they belong to the string, are inherited, and come back to life when a mutation puts
# a feature above them; the structure is what hangs together with the root.


Strings = NDArray[np.int16]
"""Shape (P, 2^depth - 1)."""

_SUBSTRING = 0.5
"""Longest substrings that are swapped, as a part of the string."""


@dataclass(frozen=True)
class _Places:
    """The places of a complete tree, one level deeper than strings are, in pre-order.

    Attributes
    ----------
    levels : tuple of ndarray of intp
        Places of each depth, left to right.
    genes : ndarray of intp
        Places that have a gene: all but the deepest.
    half : tuple of int
        Distance from a place of each depth to its right child.
    """

    levels: tuple[NDArray[np.intp], ...]
    genes: NDArray[np.intp]
    half: tuple[int, ...]


@cache
def _places(depth: int) -> _Places:
    levels, half = [np.zeros(1, dtype=np.intp)], []
    for level in range(depth):
        # A subtree whose root is at `level` has 2^(depth + 1 - level) - 1 places; so has each of its two sons half.
        half.append(1 << (depth - level))
        sons = np.stack([levels[-1] + 1, levels[-1] + half[-1]], axis=1)
        levels.append(sons.reshape(-1))
    return _Places(tuple(levels), np.sort(np.concatenate(levels[:-1])), tuple(half))


def length_of(depth: int) -> int:
    """Return the number of genes."""
    return (1 << depth) - 1


def structures_of(strings: Strings, depth: int) -> list[Genes]:
    """Return the structure of each string: what is connected with the root, nil closing every branch."""
    places = _places(depth)
    size, whole = len(strings), 2 * length_of(depth) + 1
    genes = np.full((size, whole), NIL, dtype=np.int32)
    genes[:, places.genes] = strings
    alive = np.zeros((size, whole), dtype=np.bool_)
    alive[:, 0] = True
    for level in range(depth):
        at = places.levels[level]
        splits = alive[:, at] & (genes[:, at] >= 0)
        alive[:, at + 1] = alive[:, at + places.half[level]] = splits
    return [line[here] for line, here in zip(genes, alive, strict=True)]


def string_of(structure: Genes, depth: int) -> Strings:
    """Return a string, shape (1, L), for a structure of at most `depth`; detached places are nil."""
    places = _places(depth)
    whole = np.full(2 * length_of(depth) + 1, NIL, dtype=np.int32)
    forest = Forest.of([structure])
    node, place = forest.root, np.zeros(1, dtype=np.intp)
    for level in range(depth):
        splits = forest.feature[node] >= 0
        node, place = node[splits], place[splits]
        whole[place] = forest.feature[node]
        node = np.concatenate([node + 1, forest.right[node]])
        place = np.concatenate([place + 1, place + places.half[level]])
    return whole[places.genes].astype(np.int16)[None, :]


def random_strings(size: int, depth: int, n_features: int, leaf_ratio: float, rng: np.random.Generator) -> Strings:
    """Return random strings: nil with probability `leaf_ratio`, at least one nil if there is room, never the root."""
    length = length_of(depth)
    strings = rng.integers(0, n_features, (size, length))
    strings[rng.random((size, length)) < leaf_ratio] = NIL
    if length > 1:
        strings[np.arange(size), rng.integers(1, length, size)] = NIL
    return _rooted(strings.astype(np.int16), n_features, rng)


def breed(
    strings: Strings,
    fitness: NDArray[np.float64],
    n_features: int,
    parameters: FedgaParameters,
    rng: np.random.Generator,
) -> Strings:
    """Return as many children as parents: tournaments, one-point crossover, one kind of mutation for all of them.

    Parameters
    ----------
    strings : ndarray of int16, shape (P, L)
    fitness : ndarray of float64, shape (P,)
        Higher is better.
    """
    size, length = strings.shape
    pairs = (size + 1) // 2
    entrants = rng.integers(0, size, (2 * pairs, parameters.tournament))
    winners = entrants[np.arange(2 * pairs), fitness[entrants].argmax(axis=1)]
    mothers, fathers = strings[winners[:pairs]], strings[winners[pairs:]]
    if length > 1:
        before = np.arange(length) < rng.integers(1, length, pairs)[:, None]
        children = np.concatenate([np.where(before, mothers, fathers), np.where(before, fathers, mothers)])[:size]
    else:
        children = np.concatenate([mothers, fathers])[:size].copy()
    mutate = (flip, swap, swap_substrings)[int(rng.integers(0, 3))]
    return _rooted(mutate(children, n_features, parameters.mutation_rate, rng), n_features, rng)


def flip(strings: Strings, n_features: int, rate: float, rng: np.random.Generator) -> Strings:
    """Change genes: half of those chosen become nil (or, being nil, a feature), the others another feature."""
    chosen = rng.random(strings.shape) < rate
    feature = rng.integers(0, n_features, strings.shape)
    becomes_nil = (rng.random(strings.shape) < 0.5) & (strings != NIL)
    return np.where(chosen, np.where(becomes_nil, NIL, feature), strings).astype(np.int16)


def swap(strings: Strings, n_features: int, rate: float, rng: np.random.Generator) -> Strings:
    """Exchange genes with others of the same string."""
    del n_features
    result = strings.copy()
    length = strings.shape[1]
    for line, place in np.argwhere(rng.random(strings.shape) < rate):
        other = int(rng.integers(0, length))
        result[line, place], result[line, other] = result[line, other], result[line, place]
    return result


def swap_substrings(strings: Strings, n_features: int, rate: float, rng: np.random.Generator) -> Strings:
    """Exchange two substrings of one length that do not overlap, in each string."""
    del n_features, rate
    result = strings.copy()
    length = strings.shape[1]
    if length < 2:
        return result
    for line in result:
        size = int(rng.integers(1, max(2, int(length * _SUBSTRING) + 1)))
        first = int(rng.integers(0, length - 2 * size + 1))
        second = int(rng.integers(first + size, length - size + 1))
        held = line[first : first + size].copy()
        line[first : first + size] = line[second : second + size]
        line[second : second + size] = held
    return result


def _rooted(strings: Strings, n_features: int, rng: np.random.Generator) -> Strings:
    """Give each string that has none a root."""
    roots = rng.integers(0, n_features, len(strings)).astype(np.int16)
    strings[:, 0] = np.where(strings[:, 0] == NIL, roots, strings[:, 0])
    return strings


def generator_state(rng: np.random.Generator) -> dict[str, str | int]:
    """Return the state of a PCG64 generator as codec values."""
    state = rng.bit_generator.state
    return {
        "state": f"{state['state']['state']:032x}",
        "inc": f"{state['state']['inc']:032x}",
        "has_uint32": int(state["has_uint32"]),
        "uinteger": int(state["uinteger"]),
    }


def generator_of(value: dict[str, str | int]) -> np.random.Generator:
    """Undo :func:`generator_state`."""
    bits = np.random.PCG64()
    bits.state = {
        "bit_generator": "PCG64",
        "state": {"state": int(str(value["state"]), 16), "inc": int(str(value["inc"]), 16)},
        "has_uint32": int(value["has_uint32"]),
        "uinteger": int(value["uinteger"]),
    }
    return np.random.Generator(bits)
