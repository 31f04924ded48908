"""The addresses of the dashboard. See docs/reference/dashboard.md."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Hashable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import FastAPI, HTTPException, Query, Request
from fastapi.responses import HTMLResponse, Response, StreamingResponse
from markupsafe import Markup, escape

from coordinator.duty import look
from coordinator.fleet.differences import with_scores
from coordinator.http.access import PAGE, READER_AT_ONCE, TokenCheck
from coordinator.http.dashboard import growth, show, tables
from coordinator.http.dashboard.assets import add_assets, addresses, as_file, read_assets, read_templates, styles
from coordinator.http.dashboard.library import Library
from coordinator.http.dashboard.live import FLEET_PERIOD, RUN_PERIOD, Hub, PageState, Same, TooManyWatchersError
from coordinator.http.dashboard.security import Sessions
from coordinator.http.dashboard.standing import NameStanding, with_candidate
from coordinator.http.dashboard.vehicles import chosen, counts, parts, scored
from coordinator.http.dashboard.week import week
from coordinator.http.errors import ShownJson
from coordinator.http.guard import PROGRAMS
from coordinator.runs.attendance import Recent
from glassfleet.evaluation.paired import in_words
from glassfleet.explain import text
from glassfleet.export.svg import charts, effects, rounds, sets, shapes
from glassfleet.export.svg.charts import error_bars
from glassfleet.model.rules import measures_note
from glassfleet.private.words import protection, question
from schemas.leakage import place_of, read_report
from schemas.rounds import bytes_each
from schemas.text import show_hidden

if TYPE_CHECKING:
    from coordinator.process.service import Service
    from glassfleet.model.protocol import Nature

ROUNDS_PER_PAGE = 60


class Dashboard:
    """The pages over a service.

    Parameters
    ----------
    tokens : TokenCheck
        Tells who may sign in.
    hub : Hub or None
        Live streams; None: its own.
    """

    def __init__(self, service: Service, tokens: TokenCheck, hub: Hub | None = None) -> None:
        self.service = service
        self.coordinator = service.coordinator
        self.tokens = tokens
        self.sessions = Sessions(service.config.http.dashboard_sign_in)
        self.library = Library(self.coordinator.registry, self.coordinator.aliases)
        self.recent = Recent()
        self.hub = hub or Hub()
        self._assets = read_assets()
        self._templates = read_templates(
            {
                "number": text.number,
                "size": text.size,
                "bytes_each": bytes_each,
                "cut": text.cut,
                "ago": ago,
                "moment": moment,
                "seconds": seconds,
                "lasted": lasted,
                "pretty": pretty,
                "signed": text.signed,
                "minus": text.minus,
                "signs": text.signs,
                "question": question,
                "protection": protection,
                "ticks": ticks,
                "in_words": in_words,
            },
            {
                "meter": shapes.meter,
                "rounds_of": rounds,
                "charts": charts,
                "measures_note": measures_note,
                "sets": sets,
                "effects": effects,
                "error_bars": error_bars,
                "growth": growth,
                "with_candidate": with_candidate,
                "show": show,
                "static": addresses(self._assets),
                "style": Markup("\n").join(Markup(text) for text in styles(self._assets)),  # noqa: S704  our own files
                "printed": False,
            },
        )

    def add_pages(self, app: FastAPI) -> None:
        """Give an application the pages and streams of fleet and runs, and what all pages load."""
        add_assets(app, self._assets)
        self._add_fleet(app)
        self._add_runs(app)

    # -- answers --------------------------------------------------------------------------------------------------

    def page(self, request: Request, name: str, code: int = 200, /, **values: object) -> HTMLResponse:
        """Return a page drawn from the template `name`."""
        session = self.sessions.of(request)
        csrf = "" if session is None else session.csrf
        path = request.scope["path"]
        return HTMLResponse(self._drawn(name, csrf=csrf, signed_in=session is not None, path=path, **values), code)

    def report(self, file: str, name: str, /, **values: object) -> HTMLResponse:
        """Return a page drawn from the template `name` as one file, which loads nothing and leads nowhere."""
        text = self._drawn(name, csrf="", signed_in=False, path="", printed=True, **values)
        return HTMLResponse(as_file(text), headers={"Content-Disposition": f'attachment; filename="{file}"'})

    def _drawn(self, name: str, /, **values: object) -> str:
        text = self._templates.get_template(name).render(
            fleet=self.coordinator.topics.fleet,
            software=self.coordinator.presence.software,
            connected=self.service.is_connected,
            now=time.time(),
            **values,
        )
        return show_hidden(text)

    def error_response(self, request: Request, status: int, detail: str) -> Response:
        """Return the answer that says what is wrong: JSON to programs, a page to people."""
        if request.scope["path"].startswith(PROGRAMS):
            return ShownJson({"detail": detail}, status)
        return self.page(request, "fault.html", status, status=status, detail=detail)

    def fragment(self, name: str, /, **values: object) -> str:
        """Return a part of a page: the template ``_{name}.html``."""
        return show_hidden(self._templates.get_template(f"_{name}.html").render(now=time.time(), **values))

    def standing(self, request: Request | None, stands: NameStanding, version: int, nature: Nature = "rules") -> str:
        """Return the part of a model's page that says what its name stands for, with what may be done about it.

        Parameters
        ----------
        request : Request or None
            None: of a report, in which nothing can be done.
        """
        signed_in = request is not None and self.sessions.of(request) is not None
        printed = request is None
        return self.fragment(
            "standing", stands=stands, version=version, nature=nature, signed_in=signed_in, printed=printed
        )

    async def live(
        self, request: Request, name: str, look: Callable[[], Hashable], paint: Callable[[], PageState], period: float
    ) -> Response:
        """Return a stream of a page's fragments, or 503 when all places are taken."""
        last = request.headers.get("last-event-id") or request.query_params.get("after", "")
        try:
            self.hub.enter()
        except TooManyWatchersError:
            return ShownJson({"detail": "too many live pages are open"}, 503, {"Retry-After": "10"})
        events = self.hub.stream(name, look, paint, period=period, last_id=last[:40])
        return StreamingResponse(events, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})

    # -- fleet ----------------------------------------------------------------------------------------------------

    def _add_fleet(self, app: FastAPI) -> None:
        @app.get("/", dependencies=[PAGE], include_in_schema=False)
        def _fleet(request: Request, q: str = "", status: str = "", sort: str = "needs", page: int = 1) -> Response:
            fleet = look(self.coordinator, self.recent)
            agents = show.ListPage.of(chosen(fleet, text=q[:200], status=status, sort=sort), page)
            return self.page(
                request,
                "fleet.html",
                agents=agents,
                look=fleet,
                counts=counts(fleet),
                unreadable=self.coordinator.fleet.unreadable.listed(),
                q=q[:200],
                status=status[:20],
                sort=sort[:20],
            )

        @app.get("/vehicles/{agent}", dependencies=[PAGE], include_in_schema=False)
        def _vehicle(request: Request, agent: str, page: int = 1) -> Response:
            known = self.coordinator.fleet.known().get(agent)
            shown = parts(self.coordinator, agent, page)
            if known is None and not any(part.is_known for part in shown.items):
                raise HTTPException(404, f"no vehicle {agent[:64]!r} is known, and the last runs do not name it")
            pointers = self.coordinator.aliases.current
            return self.page(
                request,
                "vehicle.html",
                agent=agent,
                known=known,
                look=look(self.coordinator, self.recent),
                scored={} if known is None else scored(known),
                current={name: pointer.version for name, pointer in pointers.items()},
                parts=shown,
            )

        @app.get("/week", dependencies=[PAGE], include_in_schema=False)
        def _week(request: Request) -> Response:
            return self.page(request, "week.html", week=week(self.coordinator, self.library, self.recent, time.time()))

        @app.get("/events/fleet", dependencies=[READER_AT_ONCE], include_in_schema=False)
        async def _events(request: Request) -> Response:
            return await self.live(
                request, "fleet", self._look_at_fleet, lambda: PageState({"fleet": None}), FLEET_PERIOD
            )

    def _look_at_fleet(self) -> Hashable:
        return (
            self.service.is_connected,
            *self.coordinator.runs.newest(1),
            len(self.coordinator.runs.past),
            tuple(self.coordinator.fleet.unreadable.listed()),
            *(
                (agent, each.status, each.incarnation, each.software, Same(each.evaluations))
                for agent, each in self.coordinator.fleet.known().items()
            ),
        )

    # -- runs -----------------------------------------------------------------------------------------------------

    def _add_runs(self, app: FastAPI) -> None:
        @app.get("/runs", dependencies=[PAGE], include_in_schema=False)
        def _runs(request: Request, q: str = "", state: str = "", sort: str = "started", page: int = 1) -> Response:
            return self.page(
                request,
                "runs.html",
                runs=tables.runs(self.coordinator, page, text=q[:200], state=state, sort=sort),
                total=len(self.coordinator.runs.ids()),
                states=tables.STATES,
                q=q[:200],
                state=state[:20],
                sort=sort[:20],
            )

        @app.get("/compare", dependencies=[PAGE], include_in_schema=False)
        def _compare(request: Request, run: Annotated[list[str], Query(default_factory=list)]) -> Response:
            if len(run) != 2:
                raise HTTPException(422, f"tick two lines of the table to compare them, not {len(run)}")
            return self.page(request, "compare_runs.html", pair=tables.pair(self.coordinator, *run))

        @app.get("/runs/{run}", dependencies=[PAGE], include_in_schema=False)
        def _run(request: Request, run: str, page: int = 1) -> Response:
            return self.page(request, "run.html", **self.run_values(run, page))

        @app.get("/runs/{run}/leakage", dependencies=[PAGE], include_in_schema=False)
        def _leakage(request: Request, run: str) -> Response:
            document = self._document(run)
            return self.page(request, "leakage.html", run=document, **self.leakage_values(document["run"]))

        @app.get("/events/runs/{run}", dependencies=[READER_AT_ONCE], include_in_schema=False)
        async def _events(request: Request, run: str) -> Response:
            if run not in self.coordinator.runs:
                raise HTTPException(404, "no such run")
            period = RUN_PERIOD
            return await self.live(
                request, f"run/{run}", lambda: self._look_at_run(run), lambda: self._paint_run(run), period
            )

    def run_values(self, run: str, page: int, per_page: int = ROUNDS_PER_PAGE) -> dict[str, Any]:
        """Return what the page of a run is drawn from; rounds are paged from the newest."""
        document, page = self._document(run), max(page, 1)
        return {"run": document, "parts": self._run_parts(document, page, per_page), "page": page}

    def leakage_values(self, run: str) -> dict[str, Any]:
        """Return the leakage report that was saved of a run (None: there is none), or why it cannot be shown."""
        try:
            text = (self.service.config.state_dir / place_of(run)).read_bytes()
            return {"found": read_report(text, run).model_dump(), "fault": ""}
        except FileNotFoundError:
            return {"found": None, "fault": ""}
        except (OSError, ValueError) as fault:
            return {"found": None, "fault": f"{place_of(run)} cannot be shown: {fault}"[:400]}

    def _look_at_run(self, run: str) -> Hashable:
        runs, outages = self.coordinator.runs, self.coordinator.outages
        return Same(runs.live.get(run)), outages.since  # as the reason of a run that waits has it

    def _paint_run(self, run: str) -> PageState:
        document = self._document(run)
        has_ended = document["state"] == "ended"
        return PageState(self._run_parts(document, 1), show.sentence(document), is_last=has_ended)

    def _document(self, run: str) -> dict[str, Any]:
        return with_scores(self.coordinator.runs.document(run), self.coordinator.fleet)

    def _run_parts(self, document: dict[str, Any], page: int, per_page: int = ROUNDS_PER_PAGE) -> dict[str, str]:
        """Return the live fragments of a run, by the id of their element."""
        rounds = show.ListPage.of(document["rounds"][::-1], page, per_page)
        model = document["model"]
        rollout = model and self.coordinator.rollouts.document(model["name"], model["version"])
        clock = self._clock(document)
        parts = {
            name.replace("_", "-"): self.fragment(name, run=document, rounds=rounds, rollout=rollout, **clock)
            for name in ("run_facts", "run_open", "run_growth", "run_agents", "run_rounds")
        }
        parts["run-refusals"] = self.fragment("run_refusals", refusals=self.service.refusals.of(document["run"]))
        return parts

    def _clock(self, document: dict[str, Any]) -> dict[str, Any]:
        """Return the seconds to a run's deadline (None: it has none), those that it runs already, and who is up."""
        wake = self.coordinator.runs.deadline(document["run"])
        return {
            "left": None if wake is None else max(0.0, wake - self.coordinator.timeline.now()),
            "elapsed": max(0.0, time.time() - datetime.fromisoformat(document["started"]).timestamp()),
            "up": self.coordinator.fleet.offers().keys(),
        }


def ago(then: float, now: float) -> str:
    """Return a time that has passed, roughly.

    >>> ago(0, 30), ago(0, 200), ago(0, 8000), ago(0, 200000)
    ('30 s ago', '3 min ago', '2 h ago', '2 days ago')
    """
    passed = max(0.0, now - then)
    if passed < 100:
        return f"{passed:.0f} s ago"
    if passed < 5400:
        return f"{passed / 60:.0f} min ago"
    return f"{passed / 3600:.0f} h ago" if passed < 36 * 3600 else f"{passed / 86400:.0f} days ago"


def moment(then: float | str) -> str:
    """Return a time of the wall clock as ``2026-01-31 12:00:05 UTC``."""
    at = datetime.fromisoformat(then) if isinstance(then, str) else datetime.fromtimestamp(then, tz=UTC)
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def seconds(count: float) -> str:
    """Return a duration.

    >>> seconds(0.0123), seconds(12.3), seconds(200), seconds(90000)
    ('12 ms', '12.3 s', '3 min 20 s', '25 h 0 min')
    """
    if count < 1:
        return f"{1000 * count:.0f} ms"
    if count < 60:
        return f"{count:.1f} s"
    whole = round(count)
    return f"{whole // 60} min {whole % 60} s" if whole < 3600 else f"{whole // 3600} h {whole % 3600 // 60} min"


def lasted(document: dict[str, Any]) -> str:
    """Return how long a run took; empty while it goes on."""
    if document["ended"] is None:
        return ""
    begin, end = (datetime.fromisoformat(document[name]) for name in ("started", "ended"))
    return seconds(max(0.0, (end - begin).total_seconds()))


def ticks(text: str) -> Markup:
    """Return a text with what stands between backticks as code; all of it escaped.

    >>> ticks("`a < b` is so")
    Markup('<code>a &lt; b</code> is so')
    """
    parts = text.split("`")
    if len(parts) % 2 == 0:  # one has no partner
        return escape(text)
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if position % 2 else escape(part) for position, part in enumerate(parts)
    )


def pretty(value: Any) -> str:
    """Return JSON values as indented text; to be escaped like any text."""
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)
