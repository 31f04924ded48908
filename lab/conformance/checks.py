"""What a conforming agent does, one function for each, which yields faults."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, Final

import numpy as np

from glassfleet.contract import catalogue
from glassfleet.contract.messages import Contribution, Task
from glassfleet.data.dataset import Dataset
from glassfleet.discovery import DISCOVERY
from glassfleet.errors import ContributionError
from glassfleet.numerics.grids import Grid
from lab.conformance.examiner import PATIENCE, SILENCE, Examiner, Heard, LeftOutError, Run, in_run, same_bytes
from lab.conformance.private import private
from lab.conformance.questions import Question, answer, difference, questions
from schemas.envelope import Envelope
from schemas.messages import AgentState, ContributionBody, Outcome, Refusal, Request
from schemas.rounds import place_in_sample


@dataclass
class Bench:
    """Who is checked, over which rows.

    Attributes
    ----------
    cut, mend : callable or None
        Cut the agent's connection, and let it come back; None: that cannot be done here.
    """

    examiner: Examiner
    data: Dataset
    cut: Callable[[], None] | None = None
    mend: Callable[[], None] | None = None
    schemes: tuple[str, ...] = ()
    runs: int = 0
    asked: list[Question] = field(default_factory=list)

    @contextmanager
    def run(self) -> Iterator[Run]:
        """Begin a run, and end it."""
        self.runs += 1
        run = Run(self.examiner, f"check-{self.examiner.incarnation}-{self.runs}")
        try:
            yield run
        finally:
            self.examiner.end(run.id)

    def simple(self, *, salt: int = 0) -> Task:
        """Return a short question: one histogram; another one for each `salt`."""
        name = self.data.features[0]
        grids: dict[str, Any] = {name: Grid(0.0, 1.0 + salt, 8, 8, 8).to_value()}
        return Task("domain", "histogram", {"columns": grids, "target": self.data.target, "min_count": 0, "round": 2})


Check = Callable[[Bench], Iterator[str]]


def births(bench: Bench) -> Iterator[str]:
    """Births: retained, with the columns of the rows; again for each new coordinator."""
    heard = bench.examiner.birth(within=6 * PATIENCE)
    if heard is None:
        yield "no birth came: is the agent up, on this broker, in this fleet, under this id?"
        return
    body = heard.body
    assert isinstance(body, AgentState)
    bench.schemes = tuple(body.schemes)
    wanted = [*bench.data.features, bench.data.target]
    if sorted(body.features) != sorted(wanted[:-1]) or body.target != wanted[-1]:
        yield f"columns are {[*body.features, body.target]}, expected {wanted}"
    bench.examiner.forget()
    bench.examiner.up(anew=True)
    again = bench.examiner.birth(within=PATIENCE)
    if again is None:
        yield "no birth for a coordinator of another incarnation"
    elif isinstance(again.body, AgentState) and again.body.incarnation != body.incarnation:
        yield "another incarnation in the same life"


def exact(bench: Bench) -> Iterator[str]:
    """Every question of discovery and of the schemes that it offers: equal to the last bit."""
    for _, some in groupby(questions(bench.data, bench.schemes), lambda each: each.name.partition(", question")[0]):
        with bench.run() as run:
            for each in some:
                task = in_run(each.task, run.id)
                digest, heard = run.pose(task)
                actual, text = _read(heard)
                if actual is not None:
                    run.receipt(digest)
                    bench.asked.append(each)
                    is_one = each.exact
                    text = difference(task, each.expected, actual) if is_one else _condensed(each, actual, bench.data)
                if text:
                    yield f"{each.name}: {text}"


def _condensed(each: Question, actual: Contribution, data: Dataset) -> str:
    """Say why an answer from condensed rows cannot be right."""
    server = catalogue.load(each.task.scheme).server
    try:
        server.check(each.task, actual)
    except ContributionError as fault:
        return f"condensed rows: {fault}"
    plain = {**dict(each.task.body), "parameters": {**each.task.body["parameters"], "min_rows": 1}}
    if each.name.endswith("question 1 (scan)") or each.name.endswith("question 1 (level)"):
        own = answer(replace(each.task, body=plain), data)
        if not difference(each.task, own, actual):
            return "the rows are not condensed, though min_rows asks for it: these are sums of the vehicle's own rows"
    return ""


def _read(heard: Heard | None) -> tuple[Contribution | None, str]:
    if heard is None:
        return None, f"no answer in {PATIENCE:g} s"
    if isinstance(heard.body, Refusal):
        return None, f"refused: {heard.body.reason}"
    assert isinstance(heard.body, ContributionBody)
    try:
        return Contribution.from_value(heard.body.contribution), ""
    except ContributionError as fault:
        return None, str(fault)


def condensed_alike(bench: Bench) -> Iterator[str]:
    """Condensed rows are drawn in the same way in every run."""
    first = next((each for each in bench.asked if not each.exact), None)
    if first is None:
        raise LeftOutError("no question about condensed rows was answered")
    actual = []
    for _ in range(2):
        with bench.run() as run:
            digest, heard = run.pose(first.task)
            run.receipt(digest)
            actual.append(_read(heard)[0])
    one, other = actual
    if one is None or other is None:
        yield "no answer"
    elif text := difference(first.task, one, other):
        yield f"two runs over the same rows differ, and their mean tells more than one: {text}"


def resends(bench: Bench) -> Iterator[str]:
    """Without a receipt the same answer again, in ever longer waits; with one, of whatever outcome, silence."""
    outcomes: dict[Outcome, str] = {"accepted": "", "late": "the round is closed", "rejected": "conflict"}
    for outcome, reason in outcomes.items():
        with bench.run() as run:
            digest, first = run.pose(bench.simple())
            second = run.answer(digest)
            if first is None or second is None:
                yield f"not sent again without a receipt, within {PATIENCE:g} s"
            elif not same_bytes(first, second):
                yield "another answer when it was sent again"
            run.receipt(digest, outcome, reason)
            if not run.is_silent(after=0.5):
                yield f"sent again after the receipt {outcome!r}"


def duplicates(bench: Bench) -> Iterator[str]:
    """Duplicates: a request or a receipt that comes twice, or for nothing, changes nothing."""
    Run(bench.examiner, "no-such-run").receipt("0" * 64, "unknown-run")
    with bench.run() as run:
        run.ask(bench.simple())
        digest, first = run.pose(bench.simple())
        if first is None:
            yield "no answer to a request that came twice"
        run.receipt(digest)
        run.receipt(digest)
        bench.examiner.wait_for((ContributionBody,), run.id, within=1.0)
        run.ask(bench.simple())
        if not run.is_silent():
            yield "answered again after its receipt"


def newest(bench: Bench) -> Iterator[str]:
    """Newer requests of a run park the answer to an older one; asked again, it is the same."""
    with bench.run() as run:
        first_digest, first = run.pose(bench.simple(salt=1))
        second_digest, second = run.pose(bench.simple(salt=2))
        bench.examiner.wait_for((ContributionBody,), run.id, first_digest, within=0.5)
        if second is None:
            yield "no answer to the newer request"
            return
        run.receipt(second_digest)
        if not run.is_silent(first_digest):
            yield "the answer to the older request was sent again"
        again = run.pose(bench.simple(salt=1))[1]
        if again is None or first is None:
            yield "no answer when the older task was asked again"
        elif not same_bytes(first, again):
            yield "another answer when the older task was asked again"
        bodies = [heard.body for heard in (first, second, again) if heard is not None]
        rows = {(each.rows, each.data_digest) for each in bodies if isinstance(each, ContributionBody)}
        if len(rows) > 1:
            yield "rows or data_digest changed within a run"
        run.receipt(first_digest)


def whom(bench: Bench) -> Iterator[str]:
    """Who is asked answers, and nobody else: asked, sample, without, not-asked."""
    agent = bench.examiner.agent
    last = place_in_sample("salt", agent)
    inside, before = ({"salt": "salt", "last": each} for each in (last, f"{int(last, 16) - 1:064x}"))
    cases: list[tuple[str, dict[str, Any], bool]] = [
        ("asked names others", {"asked": ["somebody"]}, False),
        ("asked names it", {"asked": [agent]}, True),
        ("sample without it", {"sample": before}, False),
        ("sample with it", {"sample": inside}, True),
        ("without names it", {"without": [agent]}, False),
        ("sample with it, without names it", {"sample": inside, "without": [agent]}, False),
        ("without names others", {"without": ["somebody"]}, True),
    ]
    for salt, (what, people, answers) in enumerate(cases):
        with bench.run() as run:
            digest = run.ask(bench.simple(salt=salt), people)
            heard = run.answer(digest, PATIENCE if answers else SILENCE)
            if (heard is not None) != answers:
                yield f"{what}: {'no answer' if answers else 'answered'}"
            run.receipt(digest)
    with bench.run() as run:
        digest, _ = run.pose(bench.simple(salt=1))
        run.receipt(digest, "rejected", "not-asked")
        bench.examiner.wait_for((ContributionBody,), run.id, within=0.5)
        run.ask(bench.simple(salt=2))
        if not run.is_silent():
            yield "answers in a run that answered not-asked"
        digest, heard = run.pose(bench.simple(salt=3), {"asked": [agent]})
        if heard is None:
            yield "after not-asked it does not answer a request that names it"
        run.receipt(digest)


def refusals(bench: Bench) -> Iterator[str]:
    """Refusals of what cannot be answered, so that nobody waits."""
    simple = bench.simple()
    strange = {**simple.body, "columns": {"no such column": Grid().to_value()}}
    cases = {
        "a column that it has not": replace(simple, body=strange),
        "a question that the scheme does not know": Task("domain", "no-such-question", {}),
        "a damaged task": replace(simple, body={"columns": 1}),
    }
    for what, task in cases.items():
        with bench.run() as run:
            digest, heard = run.pose(task)
            if heard is None or not isinstance(heard.body, Refusal):
                yield f"{what}: {'answered' if heard else 'no word'}, expected a refusal"
            run.receipt(digest, "accepted", "refusal noted")
    with bench.run() as run:
        unknown = Task("no-such-scheme", "level", {})
        if not run.is_silent(run.ask(unknown)):
            yield "a scheme that it did not offer, asked of all: expected silence"
        digest, heard = run.pose(unknown, {"asked": [bench.examiner.agent]})
        if heard is None or not isinstance(heard.body, Refusal):
            yield "a scheme that it does not have, asked by name: expected a refusal"
        run.receipt(digest, "accepted", "refusal noted")


def in_parts(bench: Bench) -> Iterator[str]:
    """Parts: a request in parts is read, and a long answer comes in parts."""
    data = bench.data
    columns = sorted([*data.features, *([data.target] if data.y.dtype.kind == "f" else [])])
    empty = {name for name, column in zip(data.features, data.X.T, strict=True) if np.isnan(column).any()}
    columns = [name for name in columns if name not in {*data.categories, *empty}]
    grids = {name: Grid(-50.0, 50.0 + place, 2**16, 2**15, 2**15).to_value() for place, name in enumerate(columns)}
    big = Task("domain", "histogram", {"columns": grids, "target": data.target, "min_count": 0, "round": 1})
    long = replace(big, body={**big.body, "columns": {f"x{i}" * 20: Grid().to_value() for i in range(200)}})
    with bench.run() as run:
        digest = run.ask(big)
        heard = run.answer(digest, 2 * PATIENCE)
        if heard is None:
            yield "no answer to a question of many counts"
        else:
            actual, text = _read(heard)
            task = in_run(big, run.id)
            expected = DISCOVERY.client.contribute(task, data, np.random.default_rng(0))
            text = text if actual is None else difference(task, expected, actual)
            if text:
                yield f"a long answer: {text}"
            if len(heard.payload) > 128 * 1024:
                yield f"a message of {len(heard.payload)} bytes, at most 128 KiB may be sent at once"
            elif not heard.parts:
                yield "a long answer did not come in parts"
        run.receipt(digest)
        digest = run.ask(long, limit=2048)
        if run.answer(digest, 2 * PATIENCE) is None:
            yield "no word to a request that came as a manifest and blobs"
        run.receipt(digest)


def wrong_messages(bench: Bench) -> Iterator[str]:
    """Messages that cannot be read change nothing: the next request is answered."""
    topics = bench.examiner.topics
    with bench.run() as run:
        task = in_run(bench.simple(), run.id)
        request = Request(task=task.to_value(), task_digest=task.digest, remaining=1.0)
        good = Envelope(topics.fleet, request, run=run.id, scheme="domain", time=1.0).to_bytes()
        cases = {
            "garbage": b"\xc1\xff\x00garbage",
            "a message that is cut off": good[:-40],
            "another protocol version": good[:-1] + b"\x02",
            "another fleet": Envelope("another", request, run=run.id, scheme="domain", time=1.0).to_bytes(),
            "a field that is not known": b"\x8c" + good[1:-3] + b"\xa1u\x01" + good[-3:],
            "an empty map": b"\x80",
        }
        for what, payload in cases.items():
            bench.examiner.publish(topics.request(run.id), payload, retain=True)
            if not run.is_silent():
                yield f"{what}: an answer"
            bench.examiner.publish(topics.receipt(bench.examiner.agent), payload)
        digest, heard = run.pose(bench.simple())
        if heard is None:
            yield "no answer to a good request after wrong ones"
        run.receipt(digest)


def connections(bench: Bench) -> Iterator[str]:
    """After a lost connection: the will, a birth; what was asked meanwhile is answered, what waits is sent again."""
    if bench.cut is None or bench.mend is None:
        raise LeftOutError("the agent's connection cannot be cut here (mqtts, or another road to the broker)")
    with bench.run() as run, bench.run() as other:
        digest, first = run.pose(bench.simple())
        bench.examiner.forget()
        bench.cut()
        end = bench.examiner.wait_for((AgentState,), within=2 * PATIENCE)
        if end is None or not isinstance(end.body, AgentState) or end.body.status != "down":
            yield "no will: the broker did not say that the agent is down"
        asked = other.ask(bench.simple(salt=1))
        bench.mend()
        if bench.examiner.birth(within=2 * PATIENCE) is None:
            yield "no birth after it came back"
        if other.answer(asked, 2 * PATIENCE) is None:
            yield "what was asked while it was away was not answered"
        again = run.answer(digest, 2 * PATIENCE)
        if again is None or first is None or not same_bytes(first, again):
            yield "the answer without a receipt was not sent again as it was"
        run.receipt(digest)
        other.receipt(asked)


def private_runs(bench: Bench) -> Iterator[str]:
    """Of a private run: the key, masks that cancel, and no answer in editions or to questions that single out."""
    with bench.run() as run:
        yield from private(run, bench.data, bench.schemes)


def encoding(bench: Bench) -> Iterator[str]:
    """All messages could be read, were its own, and were published as they should."""
    yield from (re.sub(r"\s+", " ", fault) for fault in dict.fromkeys(bench.examiner.faults))


CHECKS: Final[dict[str, Check]] = {
    check.__name__.replace("_", "-"): check
    for check in (
        births,
        exact,
        condensed_alike,
        resends,
        duplicates,
        newest,
        whom,
        refusals,
        in_parts,
        wrong_messages,
        connections,
        private_runs,
        encoding,
    )
}
