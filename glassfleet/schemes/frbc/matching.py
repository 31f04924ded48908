"""Antecedents, and which of thousands of them fire for a row.

An antecedent names one fuzzy set per input. Few of them fire for a row: in a strong partition two sets of an input do,
so of the candidates 2^F at most, and of the rules only those that name one of the two sets for *every* input. The
rules are therefore kept as a tree, one level per input in the order of columns. All rows of a block walk down
together; a pair (row, node) lives while both the child exists and the membership is above zero. The work is that of
the pairs which live, and the strength is multiplied in the one order that promise 1 asks for: column by column.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from glassfleet.fuzzy.partition import Memberships
from glassfleet.numerics.statistics import EXACT_BITS, blocks

_PAIRS = 1 << 17
"""Pairs (row, node) worked on at once, unless one row has more: about 50 bytes each while a level is taken."""


def strongest_sets(members: Memberships) -> NDArray[np.int8]:
    """Return each row's antecedent, shape (n, F): per input the set with the highest membership, the lower on a tie."""
    sets = members.lower + (members.upper > 0.5)
    return np.ascontiguousarray(sets.T.astype(np.int8, copy=False))


def digits_per_word(n_sets: int) -> int:
    """Return how many sets of `n_sets` fit into one int64 as a number with `n_sets` as its base."""
    count, size = 0, 1
    while size * n_sets <= 1 << 63:
        count, size = count + 1, size * n_sets
    return count


def word_count(n_features: int, n_sets: int) -> int:
    """Return how many int64 words an antecedent over `n_features` inputs takes."""
    return -(-n_features // digits_per_word(n_sets))


def pack(antecedents: NDArray[np.int8], n_sets: int) -> NDArray[np.int64]:
    """Write antecedents, shape (n, F), as words, shape (n, W), first input first: same order, fewer bytes."""
    n, f = antecedents.shape
    width = digits_per_word(n_sets)
    words = np.zeros((n, word_count(f, n_sets)), dtype=np.int64)
    for feature in range(f):
        word = words[:, feature // width]
        word *= n_sets
        word += antecedents[:, feature]
    return words


def unpack(words: NDArray[np.int64], n_features: int, n_sets: int) -> NDArray[np.int8]:
    """Undo :func:`pack`; raises ValueError when the words are no antecedents."""
    if words.ndim != 2 or words.shape[1] != word_count(n_features, n_sets):
        raise ValueError(f"antecedents have shape {words.shape}, expected (rules, {word_count(n_features, n_sets)})")
    width = digits_per_word(n_sets)
    antecedents = np.empty((words.shape[0], n_features), dtype=np.int8)
    rest = words.copy()
    for feature in reversed(range(n_features)):
        antecedents[:, feature] = rest[:, feature // width] % n_sets
        rest[:, feature // width] //= n_sets
    if rest.any():
        raise ValueError(f"an antecedent is no list of {n_features} sets in [0, {n_sets})")
    return antecedents


def sort_rules(words: NDArray[np.int64], classes: NDArray[np.int16]) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Return the order of rules by antecedent and class, and which of them, so ordered, differ from the one before."""
    order = np.lexsort((classes, *words.T[::-1]))
    words, classes = words[order], classes[order]
    new = np.ones(len(order), dtype=bool)
    new[1:] = (words[1:] != words[:-1]).any(axis=1) | (classes[1:] != classes[:-1])
    return order, new


@dataclass(frozen=True)
class Matches:
    """Pairs of a row and an antecedent that fires for it, rows ascending; a row's pairs are all in one piece.

    Attributes
    ----------
    row : ndarray of intp, shape (p,)
        Row number.
    antecedent : ndarray of intp, shape (p,)
        Antecedent number, ascending within a row.
    strength : ndarray of float64, shape (p,)
        Product of the memberships (0, 1].
    """

    row: NDArray[np.intp]
    antecedent: NDArray[np.intp]
    strength: NDArray[np.float64]


class AntecedentTree:
    """Antecedents as a tree, to find those that fire.

    Parameters
    ----------
    antecedents : ndarray of int8, shape (a, F)
        Different from each other, in lexicographic order.
    n_sets : int
        Sets per input, T.
    """

    def __init__(self, antecedents: NDArray[np.int8], n_sets: int) -> None:
        self.n_sets = n_sets
        self.size, self.n_features = antecedents.shape
        # One table per input: the child of node p by set j at p T + j, or -1.
        self._children: list[NDArray[np.intp]] = []
        parent = np.zeros(self.size, dtype=np.intp)
        new = np.zeros(self.size, dtype=bool)
        new[:1] = True
        parents = 1
        for feature in range(self.n_features):
            sets = antecedents[:, feature]
            new[1:] |= sets[1:] != sets[:-1]
            first = np.flatnonzero(new)
            table = np.full(parents * n_sets, -1, dtype=np.intp)
            table[parent[first] * n_sets + sets[first]] = np.arange(first.size)
            self._children.append(table)
            parent, parents = np.cumsum(new) - 1, first.size

    def find(self, antecedents: NDArray[np.int8]) -> NDArray[np.intp]:
        """Return the number of each of `antecedents`, shape (n, F), in this tree; -1 for those that are not in it."""
        node = np.zeros(antecedents.shape[0], dtype=np.intp)
        if self.size == 0:
            return node - 1
        for feature, table in enumerate(self._children):
            child = table.take(np.maximum(node, 0) * self.n_sets + antecedents[:, feature])
            node = np.where(node >= 0, child, -1)
        return node

    def match(self, members: Memberships, max_rows: int) -> Iterator[Matches]:
        """Yield the pairs that fire, rows in order, at most `max_rows` rows at a time.

        The strengths do not depend on how the rows are cut: they are element-wise products in the order of columns.
        """
        if self.size == 0:
            return
        for block in blocks(members.rows, max_rows):
            row = np.arange(block.start, block.stop, dtype=np.intp)
            waiting = [(0, row, np.zeros(row.size, dtype=np.intp), np.ones(row.size))]
            while waiting:
                feature, row, node, strength = waiting.pop()
                while feature < self.n_features:
                    cut = _cut(row)
                    if cut:
                        waiting.append((feature, row[cut:], node[cut:], strength[cut:]))
                        row, node, strength = row[:cut], node[:cut], strength[:cut]
                    row, node, strength = self._descend(feature, members, row, node, strength)
                    feature += 1
                if row.size:
                    yield Matches(row, node, strength)

    def _descend(
        self,
        feature: int,
        members: Memberships,
        row: NDArray[np.intp],
        node: NDArray[np.intp],
        strength: NDArray[np.float64],
    ) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.float64]]:
        """Take the pairs one input further; each becomes none, one or two, in the order of sets."""
        table = self._children[feature]
        at = node * self.n_sets
        at += members.lower[feature].take(row)
        degree = members.upper[feature].take(row)
        child = np.empty((row.size, 2), dtype=np.intp)
        child[:, 0] = table.take(at)
        at += 1
        child[:, 1] = table.take(at)
        product = np.empty((row.size, 2))
        np.multiply(strength, 1.0 - degree, out=product[:, 0])
        np.multiply(strength, degree, out=product[:, 1])
        alive = np.flatnonzero((child >= 0) & (product > 0.0))
        return row.take(alive >> 1), child.take(alive), product.take(alive)


def _cut(row: NDArray[np.intp]) -> int:
    """Return where to cut the pairs, between two rows, when there are too many to go on with; else 0."""
    if row.size <= _PAIRS or row[0] == row[-1]:
        return 0
    middle = row[row.size // 2]
    cut = int(np.searchsorted(row, middle))
    return cut or int(np.searchsorted(row, middle, side="right"))


# --- exact sums of numbers in [0, 1] on a grid finer than one int64 holds: two int64 limbs ----------------------------
#
# A rule's strength is a product of one membership per input. With 30 inputs the rule that a row founds may have a
# strength of 0.5^30 only, and 2^-32, the grid of other schemes, would keep two bits of it. Here a term s is rounded to
# a multiple of 2^-2k and split as ``s = high 2^-k + low 2^-2k``, with ``high`` in [0, 2^k] and ``low`` in [0, 2^k].
# Limbs are summed apart and carries are resolved only when a sum is read, so sums add up over rows and agents in any
# order, also modulo 2^64.
#
# Overflow: each limb of a term is at most 2^k, so the sums of N rows stay below 2^63 while N < 2^(63 - k). With the
# default k = 40 (a grid of 2^-80) that is 8,388,607 rows in a fleet.


def limb_block(limb_bits: int) -> int:
    """Return the most terms of one cell that float64 adds exactly: 2^13 for 40 bits."""
    return 1 << (EXACT_BITS - limb_bits)


def split(terms: NDArray[np.float64], limb_bits: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Round `terms`, in [0, 1], to the grid; return the high and the low limbs, integer-valued float64 in [0, 2^k].

    Scaling by a power of two and taking off the integer part are exact, so the one rounding is that of the low limb.
    """
    scale = float(1 << limb_bits)
    low = terms * scale
    high = np.floor(low)
    low -= high
    low *= scale
    np.rint(low, out=low)
    return high, low


def read(high: NDArray[np.int64], low: NDArray[np.int64], limb_bits: int) -> NDArray[np.float64]:
    """Return sums as float64, in units of one row: at most two roundings, the same for equal sums."""
    high, low = high + (low >> limb_bits), low & ((1 << limb_bits) - 1)  # equal sums have equal limbs then
    unit = 0.5**limb_bits
    return high.astype(np.float64) * unit + low.astype(np.float64) * (unit * unit)
