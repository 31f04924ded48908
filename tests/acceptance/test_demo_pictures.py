"""The demonstration as somebody meets it: at a terminal, with its dashboard in a browser, until Ctrl-C.

``make pictures`` keeps what is seen here in docs/images: ``GLASSFLEET_PICTURES=DIR`` writes the pictures into DIR, of a
fleet of fifteen; without it a small fleet is looked at, and nothing is kept. Vehicles are frozen for a moment where a
picture is of something that goes on: then it stands still, however busy the machine is.
"""

from __future__ import annotations

import csv
import gzip
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import psutil
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.docs.demo_pictures import DARK, LIGHT, PHONE, Album, Look, Shot, Terminal, as_svg, plain, terminal
from tests.support.docs.pictures import NOTE, as_note, digests
from tests.support.processes import eventually

pytestmark = [pytest.mark.acceptance, pytest.mark.slow, pytest.mark.timeout(600)]
KEEP = os.environ.get("GLASSFLEET_PICTURES")
FLEET = ["--drop", "0.3", "--seed", "7"]
SMALL = ["--vehicles", "6"]
STAYS = "everything stays up until Ctrl-C"
PATIENCE = 60.0
"""Seconds that a round waits for a vehicle that is frozen."""
PLAN = {"stages": [0.4, 1.0], "min_reports": 1.0, "max_worse": 1.0, "max_worse_share": 1.0, "deadline": 600}
BOTH, ALL = (LIGHT, PHONE), (LIGHT, DARK, PHONE)
SHOTS = [
    Shot("fleet", "/", ALL),
    Shot("runs", "/runs", BOTH),
    Shot("run", "/runs/{run}", ALL),
    Shot("model", "/models/qoe", ALL),
    Shot("scores", "/models/qoe", BOTH, ("section:has(> #scores-h)",)),
    Shot("forecast", "/models/qoe/2/forecast?{row}", ALL, (".answer",)),
    Shot("versions", "/models/qoe/2/against/1", BOTH),
    Shot("week", "/week", ALL),
    Shot("schedules", "/schedules", ALL),
]
WORDS = {
    "versions": ["buffer_last_s"],
    "week": ["the first was version 1", "became current"],
    "schedules": ["nightly", "02:00"],
}
GROWTH = Shot("growth", "/runs/{run}", BOTH, ("section:has(> #growth-h)",))
ROLLOUT = Shot("rollout", "/models/qoe/2", BOTH, ("section:has(> #standing-h)",))


class Stage:
    """The demonstration that stays up, and its dashboard."""

    def __init__(self, shown: Terminal, work: Path) -> None:
        self.terminal = shown
        self.work = work
        text = shown.wait_for(STAYS, 240)
        match = re.search(rf"{STAYS}; dashboard: (http://127\.0\.0\.1:\d+)/", text)
        assert match, text[-2000:]
        self.base = match[1]
        token = (work / "coordinator" / "api-token").read_text().strip()
        headers = {"Authorization": f"Bearer {token}"}
        self.api = httpx.Client(base_url=self.base, trust_env=False, timeout=30, headers=headers)
        (known,) = self.api.get("/api/runs").json()
        self.run: dict[str, Any] = self.api.get(f"/api/runs/{known['run']}").json()

    def up(self) -> list[str]:
        """Return who is up."""
        return [each["agent"] for each in self.api.get("/api/agents").json() if each["status"] == "up"]

    def vehicles(self) -> dict[str, psutil.Process]:
        """Return the vehicles' processes."""
        children = psutil.Process(self.terminal.process.pid).children(recursive=True)
        lines = {child: child.cmdline() for child in children}
        return {line[line.index("--id") + 1]: child for child, line in lines.items() if "--id" in line}

    @contextmanager
    def frozen(self, vehicle: str) -> Iterator[None]:
        """Let a vehicle stand still."""
        process = self.vehicles()[vehicle]
        process.suspend()
        try:
            yield
        finally:
            process.resume()

    def post(self, address: str, body: dict[str, Any]) -> dict[str, Any]:
        """Do as an operator does."""
        answer = self.api.post(address, json=body)
        assert answer.status_code in {200, 201}, answer.text
        result: dict[str, Any] = answer.json()
        return result

    def current(self) -> int:
        """Return the version that vehicles use."""
        return int(self.api.get("/api/models/qoe/history").json()["current"]["version"])

    def has_judged(self) -> bool:
        """Whether the newest version is in use, or did not pass."""
        candidate = self.api.get("/api/models/qoe/history").json()["candidate"]
        return self.current() == 2 or bool(candidate and candidate["version"] == 2 and candidate.get("reason"))

    def telling_row(self, vehicle: str) -> dict[str, float]:
        """Return a row of a vehicle's own on which rules compete: of the first ones, where the second is strongest."""
        with gzip.open(self.work / "data" / f"{vehicle}.csv.gz", "rt", encoding="utf-8") as file:
            rows = list(islice(csv.DictReader(file), 0, 400, 10))
        inputs = [each["name"] for each in self.api.get("/api/models/qoe/2").json()["document"]["domain"]["features"]]

        def rivalry(row: dict[str, float]) -> float:
            result = self.post("/api/models/qoe/explain", {"row": row, "version": 2})
            return max((float(each["strength"]) for each in result["runners_up"]), default=0.0)

        return max(({name: float(row[name]) for name in inputs} for row in rows), key=rivalry)

    def learn_again(self) -> str:
        """Start another run, for a larger model; the vehicles that are still up answer it. Return its name."""
        spec = {name: value for name, value in self.run["spec"].items() if name != "run"}
        spec |= {"domain": self.run["domain"], "bounds": None}
        spec["parameters"] = {**spec["parameters"], "size_tolerance": 0.003}
        spec["rounds"] = {**spec["rounds"], "gather_agents": len(self.up()), "deadline": PATIENCE}
        return str(self.post("/api/runs", spec)["run"])


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    work = tmp_path_factory.mktemp("demo") / "work"
    size = [] if KEEP else SMALL
    with terminal([*FLEET, *size, "--stay", "--keep", str(work)]) as shown:
        made = Stage(shown, work)
        yield made
        made.api.close()


@pytest.fixture(scope="module")
def album(tmp_path_factory: pytest.TempPathFactory) -> Album:
    return Album(Path(KEEP) if KEEP else tmp_path_factory.mktemp("pictures"), digests())


def test_demo_shows_vehicles_rounds_and_the_growing_model_at_a_terminal(stage: Stage, album: Album) -> None:
    frames = stage.terminal.frames()
    assert len(frames) > 20
    first = "\n".join(plain(frames[0]))
    assert "loading" in first, "there is something to see at once"
    for frame in frames:
        assert all(len(line) <= stage.terminal.columns for line in plain(frame))
    told = ("s left", "statistics", "killed", "buffer_last_s is")
    busy = [frame for frame in frames if all(words in "\n".join(plain(frame)) for words in told)]
    assert busy
    # The fullest one of those after the last kill: late in the growth, with the most of it there.
    best = max(busy, key=_fullness)
    seen = "\n".join(plain(best))
    for words in (f"{stage.base}/", "The model so far", "buffer_last_s is", "in the cohort", "Events", "too late: "):
        assert words in seen
    rounds = seen[seen.index("Rounds") : seen.index("The model so far")]
    assert "…" not in rounds, "why somebody is missing is there whole"
    picture = as_svg(best, stage.terminal.columns, "glassfleet demo")
    album.keep("demo-terminal.svg", picture.encode())
    assert not re.search(r"@font-face|url\([^#]|href=", picture), "it asks nobody for anything"
    assert "vehicle-00" in picture


def _fullness(frame: str) -> tuple[int, int]:
    lines = [line for line in plain(frame) if line.strip()]
    killed = re.search(r"(\d+) killed", "\n".join(lines))
    return int(killed[1]) if killed else 0, len(lines)


def test_demo_leaves_what_happened_in_whole_words_with_the_late_counted(stage: Stage) -> None:
    _, _, left = stage.terminal.raw.partition("\x1b[?1049l")
    lines = [line for line in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", left).split("\n") if line.strip()]
    assert max(map(len, lines)) <= stage.terminal.columns
    found_at = [int(match[1]) for line in lines if (match := re.search(r"dropped +\d+ +late +(\d+) ", line))]
    known = stage.run["rounds"]
    assert found_at == [item["late"] for item in known]
    assert sum(found_at) > 0
    assert "equal: the fleet learned exactly the central model of its cohort" in left


def test_dashboard_of_the_demo_shows_a_tree_while_it_grows(stage: Stage, browser: Browser, album: Album) -> None:
    steady = min(set(stage.run["cohort"]) & set(stage.up()))
    run = stage.learn_again()
    address = f"/api/runs/{run}"

    def grown() -> bool:
        known = stage.api.get(address).json()
        assert known["state"] == "running", known
        # Where it is to be kept, as late as is safe: what is asked about may yet turn out to be leaves.
        return int(known["progress"].get("depth") or 0) >= (3 if KEEP else 1)

    def waits_for_one() -> bool:
        current = stage.api.get(address).json()["open"]
        return current is not None and set(current["asked_agents"]) - set(current["accepted_agents"]) == {steady}

    eventually(grown, seconds=120)
    with stage.frozen(steady):
        # If it had answered this round already, the next one waits for it.
        eventually(waits_for_one, seconds=60, what="no round waits for it")
        for look in GROWTH.looks:
            with _page(browser, look) as page:
                page.goto(f"{stage.base}/runs/{run}")
                expect(page.locator("#run-open")).to_contain_text("statistics")
                tree = page.locator("#run-growth svg.tree" if look is not PHONE else "#run-growth .narrow ul").first
                expect(tree).to_be_visible()
                expect(tree.locator(".grows").first).to_be_visible()
                album.take(page, GROWTH, look)
        assert stage.api.get(address).json()["state"] == "running"
    eventually(lambda: stage.api.get(address).json()["state"] == "ended", seconds=180)
    ended = stage.api.get(address).json()
    assert ended["outcome"] == "finished", ended["reason"]
    assert steady in ended["cohort"], "it was waited for"
    # A larger model need not be shown to be better: then the operator takes it.
    eventually(stage.has_judged, seconds=150, what="the fleet's scores did not judge version 2")
    if stage.current() != 2:
        stage.post("/api/models/qoe/promote", {"version": 2, "reason": "a larger model, to be looked at"})


def test_dashboard_of_the_demo_shows_a_rollout_until_its_candidate_is_in_use(
    stage: Stage, browser: Browser, album: Album
) -> None:
    stage.post("/api/models/qoe/rollback", {"to": 1, "reason": "version 2 is to be tried in stages first"})
    up = stage.up()
    with stage.frozen(up[-1]):
        stage.post("/api/rollouts", {"name": "qoe", "version": 2, "plan": PLAN})

        def waits_for_one() -> bool:
            result = stage.api.get("/api/rollouts/qoe").json()[-1]
            asked = result["stages"][-1]["asked"] if result["stages"] else []
            return up[-1] in asked and set(asked) - set(result["agents"]) == {up[-1]}

        eventually(waits_for_one, seconds=90, what="the others did not report")
        for look in ROLLOUT.looks:
            with _page(browser, look) as page:
                page.goto(stage.base + ROLLOUT.address)
                expect(page.locator("#standing .rollout")).to_contain_text("Rollout of version 2 against version 1")
                # A long list is closed at first. In one step: the page puts a new one in its place each second.
                page.evaluate("document.querySelector('#standing .rollout details').open = true")
                expect(page.locator("#standing .rollout tbody tr", has_text=up[-1])).to_be_visible()
                album.take(page, ROLLOUT, look)
    eventually(lambda: stage.current() == 2, seconds=60, what="the candidate was not promoted")


def test_dashboard_of_the_demo_shows_the_run_the_model_in_use_and_a_forecast(
    stage: Stage, browser: Browser, album: Album
) -> None:
    # Every vehicle that is up, the slow ones too, tells how good the model is on rows of its own.
    up = set(stage.up())
    eventually(lambda: up <= set(stage.api.get("/api/models/qoe/2/evaluations").json()), what="no scores came")
    gone = sorted(set(stage.run["agents"]) - up)
    assert gone, "one was killed and did not come back"
    spec = {name: value for name, value in stage.run["spec"].items() if name != "run"}
    nightly = {"name": "nightly", "at": "0 2 * * *", "zone": "Europe/Berlin", "quiet": "06:00-22:00", "vehicles": 8}
    stage.post("/api/schedules", {**nightly, "spec": spec})
    asked = {"run": stage.run["run"], "row": urlencode({"row": json.dumps(stage.telling_row("vehicle-00"))})}
    for look in ALL:
        with _page(browser, look) as page:
            for shot in SHOTS:
                if look in shot.looks:
                    page.goto(stage.base + shot.address.format_map(asked))
                    _check(stage, shot.name, page, gone)
                    page.wait_for_timeout(200)
                    album.take(page, shot, look)
    wanted = [shot.file(look) for shot in [*SHOTS, GROWTH, ROLLOUT] for look in shot.looks]
    assert sorted(album.taken) == sorted([*wanted, "demo-terminal.svg"])
    if KEEP:
        album.finish(NOTE.name, as_note(album.sources))


@contextmanager
def _page(browser: Browser, look: Look) -> Iterator[Page]:
    opened = browser.new_context(viewport={"width": look.width, "height": look.height}, color_scheme=look.scheme)
    opened.set_default_timeout(20_000)
    page = opened.new_page()
    faults: list[str] = []
    page.on("pageerror", lambda fault: faults.append(str(fault)))
    yield page
    assert faults == []
    opened.close()


def _check(stage: Stage, name: str, page: Page, gone: list[str]) -> None:
    main = page.locator("main")
    match name:
        case "fleet":
            expect(page.locator("#fleet-table tbody tr", has_text=gone[0]).locator(".badge").first).to_have_text("down")
        case "runs":
            expect(main).to_contain_text(stage.run["run"])
        case "run":
            for words in ("finished", "late", "dropped", "attempt 2" if KEEP else "domain", gone[0]):
                expect(main).to_contain_text(words)
            expect(page.locator("svg.timeline:visible")).to_have_count(1)
        case "model" | "scores":
            expect(main).to_contain_text(stage.api.get("/api/models/qoe/2").json()["digest"])
            expect(page.locator("h1 .badge")).to_have_text("champion")
            expect(page.locator("#cl-why")).to_be_visible()
        case "forecast":
            expect(page.locator("#answer-h")).to_contain_text(re.compile(r"\d"))
            expect(page.locator(".answer .card").first).to_contain_text("rule")
            expect(page.locator(".answer .way.best")).to_be_visible()
            expect(page.locator(".answer svg.sets:visible").first).to_be_visible()
            expect(page.locator("#runners-up-h")).to_be_visible()
            assert page.get_by_text("as an example").count() == 0
        case _:
            for words in WORDS[name] if name != "week" else [*WORDS[name], gone[0]]:
                expect(main).to_contain_text(words)


@pytest.mark.needs("bash")
def test_demo_that_stays_tells_of_a_vehicle_that_ends_and_leaves_nothing_at_ctrl_c(stage: Stage) -> None:
    children = psutil.Process(stage.terminal.process.pid).children(recursive=True)
    # What it says to type in another terminal.
    typed = f"source {stage.work / 'environment'}; '{sys.executable}' -m console.main model rules qoe --top 1"
    result = subprocess.run(["bash", "-c", typed], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "THEN displayed_in_3s_share = " in result.stdout
    name, unlucky = max(stage.vehicles().items())
    unlucky.kill()
    stage.terminal.wait_for(f"{name} ended with exit code -9", 30)
    assert stage.terminal.process.poll() is None
    stage.terminal.press_ctrl_c()
    assert stage.terminal.process.wait(60) == 0
    _, alive = psutil.wait_procs(children, timeout=20)
    assert not alive
    assert "stopping vehicles, coordinator and broker" in stage.terminal.text
    assert (stage.work / "model.json").exists()
