"""Who spoils the sum of a group: found from sums over pairs, which hold nothing of anybody's rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassfleet.errors import PrivacyError, TaskError
from glassfleet.private import masks
from glassfleet.private.answering import accept, no_rows, reply
from glassfleet.private.chain import meet
from glassfleet.private.groups import Announcement, Roster, Terms
from glassfleet.private.layout import layout_of
from glassfleet.private.masks import RunKey, mask, pair_keys
from glassfleet.private.pairs import HEAD, PAIRS, judged, task_of
from glassfleet.private.sums import question_digest
from glassfleet.scheme import Task

AGENTS = [f"v{number:02d}" for number in range(11)]
KEYS = {agent: RunKey(agent.encode().ljust(32, b"-")) for agent in AGENTS}
TERMS = Terms("fleet", "run", "nonce", "frt", "0" * 64)
ROSTER = Roster(TERMS, 0, tuple(Announcement(agent, KEYS[agent].public, "rows") for agent in AGENTS))
EDITION = ROSTER.first()
TASK = task_of(EDITION)


def answer(agent: str, task: Task = TASK) -> np.ndarray[Any, np.dtype[np.int64]]:
    question = question_digest(EDITION, task.digest, layout_of(PAIRS, task).digest)
    asked = accept(meet(ROSTER.by_id[agent], TERMS, ROSTER), PAIRS, task, 0, EDITION.members, question)
    return reply(asked, no_rows(asked), pair_keys(KEYS[agent], agent, ROSTER))[1].view(np.int64)


ANSWERS = {agent: answer(agent) for agent in AGENTS}
AGENT = st.sampled_from(AGENTS)


def noise(seed: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.random.default_rng(seed).integers(-(2**63), 2**63, HEAD + len(AGENTS))


def test_honest_vehicles_all_fit() -> None:
    found = judged(EDITION, ANSWERS)
    assert found.false == ()
    assert found.unclear == ()


@settings(max_examples=50, deadline=None)
@given(st.sets(AGENT, max_size=(len(AGENTS) - 1) // 2), st.sets(AGENT))
def test_who_answers_noise_is_named_while_half_of_the_group_is_there_and_never_another(
    liars: set[str], away: set[str]
) -> None:
    answers = ANSWERS | {agent: noise(seed) for seed, agent in enumerate(sorted(liars))}
    there = {agent: each for agent, each in answers.items() if agent not in away}
    found = judged(EDITION, there)
    assert set(found.false) <= liars
    if 2 * (len(there) - 1) >= len(AGENTS):
        assert set(found.false) == liars - away
        assert found.unclear == ()


@settings(max_examples=50, deadline=None)
@given(AGENT, st.sets(AGENT, min_size=1, max_size=4))
def test_a_liar_cannot_have_another_one_named(liar: str, blamed: set[str]) -> None:
    blamed = blamed - {liar}
    words = ANSWERS[liar].copy()
    for agent in blamed:
        words[HEAD + AGENTS.index(agent)] += 1
    found = judged(EDITION, ANSWERS | {liar: words})
    assert found.false == ()
    assert {frozenset(pair) for pair in found.unclear} == {frozenset((liar, agent)) for agent in blamed}


def test_answers_do_not_depend_on_rows_and_their_streams_mask_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    keys: list[bytes] = []
    honest = masks.stream

    def spied(key: bytes, size: int) -> Any:
        keys.append(key)
        return honest(key, size)

    monkeypatch.setattr(masks, "stream", spied)
    answer("v00")
    mask(np.zeros(4, dtype=np.int64), "v00", EDITION, pair_keys(KEYS["v00"], "v00", ROSTER), TASK.digest)
    assert len(set(keys)) == len(keys) == 2 * (len(AGENTS) - 1)


def test_check_about_another_number_of_vehicles_is_refused() -> None:
    with pytest.raises(PrivacyError, match="not about this edition"):
        answer("v00", Task(PAIRS.name, "pairs", {"group": 0, "vehicles": 5}, "nonce"))
    for vehicles in (0, "11", True, None):
        with pytest.raises(TaskError):
            PAIRS.layout(Task(PAIRS.name, "pairs", {"vehicles": vehicles}, "nonce"))
