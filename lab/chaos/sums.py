"""What the sums of private runs tell together: the sets of vehicles over which numbers were summed, and their gaps."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from coordinator.engine import Answer, Engine, OpenRound
from coordinator.journal.port import Entry
from coordinator.runs.transaction import steps
from glassfleet.private.groups import LEAST_COMPANY
from glassfleet.private.totals import Member, Total, singled_out
from lab.chaos.schedule import era

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
