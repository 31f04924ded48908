"""Masks, checks of pairs, and unions that come out of sums."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassfleet.contract.messages import Task
from glassfleet.errors import PrivacyError, TaskError
from glassfleet.private import masks
from glassfleet.private.answering import accept, no_rows, reply
from glassfleet.private.chain import meet
from glassfleet.private.groups import Announcement, Edition, Roster, Terms, cut_groups
from glassfleet.private.layout import add, layout_of, question_digest
from glassfleet.private.masks import RunKey, mask, pair_keys, usable_key
from glassfleet.private.pairs import HEAD, PAIRS, judged, task_of
from glassfleet.private.union import LIMB_BITS, SIZES, fill, peel

TERMS = Terms("fleet", "run", "nonce", "frt", "digest")
TASKS = [f"{i:064x}" for i in range(3)]


def fleet(count: int, terms: Terms = TERMS) -> tuple[Edition, dict[str, dict[str, bytes]]]:
    keys = {f"v{i:02d}": RunKey.generate() for i in range(count)}
    [roster] = cut_groups(terms, [Announcement(agent, key.public, "rows") for agent, key in keys.items()])
    return roster.first(), {agent: pair_keys(key, agent, roster) for agent, key in keys.items()}


EDITION, PAIR_KEYS = fleet(9)


@settings(max_examples=30)
@given(st.data())
def test_sum_is_exact_for_any_numbers_in_any_order(data: st.DataObject) -> None:
    length = data.draw(st.integers(1, 20))
    bound = 2**63 // 9
    rows = st.lists(st.integers(-bound, bound), min_size=length, max_size=length)
    x = {agent: np.array(data.draw(rows), dtype=np.int64) for agent in EDITION.members}
    order = data.draw(st.permutations(EDITION.members))
    assert np.array_equal(add(mask(x[a], a, EDITION, PAIR_KEYS[a], TASKS[0]) for a in order), sum(x.values()))


def test_one_answer_is_noise_and_long_streams_have_no_seam() -> None:
    x = np.zeros(30_000, dtype=np.int64)
    words = mask(x, "v00", EDITION, PAIR_KEYS["v00"], TASKS[0])
    assert abs(np.unpackbits(words.view(np.uint8)).mean() - 0.5) < 0.005
    assert np.array_equal(words[:1000], mask(x[:1000], "v00", EDITION, PAIR_KEYS["v00"], TASKS[0]))
    assert np.unique(words).size == words.size


@pytest.mark.parametrize("lie", ["edition", "task", "terms"])
def test_who_is_told_something_else_adds_noise_not_a_difference(lie: str) -> None:
    x = np.ones(100, dtype=np.int64)
    other = Edition(EDITION.roster, 1, EDITION.members[:8]) if lie == "edition" else EDITION
    if lie == "terms":
        other = replace(EDITION, roster=replace(EDITION.roster, terms=replace(TERMS, support=3)))
    answers = []
    for agent in EDITION.members:
        odd = agent == "v03"
        edition, task = other if odd else EDITION, TASKS[odd and lie == "task"]
        answers.append(mask(x, agent, edition, PAIR_KEYS[agent], task))
    assert (np.abs(add(answers).astype(np.float64)) > 2**40).mean() > 0.99
    rest = add(words for agent, words in zip(EDITION.members, answers, strict=True) if agent != "v03")
    assert (np.abs(rest.astype(np.float64)) > 2**40).mean() > 0.99


def test_no_stream_key_is_used_twice_in_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[tuple[bytes, str, tuple[str, str]]] = []
    real = masks.stream_key

    def spy(pair: bytes, edition: Edition, task_digest: str, one: str, other: str) -> bytes:
        key = real(pair, edition, task_digest, one, other)
        used.append((key, task_digest + edition.digest.hex(), (min(one, other), max(one, other))))
        return key

    monkeypatch.setattr(masks, "stream_key", spy)
    second = Edition(EDITION.roster, 1, EDITION.members[1:])
    for edition in (EDITION, second, replace(second, number=2)):
        for task in TASKS:
            for agent in edition.members:
                mask(np.zeros(2, dtype=np.int64), agent, edition, PAIR_KEYS[agent], task)
    # Both members of a pair make the same key for a question; nothing else makes it.
    assert len({key for key, _, _ in used}) == len({(question, pair) for _, question, pair in used}) == len(used) // 2


def test_ids_cannot_run_into_each_other_in_a_stream_key() -> None:
    pair = bytes(32)
    one = masks.stream_key(pair, EDITION, TASKS[0], "a", "bc")
    assert one != masks.stream_key(pair, EDITION, TASKS[0], "ab", "c")


@pytest.mark.parametrize(
    "key",
    [bytes(32), (1).to_bytes(32, "little"), (2**255 - 19).to_bytes(32, "little"), b"\xff" * 32, b"short"],
    ids=["zero", "one", "prime", "not canonical", "short"],
)
def test_weak_keys_are_found_before_anybody_meets_them(key: bytes) -> None:
    assert not usable_key(key)
    if len(key) == 32:
        own = RunKey.generate()
        roster = Roster(TERMS, 0, (Announcement("a", own.public, "rows"), Announcement("b", key, "rows")))
        with pytest.raises(PrivacyError, match="bad-member: b: "):
            pair_keys(own, "a", roster)
    assert usable_key(RunKey.generate().public)


def test_a_copied_key_is_refused_and_would_cancel_nothing() -> None:
    first = EDITION.roster.founders[0]
    with pytest.raises(PrivacyError, match="bad-member"):
        Roster(TERMS, 0, (*EDITION.roster.founders, Announcement("v99", first.key, "rows")))
    one = masks.stream_key(PAIR_KEYS["v04"]["v00"], EDITION, TASKS[0], "v04", "v00")
    assert one != masks.stream_key(PAIR_KEYS["v04"]["v00"], EDITION, TASKS[0], "v04", "v99")


def test_only_members_mask_and_only_founders_have_pair_keys() -> None:
    smaller = Edition(EDITION.roster, 1, EDITION.members[1:])
    with pytest.raises(PrivacyError, match="not-member"):
        mask(np.zeros(1, dtype=np.int64), "v00", smaller, PAIR_KEYS["v00"], TASKS[0])
    with pytest.raises(PrivacyError, match="not-member"):
        pair_keys(RunKey.generate(), "v00", EDITION.roster)


def test_a_question_is_of_one_edition_task_and_layout() -> None:
    smaller = Edition(EDITION.roster, 1, EDITION.members[1:])
    asked = {
        question_digest(edition, task, layout)
        for edition in (EDITION, smaller)
        for task in TASKS
        for layout in ("aa" * 32, "bb" * 32)
    }
    assert len(asked) == 12


AGENTS = [f"v{number:02d}" for number in range(11)]
KEYS = {agent: RunKey(agent.encode().ljust(32, b"-")) for agent in AGENTS}
MET = Terms("fleet", "run", "nonce", "frt", "0" * 64)
ROSTER = Roster(MET, 0, tuple(Announcement(agent, KEYS[agent].public, "rows") for agent in AGENTS))
FIRST = ROSTER.first()
TASK = task_of(FIRST)


def answer(agent: str, task: Task = TASK) -> np.ndarray[Any, np.dtype[np.int64]]:
    question = question_digest(FIRST, task.digest, layout_of(PAIRS, task).digest)
    asked = accept(meet(ROSTER.by_id[agent], MET, ROSTER), PAIRS, task, 0, FIRST.members, question)
    return reply(asked, no_rows(asked), pair_keys(KEYS[agent], agent, ROSTER))[1].view(np.int64)


ANSWERS = {agent: answer(agent) for agent in AGENTS}
AGENT = st.sampled_from(AGENTS)


def noise(seed: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.random.default_rng(seed).integers(-(2**63), 2**63, HEAD + len(AGENTS))


@settings(max_examples=50, deadline=None)
@given(st.sets(AGENT, max_size=(len(AGENTS) - 1) // 2), st.sets(AGENT))
def test_who_answers_noise_is_named_while_half_of_the_group_is_there_and_never_another(
    liars: set[str], away: set[str]
) -> None:
    answers = ANSWERS | {agent: noise(seed) for seed, agent in enumerate(sorted(liars))}
    there = {agent: each for agent, each in answers.items() if agent not in away}
    result = judged(FIRST, there)
    assert set(result.false) <= liars
    if 2 * (len(there) - 1) >= len(AGENTS):
        assert set(result.false) == liars - away
        assert result.unclear == ()


@settings(max_examples=50, deadline=None)
@given(AGENT, st.sets(AGENT, min_size=1, max_size=4))
def test_a_liar_cannot_have_another_one_named(liar: str, blamed: set[str]) -> None:
    blamed = blamed - {liar}
    words = ANSWERS[liar].copy()
    for agent in blamed:
        words[HEAD + AGENTS.index(agent)] += 1
    result = judged(FIRST, ANSWERS | {liar: words})
    assert result.false == ()
    assert {frozenset(pair) for pair in result.unclear} == {frozenset((liar, agent)) for agent in blamed}


def test_answers_do_not_depend_on_rows_and_their_streams_mask_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    keys: list[bytes] = []
    honest = masks.stream

    def spied(key: bytes, size: int) -> Any:
        keys.append(key)
        return honest(key, size)

    monkeypatch.setattr(masks, "stream", spied)
    answer("v00")
    mask(np.zeros(4, dtype=np.int64), "v00", FIRST, pair_keys(KEYS["v00"], "v00", ROSTER), TASK.digest)
    assert len(set(keys)) == len(keys) == 2 * (len(AGENTS) - 1)


def test_check_about_another_number_of_vehicles_is_refused() -> None:
    with pytest.raises(PrivacyError, match="not about this edition"):
        answer("v00", Task(PAIRS.name, "pairs", {"group": 0, "vehicles": 5}, "nonce"))
    for vehicles in (0, "11", True, None):
        with pytest.raises(TaskError):
            PAIRS.layout(Task(PAIRS.name, "pairs", {"vehicles": vehicles}, "nonce"))


@given(st.integers(0, 2**32 - 1), st.integers(0, 500), st.integers(1, 12), st.integers(1, 4))
def test_the_union_comes_out_of_the_sum(seed: int, items: int, vehicles: int, limbs: int) -> None:
    rng = np.random.default_rng(seed)
    keys = np.unique(rng.integers(0, 2 ** rng.integers(1, LIMB_BITS + 1), (items, limbs)), axis=0)
    total = fill(keys[:0], np.zeros(0, dtype=np.int64), SIZES[0])
    times = np.zeros(len(keys), dtype=np.int64)
    for _ in range(vehicles):
        own = np.flatnonzero(rng.random(len(keys)) < 0.4)
        count = rng.integers(1, 10**6, len(own))
        total += fill(keys[own], count, SIZES[0])
        times[own] += count
    union = peel(total)
    assert union is not None
    order = np.lexsort(union[0].T[::-1])
    assert np.array_equal(union[0][order], keys[times > 0])
    assert np.array_equal(union[1][order], times[times > 0])


@pytest.mark.parametrize(("items", "fits"), [(1000, True), (1500, False), (3000, False)])
def test_a_table_that_is_too_small_says_so_and_the_next_one_does(items: int, fits: bool) -> None:
    rng = np.random.default_rng(items)
    keys, ones = np.unique(rng.integers(0, 2**30, (items, 2)), axis=0), np.ones(items, dtype=np.int64)
    assert (peel(fill(keys, ones, SIZES[0])) is not None) == fits
    assert peel(fill(keys, ones, SIZES[1])) is not None


def test_noise_is_no_union() -> None:
    rng = np.random.default_rng(0)
    assert peel(rng.integers(-(2**62), 2**62, (SIZES[0], 5))) is None
    assert peel(rng.integers(0, 5, (SIZES[0], 5))) is None
