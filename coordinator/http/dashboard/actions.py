"""What an operator may do on the pages: sign in and out, start a run, end one, pause schedules; each by a form."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import RedirectResponse, Response
from starlette.concurrency import run_in_threadpool

from coordinator.http.access import PAGE, PAGE_AT_ONCE, SIGNED_IN, SIGNING_IN
from coordinator.http.dashboard import new_run
from coordinator.http.dashboard.security import COOKIE, read_form
from schemas.errors import GlassfleetError

if TYPE_CHECKING:
    from coordinator.core import Coordinator
    from coordinator.http.dashboard.pages import Dashboard


def add_actions(app: FastAPI, dashboard: Dashboard) -> None:  # noqa: C901  one short function per address
    """Give an application the forms and what they do."""

    @app.get("/sign-in", dependencies=[PAGE_AT_ONCE], include_in_schema=False)
    def _form(request: Request, then: str = "/") -> Response:
        return dashboard.page(request, "sign_in.html", then=_local(then), wrong=False)

    @app.post("/sign-in", dependencies=[SIGNING_IN], include_in_schema=False)
    async def _sign_in(request: Request) -> Response:
        fields = await read_form(request)
        if not await dashboard.tokens.is_right(fields.get("token", "").strip(), request):
            return dashboard.page(request, "sign_in.html", 401, then=_local(fields.get("then", "/")), wrong=True)
        answer = RedirectResponse(_local(fields.get("then", "/")), 303)
        dashboard.sessions.sign_in(answer, request)
        return answer

    @app.post("/sign-out", dependencies=[SIGNED_IN], include_in_schema=False)
    async def _sign_out(request: Request) -> Response:
        await dashboard.sessions.form(request)
        dashboard.sessions.sign_out(request)
        answer = RedirectResponse("/", 303)
        answer.delete_cookie(COOKIE)
        return answer

    @app.get("/new-run", dependencies=[PAGE], include_in_schema=False)
    def _new(request: Request, like: str = "", scheme: str = "") -> Response:
        if dashboard.sessions.of(request) is None:
            query = request.scope["query_string"].decode("latin-1")
            there = "/new-run" + (f"?{query}" if query else "")
            return RedirectResponse(f"/sign-in?then={quote(there)}", 303)
        texts = new_run.begin(dashboard.coordinator, like, scheme)
        return dashboard.page(request, "new_run.html", like=like, **new_run.shown(dashboard.coordinator, texts))

    @app.post("/new-run", dependencies=[SIGNED_IN], include_in_schema=False)
    async def _start(request: Request) -> Response:
        given = await dashboard.sessions.form(request)
        texts = new_run.typed(given)
        wrong: GlassfleetError | None = None
        if "show" not in given and texts["shown"] == texts["scheme"]:
            try:
                run = await run_in_threadpool(new_run.start, dashboard, texts)
                return RedirectResponse(f"/runs/{quote(run)}", 303)
            except GlassfleetError as fault:
                wrong = fault
        shown = await run_in_threadpool(new_run.shown, dashboard.coordinator, texts, wrong)
        return dashboard.page(request, "new_run.html", 200 if wrong is None else 422, like="", **shown)

    @app.post("/runs/{run}/cancel", dependencies=[SIGNED_IN], include_in_schema=False)
    async def _cancel(request: Request, run: str) -> Response:
        fields = await dashboard.sessions.form(request)
        if fields.get("sure") != "yes":
            raise HTTPException(422, "tick the box first: a cancelled run cannot be taken up again")
        await run_in_threadpool(dashboard.service.call, lambda core: core.cancel(run))
        return RedirectResponse(f"/runs/{quote(run)}", 303)

    @app.get("/schedules", dependencies=[PAGE], include_in_schema=False)
    def _schedules(request: Request) -> Response:
        schedules = dashboard.coordinator.schedules
        return dashboard.page(request, "schedules.html", schedules=schedules.documents())

    @app.post("/schedules/{name}/{what}", dependencies=[SIGNED_IN], include_in_schema=False)
    async def _pause_or_resume(request: Request, name: str, what: str) -> Response:
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


def _local(address: str) -> str:
    """Return an address of our own pages: nobody is sent elsewhere after signing in."""
    is_ours = address.startswith("/") and not address.startswith(("//", "/\\")) and address.isprintable()
    return address if is_ours else "/"
