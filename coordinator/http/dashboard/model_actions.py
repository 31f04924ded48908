"""What an operator may do with versions: promote, roll back, try, and pause, resume or stop a rollout.

Each is a page that says what will happen, with a button; nothing happens before. The page carries what its reader has
seen: when the name stands for something else by then, nothing is done, and the page is shown again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import RedirectResponse, Response
from starlette.concurrency import run_in_threadpool

from coordinator.http.access import PAGE, SIGNED_IN
from coordinator.http.dashboard.standing import NameStanding, compared_with, standing
from coordinator.specification.rollout import RolloutPlan
from glassfleet.data.documents import parameters_of
from schemas.errors import GlassfleetError, UsageError

if TYPE_CHECKING:
    from coordinator.core import Coordinator
    from coordinator.http.dashboard.pages import Dashboard
    from coordinator.models.registry import Registry

Fields = dict[str, str]
LONGEST_REASON = 500
THRESHOLDS = ("min_reports", "max_worse", "max_worse_share", "vehicle_worse", "deadline")


@dataclass(frozen=True)
class Action:
    """One thing that can be done.

    Attributes
    ----------
    does : callable
        Does it on the coordinator's thread: the model's name, the version, the form.
    """

    title: str
    button: str
    does: Callable[[Coordinator, str, int, Fields], object]
    needs_reason: bool = False


VERSION_ACTIONS = {
    "promote": Action(
        "Promote version {version}",
        "Promote version {version}",
        lambda core, name, version, form: core.models.promote(name, version, form["reason"]),
    ),
    "rollback": Action(
        "Roll back to version {version}",
        "Roll back to version {version}",
        lambda core, name, version, form: core.models.rollback(name, version, form["reason"]),
        needs_reason=True,
    ),
    "try": Action(
        "Try version {version} on a part of the fleet",
        "Start the rollout",
        lambda core, name, version, form: core.rollouts.start(name, version, plan_of(form)),
    ),
}
ROLLOUT_ACTIONS = {
    "pause": Action(
        "Pause the rollout of version {version}",
        "Pause the rollout",
        lambda core, name, _version, form: core.rollouts.pause(name, form["reason"]),
    ),
    "resume": Action(
        "Resume the rollout of version {version}",
        "Resume the rollout",
        lambda core, name, _version, _form: core.rollouts.resumed(name),
    ),
    "stop": Action(
        "Stop the rollout of version {version}",
        "Stop the rollout",
        lambda core, name, _version, form: core.rollouts.stop(name, form["reason"]),
    ),
}


def add_model_actions(app: FastAPI, dashboard: Dashboard) -> None:  # noqa: C901  one short function per address
    """Give an application the pages that ask first, and what they do."""
    coordinator = dashboard.coordinator
    registry = coordinator.registry

    def ask(request: Request, name: str, what: str, version: int) -> Response:
        if dashboard.sessions.of(request) is None:
            return RedirectResponse(f"/sign-in?then={quote(request.scope['path'])}", 303)
        return _page(dashboard, request, name, what, version)

    async def act(request: Request, name: str, what: str, version: int) -> Response:
        form = {"reason": "", "seen": "", **await dashboard.sessions.form(request)}
        form["reason"] = form["reason"].strip()[:LONGEST_REASON]
        action = (VERSION_ACTIONS | ROLLOUT_ACTIONS)[what]

        def do(core: Coordinator) -> None:
            if standing(core, name).seen != form["seen"]:
                raise UsageError("meanwhile something else was decided: this page shows it now; nothing was done")
            action.does(core, name, version, form)

        try:
            await run_in_threadpool(dashboard.service.call, do)
        except GlassfleetError as fault:
            return _page(dashboard, request, name, what, version, wrong=str(fault), form=form, code=422)
        return RedirectResponse(f"/models/{quote(name)}/{version}#standing-h", 303)

    @app.get("/models/{name}/{version:int}/{what}", dependencies=[PAGE], include_in_schema=False)
    def _ask(request: Request, name: str, version: int, what: str) -> Response:
        if what not in VERSION_ACTIONS:
            raise HTTPException(404, "no such page")
        registry.get(name, version)
        _check_usable(registry, name)
        return ask(request, name, what, version)

    @app.post("/models/{name}/{version:int}/{what}", dependencies=[SIGNED_IN], include_in_schema=False)
    async def _act(request: Request, name: str, version: int, what: str) -> Response:
        if what not in VERSION_ACTIONS:
            raise HTTPException(404, "no such page")
        await run_in_threadpool(_check_usable, registry, name)
        return await act(request, name, what, version)

    @app.get("/models/{name}/rollout/{what}", dependencies=[PAGE], include_in_schema=False)
    def _ask_rollout(request: Request, name: str, what: str) -> Response:
        return ask(request, name, what, _tried(coordinator, name, what))

    @app.post("/models/{name}/rollout/{what}", dependencies=[SIGNED_IN], include_in_schema=False)
    async def _act_rollout(request: Request, name: str, what: str) -> Response:
        version = await run_in_threadpool(_tried, coordinator, name, what)
        return await act(request, name, what, version)


def plan_of(form: Fields) -> RolloutPlan:
    """Return the plan that a form asks for; raises UsageError that names the field."""
    given = {
        each: form.get(each.name, "") for each in parameters_of(RolloutPlan) if each.name in ("stages", *THRESHOLDS)
    }
    return RolloutPlan.from_document(
        {each.name: each.read(text, each.name.replace("_", " ")) for each, text in given.items() if text.strip()}
    )


def _check_usable(registry: Registry, name: str) -> None:
    """Raise HTTPException (404) where there is nothing to decide: no vehicle forecasts with a reference."""
    compared = compared_with(registry, name)
    if compared:
        raise HTTPException(
            404,
            f"{name} is a reference: vehicles score it to compare {compared} with it, and forecast with none of its "
            f"versions. To have another one scored, register its document for {compared}",
        )


def _tried(coordinator: Coordinator, name: str, what: str) -> int:
    """Return the version that is tried; HTTPException (404) when nothing is, or the page does not exist."""
    if what not in ROLLOUT_ACTIONS:
        raise HTTPException(404, "no such page")
    live = coordinator.rollouts.live(name)
    if live is None:
        coordinator.registry.heads(name)
        raise HTTPException(404, f"no rollout of model {name} is under way: it has ended, or none was started")
    return live.start.version


def _page(
    dashboard: Dashboard,
    request: Request,
    name: str,
    what: str,
    version: int,
    *,
    wrong: str = "",
    form: Fields | None = None,
    code: int = 200,
) -> Response:
    """Return the page that asks whether it shall be done."""
    action = (VERSION_ACTIONS | ROLLOUT_ACTIONS)[what]
    stands = standing(dashboard.coordinator, name)
    plan = RolloutPlan()
    defaults = {"stages": ", ".join(f"{share:g}" for share in plan.stages)}
    defaults |= {field: str(getattr(plan, field)) for field in THRESHOLDS}
    address = f"/models/{name}/{version}"
    return dashboard.page(
        request,
        "confirm.html",
        code,
        name=name,
        what=what,
        version=version,
        address=address,
        target=f"{address}/{what}" if what in VERSION_ACTIONS else f"/models/{name}/rollout/{what}",
        title=action.title.format(version=version),
        button=action.button.format(version=version),
        needs_reason=action.needs_reason,
        consequences=_consequences(what, version, stands),
        wrong=wrong,
        stands=stands,
        form=defaults | {"reason": ""} | (form or {}),
    )


def _consequences(what: str, version: int, stands: NameStanding) -> list[str]:
    """Say what will happen, before it does."""
    live, texts = stands.live, []
    if what in ("promote", "rollback"):
        now = f"they use version {stands.current}" if stands.current else "no version is in use"
        texts.append(f"All vehicles will forecast with version {version}. Now {now}.")
        texts.append("Vehicles that are away get it when they come back.")
        if live is not None:
            texts.append(f"The rollout of version {live['version']} ends: it is superseded.")
    if what == "rollback":
        texts.append("Every vehicle and every auditor will read the reason.")
    if what == "try":
        other = f"version {stands.current}" if stands.current else "the constant, which uses no inputs,"
        texts.append(f"A part of the fleet scores version {version} and {other} on test rows of its own.")
        if stands.current:
            texts.append(f"All go on forecasting with version {stands.current}.")
        texts.append(f"When the last stage passes, version {version} becomes current by itself; else it is withdrawn.")
    if what == "pause":
        texts.append("No stage is judged and none is opened until it is resumed. The deadline stands still.")
    if what == "resume":
        texts.append("The stage goes on with the time that was left.")
    if what == "stop":
        stays = f"Version {stands.current} stays in use." if stands.current else "No version is in use."
        texts.append(f"Version {version} is withdrawn. {stays} It cannot be resumed.")
    return texts
