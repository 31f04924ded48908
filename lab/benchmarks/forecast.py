"""Processor time of one forecast: in Python, with its explanation, and by the exported C."""

from __future__ import annotations

import subprocess
import tempfile
import time
from pathlib import Path

from glassfleet import simulation
from glassfleet.contract import catalogue
from glassfleet.export.formats import export
from lab.benchmarks.measure import made_up, print_table, timed, unit_domain

ROWS, TIMES = 1000, 1000

MAIN = """
#include <stdio.h>
#include <time.h>
#include "model.h"
static const double rows[][%d] = {%s};
int main(void) {
    double sum = 0.0; int rule; clock_t begun = clock();
    for (int time = 0; time < %d; time++) for (int row = 0; row < %d; row++) sum += model_predict(rows[row], &rule);
    printf("%%g %%g", (double)(clock() - begun) / CLOCKS_PER_SEC, sum);
}
"""


def forecast() -> None:
    """Print the microseconds of a forecast, by scheme."""
    data, lines = made_up(10_000), []
    X = data.X[:ROWS]
    for name in ("tree", "frt"):
        scheme = catalogue.load(name)
        model = simulation.central(scheme, scheme.Parameters(), unit_domain(), data).model
        plain, _ = timed(lambda: [model.predict(row[None]) for row in X], 5, time.process_time)  # noqa: B023
        explained, _ = timed(lambda: [model.explain(row) for row in X], 5, time.process_time)  # noqa: B023
        with tempfile.TemporaryDirectory() as folder:
            cells = ",".join("{" + ",".join(map(repr, row)) + "}" for row in X.tolist())
            (Path(folder) / "model.h").write_bytes(export(model, "c"))
            (Path(folder) / "main.c").write_text(MAIN % (X.shape[1], cells, TIMES, ROWS), encoding="utf-8")
            subprocess.run(["gcc", "-O2", "main.c", "-o", "main", "-lm"], cwd=folder, check=True)
            told = subprocess.run(["./main"], cwd=folder, check=True, capture_output=True, text=True).stdout
        seconds = [plain / ROWS, explained / ROWS, float(told.split()[0]) / (ROWS * TIMES)]
        lines.append([name, len(model.rules()), *(f"{each * 1e6:.3g}" for each in seconds)])
    print_table("One forecast of 15 inputs, microseconds", ["scheme", "rules", "Python", "explained", "C"], lines)
