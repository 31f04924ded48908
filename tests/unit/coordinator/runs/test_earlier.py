"""What earlier private runs mean for the next one."""

from __future__ import annotations

from typing import Any

from coordinator.runs.earlier import FORMER_RUNS, former, quarantined


def run(number: int, *, false: tuple[str, ...] = (), readmit: tuple[str, ...] = (), **more: Any) -> dict[str, Any]:
    spec = {"nonce": f"nonce {number}", "readmit": list(readmit)}
    return {"spec": spec, "editions": [["v1", "v2"]], "false_answers": list(false), **more}


def test_newest_runs_in_which_vehicles_were_added_up_are_looked_at() -> None:
    documents = [run(0, editions=[]), *(run(number) for number in range(1, 40))]
    found = former(documents)
    assert [each.nonce for each in found] == [f"nonce {number}" for number in range(1, FORMER_RUNS + 1)]
    assert found[0].editions == (frozenset({"v1", "v2"}),)


def test_vehicle_is_left_out_until_it_is_readmitted_and_again_when_it_answers_falsely_again() -> None:
    named, readmitted = run(0, false=("v1", "v2")), run(1, readmit=("v1",))
    assert quarantined([named], ()) == {"v1", "v2"}
    assert quarantined([named], ("v1",)) == {"v2"}
    assert quarantined([readmitted, named], ()) == {"v2"}
    assert quarantined([run(2, false=("v1",)), readmitted, named], ()) == {"v1", "v2"}
    assert quarantined([run(1, false=("v1",), readmit=("v1",)), named], ("v2",)) == {"v1"}
