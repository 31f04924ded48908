"""What private runs cost: a vehicle's keys and masks, and the coordinator's sums, in one process without a network."""

from __future__ import annotations

import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np

from coordinator.authority.store import Authority
from glassfleet.contract.messages import Contribution
from glassfleet.private.groups import Announcement, Edition, Terms, cut_groups
from glassfleet.private.layout import Words, add
from glassfleet.private.masks import RunKey, mask, pair_keys
from lab.benchmarks import measure
from lab.benchmarks.measure import ms, print_table
from schemas.envelope import Envelope
from schemas.messages import ContributionBody
from schemas.topics import Topics
from schemas.trust.identity import load_key, new_key
from schemas.trust.owner import Owner
from schemas.trust.signing import Signer, Verifier

_DIGEST = "0" * 64
_TOPICS = Topics("fleet")
timed = partial(measure.timed, repeats=20, clock=time.process_time)
"""Processor time: what is measured is short, and a busy machine takes the processor away in the midst of it."""


def private() -> None:
    """Masks alone, for fleets of 15, 100 and 1,000 vehicles and answers of 4,000 and 28,000 numbers."""
    with tempfile.TemporaryDirectory() as folder:
        authority = Authority.create(Path(folder) / "ca", "bench")
        rows = [row for vehicles in (15, 100, 1000) for row in _fleet(authority, vehicles)]
    header = ("vehicles (groups)", "numbers", "vehicle: set-up, once, ms", "set-up, kB", "vehicle: a round, ms")
    print_table("Private runs", (*header, "answer, kB", "coordinator: a round, ms"), rows)


def _fleet(authority: Authority, vehicles: int) -> list[tuple[str, ...]]:
    keys = {f"v{number:04d}": RunKey.generate() for number in range(vehicles)}
    terms = Terms("fleet", "run", "nonce", "tree", _DIGEST)
    founders = [Announcement(agent, key.public, _DIGEST) for agent, key in keys.items()]
    editions = [roster.first() for roster in cut_groups(terms, founders)]
    edition = max(editions, key=lambda each: len(each.members))
    agent = edition.members[0]
    key = new_key()
    sealed = {each: _announced(authority, key, each, keys[each].public) for each in edition.members}
    verifier = Verifier(authority.ca_pem, time.time)
    seconds, pairs = timed(partial(_set_up, verifier, sealed, keys[agent], agent, edition))
    roster = sum(map(len, sealed.values()))
    rows: list[tuple[str, ...]] = []
    for numbers in (4_000, 28_000):
        masked, words = timed(partial(mask, np.arange(numbers, dtype=np.int64), agent, edition, pairs, _DIGEST))
        answers = np.random.default_rng(0).integers(0, 2**64, (64, numbers), np.uint64)
        added, _ = timed(partial(_sums, editions, answers))
        contribution = Contribution("grow", 0, sums={"masked": words.view(np.int64)})
        size = len(_sealed(authority, key, agent, contribution)) / 1000
        once = (f"{vehicles} ({len(editions)})", f"{numbers:,}", ms(seconds), f"{roster / 1000:.0f}")
        rows.append((*once, f"{masked * 1000:.2f}", f"{size:.1f}", f"{added * 1000:.2f}"))
    return rows


def _set_up(
    verifier: Verifier, sealed: dict[str, bytes], key: RunKey, agent: str, edition: Edition
) -> dict[str, bytes]:
    """Verify the seals of the group's members, as a vehicle does once in a run, and agree on a key with each."""
    for member, message in sealed.items():
        verifier.open(_TOPICS.contribution(member), message, (Owner("agent", member),))
    return pair_keys(key, agent, edition.roster)


def _announced(authority: Authority, key: bytes, agent: str, public: bytes) -> bytes:
    return _sealed(authority, key, agent, Contribution("keys", 0, values={"key": public, "floor": 8}))


def _sealed(authority: Authority, key: bytes, agent: str, contribution: Contribution) -> bytes:
    certificate = authority.issue(Owner("agent", agent), load_key(key).public_key(), days=1)
    body = ContributionBody(task_digest=_DIGEST, rows=0, data_digest=_DIGEST, contribution=contribution.to_value())
    message = Envelope(fleet="fleet", body=body, run="run", agent=agent).to_bytes()
    return Signer(key, certificate).seal(_TOPICS.contribution(agent), message)


def _sums(editions: list[Edition], answers: Words) -> None:
    for edition in editions:
        add(answers[place % len(answers)] for place in range(len(edition.members)))
