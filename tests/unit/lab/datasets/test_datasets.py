"""``glassfleet lab datasets``: formats, fetching from a server, verifying."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from console import main
from edge_agent.sources import read_table
from lab.datasets import command
from lab.datasets.fetch import RawTable, fetch, read_any, read_arff, verify
from lab.datasets.known import DATASETS, Known, Source
from schemas.errors import DataError, VerificationError
from tests.support.processes import serving

ARFF = """% a comment
@RELATION weather

@ATTRIBUTE Wind NUMERIC
@ATTRIBUTE 'the sky' {clear,'partly cloudy'}
@ATTRIBUTE Temperature REAL
@DATA
% another
1.5,clear,20
2,'partly cloudy',21.5
"""

WEATHER = ARFF.replace("'the sky'", "Sky").replace("partly ", "")

CSV = "Wind,Sky,Temperature\n1.5,clear,20\n2,cloudy,21.50\n"

WANTED = RawTable(("Wind", "Sky", "Temperature"), [["1.50", "clear", "20.0"], ["2.0", "cloudy", "21.5"]])


def test_arff_is_read_with_quoted_names_and_cells() -> None:
    table = read_arff(ARFF)
    assert table.names == ("Wind", "the sky", "Temperature")
    assert table.rows == [["1.5", "clear", "20"], ["2", "partly cloudy", "21.5"]]


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("a.arff", b"@relation x\n", "no @data line"),
        ("a.arff", b"@attribute a real\n@attribute b real\n@data\n1,2\n3\n", "row 5: 1 cells, there are 2 columns"),
        ("a.arff", b"@attribute a real\n@attribute b real\n@data\n{0 1}\n", "row 4: 1 cells"),
        ("a.csv", b"a,b\n", "no rows"),
        ("a.csv", b"\xff\xfea", "not UTF-8"),
        ("a.csv.gz", b"plain", "not a gzip file"),
        ("a.xls", b"", "unknown ending"),
    ],
)
def test_reader_names_the_fault_of_a_file(name: str, data: bytes, reason: str) -> None:
    with pytest.raises(DataError, match=reason):
        read_any(name, data)


# --- fetching ---------------------------------------------------------------------------------------------------------


class Handler(BaseHTTPRequestHandler):
    """Serves `files` and counts the requests; paths with `broken` end early."""

    files: dict[str, bytes]
    seen: list[str]

    def do_GET(self) -> None:
        self.seen.append(self.path)
        data = self.files.get(self.path)
        if data is None:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(data) + 7 * ("broken" in self.path)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[tuple[str, type[Handler]]]:
    """A web server on loopback: its address, and the class that holds its files."""

    class Mine(Handler):
        files: dict[str, bytes] = {}  # noqa: RUF012 - each server its own, filled by the test
        seen: list[str] = []  # noqa: RUF012

    with serving(Mine) as address:
        yield address, Mine


def known(url: str, **changes: Any) -> Known:
    first = Known(
        name="weather",
        task="regression",
        rows=2,
        features=2,
        target="Temperature",
        used_by="nobody",
        home="https://example.org",
        licence="none",
        digest=WANTED.digest(),
        source=Source((f"{url}/weather.arff",)),
    )
    return replace(first, **changes)


@pytest.mark.parametrize(
    ("path", "data", "source"),
    [
        ("/weather.arff", WEATHER.encode(), {}),
        ("/weather.csv", CSV.encode(), {}),
        ("/weather.csv.gz", gzip.compress(CSV.encode(), mtime=0), {}),
        ("/t.csv", b"Temperature,Wind,Sky\n20,1.5,clear\n21.5,2,cloudy\n", {"target": "Temperature"}),
        ("/i.csv", b"id,Wind,Sky,T\n1,1.5,clear,20\n2,2,cloudy,21.5\n", {"without": ("id",)}),
        ("/n.data", b"1.5,clear,20.\n2,cloudy,21.5\n", {"names": ("w", "s", "t"), "strip_last": "."}),
    ],
)
def test_fetch_brings_every_format_into_one_form(
    server: tuple[str, type[Handler]], tmp_path: Path, path: str, data: bytes, source: dict[str, Any]
) -> None:
    url, handler = server
    handler.files[path] = data
    wanted = known(url, source=Source((f"{url}{path}",), **source))
    written = fetch(wanted, tmp_path / "data")
    assert written == tmp_path / "data" / "weather.csv.gz"
    assert verify(wanted, tmp_path / "data").state == "same"
    assert read_table(written).names[-1] == "Temperature"
    assert handler.seen == [path]


@pytest.mark.parametrize("data", [CSV.replace("21.50", "99"), CSV + "3,clear,22\n", CSV.replace(",Sky", ",Sky,X")])
def test_fetch_writes_nothing_that_is_not_as_known(
    server: tuple[str, type[Handler]], tmp_path: Path, data: str
) -> None:
    url, handler = server
    handler.files["/weather.csv"] = data.encode()
    with pytest.raises((VerificationError, DataError)):
        fetch(known(url, source=Source((f"{url}/weather.csv",))), tmp_path)
    assert list(tmp_path.iterdir()) == []


# --- the command ------------------------------------------------------------------------------------------------------


def run(*arguments: str) -> Any:
    return CliRunner().invoke(command.datasets, list(arguments))


def test_command_fetches_once_and_verifies(
    server: tuple[str, type[Handler]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, handler = server
    handler.files["/weather.arff"] = WEATHER.encode()
    monkeypatch.setattr(command, "DATASETS", {"weather": known(url)})
    folder = str(tmp_path)
    missing = run("verify", "weather", "--data-dir", folder)
    assert isinstance(missing.exception, VerificationError)
    assert isinstance(run("verify", "--data-dir", folder).exception, DataError)
    assert "fetched, verified" in run("fetch", "weather", "--data-dir", folder).output
    assert "is there" in run("fetch", "weather", "--data-dir", folder).output
    assert handler.seen == ["/weather.arff"]
    checked = json.loads(run("verify", "--data-dir", folder, "--json").output)
    assert checked == [{"name": "weather", "state": "same", "words": "2 rows, 2 inputs"}]
    (tmp_path / "weather.csv.gz").write_bytes(gzip.compress(CSV.replace("20", "19").encode()))
    assert isinstance(run("verify", "--data-dir", folder).exception, VerificationError)


SHIPPED = [known for known in DATASETS.values() if known.source is not None and known.source.shipped]


def test_sets_of_scikit_learn_are_fetched_without_a_network_and_are_the_known_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("sklearn", reason="pip install glassfleet[experiments]")
    monkeypatch.setattr("urllib.request.urlopen", None)
    names = [known.name for known in SHIPPED]
    assert run("fetch", *names, "--data-dir", str(tmp_path)).exit_code == 0
    assert [read_table(tmp_path / known.file).names[-1] for known in SHIPPED] == [known.target for known in SHIPPED]
    assert run("verify", *names, "--data-dir", str(tmp_path)).exit_code == 0


NO_DOWNLOAD = "glassfleet lab datasets fetch diabetes --data-dir "


@pytest.mark.parametrize(
    ("command", "way"),
    [
        (["lab", "experiment", "--csv", "missing.csv.gz"], NO_DOWNLOAD),
        (["lab", "audit", "leakage", "--scheme", "tree", "--data", "missing.csv.gz", "--vehicles", "15"], NO_DOWNLOAD),
        (["lab", "audit", "leakage", "last", "--data", "missing"], NO_DOWNLOAD),
        (["lab", "papers"], NO_DOWNLOAD),
        (["lab", "papers", "--data-dir", "missing"], "glassfleet lab datasets fetch weather_izmir --data-dir missing"),
        (
            ["lab", "papers", "tsk", "--data-dir", "."],
            "glassfleet lab datasets fetch weather_izmir mortgage california",
        ),
        (["lab", "datasets", "fetch", "mortgage"], NO_DOWNLOAD),
        (["lab", "datasets", "verify"], NO_DOWNLOAD),
        (["lab", "datasets", "verify", "--data-dir", "."], NO_DOWNLOAD),
        (["lab", "datasets", "verify", "compas", "--data-dir", "."], "copy compas.csv.gz"),
    ],
)
def test_data_that_are_not_there_are_answered_with_the_way_to_get_some(
    command: list[str], way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GLASSFLEET_DATA", raising=False)
    assert main.run(command) in (2, 3, 8)
    error = next(line for line in capsys.readouterr().err.splitlines() if "error:" in line)
    assert way in error


@pytest.mark.slow
def test_real_files_are_the_known_ones(glassfleet_data: Path) -> None:
    real = [known for known in DATASETS.values() if known not in SHIPPED]
    assert {known.name: verify(known, glassfleet_data).state for known in real} == {
        known.name: "same" for known in real
    }
