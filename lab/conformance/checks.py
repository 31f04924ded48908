"""What a conforming agent does, one function for each: it returns faults, and notes of what was left out."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from glassfleet.contract import catalogue
from glassfleet.contract.messages import Contribution, Task
from glassfleet.data.dataset import Dataset
from glassfleet.discovery import DISCOVERY
from glassfleet.errors import ContributionError
from glassfleet.numerics.grids import Grid
from lab.conformance.examiner import PATIENCE, SILENCE, Examiner, Heard, LeftOutError, columns_of, in_run, same_bytes
from lab.conformance.private import private
from lab.conformance.questions import Question, answer, difference, questions
from schemas.envelope import Envelope
from schemas.messages import AgentState, ContributionBody, Refusal, Request
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

    def run(self) -> str:
        """Return the id of a new run."""
        self.runs += 1
        return f"check-{self.examiner.incarnation}-{self.runs}"

    def simple(self, *, salt: int = 0) -> Task:
        """Return a short question: one histogram; another one for each `salt`."""
        name = self.data.features[0]
        grids: dict[str, Any] = {name: Grid(0.0, 1.0 + salt, 8, 8, 8).to_value()}
        return Task("domain", "histogram", {"columns": grids, "target": self.data.target, "min_count": 0, "round": 2})

    def pose(self, run: str, task: Task, whom: dict[str, Any] | None = None) -> tuple[str, Heard | None]:
        """Ask, and wait for the answer."""
        digest = self.examiner.ask(run, task, whom=whom)
        return digest, self.examiner.answer(run, digest)

    def is_silent(self, run: str, digest: str = "") -> bool:
        """Whether nothing more comes about a run."""
        return self.examiner.wait_for((ContributionBody, Refusal), run, digest, within=SILENCE) is None


Check = Callable[[Bench], list[str]]


def births(bench: Bench) -> list[str]:
    """Births: retained, with the columns of the rows; again for each new coordinator."""
    heard = bench.examiner.birth(within=6 * PATIENCE)
    if heard is None:
        return ["no birth came: is the agent up, on this broker, in this fleet, under this id?"]
    body = heard.body
    assert isinstance(body, AgentState)
    bench.schemes = tuple(body.schemes)
    faults = []
    wanted = [*bench.data.features, bench.data.target]
    if sorted(columns_of(body)[:-1]) != sorted(wanted[:-1]) or body.target != wanted[-1]:
        faults.append(f"columns are {list(columns_of(body))}, expected {wanted}")
    bench.examiner.forget()
    bench.examiner.up(anew=True)
    again = bench.examiner.birth(within=PATIENCE)
    if again is None:
        faults.append("no birth for a coordinator of another incarnation")
    elif isinstance(again.body, AgentState) and again.body.incarnation != body.incarnation:
        faults.append("another incarnation in the same life")
    return faults


def exact(bench: Bench) -> list[str]:
    """Every question of discovery and of the schemes that it offers: equal to the last bit."""
    faults, run, name = [], "", ""
    for each in questions(bench.data, bench.schemes):
        if each.name.partition(", question")[0] != name:
            if run:
                bench.examiner.end(run)
            run, name = bench.run(), each.name.partition(", question")[0]
        task = in_run(each.task, run)
        digest, heard = bench.pose(run, task)
        actual, why = _read(heard)
        if actual is None:
            faults.append(f"{each.name}: {why}")
            continue
        bench.examiner.receipt(run, digest)
        bench.asked.append(each)
        if text := difference(task, each.expected, actual) if each.exact else _condensed(each, actual, bench.data):
            faults.append(f"{each.name}: {text}")
    bench.examiner.end(run)
    return faults


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


def condensed_alike(bench: Bench) -> list[str]:
    """Condensed rows are drawn in the same way in every run."""
    first = next((each for each in bench.asked if not each.exact), None)
    if first is None:
        raise LeftOutError("no question about condensed rows was answered")
    actual = []
    for _ in range(2):
        run = bench.run()
        digest, heard = bench.pose(run, in_run(first.task, run))
        bench.examiner.receipt(run, digest)
        bench.examiner.end(run)
        actual.append(_read(heard)[0])
    one, other = actual
    if one is None or other is None:
        return ["no answer"]
    text = difference(first.task, one, other)
    return [f"two runs over the same rows differ, and their mean tells more than one: {text}"] if text else []


def resends(bench: Bench) -> list[str]:
    """Without a receipt the same answer again, in ever longer waits; with one, of whatever outcome, silence."""
    faults = []
    for outcome, reason in (("accepted", ""), ("late", "the round is closed"), ("rejected", "conflict")):
        run = bench.run()
        digest, first = bench.pose(run, in_run(bench.simple(), run))
        second = bench.examiner.answer(run, digest)
        if first is None or second is None:
            faults.append(f"not sent again without a receipt, within {PATIENCE:g} s")
        elif not same_bytes(first, second):
            faults.append("another answer when it was sent again")
        bench.examiner.receipt(run, digest, outcome, reason)  # type: ignore[arg-type]
        bench.examiner.wait_for((ContributionBody,), run, within=0.5)  # one may have been on its way
        if not bench.is_silent(run):
            faults.append(f"sent again after the receipt {outcome!r}")
        bench.examiner.end(run)
    return faults


def duplicates(bench: Bench) -> list[str]:
    """Duplicates: a request or a receipt that comes twice, or for nothing, changes nothing."""
    run = bench.run()
    task = in_run(bench.simple(), run)
    bench.examiner.receipt("no-such-run", "0" * 64, "unknown-run")
    bench.examiner.ask(run, task)
    digest, first = bench.pose(run, task)
    if first is None:
        return ["no answer to a request that came twice"]
    bench.examiner.receipt(run, digest)
    bench.examiner.receipt(run, digest)
    bench.examiner.wait_for((ContributionBody,), run, within=1.0)
    bench.examiner.ask(run, task)
    faults = [] if bench.is_silent(run) else ["answered again after its receipt"]
    bench.examiner.end(run)
    return faults


def newest(bench: Bench) -> list[str]:
    """Newer requests of a run park the answer to an older one; asked again, it is the same."""
    run, faults = bench.run(), []
    one, two = (in_run(bench.simple(salt=salt), run) for salt in (1, 2))
    first_digest, first = bench.pose(run, one)
    second_digest, second = bench.pose(run, two)
    bench.examiner.wait_for((ContributionBody,), run, first_digest, within=0.5)
    if second is None:
        return ["no answer to the newer request"]
    bench.examiner.receipt(run, second_digest)
    if not bench.is_silent(run, first_digest):
        faults.append("the answer to the older request was sent again")
    again = bench.pose(run, one)[1]
    if again is None or first is None:
        faults.append("no answer when the older task was asked again")
    elif not same_bytes(first, again):
        faults.append("another answer when the older task was asked again")
    bodies = [heard.body for heard in (first, second, again) if heard is not None]
    rows = {(each.rows, each.data_digest) for each in bodies if isinstance(each, ContributionBody)}
    if len(rows) > 1:
        faults.append("rows or data_digest changed within a run")
    bench.examiner.receipt(run, first_digest)
    bench.examiner.end(run)
    return faults


def whom(bench: Bench) -> list[str]:
    """Who is asked answers, and nobody else: asked, sample, without, not-asked."""
    agent, faults = bench.examiner.agent, []
    last = place_in_sample("salt", agent)
    before = f"{int(last, 16) - 1:064x}"
    cases: list[tuple[str, dict[str, Any], bool]] = [
        ("asked names others", {"asked": ["somebody"]}, False),
        ("asked names it", {"asked": [agent]}, True),
        ("sample without it", {"sample": {"salt": "salt", "last": before}}, False),
        ("sample with it", {"sample": {"salt": "salt", "last": last}}, True),
        ("without names it", {"without": [agent]}, False),
        ("sample with it, without names it", {"sample": {"salt": "salt", "last": last}, "without": [agent]}, False),
        ("without names others", {"without": ["somebody"]}, True),
    ]
    for salt, (what, people, answers) in enumerate(cases):
        run = bench.run()
        task = in_run(bench.simple(salt=salt), run)
        digest = bench.examiner.ask(run, task, whom=people)
        heard = bench.examiner.answer(run, digest, within=PATIENCE if answers else SILENCE)
        if (heard is not None) != answers:
            faults.append(f"{what}: {'no answer' if answers else 'answered'}")
        bench.examiner.receipt(run, digest)
        bench.examiner.end(run)
    run = bench.run()
    digest, _ = bench.pose(run, in_run(bench.simple(salt=1), run))
    bench.examiner.receipt(run, digest, "rejected", "not-asked")
    bench.examiner.wait_for((ContributionBody,), run, within=0.5)
    bench.examiner.ask(run, in_run(bench.simple(salt=2), run))
    if not bench.is_silent(run):
        faults.append("answers in a run that answered not-asked")
    digest, heard = bench.pose(run, in_run(bench.simple(salt=3), run), {"asked": [agent]})
    if heard is None:
        faults.append("after not-asked it does not answer a request that names it")
    bench.examiner.receipt(run, digest)
    bench.examiner.end(run)
    return faults


def refusals(bench: Bench) -> list[str]:
    """Refusals of what cannot be answered, so that nobody waits."""
    faults = []
    body = dict(bench.simple().body)
    cases = [
        (
            "a column that it has not",
            replace(bench.simple(), body={**body, "columns": {"no such column": Grid().to_value()}}),
        ),
        ("a question that the scheme does not know", Task("domain", "no-such-question", {})),
        ("a damaged task", replace(bench.simple(), body={"columns": 1})),
    ]
    for what, task in cases:
        run = bench.run()
        digest, heard = bench.pose(run, in_run(task, run))
        if heard is None or not isinstance(heard.body, Refusal):
            faults.append(f"{what}: {'answered' if heard else 'no word'}, expected a refusal")
        bench.examiner.receipt(run, digest, "accepted", "refusal noted")
        bench.examiner.end(run)
    run = bench.run()
    unknown = in_run(Task("no-such-scheme", "level", {}), run)
    digest = bench.examiner.ask(run, unknown)
    if not bench.is_silent(run):
        faults.append("a scheme that it did not offer, asked of all: expected silence")
    digest, heard = bench.pose(run, unknown, {"asked": [bench.examiner.agent]})
    if heard is None or not isinstance(heard.body, Refusal):
        faults.append("a scheme that it does not have, asked by name: expected a refusal")
    bench.examiner.receipt(run, digest, "accepted", "refusal noted")
    bench.examiner.end(run)
    return faults


def in_parts(bench: Bench) -> list[str]:
    """Parts: a request in parts is read, and a long answer comes in parts."""
    faults, data = [], bench.data
    features, is_number = data.features, data.y.dtype.kind == "f"
    columns = sorted([*features, *([] if not is_number else [data.target])])
    columns = [name for name in columns if name not in data.categories]
    if np.isnan(data.X).any():
        columns = [name for name in columns if not np.isnan(data.X[:, features.index(name)]).any()]
    grids = {name: Grid(-50.0, 50.0 + place, 2**16, 2**15, 2**15).to_value() for place, name in enumerate(columns)}
    big = {"columns": grids, "target": data.target, "min_count": 0, "round": 1}
    run = bench.run()
    task = in_run(Task("domain", "histogram", big), run)
    rng = np.random.default_rng(0)
    for limit in (128 * 1024, 2048):
        long = replace(task, body={**big, "columns": {f"x{i}" * 20: Grid().to_value() for i in range(200)}})
        if limit == 2048:
            task = in_run(long, run)
        digest = bench.examiner.ask(run, task, limit=limit)
        heard = bench.examiner.answer(run, digest, within=2 * PATIENCE)
        if limit == 2048:
            if heard is None:
                faults.append("no word to a request that came as a manifest and blobs")
        elif heard is None:
            faults.append("no answer to a question of many counts")
        else:
            actual, why = _read(heard)
            expected = DISCOVERY.client.contribute(task, data, rng)
            text = why if actual is None else difference(task, expected, actual)
            faults += [f"a long answer: {text}"] if text else []
            if len(heard.payload) > 128 * 1024:
                faults.append(f"a message of {len(heard.payload)} bytes, at most 128 KiB may be sent at once")
            elif not heard.parts:
                faults.append("a long answer did not come in parts")
        bench.examiner.receipt(run, digest)
    bench.examiner.end(run)
    return faults


def wrong_messages(bench: Bench) -> list[str]:
    """Messages that cannot be read change nothing: the next request is answered."""
    faults, topics = [], bench.examiner.topics
    run = bench.run()
    task = in_run(bench.simple(), run)
    request = Request(task=task.to_value(), task_digest=task.digest, remaining=1.0)
    good = Envelope(topics.fleet, request, run=run, scheme="domain", time=1.0).to_bytes()
    cases = {
        "garbage": b"\xc1\xff\x00garbage",
        "a message that is cut off": good[:-40],
        "another protocol version": good[:-1] + b"\x02",
        "another fleet": Envelope("another", request, run=run, scheme="domain", time=1.0).to_bytes(),
        "a field that is not known": b"\x8c" + good[1:-3] + b"\xa1u\x01" + good[-3:],
        "an empty map": b"\x80",
    }
    for what, payload in cases.items():
        bench.examiner.publish(topics.request(run), payload, retain=True)
        if not bench.is_silent(run):
            faults.append(f"{what}: an answer")
        bench.examiner.publish(topics.receipt(bench.examiner.agent), payload)
    digest, heard = bench.pose(run, task)
    if heard is None:
        faults.append("no answer to a good request after wrong ones")
    bench.examiner.receipt(run, digest)
    bench.examiner.end(run)
    return faults


def connections(bench: Bench) -> list[str]:
    """After a lost connection: the will, a birth; what was asked meanwhile is answered, what waits is sent again."""
    if bench.cut is None or bench.mend is None:
        raise LeftOutError("the agent's connection cannot be cut here (mqtts, or another road to the broker)")
    faults = []
    run, other = bench.run(), bench.run()
    digest, first = bench.pose(run, in_run(bench.simple(), run))
    bench.examiner.forget()
    bench.cut()
    end = bench.examiner.wait_for((AgentState,), within=2 * PATIENCE)
    if end is None or not isinstance(end.body, AgentState) or end.body.status != "down":
        faults.append("no will: the broker did not say that the agent is down")
    asked = bench.examiner.ask(other, in_run(bench.simple(salt=1), other))
    bench.mend()
    if bench.examiner.birth(within=2 * PATIENCE) is None:
        faults.append("no birth after it came back")
    if bench.examiner.answer(other, asked, within=2 * PATIENCE) is None:
        faults.append("what was asked while it was away was not answered")
    again = bench.examiner.answer(run, digest, within=2 * PATIENCE)
    if again is None or first is None or not same_bytes(first, again):
        faults.append("the answer without a receipt was not sent again as it was")
    for name, each in ((run, digest), (other, asked)):
        bench.examiner.receipt(name, each)
        bench.examiner.end(name)
    return faults


def private_runs(bench: Bench) -> list[str]:
    """Of a private run: the key, masks that cancel, and no answer in editions or to questions that single out."""
    return private(bench.examiner, bench.run(), bench.data, bench.schemes)


def encoding(bench: Bench) -> list[str]:
    """All messages could be read, were its own, and were published as they should."""
    return [re.sub(r"\s+", " ", fault) for fault in dict.fromkeys(bench.examiner.faults)]


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
