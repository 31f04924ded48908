"""What a person types into the dashboard's forms, and the numbers that the pages tell, in a real browser."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from edge_agent.fleet import Fleet
from edge_agent.sources import read_source
from glassfleet.export.svg.text import number
from glassfleet.private.words import WHY_NO_VEHICLES, protection
from lab.demo.vehicles import simulated_files
from tests.support.cloud import has_ended
from tests.support.dashboard_world import OPEN, VEHICLES, World
from tests.support.processes import eventually

FORECAST = "/models/video-quality/2/forecast"


def told(there: World, row: dict[str, float]) -> dict[str, Any]:
    """Return what the API explains about a row."""
    answer = there.api.post("/api/models/video-quality/explain", json={"row": row, "version": 2})
    assert answer.status_code == 200, answer.text
    document: dict[str, Any] = answer.json()
    return document


def up(there: World) -> set[str]:
    """Return who is up."""
    return {each["agent"] for each in there.api.get("/api/agents").json() if each["status"] == "up"}


def columns(there: World) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = there.api.get("/api/models/video-quality/2").json()["document"]["domain"]["features"]
    return found


def typed_rows(there: World) -> tuple[dict[str, float], dict[str, float]]:
    """Return two rows that differ in forecast: all inputs low, and all inputs high."""
    low, high = (
        {each["name"]: round(each["low"] + share * (each["high"] - each["low"]), 3) for each in columns(there)}
        for share in (0.1, 0.9)
    )
    return low, high


def test_forecast_changes_when_values_are_typed_and_submitted(there: World, page: Page) -> None:
    page.goto(there.base + FORECAST)
    expect(page.locator(".answer")).to_contain_text("as an example")
    headings = []
    for row in typed_rows(there):
        for name, value in row.items():
            page.locator(f'#row-form input[data-column="{name}"]').fill(str(value))
        page.locator("#row-form button").click()
        expect(page.locator("#answer-h")).to_contain_text(f"= {number(told(there, row)['prediction'], 5)}")
        headings.append(page.locator("#answer-h").inner_text())
        # What was typed is still there, to change one value and ask again.
        for name, value in row.items():
            assert float(page.locator(f'#row-form input[data-column="{name}"]').input_value()) == pytest.approx(value)
        assert page.locator("text=as an example").count() == 0
    assert headings[0] != headings[1]


def test_check_box_makes_a_run_private_and_its_page_says_what_that_was(there: World, page: Page) -> None:
    page.goto(f"{there.base}/new-run")
    page.fill("#token", there.token)
    page.click("main button:has-text('Sign in')")
    page.select_option("#scheme", "frt")
    page.click("text=Show its parameters")
    page.fill("#model", "closed")
    page.evaluate(OPEN)
    typed = {"policy.gather_agents": str(VEHICLES), "parameters.frt.max_depth": "1", "policy.extensions": "0"}
    for name, text in {**typed, "run": "closed"}.items():
        page.fill(f'[name="{name}"]', text)
    expect(page.locator("#private")).not_to_be_checked()
    page.check("text=Private: only sums over 8 or more vehicles are seen")
    page.click("main button:has-text('Start the run')")
    expect(page.locator("h1")).to_contain_text("closed")
    eventually(lambda: has_ended(there.api, "closed"), seconds=90)
    run = there.api.get("/api/runs/closed").json()
    assert run["outcome"] == "finished", run["reason"]
    assert run["spec"]["private"] == {"floor": 8, "company": 3, "support": 3, "patience": 1}
    page.reload()
    expect(page.locator("main")).to_contain_text(protection(run["private"]))
    page.goto(f"{there.base}/models/closed/1")
    expect(page.locator("main")).to_contain_text(WHY_NO_VEHICLES[1:])


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"time,place\n1,2\n", "no CSV file with the model's columns"),
        (gzip.compress(b"time,place\n1,2\n"), "no CSV file with the model's columns"),
        (b"\x89PNG\r\n\x1a\n\x00", "no CSV file with the model's columns"),
        (gzip.compress(b"time,place\n" * 1000)[:-9], "damaged"),
        (gzip.compress(b"0,0\n" * 5_000_001), "up to 20 MB"),
        (None, "a header and no rows"),
    ],
    ids=["other-columns", "other-columns-packed", "picture", "cut", "large-when-unpacked", "no-rows"],
)
def test_forecast_says_what_is_wrong_and_keeps_the_form_when_a_file_is_not_the_models(
    there: World, page: Page, tmp_path: Path, content: bytes | None, words: str
) -> None:
    file = tmp_path / "rows.csv.gz"
    file.write_bytes(",".join(each["name"] for each in columns(there)).encode() if content is None else content)
    page.goto(there.base + FORECAST)
    before = page.locator("#x0").input_value()
    page.click("summary:has-text('Load a row')")
    page.set_input_files("#file", file)
    expect(page.locator("#file-said")).to_contain_text(words)
    expect(page.locator("#file-said")).not_to_contain_text("is in the form")
    page.locator("#line").fill("2")
    page.locator("#line").blur()
    expect(page.locator("#file-said")).to_contain_text(words)
    assert page.locator("#x0").input_value() == before


def test_run_page_tells_how_many_were_late_and_dropped(there: World, page: Page, tmp_path: Path) -> None:
    files = simulated_files(tmp_path / "data", 2, 6)
    slow, steady = (read_source(files[name]) for name in ("vehicle-00", "vehicle-01"))
    # One vehicle's link takes longer than the deadline: it is dropped, and its answer is late. Another's takes so long
    # that the run still lives by then.
    with (
        Fleet({"slow-one": slow}, broker=there.broker, state_dir=tmp_path / "slow", evaluate=False, slow=2.5),
        Fleet({"steady-one": steady}, broker=there.broker, state_dir=tmp_path / "steady", evaluate=False, slow=1.2),
    ):
        eventually(lambda: {"slow-one", "steady-one"} <= up(there))
        policy = {"deadline": 2.0, "grace": 0.0, "extensions": 0, "gather_agents": len(up(there)), "gather_timeout": 60}
        there.start("slow-run", model="slow", parameters={"nullify": False, "max_depth": 2}, policy=policy)
        eventually(lambda: has_ended(there.api, "slow-run"), seconds=60)
    rounds = there.api.get("/api/runs/slow-run").json()["rounds"]
    assert sum(each["late"] for each in rounds) >= 1
    assert sum(each["dropped"] for each in rounds) >= 1
    page.goto(f"{there.base}/runs/slow-run")
    head = page.locator("#run-rounds thead th").all_inner_texts()
    late, dropped = head.index("Late"), head.index("Dropped")
    told_of = []
    for line in page.locator("#run-rounds tbody tr").all():
        cells = [line.locator("th").inner_text(), *line.locator("td").all_inner_texts()]
        told_of.append((cells[0].split(" attempt")[0], *(int(cells[at].replace("–", "0")) for at in (late, dropped))))
    # Who was dropped and answered later is late, and that alone.
    assert told_of == [
        (f"{each['phase']} {each['number']}", each["late"], len({*each["dropped_agents"]} - {*each["late_agents"]}))
        for each in rounds[::-1]
    ]
    expect(page.locator("#run-rounds")).to_contain_text("slow-one")
