"""Files that are imported, and what came out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

from edge_agent.imports.importing import ImportJob, import_files
from edge_agent.imports.report import Report

Import = Callable[..., tuple[dict[str, list[Any]], Report]]


@pytest.fixture
def imported(tmp_path: Path) -> Import:
    """Import the contents of files with a job's options; returns the table by columns, and the report."""

    def do(*contents: bytes | str | Path, **options: Any) -> tuple[dict[str, list[Any]], Report]:
        sources = []
        for number, content in enumerate(contents):
            source = content if isinstance(content, Path) else tmp_path / f"drive-{number}.csv"
            if not isinstance(content, Path):
                source.write_bytes(content.encode() if isinstance(content, str) else content)
            sources.append(source)
        out = tmp_path / "drive.parquet"
        report = import_files(ImportJob(sources, out, **options))
        return parquet.read_table(out).to_pydict(), report

    return do
