"""Addresses of the HTTP API for schedules: runs that are started again and again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from fastapi import FastAPI, Query

from coordinator.http.access import OPERATOR, READER
from coordinator.http.errors import refuse_booleans
from coordinator.http.rollout_api import Why
from coordinator.specification.run import with_participation
from coordinator.specification.schedule import Schedule

if TYPE_CHECKING:
    from coordinator.process.service import Service


def add_schedules(app: FastAPI, service: Service) -> None:
    """Add the addresses."""
    coordinator = service.coordinator

    @app.get("/api/schedules", dependencies=[READER])
    def _schedules() -> list[dict[str, Any]]:
        return coordinator.schedules.documents()

    @app.get("/api/schedules/{name}", dependencies=[READER])
    def _schedule(name: str, following: Annotated[int, Query(ge=0, le=1000)] = 5) -> dict[str, Any]:
        return coordinator.schedules.document(name, following)

    @app.post("/api/schedules", dependencies=[OPERATOR], status_code=201)
    def _add(wanted: dict[str, Any]) -> dict[str, Any]:
        refuse_booleans(wanted.get("vehicles"), "vehicles")
        refuse_booleans_of_run(wanted.get("spec"), "spec.")
        spec = with_participation(wanted.get("spec"), coordinator.engine.lookup)
        schedule = Schedule.from_document({**wanted, "spec": spec})
        service.call(lambda core: core.add_schedule(schedule))
        return coordinator.schedules.document(schedule.name)

    @app.post("/api/schedules/{name}/pause", dependencies=[OPERATOR])
    def _pause(name: str, why: Why) -> dict[str, Any]:
        service.call(lambda core: core.schedules.pause(name, why.reason))
        return coordinator.schedules.document(name)

    @app.post("/api/schedules/{name}/resume", dependencies=[OPERATOR])
    def _resume(name: str) -> dict[str, Any]:
        service.call(lambda core: core.schedules.resumed(name))
        return coordinator.schedules.document(name)

    @app.post("/api/schedules/{name}/remove", dependencies=[OPERATOR])
    def _remove(name: str) -> dict[str, str]:
        service.call(lambda core: core.schedules.remove(name))
        return {"name": name}


def refuse_booleans_of_run(spec: Any, where: str = "") -> None:
    """Raise UsageError where true or false stands in a run's specification and only numbers can be meant."""
    for name in ("policy", "bounds", "seed", "rollout", "window"):
        refuse_booleans(spec.get(name) if isinstance(spec, dict) else None, f"{where}{name}")
