"""Rounds of real agents over a broker; beside broker and sockets alone, and Flower's, which is installed by hand."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
import time
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from broker.servers.launch import launch
from broker.servers.mosquitto import find_mosquitto
from broker.servers.process import free_port
from edge_agent.sources import Source
from lab.benchmarks.fleets import FRT, floors, rounds_of
from lab.benchmarks.measure import coordinator_process, ended, made_up, ms, print_table, wait
from lab.fleet import Fleet
from lab.processes import ProcessFleet
from schemas.log import Log, LogWriter

ROWS = 500
"""Rows per agent: few, so that the broker and the coordinator are measured and not the arithmetic."""

VEHICLES, ROUNDS = 15, 5

APP = """\
[project]
name = "peer"
version = "1.0.0"
license = {{ file = "LICENSE" }}
dependencies = ["flwr>={flwr}"]
[tool.flwr.app]
publisher = "peer"
fab-format-version = 1
flwr-version-target = "{flwr}"
[tool.flwr.app.components]
serverapp = "peer.app:server"
clientapp = "peer.app:client"
[tool.flwr.app.config]
vehicles = {vehicles}
rounds = {rounds}
bytes = {size}
"""
LINK = '[superlink]\ndefault = "here"\n[superlink.here]\naddress = "127.0.0.1:{port}"\ninsecure = true\n'


def wire() -> None:
    """Round trips with 15 and 100 agents on each broker that is here."""
    Log.write = LogWriter("error")
    kinds = ["embedded", *(["mosquitto"] if find_mosquitto() else [])]
    print_table(
        f"A round over a broker on loopback: {ROWS} rows x 15 inputs per agent, coordinator with SQLite journal (ms)",
        [round_trips(kind, agents) for kind in kinds for agents in (15, 100)],
    )


def round_trips(kind: str, agents: int) -> dict[str, Any]:
    """Return a line of the table: a run of `frt` on a broker of a kind."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="glassfleet-bench-")))
        broker = launch(kind, state_dir=folder / "broker")
        stack.callback(broker.stop)
        rows = [made_up(ROWS, seed=index) for index in range(agents)]
        sources = {f"v{index:03d}": Source(data, data.at(np.arange(0))) for index, data in enumerate(rows)}
        stack.enter_context(
            Fleet(sources, broker=broker.url, state_dir=folder / "agents", evaluate=False, log_level="error")
        )
        api, _ = stack.enter_context(coordinator_process(broker.url, folder / "coordinator"))
        policy = {"gather_agents": agents, "gather_timeout": 120.0, "min_agents": agents, "deadline": 120.0}
        started = time.perf_counter()
        run = api.post("/api/runs", {**FRT, "model": "bench", "rounds": policy})["run"]
        record = ended(api, run, 0.05)
        seconds = time.perf_counter() - started
    times, _ = rounds_of(record)
    return {
        "broker": kind,
        "agents": agents,
        "rounds": len(times),
        "median round": ms(median(times)),
        "slowest round": ms(max(times)),
        "kB per agent and round": f"{sum(each['bytes'] for each in record['rounds']) / len(times) / agents / 1000:.1f}",
        "whole run (s)": f"{seconds:.1f}",
    }


def peers() -> None:
    """Rounds of the same vehicles' number and bytes: processor and disk are shared by all that takes part."""
    try:
        flwr = version("flwr")
    except ImportError:
        raise SystemExit("Flower is not installed: pip install 'flwr>=1.42'") from None
    Log.write = LogWriter("error")
    ours = round_trips("mosquitto", VEHICLES)
    size = ours["kB per agent and round"]
    sent = int(float(size) * 1000)
    times = {"broker and sockets alone": floors(VEHICLES, sent), f"Flower {flwr}, `FedAvg`": _flower(flwr, sent)}
    first, last = (
        {"": who, "rounds": len(each), "median round": ms(median(each)), "slowest round": ms(max(each))}
        for who, each in times.items()
    )
    own = {"": "Glassfleet, `frt`"} | {name: ours[name] for name in ("rounds", "median round", "slowest round")}
    rows = [each | {"kB per vehicle and round": size} for each in (first, own, last)]
    print_table(f"A round of {VEHICLES} vehicles, ours and a peer's (ms)", rows)


def _flower(flwr: str, size: int) -> list[float]:
    """Return the seconds of each round of Flower's own deployment: a SuperLink, and a SuperNode for each vehicle."""
    with tempfile.TemporaryDirectory(prefix="glassfleet-bench-") as name:
        folder = Path(name)
        app, home, programs = folder / "app", folder / "home", Path(sys.executable).parent
        (app / "peer").mkdir(parents=True)
        home.mkdir()
        port, *others = [free_port() for _ in range(1 + VEHICLES)]
        (app / "pyproject.toml").write_text(APP.format(flwr=flwr, vehicles=VEHICLES, rounds=ROUNDS, size=size))
        (app / "LICENSE").write_text("Apache-2.0\n")
        shutil.copy(Path(__file__).parent / "flower" / "app.py", app / "peer" / "app.py")
        (home / "config.toml").write_text(LINK.format(port=port))
        environment = {
            **os.environ,
            "FLWR_HOME": str(home),
            "FLWR_TELEMETRY_ENABLED": "0",
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",  # a SuperLink starts others of its programs
        }
        with ProcessFleet(folder / "logs", environment) as processes:

            def start(name: str, program: str, *words: str) -> None:
                processes.add(name, words, {}, (str(programs / program),)).start()

            link = f"127.0.0.1:{port}"
            start(
                "link", "flower-superlink", "--insecure", "--disable-runtime-dependency-installation", f"--port={port}"
            )
            wait(lambda: "startup complete" in processes["link"].logged(), 0.2, 60.0)
            for number, own in enumerate(others):
                start(f"node-{number}", "flower-supernode", "--insecure", f"--superlink={link}", f"--port={own}")
            start("run", "flwr", "run", str(app), "here", "--stream")

            def times() -> list[float]:
                for name in ("link", "run"):
                    processes[name].check()
                return [float(found) for found in re.findall(r"round took ([\d.]+)", processes["run"].logged())]

            return wait(lambda: times() if len(times()) == ROUNDS else [], 0.5, 900.0)
