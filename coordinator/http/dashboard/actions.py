"""What an operator may do on the pages: sign in and out, start a run, end one. Each needs a session and its form."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import RedirectResponse, Response
from starlette.concurrency import run_in_threadpool

from coordinator.http.dashboard.security import COOKIE, read_form
from coordinator.specification.run import RunSpec, with_participation
from glassfleet import catalogue
from glassfleet.private.groups import SUPPORT_ROWS
from glassfleet.schemes import DEFAULT
from schemas.errors import GlassfleetError, UsageError

if TYPE_CHECKING:
    from coordinator.http.dashboard.pages import Dashboard

DEFAULTS = {
    "scheme": DEFAULT,
    "model": "model",
    "participation": "",
    "min_agents": "",
    "gather_agents": "1",
    "deadline": "30",
    "private": "",
    "support": str(SUPPORT_ROWS),
    "rest": "{}",
}
"""The form for a new run, as it is at first."""


def add_actions(app: FastAPI, dashboard: Dashboard) -> None:  # noqa: C901  one short function per address
    """Give an application the forms and what they do."""

    @app.get("/sign-in", include_in_schema=False)
    def _form(request: Request, then: str = "/") -> Response:
        return dashboard.page(request, "sign_in.html", then=_local(then), wrong=False)

    @app.post("/sign-in", include_in_schema=False)
    async def _sign_in(request: Request) -> Response:
        fields = await read_form(request)
        cookie = dashboard.sessions.sign_in(fields.get("token", ""))
        if cookie is None:
            return dashboard.page(request, "sign_in.html", 401, then=_local(fields.get("then", "/")), wrong=True)
        answer = RedirectResponse(_local(fields.get("then", "/")), 303)
        dashboard.sessions.set_cookie(answer, request, cookie)
        return answer

    @app.post("/sign-out", include_in_schema=False)
    async def _sign_out(request: Request) -> Response:
        await dashboard.sessions.form(request)
        dashboard.sessions.sign_out(request)
        answer = RedirectResponse("/", 303)
        answer.delete_cookie(COOKIE)
        return answer

    @app.get("/new-run", include_in_schema=False)
    def _new(request: Request) -> Response:
        if dashboard.sessions.of(request) is None:
            return RedirectResponse("/sign-in?then=/new-run", 303)
        return dashboard.page(request, "new_run.html", fields=DEFAULTS, schemes=_schemes(), wrong="")

    @app.post("/new-run", include_in_schema=False)
    async def _start(request: Request) -> Response:
        fields = {**DEFAULTS, **await dashboard.sessions.form(request)}
        try:
            spec = spec_of(fields)
            run = await run_in_threadpool(dashboard.service.call, lambda core: core.start_run(spec))
        except GlassfleetError as fault:
            return dashboard.page(request, "new_run.html", 422, fields=fields, schemes=_schemes(), wrong=str(fault))
        return RedirectResponse(f"/runs/{quote(run)}", 303)

    @app.post("/runs/{run}/cancel", include_in_schema=False)
    async def _cancel(request: Request, run: str) -> Response:
        fields = await dashboard.sessions.form(request)
        if fields.get("sure") != "yes":
            raise HTTPException(422, "tick the box first: a cancelled run cannot be taken up again")
        await run_in_threadpool(dashboard.service.call, lambda core: core.cancel(run))
        return RedirectResponse(f"/runs/{quote(run)}", 303)


def spec_of(fields: dict[str, str]) -> RunSpec:
    """Return the run that a form asks for; raises UsageError that names the field."""
    try:
        rest = json.loads(fields["rest"] or "{}")
    except ValueError as fault:
        raise UsageError(f"further settings are not JSON: {fault}") from fault
    if not isinstance(rest, dict) or not isinstance(rest.get("policy", {}), dict):
        raise UsageError('further settings must be a JSON object, e.g. {"parameters": {"max_depth": 3}}')
    numbers = ("min_agents", "gather_agents", "deadline")
    policy = {name: number_of(name, fields[name]) for name in numbers if fields[name].strip()}
    document: dict[str, Any] = {
        "scheme": fields["scheme"],
        "model": fields["model"],
        "participation": fields["participation"] or None,
        **rest,
        "policy": {**policy, **rest.get("policy", {})},
    }
    if fields.get("private"):
        document["private"] = {"support": number_of("support", fields["support"]), **(rest.get("private") or {})}
    return RunSpec.from_document(with_participation(document, catalogue.load))


def number_of(name: str, text: str) -> Any:
    """Return a number as it was typed: ``1`` is a count, ``1.0`` a share; raises UsageError that names the field."""
    try:
        return float(text) if any(sign in text for sign in ".eE") else int(text)
    except ValueError as fault:
        raise UsageError(f"{name.replace('_', ' ')} must be a number, got {text[:40]!r}") from fault


def _schemes() -> list[str]:
    return [name for name in catalogue.names() if name not in catalogue.unavailable()]


def _local(address: str) -> str:
    """Return an address of our own pages: nobody is sent elsewhere after signing in."""
    is_ours = address.startswith("/") and not address.startswith(("//", "/\\")) and address.isprintable()
    return address if is_ours else "/"
