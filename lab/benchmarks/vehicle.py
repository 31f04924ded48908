"""What a vehicle pays: processor seconds of whole runs, microseconds of a forecast, the memory of an agent.

`stages` starts one real agent process with 36,000 rows of 15 inputs. With a broker and a coordinator it learns an exact
`tree`, and scores it against one of its own. Its resident and peak memory, and what of
the former is its own (``VmRSS``, ``VmHWM`` and ``RssAnon`` of /proc) are taken after each stage.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from broker.servers.launch import launch
from glassfleet import simulation
from glassfleet.contract import catalogue
from glassfleet.data.dataset import Dataset
from glassfleet.export.formats import export
from glassfleet.simulation import federated
from lab.benchmarks.measure import (
    INPUTS,
    coordinator_process,
    cpu_seconds,
    made_up,
    print_table,
    resident,
    timed,
    unit_domain,
    wait,
)
from lab.experiments.folds import Parts
from lab.processes import ProcessFleet

ROWS = 36_000


def write_rows(path: Path) -> None:
    """Write a file of the size that the fifteen vehicles of the case study have together."""
    rng = np.random.default_rng(0)
    X = rng.random((ROWS, INPUTS))
    y = np.clip(X[:, 0] * X[:, 1] + 0.3 * np.sin(6 * X[:, 2]) + 0.1 * rng.standard_normal(ROWS), 0, 1)
    names = [f"x{index + 1}" for index in range(INPUTS)]
    with path.open("w") as file:
        file.write(",".join(["split", *names, "y"]) + "\n")
        for index, cells in enumerate(np.column_stack([X, y]).tolist()):
            file.write(("test," if index % 6 == 5 else "train,") + ",".join(f"{cell:.6f}" for cell in cells) + "\n")


def stages(folder: Path) -> Iterator[tuple[str, float, float, float, float]]:
    """Yield each stage of a run as it is reached: its name, what `resident` says, seconds of processor."""
    write_rows(folder / "rows.csv")
    broker = launch("auto", state_dir=folder / "broker")
    arguments = ["agent", "--id", "v1", "--data", str(folder / "rows.csv"), "--state-dir", str(folder / "state")]
    try:
        with (
            coordinator_process(broker.url, folder / "coordinator") as (api, _),
            ProcessFleet(folder / "logs") as processes,
        ):
            agent = processes.add("v1", arguments, {"GLASSFLEET_BROKER": broker.url})
            agent.start()
            wait(lambda: api.get("/api/agents"), 0.02)
            yield "data read, connected", *resident(agent.pid), cpu_seconds(agent.pid)
            wanted = {"scheme": "tree", "model": "m", "parameters": {"min_rows": 1}}
            wanted["rounds"] = {"min_agents": 1}
            run, shown = api.post("/api/runs", wanted)["run"], 0
            while not (status := api.run(run))["outcome"] or shown < len(status["rounds"]):
                for each in status["rounds"][shown:]:
                    shown += 1
                    what = f"round {shown} ({each['kind']}) answered in {each['seconds'] * 1e3:.0f} ms"
                    yield what, *resident(agent.pid), cpu_seconds(agent.pid)
            wait(lambda: api.get("/api/models/m/1/evaluations"), 0.02)
            yield "own model learned, both scored", *resident(agent.pid), cpu_seconds(agent.pid)
    finally:
        broker.stop()


def memory() -> None:
    """Print the memory of an agent, stage by stage."""
    with tempfile.TemporaryDirectory() as folder:
        lines = [(stage, *(f"{each:.1f}" for each in most)) for stage, *most in stages(Path(folder))]
    names = ("stage", "RSS MB", "peak MB", "own MB", "CPU s")
    print_table(
        f"An agent with {ROWS:,} rows x {INPUTS} inputs", [dict(zip(names, line, strict=True)) for line in lines]
    )


FORECASTS, TIMES = 1000, 1000

MAIN = """
#include <stdio.h>
#include <time.h>
#include "model.h"
static const double rows[][%d] = {%s};
int main(void) {
    volatile double last; int rule; clock_t begun = clock();
    for (int time = 0; time < %d; time++) for (int row = 0; row < %d; row++) last = model_predict(rows[row], &rule);
    printf("%%g", (double)(clock() - begun) / CLOCKS_PER_SEC); }
"""


def forecast() -> None:
    """Print the microseconds of a forecast, by scheme."""
    data, lines = made_up(10_000), []
    X = data.X[:FORECASTS]
    for name in ("tree", "frt"):
        scheme = catalogue.load(name)
        model = simulation.central(scheme, scheme.Parameters(), unit_domain(), data).model
        plain, _ = timed(lambda: [model.predict(row[None]) for row in X], 5, time.process_time)  # noqa: B023
        explained, _ = timed(lambda: [model.explain(row) for row in X], 5, time.process_time)  # noqa: B023
        with tempfile.TemporaryDirectory() as folder:
            cells = ",".join("{" + ",".join(map(repr, row)) + "}" for row in X.tolist())
            (Path(folder) / "model.h").write_bytes(export(model, "c"))
            (Path(folder) / "main.c").write_text(MAIN % (X.shape[1], cells, TIMES, FORECASTS), encoding="utf-8")
            subprocess.run(["gcc", "-O2", "main.c", "-o", "main", "-lm"], cwd=folder, check=True)
            told = subprocess.run(["./main"], cwd=folder, check=True, capture_output=True, text=True).stdout
        times = {"Python": plain, "explained": explained, "C": float(told) / TIMES}
        shown = {what: f"{seconds / FORECASTS * 1e6:.3g}" for what, seconds in times.items()}
        lines.append({"scheme": name, "rules": len(model.rules()), **shown})
    print_table("One forecast of 15 inputs, microseconds", lines)


# --- the fuzzy tree: processor seconds of whole runs, and bytes -------------------------------------------------------


RUNS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("tree", {}),
    ("tree, max_rules=12", {"max_rules": 12}),
    ("tree, compact", {"compact": True}),
)


def tree() -> None:
    """Whole runs of fifteen vehicles, and of one with 36,000 rows and a target that needs all rules."""
    _runs("15 vehicles x 2,367 rows", {f"vehicle-{i:02d}": made_up(2367, seed=i) for i in range(15)})
    _runs("One vehicle x 36,000 rows, a hard target", {"vehicle": hard(made_up(36_000))})


def hard(data: Dataset) -> Dataset:
    """Return rows with a target that bends, jumps and multiplies."""
    x = data.X.T
    y = np.sin(6 * x[0]) * x[1] + np.cos(5 * x[2] * x[3]) + 2 * (x[4] > 0.4) * x[5]
    y += np.abs(x[6] - 0.5) * x[7] + np.sin(8 * x[8] * x[0]) + np.random.default_rng(0).normal(0.0, 0.05, data.rows)
    return Dataset(data.features, data.target, data.X, (y - y.min()) / np.ptp(y))


def _runs(title: str, fleet: Parts) -> None:
    """Print what whole runs over rows as they are take of one core, and send."""
    scheme: Any = catalogue.load("tree")
    lines = []
    for name, settings in RUNS:
        parameters = scheme.Parameters(min_rows=1, **settings)
        run = partial(federated, scheme, parameters, unit_domain(), fleet)
        seconds, outcome = timed(run, 1, time.process_time)
        size = {"rounds": outcome.rounds, "rules": len(outcome.model.rules())}
        sent = f"{outcome.bytes_up / len(fleet) / 1e6:.2f}"
        lines.append({"model": name, "s": f"{seconds:.2f}", **size, "MB per vehicle": sent})
    print_table(f"{title}: a run in this process, processor time", lines)
