"""With an identity, each intake worker must have one of its own."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from coordinator.process.link import check_workers
from schemas.errors import UsageError
from tests.support.authorities import FleetCa


@pytest.mark.parametrize(
    ("names", "fault"),
    [
        (["cloud-1"], "intake-2 must be the identity of intake worker 2"),
        (["cloud-1", "cloud"], "intake-2 must be the identity of intake worker 2"),
        (["cloud-1", "cloud-1"], "ca issue --coordinator cloud-2 --out .*intake-2"),
        (["cloud-1", "cloud-2"], None),
    ],
    ids=["none", "the coordinator's", "another worker's", "its own"],
)
def test_intake_worker_without_an_id_of_its_own_is_refused(names: list[str], fault: str | None, tmp_path: Path) -> None:
    ca = FleetCa(tmp_path)
    identity = ca.identity("coordinator", "cloud", where="its")
    for number, name in enumerate(names, 1):
        ca.identity("coordinator", name, where=f"its/intake-{number}")
    with nullcontext() if fault is None else pytest.raises(UsageError, match=fault):
        check_workers(identity, 2)
