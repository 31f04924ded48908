"""What the coordinator remembers of an evolution, and how it goes on. All of it is in the state: it can be replayed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassfleet.crisp.forest import Genes
from glassfleet.schemes.fedga.genetics import (
    Strings,
    breed,
    flip,
    generator_of,
    generator_state,
    random_strings,
    structures_of,
)
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
