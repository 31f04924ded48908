"""`run start --wait` of a private run whose model stayed a candidate, which no vehicle tried: it fails as others do."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from console.run.runs import _check_end
from schemas.errors import RunFailedError

MODEL = {"name": "qoe", "version": 3, "digest": "0" * 64}
STATUS: dict[str, Any] = {"run": "r1", "outcome": "finished", "model": MODEL, "spec": {"private": {}}}


def api(candidate: int | None) -> Any:
    decisions = [{"kind": "candidate", "version": 3, "reason": "too-bad: error +20 %"}]
    history = {"candidate": None if candidate is None else {"version": candidate}, "decisions": decisions}
    return SimpleNamespace(get=lambda path: {"/api/models/qoe/history": history}[path])


def test_model_that_stayed_a_candidate_is_a_failure_with_the_reason_and_the_way_out() -> None:
    with pytest.raises(RunFailedError, match=r"qoe v3 did not pass the gate.*too-bad.*model promote qoe 3") as fault:
        _check_end(api(3), STATUS, None, 0.0)
    assert fault.value.exit_code == 6


@pytest.mark.parametrize("candidate", [None, 2])
def test_model_that_became_current_is_none(candidate: int | None) -> None:
    _check_end(api(candidate), STATUS, None, 0.0)
