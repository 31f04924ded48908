"""The options that name a coordinator, the connection that a command gets, and what ``--wait`` does with it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from console.common import state_dir_option
from console.lazy import is_quiet
from console.progress import Work, progress
from schemas.rounds import count, missed
from schemas.text import counted, printable

if TYPE_CHECKING:
    from console.client import CoordinatorClient


Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True)
class CoordinatorOptions:
    """What `coordinator_options` adds."""

    api: CoordinatorClient


def coordinator_options(command: Callable[..., Result]) -> Callable[..., Result]:
    """Add ``--coordinator URL``, ``--token TEXT`` and ``--state-dir DIR``; the command gets an `api` for them."""

    @wraps(command)
    def call(*, coordinator: str | None, token: str | None, state_dir: Path, **given: Any) -> Result:
        from console.client import CoordinatorClient  # the extra `operator` is asked for when it is used

        return command(api=CoordinatorClient(coordinator, token, state_dir), **given)

    function = click.option(
        "--token", envvar="GLASSFLEET_TOKEN", help="For actions. Default: what is in STATE_DIR/api-token."
    )(state_dir_option(call))
    return click.option(
        "--coordinator",
        envvar="GLASSFLEET_COORDINATOR",
        metavar="URL",
        help="The coordinator's HTTP address. Default: what is in STATE_DIR/api-url.",
    )(function)


# --- what ``--wait`` does: looks at a run or a rollout until it ends, through a restart of the coordinator ------------


POLL = 0.2
"""Seconds between two looks."""

PATIENCE = 60.0
"""Seconds that a command which waits does without the coordinator, which may be starting again."""

_AGAIN = 0.5


def patiently(api: CoordinatorClient, ask: Callable[[], Result], patience: float, work: Work) -> Result:
    """Return what `ask` does, as soon as the coordinator answers: started again, it goes on where it was.

    Parameters
    ----------
    api : console.client.CoordinatorClient
    ask : callable
        May be called more than once. What changes something must raise `NotReachedError` alone to be tried again.
    patience : float
        Seconds, at least 0, that the coordinator may be away at a time.
    work : Work
        Is told that it is away, once.

    Raises
    ------
    CoordinatorError
        It was away for longer.
    """
    from console.client import UnreachableError  # the extra `operator` is asked for when it is used

    gone: float | None = None
    while True:
        try:
            return ask()
        except UnreachableError:
            now = time.monotonic()
            if gone is None:
                gone = now
                if patience:
                    work.say(f"no coordinator answers at {api.shown}: trying for {patience:g} s")
            if now - gone >= patience:
                raise
            time.sleep(min(_AGAIN, patience))
            api.look_again()


def asked(api: CoordinatorClient, path: str, patience: float) -> Any:
    """Return the answer to a GET, as soon as a coordinator gives it; raises CoordinatorError, see `patiently`."""
    with progress("waiting for the coordinator") as work:
        return patiently(api, lambda: api.get(path), patience, work)


def posted(api: CoordinatorClient, path: str, body: Any, patience: float) -> Any:
    """Return the answer to a POST, as soon as a coordinator takes it; it is sent once.

    Raises
    ------
    CoordinatorError
        None was there within `patience` seconds; or it was lost before it answered, and may have done what was asked.
    """
    from console.client import NotReachedError, UnreachableError

    def ask() -> tuple[Any, UnreachableError | None]:
        try:
            return api.post(path, body), None
        except NotReachedError:
            raise
        except UnreachableError as fault:
            return None, fault

    with progress("waiting for the coordinator") as work:
        answer, fault = patiently(api, ask, patience, work)
    if fault is not None:
        raise fault
    return answer


def follow_run(api: CoordinatorClient, run_id: str, *, as_json: bool, patience: float) -> dict[str, Any]:
    """Say each round of a run as it closes, and what it lacks while it waits; return the run once it has ended.

    Parameters
    ----------
    api : console.client.CoordinatorClient
    as_json : bool
        Stdout is for a document: the rounds are told on stderr.
    patience : float
        Seconds, at least 0, that the coordinator may be away at a time.

    Raises
    ------
    CoordinatorError
        It was away for longer.
    """
    printed, seen, named = 0, "", ""
    with progress(run_id) as work:
        while True:
            status = patiently(api, lambda: api.run(run_id), patience, work)
            for item in status.get("rounds", [])[printed:]:
                printed += 1
                work.say(line_of_round(item), out=_is_result(as_json=as_json))
            if status.get("state") == "ended":
                return status
            lacks = str(status.get("reason") or "")
            # What stands for two looks: a fleet that is just coming up is not told vehicle by vehicle.
            if lacks and lacks == seen != named:
                named = lacks
                work.say(f"{run_id}: {lacks}")
            seen = lacks
            work.at(doing=_now(status))
            time.sleep(POLL)


def follow_rollout(
    api: CoordinatorClient, name: str, started: str, *, as_json: bool, patience: float
) -> dict[str, Any]:
    """Say each stage of a rollout as it is judged; return the rollout once it has ended, see `follow_run`.

    Of a gate, which has one stage, nothing is said: its end says it all.
    """
    from schemas.errors import NotFoundError

    printed = 0
    with progress(started) as work:
        while True:
            rollouts = patiently(api, lambda: api.get(f"/api/rollouts/{name}"), patience, work)
            rollout: dict[str, Any] | None = next((each for each in rollouts if each["rollout"] == started), None)
            if rollout is None:
                raise NotFoundError(f"the coordinator no longer knows {started}: see glassfleet model history {name}")
            lines = [
                f"stage {number}: {stage['share']:.0%}, asked {len(stage['asked'])}, "
                f"reported {stage['reported']}: {stage['verdict']}"
                for number, stage in enumerate(rollout["stages"], 1)
                if stage["verdict"] and not rollout["plan"].get("gate")
            ]
            for line in lines[printed:]:
                work.say(line, out=_is_result(as_json=as_json))
            printed = len(lines)
            if rollout["phase"] in ROLLOUT_ENDED:
                return rollout
            work.at(doing=_stage(rollout))
            time.sleep(POLL)


ROLLOUT_ENDED = ("promoted", "rolled-back", "stopped", "superseded")


def line_of_round(item: dict[str, Any]) -> str:
    """Return one round in one line."""
    why = "; ".join(f"{agent}: {reason}" for agent, reason in sorted(missed(item).items()))
    attempt = f" (attempt {item['attempt']})" if int(item.get("attempt", 1)) > 1 else ""
    where = f"{item.get('phase', ''):<10} {item.get('number', '?'):>3}{attempt}  {item.get('kind', ''):<9}"
    counts = "  ".join(f"{name} {count(item, name):>2}" for name in ("asked", "accepted", "late", "dropped"))
    # Reasons are other machines' words: nothing in them moves the cursor of who reads this.
    return printable(f"  {where} {counts}  {float(item.get('seconds', 0.0)):6.2f} s" + (f"  [{why}]" if why else ""))


def line_of_run(status: dict[str, Any]) -> str:
    """Return one run in one line."""
    model = status.get("model")
    made = f"  model {model['name']} v{model['version']} {model['digest'][:12]}" if model else ""
    reason = f" ({status['reason']})" if status.get("reason") else ""
    state = status.get("outcome") or status.get("phase") or status.get("state") or "?"
    rounds = status.get("rounds")
    closed = f"  {counted(len(rounds), 'rounds')}" if isinstance(rounds, list) else ""
    return printable(f"{status.get('run')}  {status.get('scheme', '')}  {state}{reason}{closed}{made}")


def times(run: dict[str, Any]) -> str:
    """Return when a run was started, and how long it took if it has ended; times of this software are UTC."""
    try:
        started = datetime.fromisoformat(run["started"])
        ended = datetime.fromisoformat(run["ended"]) if run.get("ended") else None
    except (KeyError, ValueError, TypeError):
        return printable(f"started {run.get('started') or '-'}")
    if ended is None:
        return f"started {started:%Y-%m-%d %H:%M:%S}"
    seconds = (ended - started).total_seconds()
    minutes, rest = divmod(round(seconds), 60)
    hours, left = divmod(minutes, 60)
    took = f"{seconds:.1f} s" if seconds < 60 else f"{minutes} min {rest:02} s"
    return f"started {started:%Y-%m-%d %H:%M:%S}, took {f'{hours} h {left:02} min' if hours else took}"


def private_lines(status: dict[str, Any]) -> list[str]:
    """Return what protected a private run's answers, who went as company, and its scores; empty for other runs."""
    terms = status.get("private") or (status.get("spec") or {}).get("private") or {}
    if not terms:
        return []
    from glassfleet.private.words import WHY_NO_VEHICLES, figures, left_out, protection, runs_left

    scores = status.get("scores") or {}
    lines = [
        protection(terms),
        *left_out(status.get("agents") or {}),
        runs_left(status),
        figures(scores),
        WHY_NO_VEHICLES if "metric" in scores else "",
    ]
    return [printable(f"  {line}") for line in lines if line]


def not_asked_lines(status: dict[str, Any]) -> list[str]:
    """Return which vehicles that were up the run did not ask, and why."""
    why: dict[str, list[str]] = {}
    for agent, each in (status.get("agents") or {}).items():
        if each.get("status") == "idle" and each.get("reason"):
            why.setdefault(str(each["reason"]), []).append(agent)
    return [
        printable(f"  not asked, as it {reason}: {', '.join(agents[:5])}{' ...' if len(agents) > 5 else ''}")
        for reason, agents in sorted(why.items())
    ]


def _now(status: dict[str, Any]) -> str:
    """Say what a run that goes on is doing."""
    current = status.get("open")
    if not current:
        return str(status.get("phase") or status.get("state") or "")
    return f"{current['phase']} {current['number']}, {current['accepted']} of {current['asked']} answered"


def _stage(result: dict[str, Any]) -> str:
    """Say what a rollout that goes on is doing."""
    stages = result["stages"]
    if result["phase"] == "paused" or not stages or stages[-1]["verdict"]:
        return str(result["phase"])
    left = "" if result.get("remaining") is None else f", {result['remaining']:.0f} s left"
    of = len(result["plan"]["stages"])
    return f"stage {len(stages)} of {of}, {stages[-1]['reported']} of {len(stages[-1]['asked'])} reported{left}"


def _is_result(*, as_json: bool) -> bool:
    """Whether what is followed goes to stdout: not if that is for JSON, or the user wants the result only."""
    return not (as_json or is_quiet())
