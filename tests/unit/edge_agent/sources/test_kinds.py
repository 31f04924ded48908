"""Cells of databases, windows and Parquet files, and columns of yes and no: read in one way."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from console.main import run
from edge_agent.sources.cells import plain_cells
from edge_agent.sources.table import read_source
from schemas.errors import DataError
from tests.support.agent_bench import write_database

Write = Callable[..., Path]


@pytest.mark.parametrize(
    ("yes", "no", "rows"), [("yes", "no", 9000), ("TRUE", "False", 30), ("ja", "nein", 30), ("t", "f", 30)]
)
def test_agent_takes_a_column_of_yes_and_no_as_numbers_without_being_told(
    write: Write, yes: str, no: str, rows: int
) -> None:
    path = write("a,lights,y\n" + "".join(f"{row / 2},{no if row % 3 else yes},{row % 5}\n" for row in range(rows)))
    lights = read_source(path).train.X[:, 1].tolist()
    assert lights == [float(row % 3 == 0) for row in range(len(lights))]
    assert read_source(path, categories=True).train.categories == {"lights": tuple(sorted((yes, no)))}


@pytest.mark.parametrize("kind", ["csv", "sqlite"])
@pytest.mark.parametrize("cells", [
    ["yes", "no"] * 1500 + [5.5] * 50,
    [5.5] * 2048 + ["yes", "no"],
    ["yes", 5.5, 0, "yes"],
    ["no", *["yes"] * 3000, 1],
    [0, 1] * 1024 + ["no"],
])  # fmt: skip
def test_column_of_yes_and_no_and_numbers_is_refused_in_any_order(
    write: Write, tmp_path: Path, kind: str, cells: list[str | float]
) -> None:
    rows = [(cell, row % 13, row % 7) for row, cell in enumerate(cells)]
    place: Path | str = write("a,b,y\n" + "".join(f"{a},{b},{y}\n" for a, b, y in rows))
    if kind == "sqlite":
        pytest.importorskip("sqlalchemy")
        place = write_database(tmp_path / "rows.db", ("a", "b", "y"), rows)
    odd = next(row for row, cell in enumerate(cells, 1) if isinstance(cell, str) != isinstance(cells[0], str))
    what = "is a number, where cells before it are words" if isinstance(cells[0], str) else "is not a number"
    words = rf"row {odd} of the data, column 'a': '{cells[odd - 1]}' {what}" if kind == "sqlite" else "'?a'?: "
    with pytest.raises(DataError, match=words):
        read_source(place)


def test_query_is_read_and_the_file_stays_as_it_was_when_the_query_writes(tmp_path: Path) -> None:
    file = tmp_path / "drives.db"
    table = write_database(file, ("a", "b", "y"), [(row, row % 5, row / 9) for row in range(5000)])
    before = file.read_bytes()
    source = read_source(f"sqlite:///{file}?query=SELECT a + 1 AS a, b, y FROM rows WHERE b < 4 ORDER BY a")
    assert source.train.X[0].tolist() == [1.0, 0.0]
    assert source.train.rows + source.test.rows == 4000
    assert read_source(table, hold_back=True).train.rows == 3950
    for query, message in (
        ("DELETE FROM rows", "Only reading is allowed here"),
        ("SELECT nosuch FROM rows", "no such column: nosuch"),
        ("SELECT a, y FROM rows WHERE a < 0", "there are columns but no rows"),
        ("SELECT a, NULL AS y FROM rows", "the cell is empty"),
    ):
        with pytest.raises(DataError, match=message):
            read_source(f"sqlite:///{file}?query={query}")
    assert file.read_bytes() == before


def test_database_password_is_refused_on_the_command_line_and_never_shown(
    capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = "postgresql://car:s3cret@127.0.0.1:9/drives?table=rows"
    assert run(["agent", "--id", "v", "--broker", "mqtt://127.0.0.1:9", "--data", url]) == 2
    assert run(["doctor", "--data", url]) == 2
    assert run(["data", "collect", "--source", "mqtt://u:s3cret@127.0.0.1:9/x", "--store", "w.window"]) == 2
    monkeypatch.setenv("GLASSFLEET_AGENT_DATA", url)
    assert run(["agent", "--id", "v", "--broker", "mqtt://127.0.0.1:9"]) == 3  # tried: nothing listens there
    output = capsys.readouterr()
    assert "car:***@127.0.0.1" in output.err
    assert "s3cret" not in output.out + output.err
    assert output.err.count("a password on a command line can be read") == 3


@pytest.mark.parametrize("seconds", [1, 1_000, 1_000_000])
def test_times_of_a_parquet_file_are_the_same_seconds_whatever_unit_its_writer_took(
    tmp_path: Path, seconds: int
) -> None:
    parquet, pa = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    unit = {1: "s", 1_000: "ms", 1_000_000: "us"}[seconds]
    at = pa.array([(1_772_323_200 + row) * seconds for row in range(3)], pa.int64())
    columns = {
        "at": at.cast(pa.timestamp(unit)),
        "there": at.cast(pa.timestamp(unit, tz="Europe/Rome")),
        "day": pa.array([20_513, 20_514, 20_515], pa.int32()).cast(pa.date32()),
        "clock": pa.array([3_600_000, 3_601_500, 3_602_000], pa.int32()).cast(pa.time32("ms")),
        "took": pa.array([row * seconds for row in range(3)], pa.int64()).cast(pa.duration(unit)),
        "gear": pa.array(["1", "2", "3"]).dictionary_encode(),
        "y": [0.1, 0.2, 0.4],
    }
    path = tmp_path / "rows.parquet"
    parquet.write_table(pa.table(columns), path)
    assert read_source(path).train.X.T.tolist() == [
        [1_772_323_200.0, 1_772_323_201.0, 1_772_323_202.0],
        [1_772_323_200.0, 1_772_323_201.0, 1_772_323_202.0],
        [20_513 * 86_400.0, 20_514 * 86_400.0, 20_515 * 86_400.0],
        [3600.0, 3601.5, 3602.0],
        [0.0, 1.0, 2.0],
        [1.0, 2.0, 3.0],
    ]


def test_values_of_a_database_become_numbers_and_texts_in_one_way() -> None:
    here = dt.timezone(dt.timedelta(hours=1))
    rows: list[list[Any]] = [
        [dt.datetime(2026, 3, 1), dt.datetime(2026, 3, 1, 1, tzinfo=here), dt.date(2026, 3, 1)],  # noqa: DTZ001
        [dt.time(1, 0, 1, 500_000), dt.timedelta(minutes=1), None],
        [Decimal("1.5"), True, UUID(int=7)],
    ]
    assert plain_cells("here", ("a", "b", "c"), rows) == [
        [1_772_323_200.0, 1_772_323_200.0, 1_772_323_200.0],
        [3601.5, 60.0, None],
        [Decimal("1.5"), True, "00000000-0000-0000-0000-000000000007"],
    ]
    for cell in ([1, 2], {"a": 1}, b"\x00"):
        with pytest.raises(DataError, match=r"here: column 'a' holds values of type \w+, which are neither numbers"):
            plain_cells("here", ("a",), [[cell]])


@pytest.mark.parametrize("categories", [False, True])
def test_parquet_file_is_refused_in_one_line_when_it_is_no_table_of_cells(tmp_path: Path, categories: bool) -> None:
    parquet, pa = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    column = pa.array([1.0, 2.0])
    parquet.write_table(pa.table({"a": column, "y": column}).slice(0, 0), tmp_path / "none.parquet")
    parquet.write_table(pa.Table.from_arrays([column] * 3, names=["a", "a", "y"]), tmp_path / "double.parquet")
    parquet.write_table(pa.table({"spectrum": [[1, 2], [3, 4]], "y": column}), tmp_path / "lists.parquet")
    (tmp_path / "cut.parquet").write_bytes((tmp_path / "double.parquet").read_bytes()[:-40])
    for name, message in (
        ("none", "there are columns but no rows"),
        ("double", "two columns are called 'a' (1 and 2)"),
        ("cut", "not a readable Parquet file"),
        ("lists", "column 'spectrum' holds values of type list<"),
    ):
        path = tmp_path / f"{name}.parquet"
        with pytest.raises(DataError) as caught:
            read_source(path, categories=categories)
        assert message in str(caught.value)
        assert "\n" not in str(caught.value)


def test_index_that_pandas_wrote_is_no_column(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [1.0, 2.0, 4.0], "y": [1.0, 0.0, 1.0]}, index=[7, 3, 9])
    frame.to_parquet(tmp_path / "rows.parquet")
    source = read_source(tmp_path / "rows.parquet")
    assert (source.train.features, source.train.target) == (("a",), "y")
