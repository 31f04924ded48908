"""A fleet to look at: a real broker, a coordinator process, simulated vehicles with real agents, and a nasty one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import Browser, sync_playwright

from broker.paho_transport import PahoTransport
from broker.port import Handlers, Link, Message
from broker.servers.launch import launch
from edge_agent.sources import read_source
from lab.demo.vehicles import simulated_files
from lab.fleet import Fleet
from lab.qoe.windows import BOUNDS, UNITS
from schemas.envelope import Envelope
from schemas.leakage import SavedReport, place_of
from schemas.messages import AgentState, Refusal, Request
from schemas.topics import Topics
from tests.support.cloud import CoordinatorProcess, ended
from tests.support.coordinator_http import EVIL
from tests.support.needs import programs
from tests.support.processes import eventually

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
OPEN = "for (const each of document.querySelectorAll('details')) each.open = true"
SIDEWAYS = """[...document.querySelectorAll(".scroll")]
    .filter((each) => each.clientWidth && each.scrollWidth > each.clientWidth)
    .map((each) => each.getAttribute("aria-label") ?? each.getAttribute("aria-labelledby"))"""
"""Parts of a page that show all of themselves only when they are moved sideways."""
TOPICS = Topics("fleet")
VEHICLES = 9


class Nasty:
    """An agent that offers to learn, then refuses; every text of its choice is hostile (or, for pictures, tame)."""

    def __init__(self, url: str, features: tuple[str, ...], target: str, *, hostile: bool) -> None:
        self.features = (*features, EVIL) if hostile else features
        self.target = target
        self.name = "zz.nasty-one" if hostile else "vehicle-09"
        self.software = EVIL if hostile else "glassfleet 0.0.9"
        self.schemes = ["frt", EVIL] if hostile else ["frt"]
        self.reason = EVIL if hostile else "the sensor of the buffer is broken"
        self.transport = PahoTransport(Link(url, self.name))
        self.transport.subscribe(f"{TOPICS.prefix}run/+/request")
        self.transport.start(Handlers(self.arrived, self.connected, lambda _why: None))

    def connected(self) -> None:
        body = AgentState(
            status="up",
            incarnation=self.software,
            software=self.software,
            schemes=self.schemes,
            features=list(self.features),
            target=self.target,
        )
        payload = Envelope(fleet="fleet", body=body, agent=self.name).to_bytes()
        self.transport.publish(TOPICS.agent_state(self.name), payload, retain=True)

    def arrived(self, message: Message) -> None:
        if not message.payload:
            return
        envelope = Envelope.from_bytes(message.payload, fleet="fleet")
        if isinstance(envelope.body, Request):
            body = Refusal(task_digest=envelope.body.task_digest, reason=self.reason)
            whole = Envelope(fleet="fleet", body=body, run=envelope.run, agent=self.name).to_bytes()
            self.transport.publish(TOPICS.contribution(self.name), whole)


class World:
    """What a test may use."""

    def __init__(self, api: httpx.Client, state_dir: Path, url: str) -> None:
        self.api = api
        self.state_dir = state_dir
        self.broker = url
        self.base = str(api.base_url).rstrip("/")

    @property
    def token(self) -> str:
        return (self.state_dir / "api-token").read_text().strip()

    def start(self, run: str, **changes: Any) -> None:
        policy = {"gather_agents": VEHICLES, "deadline": 20.0, "min_agents": 3, **changes.pop("rounds", {})}
        bounds = {name: {"low": low, "high": high, "unit": UNITS[name]} for name, (low, high) in BOUNDS.items()}
        wanted = {"run": run, "scheme": "frt", "rounds": policy, "bounds": bounds, **changes}
        answer = self.api.post("/api/runs", json=wanted)
        assert answer.status_code == 201, answer.text

    def learn(self, run: str, **changes: Any) -> dict[str, Any]:
        self.start(run, **changes)
        document: dict[str, Any] = ended(self.api, run)
        assert document["outcome"] == "finished", document["reason"]
        made = document["model"]
        evaluations = f"/api/models/{made['name']}/{made['version']}/evaluations"
        eventually(lambda: len(self.api.get(evaluations).json()) >= VEHICLES, what="the vehicles sent no scores")
        # The gate would wait two minutes for an intruder that never scores; and a worse version is wanted here, too.
        self.api.post(f"/api/models/{made['name']}/promote", json={"version": made["version"]})
        return document


def save_report(state_dir: Path, run: str, attack: str) -> None:
    """Save what an owner of rows may have measured of a run."""
    line = {"attack": attack, "parts": 2, "rows": 4000, "false": 150, "chance": 0}
    lines = [
        {**line, "protection": "exact", "seen": "each vehicle", "read": 930},
        {**line, "protection": "exact", "seen": "all vehicles together", "read": 0},
    ]
    model = {"protection": "exact", "auc": 0.55, "met": 0.0, "met_others": 0.0, "rows": 4000, "others": 1000}
    result = {"run": run, "scheme": "frt", "vehicles": VEHICLES, "rows": 4000, "lines": lines, "models": [model]}
    path = state_dir / place_of(run)
    path.parent.mkdir()
    path.write_text(SavedReport.model_validate(result).model_dump_json())


@contextmanager
def world(folder: Path, *, hostile: bool = True, nasty: bool = True) -> Iterator[World]:
    """A fleet with two versions of a fuzzy regression tree, and, if wanted, a nasty vehicle in the second run."""
    files = simulated_files(folder / "data", VEHICLES, 7)
    sources = {name: read_source(path) for name, path in files.items()}
    first = next(iter(sources.values())).train
    broker = launch(state_dir=folder / "broker")
    coordinator = CoordinatorProcess(broker.url, folder / "coordinator", environment={"OPENBLAS_NUM_THREADS": "1"})
    intruder: Nasty | None = None
    try:
        with Fleet(sources, broker=broker.url, state_dir=folder / "agents") as _, coordinator.api() as api:
            there = World(api, folder / "coordinator", broker.url)
            exact = {"nullify": False, "min_rows": 1, "max_depth": 2}
            there.learn("morning", model="video-quality", parameters=exact)
            if nasty:
                intruder = Nasty(broker.url, first.features, first.target, hostile=hostile)
                eventually(lambda: len(api.get("/api/agents").json()) == VEHICLES + 1)
            there.learn("evening", model="video-quality", parameters={**exact, "max_depth": 3})
            eventually(
                lambda: len(api.get("/api/models/video-quality/2/evaluations").json()) == VEHICLES,
                what="the vehicles sent no scores",
            )
            nightly = {"name": "nightly", "at": "0 2 * * *", "zone": "Europe/Berlin", "spec": {"scheme": "frt"}}
            assert api.post("/api/schedules", json=nightly).status_code == 201
            api.post("/api/schedules/nightly/pause", json={"reason": EVIL if hostile else "roadworks"})
            save_report(there.state_dir, "evening", "spans" if not hostile else EVIL)
            yield there
        assert coordinator.end() == 0, coordinator.logged()
        assert "Traceback" not in coordinator.logged()
    finally:
        coordinator.kill()
        if intruder is not None:
            intruder.transport.stop()
        broker.stop()


@contextmanager
def chromium() -> Iterator[Browser]:
    """Debian's browser, without a head."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=programs.path("chromium"), args=ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()
