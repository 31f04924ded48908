"""What a vehicle has told, and how its owner reads it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from console.main import cli
from edge_agent.session.told import NAME, Told, numbers_in, read
from schemas.errors import StorageError


def test_answers_are_counted_by_run_also_after_a_restart_and_the_smallest_set_is_kept(tmp_path: Path) -> None:
    times = iter([10.0, 20.0, 30.0, 40.0])
    told = Told(tmp_path / NAME, lambda: next(times))
    told.note("r1", "private", 0, {"floor": 8, "company": 3}, ())
    told.note("r1", "frt", 100, {"floor": 8, "company": 3}, ("a", "b", "c"))
    told.close()
    told = Told(tmp_path / NAME, lambda: next(times))
    told.note("r1", "scores", 5, {"floor": 8, "company": 3}, ("a", "b"))
    told.note("r2", "fmt", 7, None, ())
    told.close()
    first, second = read(tmp_path / NAME)
    assert (first["scheme"], first["answers"], first["numbers"], first["members"]) == ("frt", 3, 105, ["a", "b"])
    assert (first["began"], first["last"]) == (10.0, 30.0)
    assert second["protection"] == {}


def test_numbers_are_those_of_sums_and_of_what_is_no_sum() -> None:
    said = {"rows": 9, "sums": {"a": np.zeros((2, 3))}, "values": {"rules": [[1, 2.5, "x"], []], "key": b"1"}}
    assert numbers_in(said) == 8


def test_ledger_command_names_the_protection_and_the_others(tmp_path: Path) -> None:
    folder = tmp_path / "agents" / "fleet" / "a"
    folder.mkdir(parents=True)
    told = Told(folder / NAME, lambda: 0.0)
    told.note("r1", "frt", 100, {"floor": 8, "company": 3}, ("a", "b"))
    told.note("r2", "fmt", 7, None, ())
    told.close()
    arguments = ["ledger", "--state-dir", str(tmp_path), "--fleet", "fleet"]
    lines = CliRunner().invoke(cli, arguments).output.splitlines()
    assert lines[0].endswith(
        "r1  frt  1 answers, 100 numbers  private: summed over 2 vehicles (never fewer than 8, company 3)"
    )
    assert lines[1] == "  with b"
    assert lines[2].endswith("plain: coordinator and broker read this vehicle's numbers")
    document = json.loads(CliRunner().invoke(cli, [*arguments, "--json"]).output)
    assert [each["run"] for each in document["runs"]] == ["r1", "r2"]


def test_a_damaged_ledger_is_told_by_name(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(b"no database" * 100)
    with pytest.raises(StorageError, match="what this vehicle has told"):
        read(tmp_path / NAME)
