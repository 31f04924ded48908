"""A new version of the software reaches a fleet vehicle by vehicle, the coordinator last, and goes back the same way.

Two wheels of this code with different version numbers, installed beside each other as docs/howto/deploy.md says.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.servers.launch import launch
from lab.processes import PROGRAM, Process
from tests.support.cloud import SOURCES, CoordinatorProcess, begin_run, ended, spec
from tests.support.processes import ROOT, eventually, without_settings

pytestmark = [pytest.mark.acceptance, pytest.mark.slow, pytest.mark.timeout(900)]

OLD, NEW = "0.1.0", "0.2.0"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Where each version is installed, from a wheel of its own."""
    folder = tmp_path_factory.mktemp("wheels")
    places = {}
    for version in (OLD, NEW):
        source, place = folder / f"source-{version}", folder / f"glassfleet-{version}"
        hidden = shutil.ignore_patterns(".*", "__pycache__", "tests", "docs")
        shutil.copytree(ROOT, source, ignore=hidden)
        about = source / "pyproject.toml"
        about.write_text(about.read_text("utf-8").replace(f'version = "{OLD}"', f'version = "{version}"'), "utf-8")
        pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
        build = ["wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(source)]
        subprocess.run([*pip, *build], check=True, cwd=folder)
        wheel = folder / f"glassfleet-{version}-py3-none-any.whl"
        subprocess.run([*pip, "install", "--no-deps", "--target", str(place), str(wheel)], check=True, cwd=folder)
        places[version] = place
    return places


class Machine:
    """A machine with both versions, and a link that says which one runs."""

    def __init__(self, folder: Path, installed: dict[str, Path]) -> None:
        folder.mkdir()
        self.folder, self.installed, self.link = folder, installed, folder / "glassfleet"

    def switch(self, version: str) -> dict[str, str]:
        """Let the link name a version; return the environment of a process that starts by it."""
        self.link.unlink(missing_ok=True)
        self.link.symlink_to(self.installed[version])
        # Without what is in the folder that the tests run in.
        return {**without_settings(), "PYTHONPATH": str(self.link), "PYTHONSAFEPATH": "1"}


class Vehicle(Machine):
    """A machine with an agent."""

    def __init__(self, name: str, folder: Path, installed: dict[str, Path], broker: str) -> None:
        super().__init__(folder, installed)
        self.name, self.broker, self.process = name, broker, None
        train = SOURCES[name].train
        lines = [",".join([*train.features, train.target])]
        lines += [",".join(map(repr, [*row, y])) for row, y in zip(train.X.tolist(), train.y.tolist(), strict=True)]
        (folder / "rows.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")

    process: Process | None

    def restart(self, version: str) -> None:
        """Stop the agent, switch, start it again: what systemctl does."""
        environment = self.switch(version)
        if self.process is not None:
            self.process.end()
        words = ["agent", "--id", self.name, "--data", str(self.folder / "rows.csv"), "--broker", self.broker]
        words += ["--state-dir", str(self.folder / "state")]
        self.process = Process(self.name, words, environment, self.folder / "log", PROGRAM)
        self.process.start()


@contextlib.contextmanager
def coordinator(url: str, machine: Machine, version: str) -> Iterator[Any]:
    """A coordinator of a version on its machine; gives its API."""
    environment = machine.switch(version)
    state = machine.folder / "state"
    state.mkdir(exist_ok=True, mode=0o700)
    process = CoordinatorProcess(url, state, environment=environment)
    try:
        with process.api() as api:
            assert api.get("/api/health").json()["software"] == f"glassfleet {version}"
            yield api
    finally:
        process.end()


def test_a_version_reaches_a_fleet_in_stages_and_goes_back_while_it_learns(
    tmp_path: Path, installed: dict[str, Path]
) -> None:
    broker = launch(state_dir=tmp_path / "broker")
    vehicles = {name: Vehicle(name, tmp_path / name, installed, broker.url) for name in SOURCES}
    cloud = Machine(tmp_path / "cloud", installed)

    def runs(api: Any) -> dict[str, str]:
        return {each["agent"]: each["software"].split()[-1] for each in api.get("/api/agents").json()}

    def learns(api: Any, run: str, software: dict[str, str]) -> None:
        eventually(lambda: runs(api) == software, f"{software} before {run}")
        begin_run(api, spec(run))
        document = ended(api, run)
        assert (document["outcome"], document["cohort"]) == ("finished", sorted(SOURCES)), document["reason"]

    try:
        for vehicle in vehicles.values():
            vehicle.restart(OLD)
        with coordinator(broker.url, cloud, OLD) as api:
            learns(api, "before", dict.fromkeys(SOURCES, OLD))
            begin_run(api, spec("meanwhile"), rounds=1)
            vehicles["va"].restart(NEW)
            assert ended(api, "meanwhile")["outcome"] == "finished"
            learns(api, "staged", {"va": NEW, "vb": OLD, "vc": OLD})
            for name in ("vb", "vc"):
                vehicles[name].restart(NEW)
            learns(api, "vehicles", dict.fromkeys(SOURCES, NEW))
        with coordinator(broker.url, cloud, NEW) as api:
            learns(api, "all", dict.fromkeys(SOURCES, NEW))
        for vehicle in vehicles.values():
            vehicle.restart(OLD)
        with coordinator(broker.url, cloud, OLD) as api:
            learns(api, "back", dict.fromkeys(SOURCES, OLD))
            assert len(api.get("/api/models/model").json()) == 6
    finally:
        for vehicle in vehicles.values():
            if vehicle.process is not None:
                vehicle.process.end()
        broker.stop()
