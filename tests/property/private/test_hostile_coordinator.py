"""A coordinator may say what it likes: what it opens, added and subtracted in any way, tells of no few vehicles.

The coordinator of this machine has up to company - 2 colluding vehicles, invents rosters, editions and tasks, tells
different vehicles different things, repeats itself, ends runs and opens others. A sum is open when all honest members
of an edition answered one question in it; otherwise the honest masks do not cancel. The *span* of all that is open, in
all runs, is looked at: no rational combination of sums is over fewer than company - colluders honest vehicles. A
vehicle whose rows have changed counts as the same in one look, and as another in a second one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from glassfleet.contract.messages import Task
from glassfleet.errors import PrivacyError
from glassfleet.private.groups import Announcement, Edition, Roster, Terms
from glassfleet.private.totals import Member, Total
from schemas.codec import digest_of
from tests.support.privacy.private_rules import COMPANY, FLOOR, Honest, least_told

BODY = {"parameters": {"depth": 3}, "domain": {"a": 1}}
TERMS = Terms("fleet", "run", "nonce 0", "frt", digest_of(BODY["parameters"]), max_questions=5)


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
        self.table: dict[Total, None] = {}
        self.meet(TERMS, set(self.vehicles))

    def meet(self, terms: Terms, asked: frozenset[str] | set[str], *, renews: bool = False) -> None:
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
            self.group([*self.announced.values(), *own], 0, renews=renews)

    def group(self, founders: list[Announcement], number: int, *, renews: bool) -> None:
        try:
            roster = Roster(self.terms, number, tuple(sorted(founders, key=lambda each: each.agent)), renews)
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
        name = data.draw(st.sampled_from(["frt", "domain", "scores", "tree", "pairs"]))
        body = {
            **BODY,
            "level": data.draw(st.integers(0, 2)),
            "parameters": {"depth": data.draw(st.sampled_from([3, 9]))},
            "model": data.draw(st.sampled_from([{"scheme": "frt", **BODY}, {"scheme": "tree", **BODY}])),
        }
        task = Task(name, "level", body, data.draw(st.sampled_from([roster.terms.nonce, self.terms.nonce])))
        number = data.draw(st.integers(0, 4))
        for agent in data.draw(st.sets(st.sampled_from(sorted(self.vehicles)))):
            self.put(agent, roster, number, tuple(sorted(members)), task, data)

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
        self.group(founders, data.draw(st.integers(0, 1)), renews=data.draw(st.booleans()))

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
        out = data.draw(st.sets(st.sampled_from(ids), max_size=4))
        self.meet(terms, set(ids) - out, renews=data.draw(st.booleans()))
        self.ask(self.rosters[-1], 0, self.rosters[-1].by_id)

    @rule(data=st.data())
    def restart(self, data: st.DataObject) -> None:
        """A vehicle is killed and comes back with what is on its disk."""
        self.vehicles[data.draw(st.sampled_from(sorted(self.vehicles)))].restart()

    @rule(data=st.data())
    def change_rows(self, data: st.DataObject) -> None:
        """Some vehicles' rows change, all or some of them, for runs that they join after that."""
        first = data.draw(st.integers(0, 60))
        for agent in data.draw(st.sets(st.sampled_from(sorted(self.vehicles)), max_size=5)):
            self.vehicles[agent].change(first)

    @rule(data=st.data())
    def renew(self, data: st.DataObject) -> None:
        """A run of all, then few or many have other rows, and another run of all or nearly all."""
        ids = sorted(self.vehicles)
        few = st.sets(st.sampled_from(ids), max_size=2)
        for out, renews in ((set[str](), False), (data.draw(few), True)):
            for vehicle in self.vehicles.values():
                vehicle.end()
            if renews:
                for agent in data.draw(st.just(set(ids)) | few):
                    self.vehicles[agent].change(data.draw(st.integers(1, 30)))
            self.runs += 1
            self.meet(replace(TERMS, nonce=f"nonce {self.runs}"), set(ids) - out, renews=renews)
            if self.announced:
                self.ask(self.rosters[-1], 0, self.rosters[-1].by_id)

    @rule(data=st.data())
    def three_sets(self, data: st.DataObject) -> None:
        """Two disjoint sets in a run each, or in two groups of one, then both with somebody else: v = ABv - A - B."""
        ids = data.draw(st.permutations(sorted(self.vehicles)))
        cut, end = data.draw(st.integers(8, 11)), data.draw(st.integers(16, 22))
        for chosen in (ids[:cut], ids[cut:end], ids):
            for vehicle in self.vehicles.values():
                vehicle.end()
            self.runs += 1
            self.meet(replace(TERMS, nonce=f"nonce {self.runs}"), set(chosen))
            if self.announced:
                self.ask(self.rosters[-1], 0, self.rosters[-1].by_id)

    def put(  # noqa: PLR0917 - one question
        self,
        agent: str,
        roster: Roster,
        number: int,
        members: tuple[str, ...],
        task: Task,
        data: st.DataObject | None = None,
    ) -> None:
        try:
            table = [*self.table] if data is None else data.draw(st.just([*self.table]) | st.just([*self.table][:1]))
            edition = self.vehicles[agent].answer(roster, number, members, task, table)
        except PrivacyError:
            return
        self.table |= dict.fromkeys([edition.total, roster.first().total])
        entry = self.heard.setdefault((edition.digest, task.digest), (roster.terms.nonce, edition, set()))
        entry[2].add(agent)

    def open_sets(self) -> list[frozenset[Member]]:
        """Return whose sums are open, honest vehicles alone."""
        result: dict[frozenset[Member], None] = {}
        for _, edition, spoke in self.heard.values():
            honest = frozenset(each for each in edition.total.members if each.agent in self.vehicles)
            if honest and {each.agent for each in honest} <= spoke:
                result[honest] = None
        return list(result)

    @invariant()
    def nobody_is_told_of(self) -> None:
        """No combination of sums is about few vehicles."""
        sets = self.open_sets() if hasattr(self, "heard") else []
        least = COMPANY - len(getattr(self, "colluders", []))
        assert all(len(each) >= FLOOR - len(self.colluders) for each in sets)
        for view in range(3):
            assert least_told(([each.views[view] for each in members] for members in sets), least) is None


TestHostileCoordinator = HostileCoordinator.TestCase
TestHostileCoordinator.settings = settings(max_examples=15, stateful_step_count=25, deadline=None)


def test_search_finds_the_branching_attack() -> None:
    e: Any = frozenset(map(str, range(17)))
    f, g = frozenset(map(str, range(8))), frozenset(map(str, range(8, 16)))
    assert least_told([e, f, g], 3) == frozenset({"16"})
    assert least_told([e, f], 3) is None
    assert least_told([e, e - {"3"}], 3) == frozenset({"3"})


@pytest.mark.parametrize("honest", [17, 18, 33, 64])
def test_branching_editions_are_refused_and_would_open_a_vehicle(honest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    half = (honest - 1) // 2

    def attacked() -> frozenset[str] | None:
        machine = HostileCoordinator()
        machine.begin(honest, 0)
        roster = machine.rosters[-1]
        ids = sorted(roster.by_id)
        machine.ask(roster, 0, ids)
        machine.ask(roster, 1, ids[:half])
        machine.ask(roster, 2, ids[half : honest - 1])
        return least_told(({each.agent for each in members} for members in machine.open_sets()), COMPANY)

    assert attacked() is None
    monkeypatch.setattr(Roster, "least", property(lambda roster: roster.terms.floor))
    assert attacked() == frozenset({f"h{honest - 1}"})
