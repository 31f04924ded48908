"""The coordinator's HTTP API, as the command line sees it (docs/reference/http-api.md). Extra ``operator``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx

from console.broker_discovery import read_note
from schemas.errors import GlassfleetError, NotFoundError, StorageError, UsageError
from schemas.text import without_password

LAST = "last"
"""Stands for the run that was started last, where a run is to be read."""

NEWEST = 3
"""So many runs are named where one is asked for that is not there."""


class CoordinatorError(GlassfleetError):
    """The coordinator is not there, or does not answer as one."""

    exit_code = 11


class UnreachableError(CoordinatorError):
    """Nothing answers at the coordinator's address: it ended, or is being started again."""


class NotReachedError(UnreachableError):
    """There was no connection to it: nothing of what was to be said arrived."""


class CoordinatorClient:
    """A connection to one coordinator.

    Parameters
    ----------
    url : str or None
        Base URL; None: what the coordinator wrote to ``api-url`` in `state_dir`.
    token : str or None
        For actions; None: what it wrote to ``api-token``, which is read when there is something to do.
    state_dir : Path

    Notes
    -----
    Where no URL is given and none is found, each call raises UsageError: what a command is given is checked first.
    """

    def __init__(self, url: str | None, token: str | None, state_dir: Path) -> None:
        self._given = (url, token)
        self._state_dir = state_dir
        self.url = (url or read_note(state_dir / "api-url")).rstrip("/")
        self._token = token or ""
        # trust_env=False: a proxy for the web has no business between an operator and a coordinator on loopback.
        self._http = httpx.Client(timeout=10.0, trust_env=False)

    @property
    def shown(self) -> str:
        """The URL without a password."""
        return without_password(self.url)

    def look_again(self) -> None:
        """Read ``api-url`` again: a coordinator that was started again may be elsewhere."""
        url, _ = self._given
        self.url = (url or read_note(self._state_dir / "api-url") or self.url).rstrip("/")

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def get(self, path: str) -> Any:
        """Return the JSON of ``GET path``; raises CoordinatorError or NotFoundError."""
        return self._json(self._call("GET", path, None))

    def page(self, path: str) -> bytes:
        """Return what ``GET path`` answers; raises CoordinatorError or NotFoundError."""
        return self._call("GET", path, None).content

    def post(self, path: str, body: Any = None) -> Any:
        """Return the JSON of ``POST path``.

        Raises
        ------
        CoordinatorError, NotFoundError
        UsageError
            The coordinator refuses what was asked, or the token cannot be read.
        """
        return self._json(self._call("POST", path, body))

    def run(self, run: str) -> dict[str, Any]:
        """Return one run; raises CoordinatorError, or NotFoundError that names the newest ones there are."""
        try:
            answer = self.get(f"/api/runs/{run}")
        except NotFoundError as fault:
            raise self._no_run(run, fault) from fault
        if not isinstance(answer, dict):
            raise CoordinatorError(f"{self.shown} does not answer as a coordinator: is the URL right?")
        return answer

    def cancel(self, run: str) -> bool:
        """Cancel a run, and return whether it had been cancelled already: who asks again after a timeout may.

        Raises
        ------
        UsageError
            It has ended otherwise.
        CoordinatorError, NotFoundError
        """
        before = self.run(run).get("outcome")
        if before is None:
            self.post(f"/api/runs/{run}/cancel")
        outcome = before or self.run(run).get("outcome")  # it may have ended by itself just before
        if outcome not in {None, "cancelled"}:
            raise UsageError(f"{run} has ended already ({outcome}); nothing to cancel")
        return before is not None

    def run_named(self, run: str) -> str:
        """Return the id of a run; ``last`` is the one that was started last; raises NotFoundError."""
        if run != LAST:
            return run
        runs = self.get("/api/runs")
        if not isinstance(runs, list):
            raise CoordinatorError(f"{self.shown} does not answer as a coordinator: is the URL right?")
        if not runs:
            raise NotFoundError(f"{LAST}: there are no runs yet. Start one: glassfleet run start")
        if any(each["run"] == run for each in runs):
            return run  # an id may be any word
        return str(max(reversed(runs), key=lambda each: str(each["started"] or ""))["run"])

    def _no_run(self, run: str, fault: NotFoundError) -> NotFoundError:
        """Return the fault with the newest runs, where the coordinator can name them."""
        try:
            runs = self.get("/api/runs")
        except GlassfleetError:
            return fault
        if not isinstance(runs, list):
            return fault
        if not runs:
            return NotFoundError(f"no run {run!r}; there are none yet. Start one: glassfleet run start")
        newest = sorted(runs, key=lambda each: str(each["started"] or ""))[-NEWEST:][::-1]
        named = ", ".join(str(each["run"]) for each in newest)
        return NotFoundError(f"no run {run!r}; the newest: {named}. All of them: glassfleet run list")

    def _headers(self, method: str) -> dict[str, str]:
        if method != "POST":
            return {}
        if not self._given[1]:
            try:
                # Anew each time: a coordinator that was started again may have written another one.
                self._token = read_note(self._state_dir / "api-token") or self._token
            except UsageError as fault:
                raise UsageError(f"{fault}; this needs the token: give --token (or GLASSFLEET_TOKEN)") from fault
        return {"Authorization": f"Bearer {self._token}"} if self._token else {}

    def _json(self, answer: httpx.Response) -> Any:
        try:
            return answer.json()
        except ValueError as fault:
            raise CoordinatorError(f"{self.shown} does not answer as a coordinator: is the URL right?") from fault

    def _call(self, method: str, path: str, body: Any) -> httpx.Response:
        if not self.url:
            raise UsageError(
                f"no coordinator: give --coordinator URL (or GLASSFLEET_COORDINATOR), or start one with "
                f"`glassfleet coordinator` - {self._state_dir / 'api-url'} does not exist"
            )
        headers = self._headers(method)
        try:
            answer = self._http.request(method, self.url + path, json=body, headers=headers)
        except (httpx.InvalidURL, httpx.UnsupportedProtocol) as fault:
            raise UsageError(f"--coordinator {self.shown!r} is not a URL: write http://127.0.0.1:8080") from fault
        except httpx.HTTPError as fault:
            kind = NotReachedError if isinstance(fault, httpx.ConnectError | httpx.ConnectTimeout) else UnreachableError
            noted = "" if self._given[0] else f" (which {self._state_dir / 'api-url'} names)"
            raise kind(
                f"no coordinator answers at {self.shown}{noted}: {str(fault) or 'it is silent'}; start one with "
                "`glassfleet coordinator`, or name another with --coordinator"
            ) from fault
        if not answer.is_success:
            raise self._refusal(answer)
        return answer

    def _refusal(self, answer: httpx.Response) -> GlassfleetError:
        """Return what an answer that is no success means."""
        detail = _detail(answer)
        match answer.status_code:
            case 401 | 403:
                return UsageError(
                    "the coordinator refused the token: give --token (or GLASSFLEET_TOKEN), or --state-dir with the "
                    f"coordinator's api-token ({detail})"
                )
            case 404:
                return NotFoundError(detail)
            case 400 | 409 | 413 | 422:
                return UsageError(detail)
            case 503:
                return CoordinatorError(detail)
            case 507:
                return StorageError(detail)
        return CoordinatorError(f"the coordinator at {self.shown} answered {answer.status_code}: {detail}")


def _detail(answer: httpx.Response) -> str:
    try:
        value = answer.json()
    except ValueError:
        return answer.text[:300] or answer.reason_phrase
    if isinstance(value, dict):
        value = value.get("detail") or value.get("error") or value
    if isinstance(value, list) and value and isinstance(value[0], dict):
        # FastAPI's list of faults: the first one, in words.
        where = ".".join(str(part) for part in value[0].get("loc", ()))
        value = f"{where}: {value[0].get('msg', '')}"
    return str(value)[:500]
