"""A new kind of source needs a reader and a place in the registry, and nothing else."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from edge_agent.forecast.source import Samples
from edge_agent.sources import read_source, read_table, readers
from edge_agent.sources.check import examine
from edge_agent.sources.location import Location, Reader
from schemas.errors import UsageError


@contextmanager
def tabbed_rows(place: Location) -> Iterator[tuple[tuple[str, ...], Iterator[list[list[Any]]]]]:
    with Path(place.text.removeprefix("tabs://")).open() as file:
        names, *rows = csv.reader(file, delimiter="\t")
        yield tuple(names), iter([rows])


def test_new_kind_of_source_is_read_checked_followed_and_replayed_when_its_reader_is_registered(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "rows.tsv"
    path.write_text("a\ty\n1\t2\n3\t4\n")
    monkeypatch.setattr(readers, "READERS", (*readers.READERS, Reader("tabs", tabbed_rows, endings=(".tsv",))))

    assert read_source(path).train.X.tolist() == [[1.0], [3.0]]
    assert read_table(path).column("y").tolist() == [2.0, 4.0]
    findings = examine(path)
    assert (findings.rows, findings.place, findings.usable) == (2, "row", True)
    assert list(Samples(str(path), speed=0.0)) == [{"a": 1.0, "y": 2.0}, {"a": 3.0, "y": 4.0}]

    moving = Reader("tabs", tabbed_rows, endings=(".tsv",), mark=lambda place: Path(place.text).read_bytes)
    monkeypatch.setattr(readers, "READERS", (*readers.READERS[:-1], moving))
    source = read_source(path)
    assert source.current().train is source.current().train, "it is not read again while nothing changes"
    path.write_text("a\ty\n1\t2\n3\t4\n5\t6\n")
    assert source.current().train.rows == 3


def test_unknown_url_names_every_kind_of_source_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "READERS", (*readers.READERS, Reader("tabs", tabbed_rows, (".tsv",), ("tabs",))))
    with pytest.raises(UsageError) as caught:
        readers.locate("ftp://host/rows")
    assert str(caught.value) == (
        "ftp://host/rows: ftp:// is not known here; give a .csv, .csv.gz, .parquet, .plan, .window or .tsv file, "
        "sqlite://, postgresql://, postgres:// or tabs://"
    )
