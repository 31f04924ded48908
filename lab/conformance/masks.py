"""Test vectors of the masks of private runs, from fixed keys and numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from glassfleet.private.groups import Announcement, Roster, Terms
from glassfleet.private.layout import Layout, add, question_digest
from glassfleet.private.masks import RunKey, mask, pair_keys, stream, stream_key

IDS = ("bus-7", "tram", "v00", "v01", "v02", "v03", "v04", "v05", "wagen")
TASK = "5f" * 32


def told_by(agent: str) -> dict[str, Any]:
    """Return what a vehicle announces besides its key: some have new rows, and some were in earlier runs."""
    place = IDS.index(agent)
    era, rows, new = (f"{kind}{place}" * 8 for kind in ("e", "r", "n"))
    has_new, was_there = place in (1, 4, 7), place not in (2, 3, 6)
    return {
        "data_digest": f"{place}d" * 32,
        "floor": 8 + place % 2,
        "era": era,
        "rows": rows,
        "tests": f"t{place}" * 8,
        "new_rows": new if has_new else "",
        "new_tests": f"u{place}" * 8 if has_new else "",
        "new_digest": "ef" * 32 if has_new else "",
        "anchor": ("b" if place % 2 else "a") * 16 if was_there else "",
        "left": 1 + 50 * place,
        "totals": tuple(bytes([number]) * 32 for number in range(1, 1 + 2 * place)) if was_there else (),
        "heard": tuple(bytes([100 + number]) * 32 for number in range(place % 4)),
    }


def computed() -> dict[str, Any]:
    """Return the vectors, from fixed keys and numbers."""
    terms = Terms("fleet", "run-1", "0123456789abcdef", "frt", "ab" * 32, 8, 3, 0, 40)
    secrets = {agent: bytes([place + 1]) * 32 for place, agent in enumerate(IDS)}
    keys = {agent: RunKey(secret) for agent, secret in secrets.items()}
    announced = {agent: told_by(agent) for agent in IDS}
    roster = Roster(
        terms, 0, tuple(Announcement(agent, keys[agent].public, **announced[agent]) for agent in IDS), renews=True
    )
    edition = roster.first()
    total = edition.total
    pairs = {agent: pair_keys(keys[agent], agent, roster) for agent in IDS}
    layout = Layout("weights", (("wq", (2,)), ("ws", (2, 1))))
    numbers = np.random.default_rng(0).integers(-(2**40), 2**40, (len(IDS), layout.size))
    answers = {agent: mask(line, agent, edition, pairs[agent], TASK) for agent, line in zip(IDS, numbers, strict=True)}
    shared = stream_key(pairs["tram"]["v03"], edition, TASK, "tram", "v03")
    return {
        "terms": terms.to_value(),
        "terms_digest": terms.digest.hex(),
        "secrets": {agent: secret.hex() for agent, secret in secrets.items()},
        "public_keys": {agent: key.public.hex() for agent, key in keys.items()},
        "group": 0,
        "edition": 0,
        "renews": True,
        "founders": {
            agent: {**each, **{name: [digest.hex() for digest in each[name]] for name in ("totals", "heard")}}
            for agent, each in announced.items()
        },
        "anchor": roster.anchor,
        "total": {"members": total.to_value()["members"], "digest": total.digest.hex()},
        "roster_digest": roster.digest.hex(),
        "edition_digest": edition.digest.hex(),
        "task_digest": TASK,
        "layout": {"kind": "weights", "shapes": {"wq": [2], "ws": [2, 1]}, "digest": layout.digest},
        "question": question_digest(edition, TASK, layout.digest),
        "pair_key_tram_v03": pairs["tram"]["v03"].hex(),
        "stream_key_tram_v03": shared.hex(),
        "stream_tram_v03": [str(word) for word in stream(shared, layout.size)],
        "vectors": {agent: line.tolist() for agent, line in zip(IDS, numbers, strict=True)},
        "answers": {agent: [str(word) for word in words] for agent, words in answers.items()},
        "sum": add(answers.values()).tolist(),
    }
