"""What an agent does about what it sees: the pure mirror of the coordinator's engine.

Rule 1: everything that decides whether, when and how often an agent answers lives in this file. The shell
(``edge_agent.runner``) turns messages into events, performs effects, and decides nothing.

Rule 2: this file does not compute answers, read clocks, touch sockets or draw random numbers. Time arrives in `Tick`;
the jitter of resends is drawn from a seed that is part of the state. The same state and events give the same effects.

Theory of operation
===================

An agent's memory is one small machine per *task* (a run and the digest of one task of that run):

    unseen      never asked (not stored)
    computing   asked; the shell is working on the answer
    sending     the answer is in the outbox and goes out, again and again with backoff, until a receipt ends it
    refused     we told the coordinator why we cannot answer
    parked      a newer request of the same run took its place; the stored answer is kept but no longer sent
    ended       a receipt said what became of the answer; never sent again

`TRANSITIONS` is the table; what is not in it changes nothing, which is how duplicates, strays and stale messages are
handled. Five rules explain it:

1. *The request is enough.* Nothing of former rounds is needed to answer the open one: an agent that was away, or was
   restarted, starts from ``unseen`` and answers.
2. *A task has one answer.* The shell looks into the outbox before it computes, so a task that is asked again (a
   coordinator that came back, a retained request seen twice, an extended deadline) gets the same bytes again or, after
   a receipt, nothing.
3. *PUBACK is not delivery.* Only a receipt ends a send, and every receipt does: accepted, duplicate, late, rejected and
   unknown-run. What is not acknowledged is resent after ``first`` seconds, then twice as much later each time, at
   most ``longest``, each shortened by up to half so that a fleet does not answer in step. Offline, nothing is
   resent: the transport keeps what it was given, and giving it twice would send it twice.
4. *The newest request counts.* Requests of one run are ordered by the time the coordinator wrote into them, not by
   arrival: a newer one parks the older answers. A request that arrives late out of order (older time, never seen) is
   answered beside the newer one, for its receipt costs less than a lost vehicle; one that was parked before stays
   parked.
5. *The run's end ends everything.* A cleared request forgets the run's tasks, and the shell deletes its snapshot.

An agent that is not asked does nothing. A request to all it answers whether it is a member of the cohort or not, which
the coordinator knows; told ``not-asked``, it is silent until the run ends (or answers once more after a restart). One
that is asked by name but has not the scheme refuses, so that nobody waits for it; one that is asked only as part of
"everybody who can" stays silent, because its birth certificate said so already. A computation that fails (a column is
missing, too many rows) is refused in both cases.

Only the coordinator decides what is late: the agent never drops an answer because of the clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

from annotated_types import Gt, Le

from edge_agent.session.events import (
    Compute,
    Computed,
    ComputeFailed,
    Connected,
    Disconnected,
    Effect,
    EndRun,
    Event,
    Forget,
    Park,
    Refuse,
    RequestCleared,
    RequestSeen,
    Restarted,
    Send,
    Tick,
)
from schemas.messages import OUTSIDE, Receipt, Refusal

RESEND_FACTOR = 2.0
"""Each wait is so many times the one before: a link that comes back in seconds is used soon, a dead one costs less."""

RESEND_JITTER = 0.5
"""Each wait is shortened by a random share of at most this, so that a fleet does not answer in step."""

REMEMBERED_RUNS = 64
"""Runs at once; the one touched least recently is forgotten first (its answers are in the outbox still)."""

REMEMBERED_TASKS = 1024
"""Tasks of each run; ended ones are forgotten first, oldest first."""

Phase = Literal["unseen", "computing", "sending", "refused", "parked", "ended"]
Trigger = Literal["asked", "unable", "computed", "failed", "receipt", "superseded"]

TRANSITIONS: dict[tuple[Phase, Trigger], Phase] = {
    ("unseen", "asked"): "computing",
    ("unseen", "unable"): "refused",
    ("computing", "computed"): "sending",
    ("computing", "failed"): "refused",
    ("computing", "receipt"): "ended",  # an answer of a former life arrived after all
    ("computing", "superseded"): "parked",
    ("sending", "asked"): "sending",  # the coordinator came back: resend soon
    ("sending", "receipt"): "ended",
    ("sending", "superseded"): "parked",
    ("refused", "asked"): "refused",  # said again: the first one may be lost
    ("refused", "unable"): "refused",
    ("refused", "receipt"): "ended",
    ("refused", "superseded"): "parked",
    ("parked", "asked"): "computing",  # the outbox still holds the answer, if there was one
    ("parked", "unable"): "refused",
    ("parked", "receipt"): "ended",
}
"""The whole machine. A pair that is not listed leaves the task as it is, without effect."""


@dataclass(frozen=True)
class Timing:
    """When an unacknowledged answer is sent again.

    Attributes
    ----------
    first : float
        Seconds until an unacknowledged answer is sent again, > 0. Why: a slow link, which copies would fill.
    longest : float
        Longest wait between two resends, seconds; each is twice the one before. Why: a metered link.
    """

    first: Annotated[float, Gt(0), Le(3600)] = 2.0
    longest: Annotated[float, Gt(0), Le(24 * 3600)] = 60.0


@dataclass(frozen=True)
class Job:
    """One task of one run, as the agent remembers it.

    Attributes
    ----------
    phase : Phase
    sent : float
        Time that the coordinator wrote into the request; orders requests of one run.
    tries : int
        How often the answer was handed to the transport since this process started.
    due : float
        When it is sent next (phase ``sending`` only).
    reason : str
        Why it was refused, here or by the coordinator.
    round, attempt : int
        From the request; informative.
    """

    phase: Phase
    sent: float = 0.0
    tries: int = 0
    due: float = 0.0
    reason: str = ""
    round: int = 0
    attempt: int = 0


@dataclass(frozen=True)
class SessionState:
    """All that decides what the agent does next. Treat as immutable; `step` returns a new one.

    Attributes
    ----------
    agent : str
        Own id.
    schemes : frozenset of str
        Schemes that can be run here.
    timing : Timing
    seed : int
        State of the jitter's generator, 64 bits.
    now : float
        Latest time seen; never runs backwards.
    online : bool
    runs : mapping of run to mapping of task digest to Job
    """

    agent: str
    schemes: frozenset[str]
    timing: Timing = Timing()
    seed: int = 0
    now: float = 0.0
    online: bool = False
    runs: Mapping[str, Mapping[str, Job]] = field(default_factory=dict)

    def phase(self, run: str, task_digest: str) -> Phase:
        """Return where a task stands."""
        job = self.runs.get(run, {}).get(task_digest)
        return job.phase if job is not None else "unseen"

    def next_due(self) -> float | None:
        """Return when the next resend is due; None: nothing waits, or we are offline."""
        if not self.online:
            return None
        dues = [job.due for jobs in self.runs.values() for job in jobs.values() if job.phase == "sending"]
        return min(dues, default=None)

    @property
    def busy(self) -> bool:
        """Whether an answer is being computed or waits for its receipt."""
        return any(job.phase in ("computing", "sending") for jobs in self.runs.values() for job in jobs.values())


def step(state: SessionState, event: Event) -> tuple[SessionState, tuple[Effect, ...]]:
    """Return the state after `event`, and what the shell has to do, in this order. Pure and total: nothing raises."""
    match event:
        case Tick(at=at):
            return _tick(replace(state, now=max(state.now, at)))
        case RequestSeen():
            return _request(state, event)
        case Receipt():
            return _receipt(state, event)
        case Computed(run=run, task_digest=digest):
            return _computed(state, run, digest)
        case ComputeFailed(run=run, task_digest=digest, reason=reason):
            return _failed(state, run, digest, reason)
        case RequestCleared(run=run):
            left = {name: jobs for name, jobs in state.runs.items() if name != run}
            return replace(state, runs=left), (EndRun(run),)
        case Connected():
            return _connected(replace(state, online=True))
        case Disconnected():
            return replace(state, online=False), ()
        case Restarted():
            return _restarted(state, event)


def _tick(state: SessionState) -> tuple[SessionState, tuple[Effect, ...]]:
    if not state.online:
        return state, ()
    effects: list[Effect] = []
    for run, digest, job in _jobs(state, "sending"):
        if job.due <= state.now:
            state = _send(state, run, digest, job, effects)
    return state, tuple(effects)


def _connected(state: SessionState) -> tuple[SessionState, tuple[Effect, ...]]:
    effects: list[Effect] = []
    for run, digest, job in _jobs(state, "sending"):
        # Without a try nothing of it is in the transport: it was computed offline, or in a former life.
        untried = job.tries == 0
        state = _send(state, run, digest, job, effects) if untried else _hasten(state, run, digest, job)
    return state, tuple(effects)


def _request(state: SessionState, event: RequestSeen) -> tuple[SessionState, tuple[Effect, ...]]:
    run, digest = event.run, event.request.task_digest
    effects: list[Effect] = []
    job = state.runs.get(run, {}).get(digest)
    others = [
        (other, known)
        for other, known in state.runs.get(run, {}).items()
        if other != digest and known.phase in ("computing", "sending", "refused")
    ]
    if job is not None and job.phase == "parked" and any(known.sent >= event.sent for _, known in others):
        return state, ()  # a late copy of a request that was replaced already
    for other, known in others:
        if known.sent <= event.sent:
            state = _put(state, run, other, replace(known, phase=_next(known.phase, "superseded")))
            effects.append(Park(run, other))
    if not _is_asked(state, event):
        return state, tuple(effects)
    unable = event.task.scheme not in state.schemes
    if unable and event.request.asked is None:
        return state, tuple(effects)
    before: Phase = job.phase if job is not None else "unseen"
    after = TRANSITIONS.get((before, "unable" if unable else "asked"))
    if after is None:
        return state, tuple(effects)
    job = replace(
        job if job is not None else Job(after),
        phase=after,
        sent=event.sent,
        round=event.round,
        attempt=event.attempt,
    )
    if after == "computing":
        effects.append(Compute(event))
    elif after == "refused":
        reason = f"scheme {event.task.scheme[:64]!r} is not installed here" if unable else job.reason
        job = replace(job, reason=reason)
        effects.append(_refusal(run, digest, job))
    state = _put(state, run, digest, job)
    if after == "sending":
        state = _hasten(state, run, digest, job)
    return state, tuple(effects)


def _is_asked(state: SessionState, event: RequestSeen) -> bool:
    request = event.request
    if request.asked is not None:
        return state.agent in request.asked
    if state.agent in (request.without or ()) or (request.sample and not request.sample.asks(state.agent)):
        return False
    jobs = state.runs.get(event.run, {}).values()
    return not any(job.phase == "ended" and job.reason in OUTSIDE for job in jobs)


def _moved(state: SessionState, run: str, digest: str, trigger: Trigger) -> Job | None:
    """Return a task as it moves; None: it is not known, or stays where it is."""
    job = state.runs.get(run, {}).get(digest)
    after = None if job is None else TRANSITIONS.get((job.phase, trigger))
    return None if job is None or after is None else replace(job, phase=after)


def _computed(state: SessionState, run: str, digest: str) -> tuple[SessionState, tuple[Effect, ...]]:
    if (job := _moved(state, run, digest, "computed")) is None:
        return state, ()
    job = replace(job, tries=0, due=state.now)
    state = _put(state, run, digest, job)
    effects: list[Effect] = []
    if state.online:
        state = _send(state, run, digest, job, effects)
    return state, tuple(effects)


def _failed(state: SessionState, run: str, digest: str, reason: str) -> tuple[SessionState, tuple[Effect, ...]]:
    if (job := _moved(state, run, digest, "failed")) is None:
        return state, ()
    job = replace(job, reason=reason)
    return _put(state, run, digest, job), (_refusal(run, digest, job),)


def _refusal(run: str, digest: str, job: Job) -> Refuse:
    return Refuse(run, Refusal(task_digest=digest, reason=job.reason[:500]), job.round, job.attempt)


def _receipt(state: SessionState, event: Receipt) -> tuple[SessionState, tuple[Effect, ...]]:
    run, digest = event.run, event.task_digest
    if (job := _moved(state, run, digest, "receipt")) is None:
        return state, ()
    return _put(state, run, digest, replace(job, reason=event.reason)), (Forget(event, job.round),)


def _restarted(state: SessionState, event: Restarted) -> tuple[SessionState, tuple[Effect, ...]]:
    """Take over what the outbox knows; answers that wait go out at the next `Connected` (or now)."""
    phases: tuple[Phase, ...] = ("ended", "parked", "sending")
    for phase, pairs in zip(phases, (event.ended, event.parked, event.pending), strict=True):
        for run, digest in pairs:
            # Older than any request: the first one that is seen takes its place, unless it is the same task.
            state = _put(state, run, digest, Job(phase, sent=float("-inf"), due=state.now))
    return _connected(state) if state.online else (state, ())


def _next(phase: Phase, trigger: Trigger) -> Phase:
    return TRANSITIONS.get((phase, trigger), phase)


def _jobs(state: SessionState, phase: Phase) -> list[tuple[str, str, Job]]:
    return [
        (run, digest, job) for run, jobs in state.runs.items() for digest, job in jobs.items() if job.phase == phase
    ]


def _put(state: SessionState, run: str, digest: str, job: Job) -> SessionState:
    jobs = dict(state.runs.get(run, {}))
    jobs.pop(digest, None)
    jobs[digest] = job  # at the end: the order is that of the last change
    if len(jobs) > REMEMBERED_TASKS:
        idle = [other for other, known in jobs.items() if known.phase in ("ended", "parked")]
        jobs.pop(idle[0] if idle else next(iter(jobs)))
    runs = {name: known for name, known in state.runs.items() if name != run}
    runs[run] = jobs
    if len(runs) > REMEMBERED_RUNS:
        runs.pop(next(iter(runs)))
    return replace(state, runs=runs)


def _send(state: SessionState, run: str, digest: str, job: Job, effects: list[Effect]) -> SessionState:
    tries = job.tries + 1
    effects.append(Send(run, digest, tries))
    timing = state.timing
    # Exponents beyond 64 would overflow a float; the longest wait is reached long before.
    wait = min(timing.longest, timing.first * RESEND_FACTOR ** min(tries - 1, 64))
    state, share = _draw(state)
    due = state.now + wait * (1.0 - RESEND_JITTER * share)
    return _put(state, run, digest, replace(job, tries=tries, due=due))


def _hasten(state: SessionState, run: str, digest: str, job: Job) -> SessionState:
    """Resend after at most the first wait: what was sent may be lost. Not at once: its receipt may be on the way."""
    if job.tries == 0:
        return state
    state, share = _draw(state)
    due = state.now + state.timing.first * (1.0 - RESEND_JITTER * share)
    return _put(state, run, digest, replace(job, due=min(job.due, due)))


def _draw(state: SessionState) -> tuple[SessionState, float]:
    """Draw a number in [0, 1) (SplitMix64, Steele et al. 2014)."""
    mask = (1 << 64) - 1
    seed = (state.seed + 0x9E3779B97F4A7C15) & mask
    mixed = ((seed ^ (seed >> 30)) * 0xBF58476D1CE4E5B9) & mask
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & mask
    return replace(state, seed=seed), ((mixed ^ (mixed >> 31)) >> 11) / 2**53
