"""OpenTelemetry spans of runs and rounds, when wanted; OpenTelemetry is imported only then.

A run is a trace whose ids follow from its names (`schemas.trace`), so that the spans of a coordinator that was killed
and started again, and the log lines of the vehicles, belong to the same one. Spans are made when a round or run has
ended: nothing has to be kept open over a crash.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from coordinator.engine import Effect, Ended, RoundClosed, RunState
from coordinator.runs.effects import Observer, canonical
from schemas.errors import UsageError
from schemas.trace import trace_ids

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter

_GROUP = "opentelemetry_traces_exporter"
"""Where exporters register, as OpenTelemetry's specification has it; ``console`` comes with the SDK."""


def tracing(fleet: str, traces: str) -> list[Traces]:
    """Return who makes spans of a fleet's runs, if anybody shall; `traces` as in the coordinator's configuration.

    Raises
    ------
    UsageError
        Traces are wanted, and the SDK or the named exporter is not installed.
    """
    return [] if traces == "off" else [Traces(fleet, find_exporter(traces))]


def find_exporter(name: str) -> SpanExporter:
    """Return the installed exporter called `name`; raises UsageError that says what to install."""
    exporters = {each.name: each for each in entry_points(group=_GROUP)}
    if not exporters:
        raise UsageError(
            "traces need OpenTelemetry, which is not installed: pip install 'glassfleet[telemetry]', or set traces to "
            "off"
        )
    if name not in exporters:
        raise UsageError(
            f"there is no exporter of traces {name!r}; installed are {', '.join(sorted(exporters))}. OTLP comes with "
            "pip install opentelemetry-exporter-otlp-proto-http and is called otlp_proto_http; its address is "
            "OTEL_EXPORTER_OTLP_ENDPOINT"
        )
    exporter: SpanExporter = exporters[name].load()()
    return exporter


class Traces(Observer):
    """An `coordinator.runs.effects.Observer` that makes spans.

    Parameters
    ----------
    wall : callable
        Wall clock, seconds since the epoch.
    """

    def __init__(self, fleet: str, exporter: SpanExporter, wall: Callable[[], float] = time.time) -> None:
        # Imported here: OpenTelemetry costs start time and memory, and most fleets do without.
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

        self._fleet = fleet
        self._wall = wall
        self._ids = _ids()
        self._provider: TracerProvider = TracerProvider(
            resource=Resource.create({"service.name": "glassfleet-coordinator", "glassfleet.fleet": fleet}),
            id_generator=self._ids,
        )
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("glassfleet")

    def performed(self, effect: Effect, state: RunState | None, now: float) -> None:
        """Make a span of what has ended."""
        match effect:
            case RoundClosed(run, summary):
                about = canonical(summary, state)
                about["dropped"] = sorted(about["dropped"])
                self._span(f"round {summary.phase} {summary.number}", run, summary.seconds, about, is_root=False)
            case Ended(run, outcome, reason) if state is not None:
                about = {"scheme": state.spec.scheme, "outcome": outcome, "reason": reason, "rounds": len(state.rounds)}
                self._span(f"run {run}", run, now - state.started_at, about, is_root=True)

    def flush(self) -> bool:
        """Hand over what waits; False when the exporter did not take it in time."""
        return self._provider.force_flush()

    def _span(self, name: str, run: str, seconds: float, about: dict[str, Any], *, is_root: bool) -> None:
        from opentelemetry import trace  # noqa: PLC0415
        from opentelemetry.context import Context  # noqa: PLC0415

        trace_id, root = (int(text, 16) for text in trace_ids(self._fleet, run))
        context = Context()
        if is_root:
            self._ids.next = (trace_id, root)
        else:
            parent = trace.SpanContext(trace_id, root, is_remote=True, trace_flags=trace.TraceFlags(1))
            context = trace.set_span_in_context(trace.NonRecordingSpan(parent), context)
        end = self._wall()
        span = self._tracer.start_span(name, context, start_time=_nanoseconds(end - max(0.0, seconds)))
        span.set_attribute("glassfleet.run", run)
        for key, value in about.items():
            span.set_attribute(f"glassfleet.{key}", value)
        if about.get("end") == "missed" or about.get("outcome") == "failed":
            span.set_status(trace.StatusCode.ERROR)
        span.end(_nanoseconds(end))


def _ids() -> Any:
    """Return a generator of ids that gives the ones in ``next`` once, and random ones otherwise."""
    from opentelemetry.sdk.trace.id_generator import RandomIdGenerator  # noqa: PLC0415

    class Ids(RandomIdGenerator):
        next: tuple[int, int] | None = None

        def generate_trace_id(self) -> int:
            return super().generate_trace_id() if self.next is None else self.next[0]

        def generate_span_id(self) -> int:
            wanted, self.next = self.next, None
            return super().generate_span_id() if wanted is None else wanted[1]

    return Ids()


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)
