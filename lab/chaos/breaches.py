"""What an audit looks for in private runs (sets of vehicles summed, their gaps) and where vehicles have identities."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from broker.signed import writers
from coordinator.engine import Answer, Engine, OpenRound
from coordinator.journal.port import Entry
from coordinator.runs.transaction import steps
from glassfleet.private.groups import LEAST_COMPANY
from glassfleet.private.totals import Member, Total, singled_out
from lab.chaos.certificate_office import StolenIdentity
from lab.chaos.schedule import COORDINATOR, era
from lab.processes import read_lines
from schemas.errors import WireError
from schemas.topics import Topics
from schemas.trust.signing import Verifier

Sets = frozenset[frozenset[str]]


def summed_over(engine: Engine, entries: Sequence[Entry]) -> Sets:
    """Return each set of vehicles all of whose masked answers to one question came; empty for a plain run."""
    groups: dict[str, dict[str, tuple[str, frozenset[str]]]] = {}
    answered: defaultdict[tuple[str, frozenset[str]], set[str]] = defaultdict(set)
    for event, _, effects in steps(engine, entries):
        for effect in effects:
            if isinstance(effect, OpenRound):
                groups[effect.task_digest] = {
                    agent: (group.body.question, frozenset(group.edition.members))
                    for group in effect.groups
                    for agent in group.edition.members
                }
        if isinstance(event, Answer) and event.agent in (asked := groups.get(event.task_digest, {})):
            answered[asked[event.agent]].add(event.agent)
    return frozenset(members for (_, members), agents in answered.items() if members == agents)


def exposed(opened: Mapping[str, Sets]) -> list[str]:
    """Return which sums, combined with others over the same rows, tell of fewer than `LEAST_COMPANY` vehicles.

    Parameters
    ----------
    opened : mapping of str to set of frozenset of str
        By run: over whom numbers were summed.
    """
    eras: defaultdict[int, list[Total]] = defaultdict(list)
    found = []
    for run, sets in opened.items():
        totals = eras[era(run)]
        for members in sorted(sets, key=sorted):
            totals.append(Total((), tuple(map(Member, sorted(members)))))
            if few := singled_out(totals, LEAST_COMPANY):
                found.append(f"{run}: a sum and others over the same rows tell of {', '.join(sorted(few))}")
    return found


def again(opened: Mapping[str, Sets]) -> int:
    """Return how many runs summed anything over rows over which an earlier one had sums."""
    summed = Counter(era(run) for run, sets in opened.items() if sets)
    return sum(count - 1 for count in summed.values())


# --- what the audit of a fleet with identities looks for: the revoked that got in, and the others that were refused ---


_TOO_LONG = "oversize"
"""No message was refused: a revocation list has outgrown a message, and vehicles fetch it. Parts are 4 KiB here."""


def stale(retained: Mapping[str, bytes], topics: Topics, trust: tuple[bytes, bytes]) -> list[str]:
    """Return what is retained and would be refused by whoever comes now; `trust` is the CA and its list, PEM."""
    ca, crl = trust
    verifier = Verifier(ca, time.time)
    verifier.update_crl(crl)
    result = []
    for topic, payload in sorted(retained.items()):
        address = topics.parse(topic)
        if address.kind in ("blob", "revoked") or payload[:1] == b"{":
            continue
        try:
            verifier.open(topic, payload, writers(address))
        except WireError as fault:
            result.append(f"{topic}: what is retained would be refused: {fault}")
    return result


def intrusions(stolen_identities: Sequence[StolenIdentity], log: Path) -> list[str]:
    """Return what revoked vehicles could do: by the coordinator's log, and by what the broker said to their thieves."""
    result = []
    for stolen in stolen_identities:
        if "was revoked" not in stolen.answer:
            result.append(f"{stolen.agent}: the broker says {stolen.answer or 'welcome'!r} to the stolen identity")
        if stolen.begins is None:
            continue
        result += [
            f"{stolen.agent}: an answer was {line['outcome']} although it was revoked"
            for line in read_lines(log, stolen.begins, stolen.ends)
            if line.get("event") == "answered" and line.get("agent") == stolen.agent
        ]
    return result


def refusals(
    lines: Iterable[tuple[str, dict[str, Any]]], topics: Topics, reissued: Collection[str]
) -> tuple[dict[str, int], list[str]]:
    """Count the messages that were refused for their seal, by code; and name those that should not have been.

    Parameters
    ----------
    lines : iterable of (str, dict)
        Name of the process, and a line of its log.
    topics : Topics
    reissued : collection of str
        Whoever had a certificate revoked: what it sealed before is refused, rightly.
    """
    counts: Counter[str] = Counter()
    wrongly = []
    for name, line in lines:
        if line.get("event") != "message-refused" or line["code"] == _TOO_LONG:
            continue
        counts[line["code"]] += line.get("since_last", 1)
        writer = topics.parse(line["topic"]).writer or COORDINATOR
        if line["code"] != "revoked-certificate" or writer not in reissued:
            wrongly.append(f"{name} refused a message of {writer}: {line['reason']}")
    return dict(sorted(counts.items())), wrongly
