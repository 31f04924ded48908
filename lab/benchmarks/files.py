"""How long files take to import beside libraries alone, each in a process of its own with its imports."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from edge_agent.recordings import RECORDINGS
from lab.benchmarks.measure import print_table, timed

FRAMES, SAMPLES = 1_000_000, 100_000
DBC = """VERSION ""
BU_: ECU
BO_ 256 Engine: 8 ECU
 SG_ Speed : 7|16@0+ (0.01,0) [0|655.35] "km/h" ECU
 SG_ Coolant : 16|8@1+ (1,-40) [-40|215] "degC" ECU
 SG_ Gear : 24|4@1+ (1,0) [0|15] "" ECU
 SG_ Torque : 28|12@1- (0.5,0) [-1024|1023.5] "Nm" ECU
 SG_ Rpm : 40|16@1+ (1,0) [0|65535] "rpm" ECU
VAL_ 256 Gear 0 "Park" 1 "Drive" 2 "Reverse" 15 "SNA" ;
"""
LOGS = (".asc", ".blf", ".log", ".trc")


def recordings() -> None:
    """Read a million frames of each kind of log with a database, and an MF4 file of 100 MB; print seconds."""
    with tempfile.TemporaryDirectory(prefix="glassfleet-bench-") as name:
        folder = Path(name)
        database = folder / "bus.dbc"
        database.write_text(DBC)
        rows = []
        for ending in (*LOGS, ".mf4"):
            path = folder / f"drive{ending}"
            (_measurement if ending == ".mf4" else _log)(path)
            ours, theirs = (_seconds(who, path, database) for who in ("ours", "theirs"))
            what = f"100 MB of samples, `{ending}`" if ending == ".mf4" else f"a million frames, `{ending}`"
            size = f"{path.stat().st_size / 1e6:.0f}"
            rows.append([what, size, f"{ours:.1f}", f"{theirs:.1f}", f"{theirs / ours:.2f}"])
            path.unlink()
        print_table("Recordings (s)", ["recording", "MB", "Glassfleet", "libraries alone", "times as fast"], rows)


def _seconds(who: str, path: Path, database: Path) -> float:
    command = [sys.executable, "-m", "lab.benchmarks.files", who, str(path), str(database)]
    seconds, _ = timed(lambda: subprocess.run(command, check=True), repeats=3)
    return seconds


def _log(path: Path) -> None:
    import can

    writers = {".asc": can.ASCWriter, ".blf": can.BLFWriter, ".log": can.CanutilsLogWriter, ".trc": can.TRCWriter}
    content = np.random.default_rng(0).integers(0, 255, (FRAMES, 8), dtype=np.uint8)
    content[:, 3] &= 0xF0  # parked
    with writers[path.suffix](path) as log:
        for number, data in enumerate(content):
            log(can.Message(timestamp=number / 1000, arbitration_id=256, data=data.tobytes(), is_extended_id=False))


def _measurement(path: Path) -> None:
    from asammdf import MDF, Signal

    measured, draw = MDF(version="4.10"), np.random.default_rng(0)
    for group in range(8):
        time = np.arange(SAMPLES * (1 + group % 3)) / (100 * (1 + group % 3))
        values = [draw.normal(size=len(time)).astype("f4") for _ in range(18)]
        named = [Signal(value, time, name=f"s{group}_{number}") for number, value in enumerate(values)]
        measured.append(named, common_timebase=True)
    measured.save(path)


def _ours(path: Path, database: Path) -> None:
    for signal in RECORDINGS[path.suffix](path, [database], Counter()):
        assert len(signal.value)


def _theirs(path: Path, database: Path) -> None:
    if path.suffix == ".mf4":
        from asammdf import MDF

        with MDF(path) as measured:
            for signal in measured.iter_channels():
                assert len(signal.samples)
        return
    import can
    import cantools

    known = cantools.database.load_file(database)
    found: dict[str, list[tuple[float, Any]]] = {}
    assert isinstance(known, cantools.database.Database)
    for message in can.LogReader(path):
        values = known.decode_message(message.arbitration_id, bytes(message.data))
        assert isinstance(values, dict)
        for name, value in values.items():
            found.setdefault(name, []).append((message.timestamp, value))


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


if __name__ == "__main__":
    {"ours": _ours, "theirs": _theirs}[sys.argv[1]](Path(sys.argv[2]), Path(sys.argv[3]))
