"""How long a CSV file of a gigabyte takes to import, and in how much memory, beside plain polars."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from lab.benchmarks.measure import print_table, timed

BYTES, COLUMNS, BLOCK = 1_000_000_000, 15, 100_000
PEAK = "import resource; print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)"
WAYS = {
    "Glassfleet": "from pathlib import Path\nfrom edge_agent.imports.importing import Job, import_files\n"
    "import_files(Job([Path({source!r})], Path({out!r})))",
    "polars": "import polars\npolars.read_csv({source!r}).write_parquet({out!r})",
    "polars, streaming": "import polars\npolars.scan_csv({source!r}).sink_parquet({out!r})",
}


def tables() -> None:
    """Import a CSV file of a gigabyte, and read and write it with polars (``pip install polars``); print both."""
    with tempfile.TemporaryDirectory(prefix="glassfleet-bench-") as name:
        source, out = Path(name) / "drive.csv", Path(name) / "drive.parquet"
        _drive(source)
        rows = []
        for way, code in WAYS.items():
            program = f"{code.format(source=str(source), out=str(out))}\n{PEAK}"
            seconds, peak = timed(lambda program=program: _run(program), repeats=2)  # type: ignore[misc]
            rows.append([way, f"{seconds:.1f}", peak])
        print_table("A CSV file of 1 GB into Parquet", ["by", "seconds", "MB of memory at most"], rows)


def _run(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.strip()


def _drive(path: Path) -> None:
    chance, row = np.random.default_rng(0), 0
    with path.open("w", encoding="ascii") as file:
        file.write(",".join(["time", *(f"signal_{column}" for column in range(1, COLUMNS))]) + "\n")
        while file.tell() < BYTES:
            time = np.arange(row, row + BLOCK) * 0.01
            np.savetxt(file, np.column_stack([time, chance.uniform(0, 3000, (BLOCK, COLUMNS - 1))]), "%.3f", ",")
            row += BLOCK
