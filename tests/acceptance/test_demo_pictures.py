"""The demonstration as somebody meets it: at a terminal, with its dashboard in a browser, until Ctrl-C.

``make pictures`` keeps what is seen here in docs/images: ``GLASSFLEET_PICTURES=DIR`` writes the pictures into DIR, of a
fleet of fifteen; without it a small fleet is looked at, and nothing is kept.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import httpx
import numpy as np
import psutil
import pytest
from matplotlib.image import imread
from playwright.sync_api import Browser, Page, expect

from tests.acceptance.cloud import wait_for
from tests.acceptance.demo_terminal import Terminal, as_svg, plain, terminal
from tests.integration.dashboard_world import chromium

pytestmark = [pytest.mark.acceptance, pytest.mark.chromium, pytest.mark.timeout(400)]
KEEP = os.environ.get("GLASSFLEET_PICTURES")
FLEET = ["--drop", "0.3", "--seed", "7"]
SMALL = ["--vehicles", "6", "--slow", "0.2", "--deadline", "1.5", "--pace", "0.1"]
STAYS = "everything stays up until Ctrl-C"
LOOKS: list[tuple[str, tuple[int, int], Literal["light", "dark"]]] = [
    ("light", (1280, 900), "light"),
    ("dark", (1280, 900), "dark"),
    ("phone", (390, 844), "light"),
]
TALLEST = 1500


class Stage:
    """The demonstration that stays up, and its dashboard."""

    def __init__(self, shown: Terminal, work: Path) -> None:
        self.terminal = shown
        self.work = work
        text = shown.wait_for(STAYS, 240)
        found = re.search(rf"{STAYS}; dashboard: (http://127\.0\.0\.1:\d+)/", text)
        assert found, text[-2000:]
        self.base = found[1]
        self.api = httpx.Client(base_url=self.base, trust_env=False, timeout=30)
        self.run: dict[str, Any] = self.api.get(f"/api/runs/{self._runs()[0]}").json()
        self.token = (work / "coordinator" / "api-token").read_text().strip()

    def _runs(self) -> list[str]:
        return [each["run"] for each in self.api.get("/api/runs").json()]

    def learn_again(self) -> None:
        """Start another run, as an operator would, for a larger model; the vehicles that are still up answer it."""
        spec = {name: value for name, value in self.run["spec"].items() if name != "run"}
        spec |= {"domain": self.run["domain"], "bounds": None}
        up = sum(each["status"] == "up" for each in self.api.get("/api/agents").json())
        spec["parameters"] = {**spec["parameters"], "size_tolerance": 0.003}
        spec["policy"] = {**spec["policy"], "gather_agents": up}
        headers = {"Authorization": f"Bearer {self.token}"}
        answer = self.api.post("/api/runs", json=spec, headers=headers)
        assert answer.status_code == 201, answer.text
        address = f"/api/runs/{answer.json()['run']}"
        wait_for(lambda: self.api.get(address).json()["state"] == "ended", seconds=120)
        ended = self.api.get(address).json()
        assert ended["outcome"] == "finished", ended["reason"]

    @property
    def pages(self) -> dict[str, str]:
        return {
            "fleet": "/",
            "runs": "/runs",
            "run": f"/runs/{self.run['run']}",
            "model": "/models/qoe/1",
            "forecast": "/models/qoe/1/forecast",
            "versions": "/models/qoe/2/against/1",
        }


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    work = tmp_path_factory.mktemp("demo") / "work"
    size = [] if KEEP else SMALL
    with terminal([*FLEET, *size, "--stay", "--keep", str(work)]) as shown:
        made = Stage(shown, work)
        yield made
        made.api.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as made:
        yield made


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = Path(KEEP) if KEEP else tmp_path_factory.mktemp("pictures")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def test_demo_shows_vehicles_rounds_and_the_growing_model_at_a_terminal(stage: Stage, pictures: Path) -> None:
    frames = stage.terminal.frames()
    assert len(frames) > 20
    first = "\n".join(plain(frames[0]))
    assert "loading" in first, "there is something to see at once"
    for frame in frames:
        assert all(len(line) <= stage.terminal.columns for line in plain(frame))
    busy = [frame for frame in frames if "s left" in frame and "statistics" in frame and "killed" in frame]
    assert busy
    # The fullest one: late in the growth, with the most of it there.
    best = max(busy, key=lambda frame: sum(bool(line.strip()) for line in plain(frame)))
    seen = "\n".join(plain(best))
    for words in (f"{stage.base}/", "The model so far", "buffer_last_s is", "in the cohort", "Events"):
        assert words in seen
    picture = as_svg(best, stage.terminal.columns, "glassfleet demo")
    (pictures / "demo-terminal.svg").write_text(picture, encoding="utf-8")
    assert not re.search(r"@font-face|url\([^#]|href=", picture), "it asks nobody for anything"
    assert "vehicle-00" in picture


def test_demo_leaves_what_happened_in_whole_words_with_the_late_counted(stage: Stage) -> None:
    _, _, left = stage.terminal.raw.partition("\x1b[?1049l")
    lines = [line for line in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", left).split("\n") if line.strip()]
    assert max(map(len, lines)) <= stage.terminal.columns
    told = [int(found[1]) for line in lines if (found := re.search(r"dropped +\d+ +late +(\d+) ", line))]
    known = stage.run["rounds"]
    assert told == [item["late"] for item in known]
    assert sum(told) > 0
    assert "equal: the fleet learned exactly the central model of its cohort" in left


def test_dashboard_of_the_demo_shows_the_run_its_model_and_a_forecast(
    stage: Stage, browser: Browser, pictures: Path
) -> None:
    stage.learn_again()
    # Every vehicle that is up, the slow ones too, tells how good the model is on rows of its own.
    up = [each["agent"] for each in stage.api.get("/api/agents").json() if each["status"] == "up"]
    wait_for(lambda: set(up) <= set(stage.api.get("/api/models/qoe/2/evaluations").json()), what="no scores came")
    gone = sorted(set(stage.run["agents"]) - set(up))
    assert gone, "one was killed and did not come back"
    for look, size, scheme in LOOKS:
        opened = browser.new_context(viewport={"width": size[0], "height": size[1]}, color_scheme=scheme)
        opened.set_default_timeout(20_000)
        page = opened.new_page()
        faults: list[str] = []
        _note_faults(page, faults)
        for name, address in stage.pages.items():
            page.goto(stage.base + address)
            _check(stage, name, page, gone)
            page.wait_for_timeout(200)
            _photograph(page, pictures / f"dashboard-{name}-{look}.png", size)
        assert faults == []
        opened.close()
    made = sorted(pictures.glob("dashboard-*.png"))
    assert len(made) == len(LOOKS) * len(stage.pages)
    for look, size, _ in LOOKS:
        for name in stage.pages:
            colours = imread(pictures / f"dashboard-{name}-{look}.png")[:, :, :3]
            assert colours.shape[1] == size[0]
            assert size[1] <= colours.shape[0] <= TALLEST
            shades = (colours[::2, ::2] * 15).astype(int) @ np.array([256, 16, 1])
            assert np.unique(shades).size > 12, f"{name} is blank"
            assert (colours.mean() < 0.5) == (look == "dark")


def _note_faults(page: Page, faults: list[str]) -> None:
    page.on("pageerror", lambda fault: faults.append(str(fault)))


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
        case "model":
            expect(main).to_contain_text(stage.api.get("/api/models/qoe/1").json()["digest"])
            expect(main).to_contain_text("vehicle-03")
        case "forecast":
            expect(page.locator("#answer-h")).to_contain_text(re.compile(r"\d"))
            expect(page.locator(".answer .card").first).to_contain_text("rule")
        case "versions":
            expect(main).to_contain_text("buffer_last_s")


def _photograph(page: Page, path: Path, size: tuple[int, int]) -> None:
    high = page.evaluate("document.documentElement.scrollHeight")
    page.screenshot(
        path=path,
        full_page=True,
        clip={"x": 0.0, "y": 0.0, "width": float(size[0]), "height": float(min(max(high, size[1]), TALLEST))},
    )


def test_demo_that_stays_tells_of_a_vehicle_that_ends_and_leaves_nothing_at_ctrl_c(stage: Stage) -> None:
    children = psutil.Process(stage.terminal.process.pid).children(recursive=True)
    vehicles = {
        child.cmdline()[child.cmdline().index("--id") + 1]: child for child in children if "--id" in child.cmdline()
    }
    name, unlucky = max(vehicles.items())
    unlucky.kill()
    stage.terminal.wait_for(f"{name} ended with exit code -9", 30)
    assert stage.terminal.process.poll() is None
    stage.terminal.press_ctrl_c()
    assert stage.terminal.process.wait(60) == 0
    _, alive = psutil.wait_procs(children, timeout=20)
    assert not alive
    assert "stopping vehicles, coordinator and broker" in stage.terminal.text
    assert (stage.work / "model.json").exists()
