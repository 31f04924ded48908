"""`examine` and `read_source` agree: what is called usable is taken, what is not is refused, whatever the table."""

from __future__ import annotations

import csv
import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from edge_agent.sources.check import examine
from edge_agent.sources.table import read_source
from schemas.errors import DataError

CELLS = st.sampled_from(
    [
        "1",
        "2.5",
        "-3e2",
        " 4 ",
        "0",
        "x",
        "red",
        "",
        "?",
        "NA",
        "nan",
        "inf",
        "1,5",
        "train",
        "test",
        "1_000",
        "1e400",
        "1e308",
    ]
)
NUMBERS = st.sampled_from(["1", "2.5", "-3e2", " 4 ", "0"])
NAMES = st.sampled_from(["a", "b", "c", "y", "split", "", "7"])


@st.composite
def tables(draw: st.DrawFn) -> list[list[str]]:
    """Half of them anything, half good ones with at most one odd cell."""
    if draw(st.booleans()):
        names = draw(st.lists(NAMES, min_size=1, max_size=4))
        rows = draw(st.lists(st.lists(CELLS, min_size=len(names), max_size=len(names) + 1), max_size=6))
        return [names, *rows]
    names = draw(st.permutations(["a", "b", "y", *draw(st.sampled_from([[], ["split"]]))]))
    splits = st.sampled_from(["train", "train", "test"])
    row = st.tuples(*[splits if name == "split" else NUMBERS for name in names]).map(list)
    good = draw(st.lists(row, min_size=2, max_size=6))
    if draw(st.booleans()):
        draw(st.sampled_from(good))[draw(st.integers(0, len(names) - 1))] = draw(CELLS)
    return [names, *good]


@given(tables(), st.sampled_from([(False, False), (True, False), (False, True)]), st.sampled_from([None, "y", "a"]))
def test_check_says_usable_exactly_when_an_agent_takes_the_table(
    table: list[list[str]], kinds: tuple[bool, bool], target: str | None
) -> None:
    labels, categories = kinds
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.csv"
        with path.open("w", newline="") as file:
            csv.writer(file).writerows(table)
        found = examine(path, target=target, labels=labels, categories=categories)
        refused = ""
        try:
            read_source(path, target=target, labels=labels, categories=categories)
        except DataError as fault:
            refused = str(fault)
    errors = [fault.what for fault in found.faults if fault.level == "error"]
    assert (refused == "") == found.usable, (refused, errors)
