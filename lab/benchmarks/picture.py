"""``python -m lab.benchmarks.picture PAGE FILE``: draw what a round takes in large fleets, from the table of a page."""

from __future__ import annotations

import sys
from pathlib import Path

from lab.papers.plots import curves

HEADING = "## Large fleets"


def series_of(page: str) -> dict[str, tuple[list[float], list[float]]]:
    """Return fleets and a round's median, ms a vehicle, of each scheme and its floor: the table after `HEADING`."""
    series: dict[str, tuple[list[float], list[float]]] = {}
    for line in page.partition(HEADING)[2].partition("\n## ")[0].splitlines():
        cells = [cell.strip().replace(",", "") for cell in line.strip("|").split("|")]
        if len(cells) > 5 and cells[0].isdigit():
            for name, cell in ((cells[1], cells[3]), (f"floor of {cells[1]}", cells[5])):
                x, y = series.setdefault(name, ([], []))
                x.append(float(cells[0]))
                y.append(float(cell) / x[-1])
    return series


def main(page: str, file: str) -> None:
    """Draw."""
    series = series_of(Path(page).read_text(encoding="utf-8"))
    Path(file).write_bytes(curves(series, "vehicles", "a round in the median, ms for each vehicle", log=True))


if __name__ == "__main__":
    main(*sys.argv[1:])
