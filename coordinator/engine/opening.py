"""Opening rounds: of a new phase, of the next level, or the same once more."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from pydantic import ValidationError

from coordinator.engine import asking, learning, pairing
from coordinator.engine.draft import Draft, standing
from coordinator.engine.effects import OpenRound, bytes_of
from coordinator.engine.learning import SchemeFaultError
from coordinator.engine.packing import packed
from coordinator.engine.state import Round
from schemas.text import first_fault


def begin(draft: Draft, cause: str) -> None:
    """Enter the phase that `cause` leads to, start its server half and open its first round, unless it is an end."""
    draft.move(cause)
    if draft.state.is_ended:
        return
    spec = draft.state.spec
    if spec.domain is not None:
        draft.update(domain=spec.domain)
    state = draft.state
    if state.phase == "pairing":
        draft.update(levels=(pairing.keys_level(draft.terms(state)),))
        open_round(draft)
        return
    # Discovery is answered from all rows, see `drawn_for`; scores from test rows.
    domain = None if state.phase == "domain" else state.domain
    most = 0 if state.phase in ("domain", "scoring") else state.max_rows_each
    before = state.levels if state.phase == "scoring" else ()  # what was learned stays, for displays
    try:
        server, parameters = draft.server(state), draft.server_parameters(state)
        level = learning.start(server, parameters, domain, spec.seed, spec.nonce, most, draft.collecting(state))
    except SchemeFaultError as fault:
        draft.move(fault.cause, str(fault))
    except ValidationError as fault:  # discovery's: bounds of a column that nobody has
        draft.move("scheme-error", first_fault(fault)[:400])
    except Exception as fault:  # noqa: BLE001  a named end, not a crash
        draft.move("scheme-error", f"{type(fault).__name__}: {fault}"[:400])
    else:
        draft.update(levels=(*before, replace(level, number=len(before) + level.number)))
        open_round(draft)


def open_round(draft: Draft) -> None:
    """Open a round for the last level."""
    state, policy = draft.state, draft.state.spec.policy
    level = state.levels[-1]
    kind: Literal["pairing", "domain", "statistics"]
    kind = state.phase if state.phase in ("pairing", "domain") else "statistics"
    if state.is_fixed:
        asked, limited = state.waited_for, True
    else:
        able = asking.able(state)
        asked = tuple(agent for agent in able if agent not in state.silent) or able
        limited = kind == "statistics" and policy.sample is not None
        if limited:
            asked = asking.sample(asked, policy.sample, asking.salt(state, level.number))
    key = f"{kind}/{level.number}"
    attempt = state.attempts.get(key, 0) + 1
    opened = Round(kind, level.number, attempt, level.digest, asked, limited, draft.at, draft.at + policy.deadline)
    store = packed(state.store, level.digest)
    given = sum(stored.rows for stored in store.get(level.digest, {}).values())
    attempts = {**state.attempts, key: attempt}
    draft.update(attempts=attempts, open=replace(opened, rows=given), without_broker=0.0, store=store)
    _ask(draft)


def extend(draft: Draft, current: Round) -> None:
    """Give the open round another deadline."""
    state = draft.state
    key = f"{current.kind}/{current.number}"
    attempt = state.attempts[key] + 1
    asked = current.asked if current.limited else tuple(sorted({*current.asked, *asking.able(state)}))
    draft.move("extended")
    draft.update(
        attempts={**state.attempts, key: attempt},
        open=replace(
            current,
            attempt=attempt,
            asked=asked,
            extensions=current.extensions + 1,
            closes_at=draft.at + state.spec.policy.deadline,
        ),
    )
    _ask(draft)


def _ask(draft: Draft) -> None:
    current = draft.state.open
    assert current is not None
    effects = standing(draft.state)
    size = sum(bytes_of(each, draft.fleet) for each in effects if isinstance(each, OpenRound))
    draft.update(open=replace(current, request_bytes=current.request_bytes + size))
    draft.effects += effects
