"""Plays a schedule to a fleet: one loop looks at the run, injects what is due, undoes what has lasted long enough."""

from __future__ import annotations

import sched
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from console.progress import Work
from lab.chaos.fleet import Fleet
from lab.chaos.schedule import BROKER, COORDINATOR, EVERYONE, Fault, run_name
from schemas.errors import RunFailedError

MODEL = "chaos"
POLL = 0.02
"""Seconds between looks at the run."""

PATIENCE = 8.0
"""Seconds to wait for the state in which a fault shall strike; then it strikes anyway."""

CRASH_PATIENCE = 5.0
"""Seconds to wait for a process to reach the publish at which it crashes; then it is killed."""

RUN_TIMEOUT = 180.0
"""Seconds that one run may take, faults and all; a longer one is reported as hung."""

GRACE = 3.0
"""Seconds after which a revocation list is in use everywhere: a process looks at its identity every two."""

_AWAY = 1.0
"""Seconds for which an agent is away so that a run can be met while it gathers."""


@dataclass(frozen=True)
class Settings:
    """What is tried.

    Attributes
    ----------
    schedule : tuple of Fault
    files : mapping of agent id to Path
        Their data.
    seed : int
        Of the runs.
    deadline : float
        Seconds per round, > 0.
    modes : frozenset of str
        Of `lab.chaos.schedule.MODES`.
    """

    schedule: tuple[Fault, ...]
    files: Mapping[str, Path]
    seed: int
    deadline: float
    modes: frozenset[str] = frozenset()


@dataclass
class Played:
    """What happened.

    Attributes
    ----------
    injected : list of dict
        Each fault as it was scheduled, with the ``phase``, ``round`` and ``accepted`` that it met.
    runs : list of str
        Ids, in the order of their start.
    hung : list of str
        Runs without an end within the timeout.
    died : list of str
        Processes that ended although nobody killed them, with their last words.
    broker_died : int
        How often the broker ended although nobody killed it; it was started again, as a supervisor does.
    recoveries : mapping of str to list of float
        Seconds from the start of a process after a kill until it works, by kind of process.
    seconds : float
    broker_kind : str
    """

    injected: list[dict[str, Any]] = field(default_factory=list)
    runs: list[str] = field(default_factory=list)
    hung: list[str] = field(default_factory=list)
    died: list[str] = field(default_factory=list)
    broker_died: int = 0
    recoveries: Mapping[str, list[float]] = field(default_factory=dict)
    seconds: float = 0.0
    broker_kind: str = ""


def specification(settings: Settings, run: str, gather: int) -> dict[str, Any]:
    """Return a run's specification as the coordinator's API takes it; it waits for `gather` agents."""
    return {
        "run": run,
        "scheme": "frt",
        "parameters": {"nullify": False, "min_rows": 1, "max_depth": 3},
        "participation": "cohort",
        "rounds": {
            "min_agents": 1,
            "deadline": settings.deadline,
            "gather_agents": gather,
            "gather_timeout": 120.0,
            "extensions": 50,
            "max_restarts": 1000,
        },
        "model": MODEL,
        "seed": settings.seed,
        "private": {} if "private" in settings.modes else None,
    }


def play(settings: Settings, fleet: Fleet, work: Work) -> Played:
    """Start the fleet, play the schedule, heal everything and let the last run end.

    The processes still run when this returns: the audit looks at their outboxes and at the broker first.

    Raises
    ------
    RunFailedError
        The fleet did not come up in the beginning.
    """
    conductor = _Conductor(settings, fleet, work)
    conductor.perform()
    return conductor.played


class _Conductor:
    def __init__(self, settings: Settings, fleet: Fleet, work: Work) -> None:
        self.settings, self.fleet, self.work, self.say = settings, fleet, work, work.say
        self.played = Played(recoveries=fleet.recoveries, broker_kind=fleet.broker.kind)
        self._http = httpx.Client(timeout=0.5, trust_env=False)
        self._agenda = sched.scheduler(time.monotonic)
        self._busy: set[str] = set()
        self._expected: dict[str, float] = {}
        self._run = ""
        self._run_began = 0.0
        self._status: dict[str, Any] = {}
        self._token = ""
        self._remaining = list(settings.schedule)

    # The loop

    def perform(self) -> None:
        began = time.monotonic()
        for name in list(self.fleet.processes):
            self.fleet.start(name)
        self.fleet.wait_until_all_work(60.0)
        self._token = (self.fleet.coordinator_state / "api-token").read_text(encoding="ascii").strip()
        coordinators = " and ".join(self.fleet.coordinators)
        agents = len(self.settings.files)
        self.say(f"{agents} agents, {coordinators} and broker ({self.fleet.broker.kind}) are up")
        remaining = self._remaining
        not_before, waiting_since = 0.0, time.monotonic()
        while remaining or self._expected or not self._agenda.empty():
            self._step()
            now = time.monotonic()
            if not remaining or now < not_before:
                waiting_since = max(waiting_since, now)
                continue
            fault = remaining[0]
            if self._is_free(fault) and (self._matches(fault) or now - waiting_since > PATIENCE):
                self._inject(fault)
                remaining.pop(0)
                not_before = now + fault.gap
                waiting_since = not_before
        self.say("all faults are spent; the last run goes on to its end")
        end = time.monotonic() + RUN_TIMEOUT
        while self._run and time.monotonic() < end:
            self._step()
        self.fleet.wait_until_all_work(30.0)
        self.played.seconds = time.monotonic() - began

    def _step(self) -> None:
        time.sleep(POLL)
        now = time.monotonic()
        self._agenda.run(blocking=False)
        if BROKER not in self._busy:
            # It is not ours, and any process may die: what must hold must hold then, too. But it is told.
            self.played.broker_died += self.fleet.start_broker()
        for name in self.fleet.watch():
            self._ended(name)
        for name, due in list(self._expected.items()):
            if now > due:
                self.fleet.kill(name)
                self._ended(name)
        self._look()
        if self._run and now - self._run_began > RUN_TIMEOUT:
            self.played.hung.append(self._run)
            self._run = ""
        if not self._run and self._remaining:
            self._start_run()

    def _look(self) -> None:
        self._status = {}
        coordinator = self.fleet.processes[self.fleet.leader]
        if not self._run or coordinator.is_frozen or not coordinator.is_running:
            return
        try:
            answer = self._http.get(f"{self.fleet.api_url}/api/runs/{self._run}")
        except httpx.HTTPError:
            return
        if answer.status_code == 404:
            # A wish is answered after the journal has it, so no kill explains this.
            self.played.died.append(f"run {self._run} is unknown to the coordinator that had accepted it")
            self._run = ""
        elif answer.is_success:
            status = answer.json()
            if status["state"] == "ended":
                self.say(f"{self._run}: {status['outcome']}, {len(status['cohort'])} vehicles {status['reason']}")
                self._run = ""
            else:
                self._status = status

    def _start_run(self) -> None:
        run = run_name(len(self.played.runs) + 1)
        if self._remaining[0].state == "gathering":
            self._send_somebody_away()
        shut_out = 0 if self.fleet.office is None else len(self.fleet.office.revoked)
        try:
            answer = self._http.post(
                f"{self.fleet.api_url}/api/runs",
                json=specification(self.settings, run, len(self.settings.files) - shut_out),
                headers={"Authorization": f"Bearer {self._token}"},
            )
        except httpx.HTTPError:
            return  # asked again at the next turn; an id that is taken then says that it was heard
        if answer.is_success or "exists already" in answer.text:
            self.played.runs.append(run)
            self._run, self._run_began = run, time.monotonic()
        elif answer.status_code == 422:
            raise RunFailedError(f"the coordinator refuses the run: {answer.text[:300]}")

    def _send_somebody_away(self) -> None:
        """Let the run wait for an agent, so that it can be met while it gathers: otherwise that takes milliseconds."""
        target = self.fleet.named(self._remaining[0].target)
        for name in self.settings.files:
            if name != target and not self._busy and self.fleet.processes[name].is_running:
                self.fleet.end([name])
                self._busy.add(name)
                self._agenda.enter(_AWAY, 0, self._end, (name, partial(self.fleet.start, name)))
                return

    def _ended(self, name: str) -> None:
        """Handle a process that is gone: as asked, or by itself."""
        words = self.fleet.processes[name].last_words()
        code = self.fleet.processes[name].reap()
        if name in self._expected:
            del self._expected[name]
            return
        self.played.died.append(f"{name} ended by itself (exit code {code}): {words}")
        self.say(self.played.died[-1])
        self.fleet.start(name)

    # Faults

    def _is_free(self, fault: Fault) -> bool:
        return self.fleet.named(fault.target) not in self._busy and not (fault.target == EVERYONE and self._busy)

    def _matches(self, fault: Fault) -> bool:
        is_met = self._status.get("phase") == fault.state and fault.answers <= self._accepted
        return fault.state == "any" or is_met

    @property
    def _accepted(self) -> int:
        """Answers in the open round."""
        return int((self._status.get("open") or {}).get("accepted", 0))

    def _inject(self, fault: Fault) -> None:
        met = {
            "run": self._run,
            "phase": self._status.get("phase", self._without_status()),
            "round": len(self._status.get("rounds", ())) + 1,
            "accepted": self._accepted,
        }
        self.played.injected.append({**asdict(fault), "met": met})
        self.work(f"{fault.number:4d} {fault.kind} {fault.target} in {met['phase']} ({fault.lasts:g} s)")
        name = self.fleet.named(fault.target)
        self._busy.add(name)
        self._agenda.enter(fault.lasts, 0, self._end, (name, self._do(fault, name)))

    def _end(self, name: str, undo: Callable[[], object]) -> None:
        """Let what was done to a process have an end."""
        if name in self._expected:
            # It has not come to the place where it crashes.
            self._agenda.enter(0.05, 0, self._end, (name, undo))
            return
        undo()
        self._busy.discard(name)

    def _without_status(self) -> str:
        if not self._run:
            return "between runs"
        away = self.fleet.processes[self.fleet.leader].is_frozen or self.fleet.leader not in self.fleet.working
        return "coordinator away" if away else "unseen"

    def _do(self, fault: Fault, name: str) -> Callable[[], object]:  # noqa: C901 - a table of kinds
        """Do it to the process of this name; return what undoes it."""
        fleet = self.fleet
        mischief = [file for who, file in fleet.mischief.items() if name in (who, EVERYONE)]
        match fault.kind:
            case "broker-kill":
                fleet.broker.kill()
                return fleet.start_broker
            case "broker-restart":
                fleet.broker.stop()
                return fleet.start_broker
            case "coordinator-kill" | "standby-kill" | "agent-kill":
                fleet.kill(name)
                return lambda: fleet.start(name)
            case "coordinator-crash" | "agent-crash":
                self._expected[name] = time.monotonic() + CRASH_PATIENCE
                mischief[0].change(crash_at=fault.count, crash_topic=fault.topic)
                return lambda: fleet.start(name)
            case "coordinator-freeze" | "standby-freeze" | "agent-freeze" | "broker-freeze":
                fleet.freeze(name)
                return lambda: fleet.thaw(name)
            case "worker-kill" | "worker-freeze":
                worker = 1 + int(fault.strength)
                fleet.signal_worker(worker, signal.SIGKILL if fault.kind == "worker-kill" else signal.SIGSTOP)
                return fleet.thaw_workers
            case "link-cut" | "link-stall" | "link-delay":
                fleet.proxy.harm(name, fault.kind.removeprefix("link-"), fault.strength)
                return lambda: fleet.proxy.mend(name)
            case "clock-jump":
                # The wall clock stays wrong: it is the jump that is the fault, and the next may set it right.
                mischief[0].change(wall_offset=fault.strength)
                return lambda: None
            case "certificate-renew" | "certificate-replace" | "vehicle-revoke":
                return self._change_certificates(fault)
        what = {"loss": "loss", "duplication": "duplicate", "reordering": "reorder"}[fault.kind]
        for file in mischief:
            file.change(seed=fault.number, **{what: fault.strength})

        def stop() -> None:
            for file in mischief:
                file.change(**{what: 0.0})

        return stop

    def _change_certificates(self, fault: Fault) -> Callable[[], None]:
        """Renew or revoke; return what undoes it."""
        fleet, name, office = self.fleet, fault.target, self.fleet.office
        assert office is not None, "such faults are drawn for a secure fleet only"
        if fault.kind != "vehicle-revoke":
            (office.renew if fault.kind == "certificate-renew" else office.replace)(name)
            return lambda: None
        stolen = office.steal(name)
        if fault.strength:
            fleet.proxy.harm(name, "cut")
            fleet.proxy.mend(name)

        def shut_out() -> None:
            # One that stands still has not heard of it; what it then takes first was let in before.
            if name in office.revoked and COORDINATOR not in self._busy:
                stolen.begins = fleet.processes[COORDINATOR].log_size()
            elif name in office.revoked:
                self._agenda.enter(GRACE, 0, shut_out)

        def admit() -> None:
            stolen.ends = fleet.processes[COORDINATOR].log_size()
            office.admit(name)

        self._agenda.enter(GRACE, 0, shut_out)
        return admit
