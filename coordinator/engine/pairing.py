"""Pairing, the first round of a private run: who takes part, and each founder's key.

Who has announced itself by the deadline is a founder. The founders are cut into groups, and told each other's
announcements as they came, each under its vehicle's own seal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from coordinator.engine.state import Level, Stored
from glassfleet.errors import ContributionError
from glassfleet.private.groups import Announcement, Edition, Terms, cut_groups, missing
from glassfleet.private.masks import usable_key
from glassfleet.scheme import Contribution, Task

SCHEME, KIND = "private", "keys"
"""What the task is called that asks for keys."""

KEY, FLOOR, SEALED = "key", "floor", "message"
"""What an answer says, and the message that it came in, see `with_message`."""


def keys_level(terms: Terms) -> Level:
    """Return the one level of pairing."""
    task = Task(SCHEME, KIND, terms.to_value(), terms.nonce)
    return Level(1, {}, task, task.digest, (task.digest,))


def with_message(contribution: Mapping[str, Any], message: bytes) -> dict[str, Any]:
    """Return an announcement with the message that it came in: its seal tells the other founders whose key it is."""
    values = contribution.get("values")
    return {**contribution, "values": {**(values if isinstance(values, Mapping) else {}), SEALED: message}}


def announced(contribution: Contribution, agent: str, data_digest: str, others: Mapping[str, Stored]) -> Announcement:
    """Return what an answer announces; raises ContributionError for one with which no member would pair."""
    key = contribution.values.get(KEY)
    if contribution.kind != KIND or contribution.sums or contribution.rows or contribution.nullified:
        raise ContributionError("an announcement has a key and a floor, and no numbers of rows")
    if not isinstance(key, bytes) or not usable_key(key):
        raise ContributionError("the key is no X25519 key that others can pair with")
    if any(_values(stored).get(KEY) == key for other, stored in others.items() if other != agent):
        raise ContributionError("another vehicle has announced this key")
    if not isinstance(contribution.values.get(SEALED), bytes):
        raise ContributionError("the message itself is missing")
    return _announcement(contribution, agent, data_digest)


def founders(
    terms: Terms, members: Sequence[str], frozen: Mapping[str, tuple[int, str]], answers: Mapping[str, Stored]
) -> tuple[tuple[Edition, ...], dict[str, bytes], int, dict[str, str]]:
    """Return the first editions, the founders' messages, how many vehicles are missing, and who asks for more.

    A vehicle whose own floor is above the number of founders takes part in nothing: it is left out, the most demanding
    first, so that one alone cannot stop a run.
    """
    found = [_announcement(_of(answers[member]), member, frozen[member][1]) for member in members]
    found.sort(key=lambda each: (each.floor, each.agent))
    demanding: dict[str, str] = {}
    while found and found[-1].floor > max(len(found), terms.floor):
        out = found.pop()
        demanding[out.agent] = f"asks for {out.floor} vehicles"
    lacking = missing(terms, found)
    if lacking:
        return (), {}, lacking, demanding
    editions = tuple(roster.first() for roster in cut_groups(terms, found))
    return editions, {each.agent: _values(answers[each.agent])[SEALED] for each in found}, 0, demanding


def _announcement(contribution: Contribution, agent: str, data_digest: str) -> Announcement:
    key, floor = contribution.values.get(KEY), contribution.values.get(FLOOR)
    try:
        return Announcement(agent, key, data_digest, floor)  # type: ignore[arg-type]  # it checks that
    except ValueError as fault:
        raise ContributionError(str(fault)) from fault


def _of(stored: Stored) -> Contribution:
    assert stored.contribution is not None
    return stored.contribution


def _values(stored: Stored) -> Mapping[str, Any]:
    return _of(stored).values
