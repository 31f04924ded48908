"""Over whom private runs summed, as chaos reads it from a journal; and which two of these sums tell of too few."""

from __future__ import annotations

from coordinator.engine import Engine
from coordinator.engine.events import from_value
from coordinator.journal.port import Entry
from lab.chaos.breaches import again, exposed, summed_over
from lab.chaos.schedule import era, run_name
from schemas import codec
from tests.support.privacy.private_bench import PrivateStage

AGENTS = [f"v{number:02d}" for number in range(14)]


def entries(stage: PrivateStage) -> list[Entry]:
    events = [from_value(codec.decode(body)) for body in stage.journal]
    return [Entry("r1", event.kind, event.at, 0.0, body) for event, body in zip(events, stage.journal, strict=True)]


def test_sets_are_those_of_which_every_member_answered() -> None:
    stage = PrivateStage(AGENTS)
    stage.finish(*AGENTS, leaves={"v03": 2})
    assert stage.phase == "finished"
    whole, rest = frozenset(AGENTS), frozenset(stage.state.cohort)
    assert len(whole - rest) == 3
    assert summed_over(Engine(), entries(stage)) == {whole, rest}


def test_set_of_which_one_answer_is_missing_is_not_summed() -> None:
    stage = PrivateStage(AGENTS)
    stage.answer(*AGENTS)
    assert stage.phase == "domain"
    stage.answer(*AGENTS[1:])
    assert summed_over(Engine(), entries(stage)) == frozenset()


def test_sums_over_the_same_rows_that_tell_of_few_are_found() -> None:
    all_of, two_less, three_less = frozenset("abcdefghijkl"), frozenset("abcdefghij"), frozenset("abcdefghi")
    first, second, third = (run_name(number) for number in (1, 2, 3))
    assert era(first) == era(second) != era(third)
    assert exposed({first: frozenset({all_of, three_less}), second: frozenset({all_of})}) == []
    assert exposed({second: frozenset({all_of}), third: frozenset({two_less})}) == [], "their rows are others"
    result = "a sum and others over the same rows tell of k, l"
    assert exposed({first: frozenset({all_of}), second: frozenset({two_less})}) == [f"{second}: {result}"]
    assert exposed({first: frozenset({two_less}), second: frozenset({all_of})}) == [f"{second}: {result}"]
    assert exposed({first: frozenset({all_of, two_less})}) == [f"{first}: {result}"]
    one_for_three = three_less | {"m"}
    assert exposed({first: frozenset({all_of}), second: frozenset({one_for_three})}) == [], "about four"
    halves = frozenset({frozenset("abcdef"), frozenset("ghijk")})
    assert exposed({first: halves, second: frozenset({all_of})}) == [f"{second}: {result.replace('k, l', 'l')}"]
    apart = frozenset("mnopqrst")
    assert exposed({first: frozenset({all_of}), second: frozenset({apart})}) == []
    assert again({first: frozenset({all_of}), second: frozenset({apart}), third: frozenset()}) == 1
