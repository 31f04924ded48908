"""What chaos changes in a vehicle under test, so that run after run can be private over the same files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edge_agent.session.private import PrivateRuns
from edge_agent.session.snapshots import Snapshot
from glassfleet.private.ledger import Limits
from lab.chaos import child
from lab.chaos.schedule import run_name
from schemas.topics import Topics
from tests.support.private_bench import rows_of


def test_training_and_test_rows_count_as_others_in_every_second_private_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_hashes", "_all_hashes"):
        monkeypatch.setattr(PrivateRuns, name, getattr(PrivateRuns, name))  # what chaos puts there is undone
    child._let_rows_count_as_new_in_every_second_run()
    private = PrivateRuns(
        Topics("fleet"),
        "v00",
        tmp_path,
        bytes(32),
        limits=Limits(),
        choice="allowed",
        verifier=None,
        tests=lambda _: rows_of("tests"),
    )
    snapshot = Snapshot(rows_of("v00"), "0" * 64)
    first, second, third = (private._all_hashes(run_name(number), snapshot) for number in (1, 2, 3))
    assert np.array_equal(first, second)
    assert not np.isin(first, third).any()
    assert np.isin(private._hashes(run_name(1), snapshot), first).all()
    assert first.size == rows_of("v00").rows + rows_of("tests").rows
