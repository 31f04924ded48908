# ruff: noqa: E501  a table is read by its columns
"""Prometheus metrics of a coordinator, in a registry of their own.

Counters that `core` keeps anyway are read when somebody scrapes; what needs a distribution is observed as it happens.
`TABLE` is the whole list: the page ``docs/reference/metrics.md`` and the Grafana dashboard are held to it by tests.
"""

from __future__ import annotations

import threading
from collections import Counter as Tally
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from prometheus_client import CollectorRegistry, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from coordinator.engine import Effect, Ended, OpenRound, Restarted, RoundClosed, RunState, SendReceipt
from coordinator.runs.directory import Runs
from coordinator.runs.effects import Observer, end_of
from schemas.errors import StorageError


@dataclass(frozen=True)
class Described:
    """One metric: its name as Prometheus shows it, its kind, its labels and what it says.

    Attributes
    ----------
    tally : str
        The counter of `core` that it shows; with a label, what those that it shows begin with. Empty: none.
    known : tuple of str
        With a label and a tally: the label's values, shown from the start, at zero.
    others : bool
        Whether a value that is not known is shown as well: what the tallies begin with is for this metric alone.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    what: str
    tally: str = ""
    known: tuple[str, ...] = ()
    others: bool = False


TABLE: tuple[Described, ...] = (
    Described("glassfleet_info", "gauge", ("fleet", "software"), "Always 1; its labels are what matters."),
    Described("glassfleet_leading", "gauge", (), "1; 0 on a stand-by, which has no other metric."),
    Described("glassfleet_up_seconds", "gauge", (), "Seconds since this process began to lead."),
    Described("glassfleet_broker_connected", "gauge", (), "1 while the broker can be reached."),
    Described("glassfleet_agents", "gauge", ("status",), "Agents: `up`, `down`."),
    Described("glassfleet_runs", "gauge", ("state",), "Live runs by phase: `gathering`, `domain`, `recruiting`, `learning`; and `suspended`."),
    Described("glassfleet_runs_started_total", "counter", (), "Runs started by this process.", "runs.started"),
    Described("glassfleet_runs_ended_total", "counter", ("outcome",), "Ended runs: `finished`, `failed`, `cancelled`.", "runs.", ("finished", "failed", "cancelled")),
    Described("glassfleet_runs_resumed_total", "counter", (), "Runs taken up from the journal.", "runs.resumed"),
    Described("glassfleet_runs_replayed_total", "counter", (), "Times a run went back because it lost a vehicle.", "runs.restarts"),
    Described("glassfleet_rounds_total", "counter", ("phase", "end"), "Rounds (each attempt) by `phase` (`domain`, `statistics`) and end: `complete` (all answered), `partial` (some did not), `extended` (quorum missed, more time given), `missed` (the run failed)."),
    Described("glassfleet_round_seconds", "histogram", ("phase",), "From a round's first request to its close."),
    Described("glassfleet_recovery_seconds", "histogram", ("cause",), "Time lost: `restart` (reading the journal), `broker` (until the next connection), `replay` (until a run that lost a vehicle is as far again)."),
    Described("glassfleet_answers_total", "counter", ("outcome",), "Receipts: `accepted`, `duplicate`, `late`, `rejected`, `unknown-run`.", "receipts.", ("accepted", "duplicate", "late", "rejected", "unknown-run")),
    Described("glassfleet_messages_received_total", "counter", (), "Messages received from the broker.", "messages"),
    Described("glassfleet_messages_ignored_total", "counter", ("code",), "Messages ignored without a receipt, by fault: `malformed`, `oversize`, `unknown-kind`, `unknown-version`, `unknown-topic`, `foreign-fleet`, `wrong-agent`, `wrong-shard`, `wrong-run`; and `suspended`.", "ignored.", ("malformed", "oversize", "unknown-kind", "unknown-version", "unknown-topic", "foreign-fleet", "wrong-agent", "wrong-shard", "wrong-run", "suspended"), others=True),
    Described("glassfleet_messages_published_total", "counter", (), "Messages published.", "published"),
    Described("glassfleet_received_bytes_total", "counter", (), "Payload bytes received.", "bytes"),
    Described("glassfleet_published_bytes_total", "counter", (), "Payload bytes published.", "published.bytes"),
    Described("glassfleet_queue_messages", "gauge", (), "Messages waiting to be handled."),
    Described("glassfleet_queue_bytes", "gauge", (), "The same in bytes."),
    Described("glassfleet_intake_workers_ended_total", "counter", (), "Intake workers that ended, and were started again.", "intake.ended"),
    Described("glassfleet_queue_dropped_total", "counter", (), "Messages dropped because the queue was full and stood still for half a keepalive."),
    Described("glassfleet_nullified_cells_total", "counter", (), "Statistics that vehicles set to zero, in ended runs."),
    Described("glassfleet_live_nullified_cells", "gauge", (), "The same in live runs, so far."),
    Described("glassfleet_models_published_total", "counter", (), "Model versions published.", "models.published"),
    Described("glassfleet_models_moved_total", "counter", ("cause",), "Versions that an operator made current: `promoted`, `rolled-back`.", "models.", ("promoted", "rolled-back")),
    Described("glassfleet_models_references_total", "counter", (), "Central references registered.", "models.references"),
    Described("glassfleet_rollouts_ended_total", "counter", ("phase",), "Ended rollouts: `promoted`, `rolled-back`, `stopped`, `superseded`.", "rollouts.", ("promoted", "rolled-back", "stopped", "superseded")),
    Described("glassfleet_gates_total", "counter", ("outcome",), "New versions that the fleet judged: `promoted`, or why not: `too-bad`, `former-better`, `too-few-reports`, `no-vehicles`, `nobody-can`, `stopped`, `superseded`.", "gates.", ("promoted", "too-bad", "former-better", "too-few-reports", "no-vehicles", "nobody-can", "stopped", "superseded")),
    Described("glassfleet_models_unpublishable_total", "counter", (), "Models too large for the broker.", "models.unpublishable"),
    Described("glassfleet_journal_records_total", "counter", (), "Events written to the journal.", "journal.records"),
    Described("glassfleet_journal_failures_total", "counter", (), "Journal transactions that could not be written.", "journal.failed"),
    Described("glassfleet_journal_append_seconds", "histogram", (), "One journal transaction, until it is on disk."),
    Described("glassfleet_journal_bytes", "gauge", (), "Size of the journal; absent while it cannot be read."),
)  # fmt: skip
"""Every metric, in the order of the page."""

_BY_NAME = {each.name: each for each in TABLE}

_ROUND_BUCKETS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 3600.0)
_APPEND_BUCKETS = (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)


class Metrics(Observer, Collector):
    """An `coordinator.runs.effects.Observer` that can be scraped.

    Parameters
    ----------
    clock : callable
        Seconds that only go forward, for outages.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._begun = clock()
        self._lost_at: float | None = None
        self._rounds: Tally[tuple[str, str]] = Tally(
            {
                (phase, end): 0
                for phase in ("domain", "statistics")
                for end in ("complete", "partial", "extended", "missed")
            }
        )
        self._nullified = 0
        self._progress: dict[str, tuple[int, float]] = {}
        self._furthest: dict[str, int] = {}
        self.registry = CollectorRegistry(auto_describe=False)
        self._round_seconds = self._histogram("glassfleet_round_seconds", _ROUND_BUCKETS)
        self._recovery_seconds = self._histogram("glassfleet_recovery_seconds", _ROUND_BUCKETS)
        self._append_seconds = self._histogram("glassfleet_journal_append_seconds", _APPEND_BUCKETS)
        for phase in ("domain", "statistics"):
            self._round_seconds.labels(phase)
        for cause in ("restart", "broker", "replay"):
            self._recovery_seconds.labels(cause)

    def _histogram(self, name: str, buckets: tuple[float, ...]) -> Histogram:
        described = _BY_NAME[name]
        return Histogram(name, _plain(described.what), described.labels, buckets=buckets, registry=self.registry)

    # -- what is observed -----------------------------------------------------------------------------------------

    def performed(self, effect: Effect, state: RunState | None, now: float) -> None:
        """Count rounds and what the loss of vehicles cost."""
        match effect:
            case OpenRound() if state is not None and state.open is not None and state.open.extensions:
                # The same request may be published again (on a reconnect): each extension counts once.
                key = f"{effect.run}/{effect.phase}/{effect.number}"
                if self._furthest.get(key, 0) < state.open.extensions:
                    self._furthest[key] = state.open.extensions
                    self._rounds[effect.phase, "extended"] += 1
            case RoundClosed(run, summary):
                self._furthest.pop(f"{run}/{summary.phase}/{summary.number}", None)
                self._rounds[summary.phase, end_of(summary, state)] += 1
                self._round_seconds.labels(summary.phase).observe(max(0.0, summary.seconds))
                self._regained(run, summary.number, now)
            case Restarted(run, number) if state is not None:
                reached = max((each.number for each in state.rounds if each.phase == "statistics"), default=number)
                before, since = self._progress.get(run, (0, now))
                self._progress[run] = (max(before, reached), since)
            case Ended(run) if state is not None:
                self._nullified += state.nullified
                self._progress.pop(run, None)
                for key in [key for key in self._furthest if key.startswith(f"{run}/")]:
                    del self._furthest[key]

    def _regained(self, run: str, number: int, now: float) -> None:
        reached, since = self._progress.get(run, (0, 0.0))
        if run in self._progress and number >= reached:
            del self._progress[run]
            self._recovery_seconds.labels("replay").observe(max(0.0, now - since))

    def appended(self, seconds: float, records: int) -> None:  # noqa: ARG002  the observer's signature
        """Observe one journal transaction."""
        self._append_seconds.observe(max(0.0, seconds))

    def resumed(self, seconds: float, runs: int) -> None:
        """Observe a start that took up runs."""
        if runs:
            self._recovery_seconds.labels("restart").observe(max(0.0, seconds))

    def link_lost(self) -> None:
        """Note that the broker went away; from the transport's thread."""
        if self._lost_at is None:
            self._lost_at = self._clock()

    def link_up(self) -> None:
        """Observe the outage that ends now, if there was one."""
        lost_at, self._lost_at = self._lost_at, None
        if lost_at is not None:
            self._recovery_seconds.labels("broker").observe(self._clock() - lost_at)

    # -- what is scraped ------------------------------------------------------------------------------------------

    def watch(
        self,
        about: tuple[str, str],
        tallies: Mapping[str, int],
        runs: Runs,
        *,
        agents: Callable[[], Mapping[str, int]],
        queue: Callable[[], tuple[int, int, int]],
        connected: Callable[[], bool],
        journal_bytes: Callable[[], int],
    ) -> None:
        """Read a coordinator at every scrape.

        Parameters
        ----------
        about : tuple of (str, str)
            Name of the fleet; name and version of the software.
        tallies : Mapping of str to int
            What the coordinator counts.
        agents : callable
            How many agents are up, and how many down.
        queue : callable
            Messages and bytes that wait, messages that were dropped.
        journal_bytes : callable
            Room that the journal takes; may raise StorageError.
        """
        self._about = about
        self._tallies = tallies
        self._runs = runs
        self._agents = agents
        self._queue = queue
        self._connected = connected
        self._journal_bytes = journal_bytes
        self.registry.register(self)

    def page(self) -> bytes:
        """Return the metrics in Prometheus' text format."""
        return generate_latest(self.registry)

    def collect(self) -> Iterator[Metric]:
        """Yield every metric that is not a histogram, in any order; at a scrape, from the API's threads."""
        # Copied in one step, see `coordinator.fleet.directory`: the coordinator's thread goes on counting.
        tallies = dict(self._tallies)
        messages, size, dropped = self._queue()
        runs = {
            **dict.fromkeys(("gathering", "pairing", "domain", "recruiting", "learning", "checking", "scoring"), 0),
            **self._runs.phases(),
        }
        agents = {"up": 0, "down": 0, **self._agents()}
        yield _family("glassfleet_info", {self._about: 1})
        yield _family("glassfleet_leading", {(): 1})
        yield _family("glassfleet_up_seconds", {(): self._clock() - self._begun})
        yield _family("glassfleet_broker_connected", {(): int(self._connected())})
        yield _family("glassfleet_agents", {(status,): count for status, count in agents.items()})
        yield _family("glassfleet_runs", {(state,): count for state, count in runs.items()})
        for each in TABLE:
            if each.tally and each.labels:
                yield _family(each.name, {(label,): count for label, count in _by_label(each, tallies).items()})
            elif each.tally:
                yield _family(each.name, {(): tallies.get(each.tally, 0)})
        yield _family("glassfleet_rounds_total", dict(self._rounds))
        yield _family("glassfleet_queue_messages", {(): messages})
        yield _family("glassfleet_queue_bytes", {(): size})
        yield _family("glassfleet_queue_dropped_total", {(): dropped})
        yield _family("glassfleet_nullified_cells_total", {(): self._nullified})
        yield _family("glassfleet_live_nullified_cells", {(): self._runs.nullified()})
        try:
            room = self._journal_bytes()
        except StorageError:
            return  # last of all: a database that is away must not take the other metrics with it
        yield _family("glassfleet_journal_bytes", {(): room})


def standby_page() -> bytes:
    """Return what a stand-by shows, in Prometheus' text format."""
    name, registry = "glassfleet_leading", CollectorRegistry()
    Gauge(name, _BY_NAME[name].what, registry=registry).set(0)
    return generate_latest(registry)


def _by_label(metric: Described, tallies: Mapping[str, int]) -> dict[str, int]:
    counts = {name.removeprefix(metric.tally): n for name, n in tallies.items() if name.startswith(metric.tally)}
    shown = {label: count for label, count in counts.items() if metric.others or label in metric.known}
    return {**dict.fromkeys(metric.known, 0), **shown}


def _family(name: str, values: Mapping[Any, float]) -> Metric:
    described = _BY_NAME[name]
    make = GaugeMetricFamily if described.kind == "gauge" else CounterMetricFamily
    family = make(name, _plain(described.what), labels=described.labels)
    for labels, value in values.items():
        family.add_metric(labels, value)
    return family


def _plain(text: str) -> str:
    return text.replace("`", "")


def as_markdown() -> str:
    """Return `TABLE` as the list of ``docs/reference/metrics.md``: what has labels with its values, the others by kind."""
    lines = [
        f"- `{each.name}` ({each.kind}, {', '.join(f'`{label}`' for label in each.labels)}): {each.what}"
        for each in TABLE
        if each.labels
    ]
    for kind in ("gauge", "counter", "histogram"):
        names = [f"`{each.name}`" for each in TABLE if each.kind == kind and not each.labels]
        lines.append(f"- {kind}s without labels: {', '.join(names)}")
    return "\n".join(lines)


# --- why answers did not count: the reasons of receipts, which the journal need not keep, for operators to read -------


RUNS = 100
"""Runs whose reasons are told apart, more than anybody looks at; the one that began to be refused first gives way."""

REASONS = 40
"""Reasons of one run that are told apart: a few kinds, with a few details; the others are counted together."""

AGENTS = 50
"""Agents that are named with one reason: more nobody reads."""


@dataclass
class RefusalReason:
    """One reason.

    Attributes
    ----------
    count : int
        Receipts that gave it.
    agents : dict of str to None
        Whom, the first `AGENTS`.
    """

    count: int = 0
    agents: dict[str, None] = field(default_factory=dict)


class Refusals(Observer):
    """An `Observer` that remembers the receipts other than ``accepted`` since the process began, bounded, by run."""

    def __init__(self) -> None:
        self._runs: OrderedDict[str, dict[tuple[str, str], RefusalReason]] = OrderedDict()
        self._lock = threading.Lock()

    def performed(self, effect: Effect, state: RunState | None, now: float) -> None:
        """Note a receipt."""
        del state, now
        if not isinstance(effect, SendReceipt) or effect.receipt.outcome in ("accepted", "duplicate"):
            return
        outcome, reason = effect.receipt.outcome, effect.receipt.reason
        with self._lock:
            reasons = self._runs.setdefault(effect.run, {})
            key = (outcome, reason)
            if key not in reasons and len(reasons) >= REASONS:
                key = (outcome, "other reasons")
            known = reasons.setdefault(key, RefusalReason())
            known.count += 1
            if len(known.agents) < AGENTS:
                known.agents[effect.agent] = None
            while len(self._runs) > RUNS:
                self._runs.popitem(last=False)

    def of(self, run: str) -> list[tuple[str, str, int, list[str]]]:
        """Return a run's reasons: outcome, reason, how often, whom; the most frequent first. From any thread."""
        with self._lock:
            lines = [
                (outcome, reason, known.count, list(known.agents))
                for (outcome, reason), known in self._runs.get(run, {}).items()
            ]
        return sorted(lines, key=lambda line: -line[2])
