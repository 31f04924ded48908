"""What private runs cost: a vehicle's keys and masks, and the coordinator's sums, in one process without a network."""

from __future__ import annotations

from functools import partial

import numpy as np

from glassfleet.private.groups import Announcement, Edition, Terms, cut_groups
from glassfleet.private.masks import RunKey, Words, add, mask, pair_keys
from lab.benchmarks.measure import ms, print_table, timed

_DIGEST = "0" * 64


def private() -> None:
    """Masks alone, for fleets of 15, 100 and 1,000 vehicles and answers of 4,000 and 28,000 numbers."""
    rows = [row for vehicles in (15, 100, 1000) for row in _fleet(vehicles)]
    header = ("vehicles (groups)", "numbers", "vehicle: keys, once, ms", "vehicle: a round, ms", "answer, kB")
    print_table("Private runs", (*header, "coordinator: a round, ms"), rows)


def _fleet(vehicles: int) -> list[tuple[str, ...]]:
    keys = {f"v{number:04d}": RunKey.generate() for number in range(vehicles)}
    terms = Terms("fleet", "run", "nonce", "fmt", _DIGEST)
    founders = [Announcement(agent, key.public, _DIGEST) for agent, key in keys.items()]
    editions = [roster.first() for roster in cut_groups(terms, founders)]
    edition = max(editions, key=lambda each: len(each.members))
    agent = edition.members[0]
    seconds, pairs = timed(partial(pair_keys, keys[agent], agent, edition.roster))
    rows: list[tuple[str, ...]] = []
    for numbers in (4_000, 28_000):
        masked, _ = timed(partial(mask, np.arange(numbers, dtype=np.int64), agent, edition, pairs, _DIGEST))
        answers = np.random.default_rng(0).integers(0, 2**64, (64, numbers), np.uint64)
        added, _ = timed(partial(_sums, editions, answers))
        who, once, each = f"{vehicles} ({len(editions)})", ms(seconds), f"{masked * 1000:.2f}"
        rows.append((who, f"{numbers:,}", once, each, f"{8 * numbers / 1000:.0f}", f"{added * 1000:.2f}"))
    return rows


def _sums(editions: list[Edition], answers: Words) -> None:
    for edition in editions:
        add(answers[place % len(answers)] for place in range(len(edition.members)))
