"""``glassfleet data check``: every fault of a table is found at once, with its place and the way out."""

from __future__ import annotations

import datetime as dt
import json
import random
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pytest

from console.main import run
from edge_agent.sources.cells import HOW_TO_TEST, NO_TEST_ROWS, plain_cells
from edge_agent.sources.check import examine
from edge_agent.sources.findings import Findings
from edge_agent.sources.fit import fit
from edge_agent.sources.table import read_source
from glassfleet.data.domain import Domain, Variable
from glassfleet.data.lags import Memory
from lab.protocols.paper import pooled_domain
from schemas.errors import DataError
from tests.support.agent_bench import write_database

GOOD = "a,b,y\n" + "".join(f"{row * 1.5},{row % 7},{row % 13 / 50}\n" for row in range(50))
TESTED = "a,b,split,y\n" + "".join(
    f"{row * 1.5},{row % 7},{'train' if row % 5 else 'test'},{row % 13 / 50}\n" for row in range(50)
)
Write = Callable[..., Path]


def faults(findings: Findings, level: str = "error") -> list[tuple[str, str, tuple[int, ...]]]:
    return [(fault.column, fault.what, fault.lines) for fault in findings.faults if fault.level == level]


@pytest.mark.parametrize("name", ["data.csv", "data.csv.gz"])
def test_check_finds_nothing_when_an_agent_would_take_the_file(write: Write, name: str) -> None:
    path = write("\ufeff" + TESTED, name)  # a byte order mark is taken for what it is
    findings = examine(path)
    assert findings.usable
    assert not findings.faults
    assert (findings.rows, [column.name for column in findings.columns]) == (50, ["a", "b", "split", "y"])
    assert read_source(path).train.rows == 40


@pytest.mark.parametrize("text", [GOOD, TESTED.replace("test", "train")])
def test_check_tells_beforehand_that_nobody_can_score_when_there_are_no_test_rows(write: Write, text: str) -> None:
    (fault,) = examine(write(text)).faults
    assert (fault.level, fault.what, fault.mend) == ("note", NO_TEST_ROWS, HOW_TO_TEST)


@pytest.mark.parametrize(
    ("text", "column", "message", "lines"),
    [
        ("a,y\n1,2\n3,x\n\n5,6\n7,nan\n", "y", "1 cell that is no number: 'x'", (3,)),
        ("a,y\n1,2\n3,4\n\n5,6\n7,-inf\n", "y", "1 cell with a number that is not finite: -inf", (6,)),
        ("a,y\n1,2\nNA,3\n,4\n5,5\n6,6\n", "a", "2 cells without a value, 40.0% (written as 'NA')", (3, 4)),
        ('a,y\n"1,5",2\n2.5,3\n', "a", "1 number with a decimal comma, mixed with points, e.g. '1,5'", (2,)),
        ('a,y\n"1,5",2\n"2,5",3\n', "a", "2 numbers with a decimal comma, throughout, e.g. '1,5'", (2, 3)),
        ("a,y\nred,2\nblue,3\n", "a", "text, e.g. 'red', where numbers are needed", (2, 3)),
        ("a,y\n2,red\n3,blue\n", "y", "the target holds text, e.g. 'red'", (2, 3)),
        ("a,y,split\n2,1,train\n3,2,train\n4,4,tain\n", "split", "'tain': neither 'train' nor 'test'", (4,)),
        ("a,a,y\n1,2,3\n4,5,6\n", "", "2 columns are called 'a'", ()),
        ("a,,y\n1,2,3\n4,5,6\n", "", "column 2 has no name", ()),
        ("1,2,3\n4,5,6\n7,8,9\n", "", "the first row holds numbers only", ()),
        ("a,y\n1,2\n3,4,5\n5,6\n", "", "1 row with 3 cells, where the header has 2", (3,)),
        ("a,y\n1,2\n", "", "1 row to train on; at least 2 are needed", ()),
        ("a,y\n", "", "there are columns but no rows", ()),
        ("y\n1\n2\n", "", "there is no input column beside the target", ()),
        ("a,b,y\n,1,2\n,2,3\n", "a", "no cell has a value", ()),
        ("a;y\n1,5;2\n3,5;4\n", "", "the columns are separated by semicolons", ()),
        ("a\ty\n1\t2\n", "", "the columns are separated by tabs", ()),
        ("", "", "the file is empty", ()),
    ],
)
def test_check_names_fault_and_line_and_an_agent_refuses_too_when_a_file_is_wrong(
    write: Write, text: str, column: str, message: str, lines: tuple[int, ...]
) -> None:
    path = write(text)
    findings = examine(path)
    assert (column, message, lines) in faults(findings)
    assert all(fault.mend for fault in findings.faults if fault.level == "error")
    with pytest.raises(DataError):
        read_source(path)


def test_check_warns_of_ids_and_of_numbers_that_a_float_cannot_hold(write: Write) -> None:
    rng = random.Random(0)
    rows = "".join(f"{10**18 + 3 * row + 1},{100 + row * row},{rng.random()},{row % 3}\n" for row in range(40))
    findings = examine(write("id,distance,a,y\n" + rows))
    assert findings.usable
    assert {(fault.column, fault.what, fault.count) for fault in findings.faults if fault.column} == {
        ("id", "40 numbers with more digits than are kept, e.g. 1000000000000000001 becomes 1000000000000000000", 40),
        ("distance", "whole numbers that rise from row to row, like an id or a time", 0),
    }


def test_check_finds_all_faults_at_once(write: Write) -> None:
    findings = examine(write('a,b,y\n1,"2,5",x\n,3.5,1\ninf,4.5,2\n4,5,3\n5,6,4\n6,7,5\n'))
    assert [column for column, _, _ in faults(findings)] == ["a", "a", "b", "y"]


def test_check_warns_when_something_is_odd_but_usable(write: Write) -> None:
    rows = "".join(f"{row},7,{row % 3}\n" for row in range(40))
    findings = examine(write("id,same,y\n" + rows))
    assert findings.usable
    assert {(fault.column, fault.what) for fault in findings.faults if fault.column} == {
        ("id", "it counts the rows"),
        ("same", "all cells are the same; it cannot help the model here"),
    }
    assert ("", "only 3 rows to train on", ()) in faults(examine(write("a,y\n1,2\n2,4\n3,5\n")), "warning")


def test_check_takes_categories_and_classes_when_the_scheme_does(write: Write, capsys: Any) -> None:
    path = write("speed,fuel,use\n" + "".join(f"{row},{'ab'[row % 2]},{'xy'[row // 20]}\n" for row in (*range(40),)))
    assert run(["data", "check", str(path), "--scheme", "frt"]) == 3
    assert run(["data", "check", str(path), "--scheme", "frbc"]) == 3  # takes classes, no categories
    capsys.readouterr()
    assert run(["data", "check", str(path), "--scheme", "fedga", "--labels", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["usable"]
    assert document["columns"][1]["common"] == {"a": 20, "b": 20}
    assert document["faults"][-1]["what"] == "judged as an agent reads it with --labels and --categories"
    assert read_source(path, labels=True, categories=True).train.rows == 40


@pytest.mark.parametrize(
    ("yes", "no", "rows"), [("yes", "no", 9000), ("TRUE", "False", 30), ("ja", "nein", 30), ("t", "f", 30)]
)
def test_agent_takes_a_column_of_yes_and_no_as_numbers_without_being_told(
    write: Write, yes: str, no: str, rows: int
) -> None:
    path = write("a,lights,y\n" + "".join(f"{row},{no if row % 3 else yes},{row % 5}\n" for row in range(rows)))
    findings = examine(path)
    assert findings.usable
    assert faults(findings, "note")[0] == ("lights", ", ".join(sorted([f"{yes} is 1", f"{no} is 0"])), ())
    assert read_source(path).train.X[:, 1].tolist() == [float(row % 3 == 0) for row in range(rows)]
    assert read_source(path, categories=True).train.categories == {"lights": tuple(sorted((yes, no)))}
    domain = pooled_domain(("a", "lights"), "y", read_source(path).train.X, np.arange(5.0))
    fit(findings, path, domain, labels=False, categories=False)
    assert findings.usable


@pytest.mark.parametrize(
    ("header", "more"), [("lights,y", "maybe,1"), ("lights,y", "2,1"), ("lights,y", "ja,1"), ("y,lights", "")]
)
def test_yes_and_no_are_no_numbers_beside_other_cells_or_as_the_target(write: Write, header: str, more: str) -> None:
    rows = "".join(f"{'yes' if row % 3 else 'no'},{row % 5}\n" for row in range(40))
    path = write(f"{header}\n{rows}{more}\n")
    column = header.partition(",")[0]
    assert not examine(path, target="y").usable
    what = "'2' is a number, where cells before it are words like 'no'" if more == "2,1" else "'no' is not a number"
    with pytest.raises(DataError, match=rf"column '{column}': {what}"):
        read_source(path, target="y")


@pytest.mark.parametrize("kind", ["csv", "sqlite"])
@pytest.mark.parametrize("cells", [
    ["yes", "no"] * 1500 + [5.5] * 50,
    [5.5] * 2048 + ["yes", "no"],
    ["yes", 5.5, 0, "yes"],
    ["no", *["yes"] * 3000, 1],
    [0, 1] * 1024 + ["no"],
])  # fmt: skip
def test_column_of_yes_and_no_and_numbers_is_refused_by_check_and_agent_in_any_order(
    write: Write, tmp_path: Path, kind: str, cells: list[str | float]
) -> None:
    rows = [(cell, row % 13, row % 7) for row, cell in enumerate(cells)]
    place: Path | str = write("a,b,y\n" + "".join(f"{a},{b},{y}\n" for a, b, y in rows))
    if kind == "sqlite":
        pytest.importorskip("sqlalchemy")
        place = write_database(tmp_path / "rows.db", ("a", "b", "y"), rows)
    assert not examine(place).usable
    assert faults(examine(place))[0][0] == "a"
    odd = next(row for row, cell in enumerate(cells, 1) if isinstance(cell, str) != isinstance(cells[0], str))
    what = "is a number, where cells before it are words" if isinstance(cells[0], str) else "is not a number"
    with pytest.raises(DataError, match=rf"row {odd} of the data, column 'a': '{cells[odd - 1]}' {what}"):
        read_source(place)


def test_check_and_agent_agree_on_marks_for_missing_values_and_on_truth_values(write: Write, tmp_path: Path) -> None:
    text = "work,use,y\n" + "".join(f"{'?' if row % 4 else 'none'}{row % 2 or ''},{row},{row}\n" for row in range(32))
    path = write(text + "?,3,5\n")
    findings = examine(path, categories=True)
    assert findings.usable
    assert faults(findings, "warning") == [
        ("work", "17 cells with '?', 'none', which counts as a text of its own", (2, 4, 6, 8, 10))
    ]
    assert read_source(path, categories=True).train.rows == 33
    parquet = pytest.importorskip("pyarrow.parquet")
    table = pytest.importorskip("pyarrow").table({"a": [1.5, 2.5, 4.0], "y": [True, False, True]})
    parquet.write_table(table, tmp_path / "rows.parquet")
    assert examine(tmp_path / "rows.parquet").usable
    assert read_source(tmp_path / "rows.parquet").train.y.tolist() == [1.0, 0.0, 1.0]


def test_check_compares_with_a_domain_when_one_is_given(write: Write, tmp_path: Path, capsys: Any) -> None:
    domain = Domain(
        features=(Variable(name="a", low=0, high=10, unit="m"), Variable(name="b", low=0, high=6)),
        target=Variable(name="y", low=0, high=1),
    )
    file = tmp_path / "domain.json"
    file.write_text(domain.model_dump_json())
    assert run(["data", "check", str(write(GOOD)), "--domain", str(file)]) == 0
    out = capsys.readouterr().out
    assert "a: 43 values (86.0%) beyond 0 to 10 m; they are clipped" in out
    assert run(["data", "check", str(write("a,y\n1,2\n3,4\n")), "--domain", str(file)]) == 3
    assert "the domain needs the column 'b', which is not there" in capsys.readouterr().out


def test_check_knows_classes_by_their_text(write: Write) -> None:
    path = write("a,y\n" + "".join(f"{row % 7},{'007' if row % 2 else '1.0'}\n" for row in range(40)))
    for classes, usable in ((("007", "1.0"), True), (("1", "7"), False)):
        domain = Domain(features=(Variable(name="a", low=0, high=6),), label="y", classes=classes)
        findings = examine(path, labels=True)
        fit(findings, path, domain, labels=True, categories=False)
        assert findings.usable is usable


def test_check_tries_the_lagged_features_of_a_domain(write: Write) -> None:
    memory = Memory.from_document({"memory": [{"input": "a", "difference": 1}], "drive": "drive", "time": "time"})
    domain = Domain(
        features=(Variable(name="a", low=0, high=50), Variable(name="a_change_1", low=-1, high=1)),
        target=Variable(name="y", low=0, high=1),
        memory=memory,
    )
    text = "drive,time,a,y\n" + "".join(f"{row // 25},{row % 25},{row},0.{row}\n" for row in range(50))

    def judged(text: str) -> Findings:
        path = write(text)
        findings = examine(path, target="y")
        fit(findings, path, domain, labels=False, categories=False)
        return findings

    good = judged(text)
    assert good.usable
    assert "lagged features can be computed: a_change_1" in [fault.what for fault in good.faults]
    double = judged(text + "1,24,3,0.5\n")
    assert "two rows of one drive have the same time" in faults(double)[0][1]


def test_check_reads_a_query_and_the_file_stays_as_it_was_when_the_query_writes(tmp_path: Path, capsys: Any) -> None:
    file = tmp_path / "drives.db"
    table = write_database(file, ("a", "b", "y"), [(row, row % 5, row / 9) for row in range(5000)])
    before = file.read_bytes()
    source = read_source(f"sqlite:///{file}?query=SELECT a + 1 AS a, b, y FROM rows WHERE b < 4 ORDER BY a")
    assert source.train.X[0].tolist() == [1.0, 0.0]
    assert source.train.rows == 4000
    assert read_source(table).train.rows == 5000
    for query, message in (
        ("DELETE FROM rows", "Only reading is allowed here"),
        ("SELECT nosuch FROM rows", "no such column: nosuch"),
        ("SELECT a, y FROM rows WHERE a < 0", "there are columns but no rows"),
        ("SELECT a, NULL AS y FROM rows", "no cell has a value"),
    ):
        assert run(["data", "check", f"sqlite:///{file}?query={query}"]) == 3
        assert message in capsys.readouterr().out
    assert file.read_bytes() == before


def test_database_password_is_refused_on_the_command_line_and_never_shown(
    capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = "postgresql://car:s3cret@127.0.0.1:9/drives?table=rows"
    assert run(["data", "check", url]) == 2
    assert run(["agent", "--id", "v", "--broker", "mqtt://127.0.0.1:9", "--data", url]) == 2
    assert run(["doctor", "--data", url]) == 2
    assert run(["data", "collect", "--source", "mqtt://u:s3cret@127.0.0.1:9/x", "--store", "w.window"]) == 2
    monkeypatch.setenv("GLASSFLEET_AGENT_DATA", url)
    assert run(["data", "check"]) == 3  # tried: nothing listens there
    output = capsys.readouterr()
    assert "car:***@127.0.0.1" in output.out
    assert "s3cret" not in output.out + output.err
    assert output.err.count("a password on a command line can be read") == 4


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
    assert examine(path).usable
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
def test_check_and_agent_refuse_a_parquet_file_in_one_line_when_it_is_no_table_of_cells(
    tmp_path: Path, categories: bool
) -> None:
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
        (fault,) = examine(path, categories=categories).faults
        assert fault.what.startswith(message)
        assert fault.mend
        assert "\n" not in fault.what
        with pytest.raises(DataError) as caught:
            read_source(path, categories=categories)
        assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "what", "mend"),
    [
        ("a,y\n01.02.2026 10:00,1\n02.02.2026 10:00,2\n", "", "Write a time as a number of seconds"),
        ("a,y\n02/13/2026,1\n02/14/2026,2\n", "", "Write a time as a number of seconds"),
        ("a,y\n80 %,1\n12 km/h,2\n", "", "Write the number alone"),
        ("a,y\n1'000,1\n2'000,2\n", "", "Write the number alone"),
        ("a,y\nA12,1\nB12,2\n", "", "Encode it as numbers or remove it"),
        ("a,y\n1,2,\n3,4,\n", "", "Remove the comma at the end of these rows"),
        ("a,y\n1,000,2\n3,000,4\n", "", "a comma in a number makes two cells of one"),
        ("written by a logger\na,y\n1,2\n3,4\n", "", "Remove the lines above the columns' names"),
        ("made by logger\na,y\n1,2\n3,4\n5,6\n", "4 rows with 2 cells, where the header has 1", "Remove the lines"),
        ('a,b,y\n1,2,3\n1,2,3\n1,"2,3\n1,2,3\n', "1 row with 2 cells, where the header has 3", "not closed"),
        ("a|b|y\n1|2|3\n", "the columns are separated by vertical bars", "commas"),
        ("a,b,,\n1,2,,\n3,4,,\n", "columns 3, 4 have no name", "remove them"),
        ("trip,y\n2026_03,1\n2026_04,2\n", "text, e.g. '2026_03', where numbers are needed", "Encode it"),
        ("at,y\n2026-03-01 14:05,1\n2026-03-01 14:06,2\n", "text, e.g. '2026-03-01 14:05'", "a number of seconds"),
        ("a,y\n1," + "9" * 400 + "\n2,3\n4,5\n", f"1 cell with a number that is not finite: {'9' * 40}", "Correct"),
    ],
)  # fmt: skip
def test_check_names_the_cause_when_a_table_is_not_as_it_looks(write: Write, text: str, what: str, mend: str) -> None:
    path = write(text)
    first = next(fault for fault in examine(path).faults if fault.level == "error")
    assert first.what.startswith(what)
    assert mend in first.mend
    with pytest.raises(DataError):
        read_source(path)
