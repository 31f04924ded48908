"""Reports: what the pages of a run, a model and the week say, each as one file that nothing else is needed to read."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from fastapi.responses import Response

from coordinator.http.access import PAGE, PAGE_OF_A_MODEL
from coordinator.http.dashboard.model_pages import ModelPageQuery, model_values
from coordinator.http.dashboard.week import week
from schemas.errors import GlassfleetError

if TYPE_CHECKING:
    from coordinator.http.dashboard.pages import Dashboard

ROUNDS = 10_000
"""So many rounds, the newest, are in a report."""


def add_reports(app: FastAPI, dashboard: Dashboard) -> None:
    """Give an application the addresses of reports."""

    @app.get("/runs/{run}/report", dependencies=[PAGE_OF_A_MODEL], include_in_schema=False)
    def _run(run: str) -> Response:
        values = dashboard.run_values(run, 1, ROUNDS)
        values |= dashboard.leakage_values(values["run"]["run"])
        made: dict[str, Any] = values["run"]["model"] or {}
        shown: dict[str, Any] = {"loaded": None}
        with suppress(GlassfleetError):  # there is none, or this software cannot read it
            shown = model_values(
                dashboard, dashboard.library.get(made.get("name", ""), made.get("version")), ModelPageQuery()
            )
        return dashboard.report(f"{run}.html", "report.html", **{**shown, **values})

    @app.get("/models/{name}/{version:int}/report", dependencies=[PAGE_OF_A_MODEL], include_in_schema=False)
    def _model(name: str, version: int) -> Response:
        values = model_values(dashboard, dashboard.library.get(name, version), ModelPageQuery())
        return dashboard.report(f"{name}-v{version}.html", "model.html", **values)

    @app.get("/week/report", dependencies=[PAGE], include_in_schema=False)
    def _week() -> Response:
        known = week(dashboard.coordinator, dashboard.library, dashboard.recent, time.time())
        return dashboard.report(f"week-{known['end'][:10]}.html", "week.html", week=known)
