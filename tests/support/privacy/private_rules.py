"""The rules of private runs without messages: a vehicle that keeps them, and what sums over sets of vehicles tell."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np

from glassfleet.contract.messages import Task
from glassfleet.errors import PrivacyError
from glassfleet.private.chain import Chain, admit, answered, follow, meet, same_roster
from glassfleet.private.groups import Announcement, Edition, Roster, Terms
from glassfleet.private.ledger import Ledger, Limits, Rows, rows_tag
from glassfleet.private.totals import Total
from schemas.codec import decode, encode

COMPANY, FLOOR = 3, 8
ROWS = Rows(np.arange(40, dtype=np.uint64))


def rank(rows: list[list[int]]) -> int:
    """Return the rank over the rationals."""
    left = [[Fraction(x) for x in row] for row in rows]
    result = 0
    for column in range(len(rows[0]) if rows else 0):
        pivot = next((i for i in range(result, len(left)) if left[i][column]), None)
        if pivot is None:
            continue
        left[result], left[pivot] = left[pivot], left[result]
        for i in range(result + 1, len(left)):
            if left[i][column]:
                share = left[i][column] / left[result][column]
                left[i] = [a - share * b for a, b in zip(left[i], left[result], strict=True)]
        result += 1
    return result


def least_told(sets: Iterable[Collection[Any]], below: int) -> frozenset[str] | None:
    """Return fewer than `below` vehicles that a combination of sums over `sets` is about; None if there are none.

    A member of a set is a vehicle's id, or a tuple that begins with one.
    """
    sets = list(dict.fromkeys(frozenset(each) for each in sets))
    columns: dict[str, set[tuple[int, ...]]] = defaultdict(set)
    for each in frozenset().union(*sets):
        columns[each if isinstance(each, str) else each[0]].add(tuple(int(each in members) for members in sets))
    alike: dict[frozenset[tuple[int, ...]], set[str]] = defaultdict(set)
    for agent, own in columns.items():
        alike[frozenset(own)].add(agent)
    whole = rank([[pattern[i] for own in alike for pattern in own] for i in range(len(sets))])
    small = [own for own, agents in alike.items() if len(agents) < below]
    for count in range(1, below):
        for chosen in combinations(small, count):
            about = frozenset().union(*(alike[own] for own in chosen))
            others = [pattern for own in alike if own not in chosen for pattern in own]
            if len(about) < below and rank([[pattern[i] for pattern in others] for i in range(len(sets))]) < whole:
                return about
    return None


class Honest:
    """A vehicle as the product's functions make it; what it keeps goes through its disk each time."""

    def __init__(self, agent: str) -> None:
        self.agent = agent
        self.rows = self.new = ROWS
        self.ledger = Ledger()
        self.terms: Terms | None = None
        self.own: Announcement | None = None
        self.chain: Chain | None = None
        self.runs = 0

    def restart(self) -> None:
        self.ledger = Ledger.from_value(decode(encode(self.ledger.to_value())))
        if self.chain is not None:
            self.chain = Chain.from_value(decode(encode(self.chain.to_value())))

    def announce(self, terms: Terms) -> Announcement:
        if self.own is None and not self.ledger.has_some(self.new):
            self.rows = self.new
        self.ledger = self.ledger.forget(self.rows).join(terms, self.rows, Limits(FLOOR, COMPANY, runs=100))
        if self.own is None:
            self.runs += 1
            key = self.agent.encode().ljust(24, b".") + self.runs.to_bytes(8, "big")
            stands = self.ledger.stands(self.rows, *self.tags(self.rows), terms.nonce)
            if not self.rows.equals(self.new):
                stands |= dict(zip(("new_rows", "new_tests"), self.tags(self.new), strict=True))
            self.terms, self.own = terms, Announcement(self.agent, key, "rows", FLOOR, **stands)
        return self.own

    def change(self, first: int, *, tests: bool = False) -> None:
        """Have other rows from the next run on: 40, counted from `first`; with `tests` only test rows change."""
        if self.own is None:
            rows = np.arange(first, first + 40, dtype=np.uint64)
            self.new = Rows(self.new.training, rows) if tests else Rows(rows, self.new.tests)

    def tags(self, rows: Rows) -> tuple[str, str]:
        secret = self.agent.encode()
        return rows_tag(secret, rows.training), rows_tag(secret, rows.tests)

    def answer(self, roster: Roster, number: int, members: tuple[str, ...], task: Task, table: list[Total]) -> Edition:
        if self.own is None or self.terms is None:
            raise PrivacyError("run-over", "no run is open")
        chain = self.chain
        if chain is None:
            chain = meet(self.own, self.terms, roster, table)
            self.rows = self.new if roster.renews else self.rows
        else:
            same_roster(chain, roster)
        chain, edition = follow(chain, number, members)
        words = np.zeros(1, dtype=np.uint64)
        chain = answered(admit(chain, task), f"{edition.digest.hex()} {task.digest}", words)
        self.chain, self.ledger = chain, self.ledger.note(chain, self.rows)
        return edition

    def end(self) -> None:
        if self.terms is not None:
            self.ledger = self.ledger.close(self.terms.nonce)
        self.chain = self.own = self.terms = None
