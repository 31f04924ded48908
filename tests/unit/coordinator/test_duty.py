"""Who is on duty is told: what, when, at most once a day, over a restart, by a real webhook and a real mail server."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.config import CoordinatorConfig
from coordinator.duty import DAY, LASTS, LASTS_LONG, Key, NoticeMemory, due
from coordinator.journal.sql import SqlJournal
from coordinator.main import build
from coordinator.process.notifier import AGAIN, Notifier, channels
from coordinator.runs.view import suspended_document
from glassfleet.contract import catalogue
from schemas.errors import UsageError
from schemas.messages import AgentState
from tests.support.coordinator_http import publish, small_document
from tests.support.processes import Received, mailbox, webhook

HOUR = 3600.0
FAR, FAILED = Key("v1", "far-out"), Key("m", "run-failed")


class Life:
    """One life of a coordinator after another, and what each has to tell."""

    def __init__(self) -> None:
        self.memory = NoticeMemory()

    def at(self, now: float, *found: Key, known: tuple[str, ...] = ("v1",)) -> list[Key]:
        result, self.memory = due(self.memory, found, known, now)
        return result

    def restart(self) -> None:
        self.memory = NoticeMemory.of(self.memory.to_values())


def test_a_cause_is_told_when_it_lasts_once_and_not_before() -> None:
    life = Life()
    assert [life.at(now, FAR) for now in (0, LASTS - 1, LASTS, LASTS + 1, 3 * DAY)] == [[], [], [FAR], [], []]


@pytest.mark.parametrize(("kind", "lasts"), [("down", LASTS_LONG), ("missed", LASTS_LONG), ("run-failed", 0.0)])
def test_a_vehicle_that_is_parked_for_a_night_is_no_news_and_a_run_that_failed_is(kind: str, lasts: float) -> None:
    life = Life()
    assert [life.at(now, Key("v1", kind)) for now in (0, lasts - 1, lasts)][-1 if lasts else 0] == [Key("v1", kind)]


def test_one_that_went_and_came_again_is_told_again_but_not_on_the_same_day() -> None:
    life = Life()
    life.at(0, FAR)
    assert life.at(LASTS, FAR) == [FAR]
    life.at(HOUR)
    assert [life.at(now, FAR) for now in (2 * HOUR, 4 * HOUR)] == [[], []]
    assert life.at(LASTS + DAY, FAR) == [FAR]


def test_a_run_that_fails_night_for_night_is_told_night_for_night() -> None:
    life = Life()
    assert [life.at(night * DAY, FAILED) for night in range(4)] == [[FAILED]] * 4


def test_what_was_told_is_not_told_again_because_a_new_coordinator_has_yet_to_meet_the_vehicle() -> None:
    life = Life()
    life.at(0, FAR)
    life.at(LASTS, FAR)
    life.restart()
    life.at(LASTS + 1, known=())
    assert [life.at(now, FAR) for now in (LASTS + 2, 2 * DAY, 4 * DAY)] == [[], [], []]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.floats(1.0, 10 * HOUR), st.sets(st.sampled_from([FAR, FAILED])), st.booleans())))
def test_no_cause_is_told_twice_a_day_whatever_comes_and_goes(steps: list[tuple[float, set[Key], bool]]) -> None:
    life, now, last = Life(), 0.0, dict[Key, float]()
    for passes, found, dies in steps:
        now += passes
        if dies:
            life.restart()
        for key in life.at(now, *sorted(found)):
            assert now - last.get(key, -DAY) >= DAY
            last[key] = now


class Duty:
    """A coordinator whose journal is a file, four vehicles, two addresses, and a clock."""

    def __init__(self, folder: Path, urls: str) -> None:
        self.folder, self.urls, self.now = folder, urls, time.time()

    @contextmanager
    def life(self) -> Iterator[Notifier]:
        """A coordinator, from its start to its end."""
        journal = SqlJournal(f"sqlite:///{self.folder / 'journal.sqlite'}")
        service = build(CoordinatorConfig.load(state_dir=self.folder), journal=journal)
        self.core = service.coordinator
        for number in range(4):
            columns = ["speed"] if number else ["velocity"]
            body = AgentState(status="up", incarnation="1", features=columns, target="y")
            self.core.fleet.up(f"v{number}", body)
        # Whoever calls is the coordinator's thread.
        service.call = lambda function, timeout=None: function(service.coordinator)  # type: ignore[method-assign]
        yield Notifier(service, channels(self.urls), wall=lambda: self.now)
        journal.close()

    def failed(self, run: str, reason: str) -> None:
        """Write a run that has ended into the journal."""
        known = {"run": run, "spec": {"scheme": "tree", "model": "m"}, "started": self.now - 60, "reason": ""}
        document = {**suspended_document(known, ended=self.now), "outcome": "failed", "reason": reason}
        self.core.runs.journal.close_run(run, document, 0.0)
        self.core.runs.__post_init__()


def test_webhook_and_mail_are_told_of_causes_failed_runs_and_versions_that_went_back_once_over_a_restart(
    tmp_path: Path,
) -> None:
    with webhook() as hook, mailbox() as mail:
        duty = Duty(tmp_path, f"{hook.url} {mail.url}")
        with duty.life() as notifier:
            model = catalogue.load("frt").from_document(small_document())
            digest = publish(notifier._service, model, "m", ["v0"]).digest
            aliases, registry = duty.core.aliases, duty.core.registry
            registry.decide([aliases.to_current("m", 1, digest, "rolled-back", "it brakes too late")])
            duty.failed("dusk", "not-enough-agents")
            duty.now += 60
            notifier.tell()
            assert hook == mail == [FIRST]
            duty.now += LASTS
            notifier.tell()
            (_, later), (_, by_mail) = hook, mail
            cause = "v0: has no column 'speed', which most have (/vehicles/v0)"
            assert (later, by_mail) == (f"Fleet fleet: {cause.partition(' (/')[0]}\n{cause}",) * 2
            notifier.tell()
        with duty.life() as notifier:
            duty.now += HOUR
            notifier.tell()
        assert Counter(hook) == Counter(mail) == Counter({FIRST: 1, later: 1})


FIRST = """Fleet fleet: model m was rolled back: version 1 is in use (it brakes too late) and 1 more
model m was rolled back: version 1 is in use (it brakes too late) (/models/m/1)
run dusk of model m failed: not-enough-agents (/runs/dusk)"""


def test_an_address_that_took_no_message_is_tried_again_and_the_other_is_not_told_twice(tmp_path: Path) -> None:
    with webhook() as hook, mailbox() as mail:
        duty = Duty(tmp_path, f"{hook.url} {mail.url}")
        with duty.life() as notifier:
            duty.failed("dusk", "no-model")
            mail.is_shut = True
            notifier.tell()
            mail.is_shut = False
            expected: list[tuple[Received, int]] = [(hook, 1), (mail, 0)]
            assert [len(box) for box, _ in expected] == [count for _, count in expected]
            duty.now += AGAIN - 1
            notifier.tell()
            assert not mail
            duty.now += 1
            notifier.tell()
        assert (len(hook), len(mail)) == (1, 1)


def test_an_address_that_cannot_be_meant_is_told_at_the_start_without_its_password() -> None:
    with pytest.raises(UsageError, match="no address that Apprise knows") as caught:
        channels("json://127.0.0.1 nonsense://user:secret@host")
    assert "secret" not in str(caught.value)
    assert "secret" not in repr(CoordinatorConfig.load(notify="mailto://user:secret@host"))
