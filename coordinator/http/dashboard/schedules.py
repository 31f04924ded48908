"""The page of schedules: when runs are started, what the nights became, and a pause."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import RedirectResponse, Response
from starlette.concurrency import run_in_threadpool

from coordinator.http.access import PAGE, SIGNED_IN

if TYPE_CHECKING:
    from coordinator.core import Coordinator
    from coordinator.http.dashboard.pages import Dashboard


def add_schedule_pages(app: FastAPI, dashboard: Dashboard) -> None:
    """Give an application the page, and its forms."""

    @app.get("/schedules", dependencies=[PAGE], include_in_schema=False)
    def _schedules(request: Request) -> Response:
        schedules = dashboard.coordinator.schedules
        return dashboard.page(request, "schedules.html", schedules=schedules.documents())

    @app.post("/schedules/{name}/{what}", dependencies=[SIGNED_IN], include_in_schema=False)
    async def _act(request: Request, name: str, what: str) -> Response:
        fields = await dashboard.sessions.form(request)

        def do(core: Coordinator) -> None:
            if what == "pause":
                core.schedules.pause(name, fields.get("reason", "").strip())
            else:
                core.schedules.resumed(name)

        if what not in ("pause", "resume"):
            raise HTTPException(404, "no such page")
        await run_in_threadpool(dashboard.service.call, do)
        return RedirectResponse("/schedules", 303)
