"""A coordinator may say what it likes: what it opens, added and subtracted in any way, tells of no few vehicles.

The coordinator of this machine has up to company - 2 colluding vehicles, invents rosters, editions and tasks, tells
different vehicles different things, repeats itself, ends runs and opens others. A sum is open when all honest members
of an edition answered one question in it; otherwise the honest masks do not cancel. Within a run the *span* of all
that is open is looked at: no rational combination of sums is over fewer than company - colluders honest vehicles.
Between runs that holds for pairs of sums.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from glassfleet.errors import PrivacyError
from glassfleet.private.chain import Chain, admit, answered, follow, meet, same_roster
from glassfleet.private.groups import Announcement, Edition, Roster, Terms
from glassfleet.private.ledger import Ledger, Limits
from glassfleet.scheme import Task
from schemas.codec import decode, digest_of, encode

COMPANY, FLOOR = 3, 8
ROWS = np.arange(40, dtype=np.uint64)
BODY = {"parameters": {"depth": 3}, "domain": {"a": 1}}
TERMS = Terms("fleet", "run", "nonce 0", "frt", digest_of(BODY["parameters"]), max_questions=5)

Set = frozenset[str]


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


def least_told(sets: list[Set], below: int) -> Set | None:
    """Return fewer than `below` vehicles that a combination of sums over `sets` is about; None if there are none."""
    everybody = sorted(frozenset().union(*sets)) if sets else []
    atoms: dict[tuple[bool, ...], set[str]] = defaultdict(set)
    for agent in everybody:
        atoms[tuple(agent in each for each in sets)].add(agent)
    patterns = list(atoms)
    whole = rank([[int(pattern[i]) for pattern in patterns] for i in range(len(sets))])
    small = [i for i, pattern in enumerate(patterns) if len(atoms[pattern]) < below]
    for count in range(1, below):
        for chosen in combinations(small, count):
            about = frozenset().union(*(atoms[patterns[i]] for i in chosen))
            others = [pattern for i, pattern in enumerate(patterns) if i not in chosen]
            if len(about) < below and rank([[int(p[i]) for p in others] for i in range(len(sets))]) < whole:
                return about
    return None


class Honest:
    """A vehicle as the product's functions make it; what it keeps goes through its disk each time."""

    def __init__(self, agent: str) -> None:
        self.agent = agent
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
        self.ledger = self.ledger.join(terms, ROWS, Limits(FLOOR, COMPANY))
        if self.own is None:
            self.runs += 1
            key = self.agent.encode().ljust(24, b".") + self.runs.to_bytes(8, "big")
            self.terms, self.own = terms, Announcement(self.agent, key, "rows", FLOOR)
        return self.own

    def answer(self, roster: Roster, number: int, members: tuple[str, ...], task: Task) -> Edition:
        if self.own is None or self.terms is None:
            raise PrivacyError("run-over", "no run is open")
        chain = self.chain
        if chain is None:
            chain = meet(self.own, self.terms, roster, self.ledger.former(self.terms, ROWS))
        else:
            same_roster(chain, roster)
        chain, edition = follow(chain, number, members)
        chain = answered(admit(chain, task), f"{edition.digest.hex()} {task.digest}", np.zeros(1, dtype=np.uint64))
        self.chain, self.ledger = chain, self.ledger.note(chain, ROWS)
        return edition

    def end(self) -> None:
        if self.terms is not None:
            self.ledger = self.ledger.close(self.terms.nonce)
        self.chain = self.own = self.terms = None


class HostileCoordinator(RuleBasedStateMachine):
    """See the module."""

    @initialize(honest=st.sampled_from([8, 11, 15, 17, 18, 19, 22]), colluders=st.integers(0, COMPANY - 2))
    def begin(self, honest: int, colluders: int) -> None:
        self.vehicles = {f"h{i:02d}": Honest(f"h{i:02d}") for i in range(honest)}
        self.colluders = [f"x{i}" for i in range(colluders)]
        self.runs = 1
        self.announced: dict[str, Announcement] = {}
        self.rosters: list[Roster] = []
        self.heard: dict[tuple[bytes, str], tuple[str, Edition, set[str]]] = {}
        self.meet(TERMS, set(self.vehicles))

    def meet(self, terms: Terms, asked: Set | set[str]) -> None:
        """Ask for keys, and make one group of those who answer."""
        self.terms, self.announced = terms, {}
        for agent in sorted(asked):
            try:
                contribution = self.vehicles[agent].announce(terms)
            except PrivacyError:
                continue
            self.announced[agent] = contribution
        own = [Announcement(agent, agent.encode().rjust(32), "rows", 1) for agent in self.colluders]
        if self.announced:
            self.group([*self.announced.values(), *own], 0)

    def group(self, founders: list[Announcement], number: int) -> None:
        try:
            roster = Roster(self.terms, number, tuple(sorted(founders, key=lambda each: each.agent)))
        except PrivacyError as fault:
            assert fault.code == "bad-member"  # noqa: PT017 - a roster may also be good
            return
        self.rosters.append(roster)

    def ask(self, roster: Roster, number: int, members: Iterable[str], level: int = 0) -> None:
        """Ask all honest members."""
        task = Task("frt", "level", {**BODY, "level": level}, roster.terms.nonce)
        chosen = tuple(sorted(members))
        for agent in chosen:
            if agent in self.vehicles:
                self.put(agent, roster, number, chosen, task)

    @rule(data=st.data())
    def ask_anything(self, data: st.DataObject) -> None:
        """Ask some vehicles a task of some kind in some edition."""
        roster = data.draw(st.sampled_from(self.rosters[-3:]))
        members = tuple(data.draw(st.sets(st.sampled_from(sorted(roster.by_id)), min_size=1)))
        name = data.draw(st.sampled_from(["frt", "domain", "scores", "fmt", "pairs"]))
        body = {
            **BODY,
            "level": data.draw(st.integers(0, 2)),
            "parameters": {"depth": data.draw(st.sampled_from([3, 9]))},
            "model": data.draw(st.sampled_from([{"scheme": "frt", **BODY}, {"scheme": "fmt", **BODY}])),
        }
        task = Task(name, "level", body, data.draw(st.sampled_from([roster.terms.nonce, self.terms.nonce])))
        number = data.draw(st.integers(0, 4))
        for agent in data.draw(st.sets(st.sampled_from(sorted(self.vehicles)))):
            self.put(agent, roster, number, tuple(sorted(members)), task)

    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        """Say that a few were lost from an edition that was asked, or from none, and ask the others."""
        roster = data.draw(st.sampled_from(self.rosters[-2:]))
        before = [edition for _, edition, _ in self.heard.values() if edition.roster.digest == roster.digest]
        edition = data.draw(st.sampled_from([roster.first(), *before[-4:]]))
        out = data.draw(st.sets(st.sampled_from(edition.members), max_size=5))
        number = edition.number + data.draw(st.integers(0, 2))
        self.ask(roster, number, set(edition.members) - out, data.draw(st.integers(0, 2)))

    @rule(data=st.data())
    def branch(self, data: st.DataObject) -> None:
        """Ask everybody, then two parts of them: the attack that one chain for each vehicle would allow."""
        roster = self.rosters[-1]
        ids = sorted(roster.by_id)
        cut = data.draw(st.integers(len(ids) // 2 - 1, len(ids) // 2 + 1))
        self.ask(roster, 0, ids)
        self.ask(roster, 1, ids[:cut])
        self.ask(roster, 2, ids[cut + data.draw(st.integers(-1, 2)) :])

    @rule(data=st.data())
    def exchange(self, data: st.DataObject) -> None:
        """Leave out some, then others instead of one or two of them."""
        roster = self.rosters[-1]
        ids = data.draw(st.permutations(sorted(roster.by_id)))
        out, swapped = data.draw(st.integers(3, 6)), data.draw(st.integers(1, 2))
        self.ask(roster, 1, ids[out:])
        self.ask(roster, 2, [*ids[:swapped], *ids[out + swapped + data.draw(st.integers(0, 3)) :]])

    @precondition(lambda self: self.announced)
    @rule(data=st.data())
    def invent_roster(self, data: st.DataObject) -> None:
        """Make another group of those who announced: of some of them, with copied keys and repeated ids."""
        there = self.announced
        chosen = data.draw(st.just(set(there)) | st.sets(st.sampled_from(sorted(there)), min_size=1))
        founders = [there[agent] for agent in sorted(chosen)]
        for agent in self.colluders:
            key = data.draw(st.sampled_from([founders[0].key, b"z".rjust(32)]))
            founders.append(Announcement(data.draw(st.sampled_from([agent, founders[0].agent])), key, "rows", 1))
        self.group(founders, data.draw(st.integers(0, 1)))

    @rule(data=st.data())
    def again(self, data: st.DataObject) -> None:
        """End the run, for all or for some, and open it again or another, for all or all but a few; ask at once."""
        ids = sorted(self.vehicles)
        self.ask(self.rosters[-1], 0, self.rosters[-1].by_id)
        for agent in data.draw(st.just(set(ids)) | st.sets(st.sampled_from(ids))):
            self.vehicles[agent].end()
        terms = self.terms
        if data.draw(st.booleans()):
            terms = replace(TERMS, nonce=f"nonce {self.runs}", run=data.draw(st.sampled_from(["run", "other"])))
            self.runs += 1
        if data.draw(st.integers(0, 4)) == 0:
            terms = replace(terms, support=5)
        self.meet(terms, set(ids) - data.draw(st.sets(st.sampled_from(ids), max_size=4)))
        self.ask(self.rosters[-1], 0, self.rosters[-1].by_id)

    @rule(data=st.data())
    def restart(self, data: st.DataObject) -> None:
        """A vehicle is killed and comes back with what is on its disk."""
        self.vehicles[data.draw(st.sampled_from(sorted(self.vehicles)))].restart()

    def put(self, agent: str, roster: Roster, number: int, members: tuple[str, ...], task: Task) -> None:
        try:
            edition = self.vehicles[agent].answer(roster, number, members, task)
        except PrivacyError:
            return
        entry = self.heard.setdefault((edition.digest, task.digest), (roster.terms.nonce, edition, set()))
        entry[2].add(agent)

    def open_sets(self) -> dict[str, list[Set]]:
        """Return by nonce whose sums are open, honest vehicles alone."""
        result: dict[str, dict[Set, None]] = defaultdict(dict)
        for nonce, edition, spoke in self.heard.values():
            honest = frozenset(edition.members) & set(self.vehicles)
            if honest and honest <= spoke:
                result[nonce][honest] = None
        return {nonce: list(sets) for nonce, sets in result.items()}

    @invariant()
    def nobody_is_told_of(self) -> None:
        """No combination of a run's sums, and no pair of sums, is about few vehicles."""
        runs = self.open_sets() if hasattr(self, "heard") else {}
        least = COMPANY - len(getattr(self, "colluders", []))
        for sets in runs.values():
            assert least_told(sets, least) is None
            assert all(len(each) >= FLOOR - len(self.colluders) for each in sets)
        for one, other in combinations([each for sets in runs.values() for each in sets], 2):
            if one & other:
                assert not 0 < len(one - other) < least
                assert not 0 < len(other - one) < least


TestHostileCoordinator = HostileCoordinator.TestCase
TestHostileCoordinator.settings = settings(max_examples=80, stateful_step_count=25, deadline=None)


def test_search_finds_the_branching_attack() -> None:
    e: Any = frozenset(map(str, range(17)))
    f, g = frozenset(map(str, range(8))), frozenset(map(str, range(8, 16)))
    assert least_told([e, f, g], 3) == frozenset({"16"})
    assert least_told([e, f], 3) is None
    assert least_told([e, e - {"3"}], 3) == frozenset({"3"})


@pytest.mark.parametrize("honest", [17, 18, 33, 64])
def test_branching_editions_are_refused_and_would_open_a_vehicle(honest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    half = (honest - 1) // 2

    def attacked() -> Set | None:
        machine = HostileCoordinator()
        machine.begin(honest, 0)
        roster = machine.rosters[-1]
        ids = sorted(roster.by_id)
        machine.ask(roster, 0, ids)
        machine.ask(roster, 1, ids[:half])
        machine.ask(roster, 2, ids[half : honest - 1])
        return least_told(machine.open_sets()["nonce 0"], COMPANY)

    assert attacked() is None
    monkeypatch.setattr(Roster, "least", property(lambda roster: roster.terms.floor))
    assert attacked() == frozenset({f"h{honest - 1}"})
