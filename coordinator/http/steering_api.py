"""Addresses of the HTTP API for what a model's name stands for (promotion, rollback, rollouts), and for schedules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from fastapi import FastAPI, Query
from pydantic import BaseModel, ConfigDict

from coordinator.fleet.differences import far_out_of, in_lines
from coordinator.http.access import OPERATOR, READER
from coordinator.http.errors import Whole, refuse_booleans
from coordinator.models.central import read_reference
from coordinator.specification.rollout import RolloutPlan
from coordinator.specification.run import with_participation
from coordinator.specification.schedule import Schedule
from schemas.record import ModelRecord

if TYPE_CHECKING:
    from coordinator.process.service import Service


class RequestBody(BaseModel):
    """A body that takes the named fields and no others."""

    model_config = ConfigDict(extra="forbid")


class Promotion(RequestBody):
    """What ``POST /api/models/{name}/promote`` takes."""

    version: Whole
    reason: str = ""


class Rollback(RequestBody):
    """What ``POST /api/models/{name}/rollback`` takes; no version: the one that was current before."""

    to: Whole | None = None
    reason: str


class Resigning(RequestBody):
    """What ``POST /api/models/{name}/{version}/sign`` takes: the digest of the document that was looked at, and why."""

    digest: str
    reason: str = ""


class Reference(RequestBody):
    """What ``POST /api/models/{name}/central`` takes: a model's document, and where it comes from."""

    document: dict[str, Any]
    about: str = ""


class Wanted(RequestBody):
    """What ``POST /api/rollouts`` takes; the plan is checked by `RolloutPlan`."""

    name: str
    version: Whole
    plan: dict[str, Any] = {}


class Why(RequestBody):
    """What pause and stop take."""

    reason: str = ""


def add_rollouts(app: FastAPI, service: Service) -> None:  # noqa: C901  one short function per address
    """Add the addresses."""
    coordinator = service.coordinator
    registry, aliases, rollouts = coordinator.registry, coordinator.aliases, coordinator.rollouts

    @app.get("/api/models/{name}/history", dependencies=[READER])
    def _history(name: str) -> dict[str, Any]:
        pointers = {"current": _pointer(aliases.current.get(name)), "candidate": _pointer(aliases.candidate.get(name))}
        return {
            "name": name,
            **pointers,
            "notes": {alias: in_lines(far_out_of(coordinator.fleet, each)) for alias, each in pointers.items()},
            "decisions": [
                {"kind": each.kind, "at": each.at, "wall": each.wall, **each.body} for each in registry.history(name)
            ],
        }

    @app.post("/api/models/{name}/promote", dependencies=[OPERATOR])
    def _promote(name: str, wanted: Promotion) -> dict[str, Any]:
        return service.call(
            lambda core: core.models.promote(name, wanted.version, wanted.reason).model_dump(mode="json")
        )

    @app.post("/api/models/{name}/rollback", dependencies=[OPERATOR])
    def _rollback(name: str, wanted: Rollback) -> dict[str, Any]:
        return service.call(lambda core: core.models.rollback(name, wanted.to, wanted.reason).model_dump(mode="json"))

    @app.post("/api/models/{name}/{version}/sign", dependencies=[OPERATOR])
    def _sign(name: str, version: int, wanted: Resigning) -> dict[str, Any]:
        return service.call(lambda core: core.models.sign(name, version, wanted.digest, wanted.reason))

    @app.post("/api/models/{name}/central", dependencies=[OPERATOR], status_code=201)
    def _central(name: str, wanted: Reference) -> dict[str, Any]:
        compared = ModelRecord.load(registry.get(name, registry.heads(name)[-1].version).record)
        # Here, not on the coordinator's thread: a large document takes its time, and deadlines wait for nobody.
        reference = read_reference(wanted.document, compared)
        return service.call(lambda core: core.models.central(reference, wanted.about).model_dump(mode="json"))

    @app.get("/api/rollouts", dependencies=[READER])
    def _rollouts() -> list[dict[str, Any]]:
        return rollouts.documents()

    @app.get("/api/rollouts/{name}", dependencies=[READER])
    def _of_model(name: str) -> list[dict[str, Any]]:
        registry.heads(name)
        return rollouts.documents(name)

    @app.post("/api/rollouts", dependencies=[OPERATOR], status_code=201)
    def _start(wanted: Wanted) -> dict[str, str]:
        refuse_booleans(wanted.plan, "plan")
        plan = RolloutPlan.from_document(wanted.plan)
        return {"rollout": service.call(lambda core: core.rollouts.start(wanted.name, wanted.version, plan))}

    @app.post("/api/rollouts/{name}/pause", dependencies=[OPERATOR])
    def _pause(name: str, why: Why) -> dict[str, str]:
        return {"phase": service.call(lambda core: core.rollouts.pause(name, why.reason).phase)}

    @app.post("/api/rollouts/{name}/resume", dependencies=[OPERATOR])
    def _resume(name: str) -> dict[str, str]:
        return {"phase": service.call(lambda core: core.rollouts.resumed(name).phase)}

    @app.post("/api/rollouts/{name}/stop", dependencies=[OPERATOR])
    def _stop(name: str, why: Why) -> dict[str, str]:
        return {"phase": service.call(lambda core: core.rollouts.stop(name, why.reason).phase)}


def _pointer(pointer: Any) -> dict[str, Any] | None:
    return None if pointer is None else dict(pointer.model_dump(mode="json"))


# --- addresses of the HTTP API for schedules: runs that are started again and again -----------------------------------


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
    for name in ("rounds", "bounds", "seed", "rollout", "window"):
        refuse_booleans(spec.get(name) if isinstance(spec, dict) else None, f"{where}{name}")
