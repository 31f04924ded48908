"""Masks cancel in the sum over one edition and one task, and in nothing else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassfleet.errors import PrivacyError
from glassfleet.private import masks
from glassfleet.private.groups import Announcement, Edition, Roster, Terms, cut_groups
from glassfleet.private.masks import RunKey, mask, pair_keys, usable_key
from glassfleet.private.sums import add, question_digest

TERMS = Terms("fleet", "run", "nonce", "frt", "digest")
TASKS = [f"{i:064x}" for i in range(3)]


def fleet(count: int, terms: Terms = TERMS) -> tuple[Edition, dict[str, dict[str, bytes]]]:
    keys = {f"v{i:02d}": RunKey.generate() for i in range(count)}
    [roster] = cut_groups(terms, [Announcement(agent, key.public, "rows") for agent, key in keys.items()])
    return roster.first(), {agent: pair_keys(key, agent, roster) for agent, key in keys.items()}


EDITION, PAIRS = fleet(9)


@settings(max_examples=30)
@given(st.data())
def test_sum_is_exact_for_any_numbers_in_any_order(data: st.DataObject) -> None:
    length = data.draw(st.integers(1, 20))
    bound = 2**63 // 9
    rows = st.lists(st.integers(-bound, bound), min_size=length, max_size=length)
    x = {agent: np.array(data.draw(rows), dtype=np.int64) for agent in EDITION.members}
    order = data.draw(st.permutations(EDITION.members))
    assert np.array_equal(add(mask(x[a], a, EDITION, PAIRS[a], TASKS[0]) for a in order), sum(x.values()))


def test_answer_is_a_function_of_key_edition_task_and_vector() -> None:
    key = RunKey.generate()
    others = [RunKey.generate() for _ in range(8)]
    said = [Announcement(f"v{i}", each.public, "rows") for i, each in enumerate([key, *others])]
    roster = Roster(TERMS, 0, tuple(said))
    x = np.arange(50)
    one = mask(x, "v0", roster.first(), pair_keys(key, "v0", roster), TASKS[0])
    again = RunKey(key.to_bytes())
    read = Roster.from_value(roster.to_value())
    assert np.array_equal(mask(x, "v0", read.first(), pair_keys(again, "v0", read), TASKS[0]), one)


def test_one_answer_is_noise_and_long_streams_have_no_seam() -> None:
    x = np.zeros(30_000, dtype=np.int64)
    words = mask(x, "v00", EDITION, PAIRS["v00"], TASKS[0])
    assert abs(np.unpackbits(words.view(np.uint8)).mean() - 0.5) < 0.005
    assert np.array_equal(words[:1000], mask(x[:1000], "v00", EDITION, PAIRS["v00"], TASKS[0]))
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
        answers.append(mask(x, agent, edition, PAIRS[agent], task))
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
                mask(np.zeros(2, dtype=np.int64), agent, edition, PAIRS[agent], task)
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
    one = masks.stream_key(PAIRS["v04"]["v00"], EDITION, TASKS[0], "v04", "v00")
    assert one != masks.stream_key(PAIRS["v04"]["v00"], EDITION, TASKS[0], "v04", "v99")


def test_only_members_mask_and_only_founders_have_pair_keys() -> None:
    smaller = Edition(EDITION.roster, 1, EDITION.members[1:])
    with pytest.raises(PrivacyError, match="not-member"):
        mask(np.zeros(1, dtype=np.int64), "v00", smaller, PAIRS["v00"], TASKS[0])
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
