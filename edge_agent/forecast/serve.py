"""A forecast each second: sample, inputs, model, explanation, record, alert. `run` is the process around it."""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from math import isnan
from typing import Any

from edge_agent.forecast.config import ForecastConfig
from edge_agent.forecast.log import ForecastLog
from edge_agent.forecast.model import ModelWatch, Served, inputs_of, vector
from edge_agent.forecast.publish import into_vehicle, to_fleet
from edge_agent.live.plan import LivePlan
from edge_agent.live.port import LiveSample, ServerAccess
from edge_agent.live.rows import LiveRows, Samples
from edge_agent.recordings.units import unlike
from glassfleet.model.baseline import explained
from glassfleet.model.explanation import Explanation
from schemas.errors import DataError, NotFoundError, UsageError
from schemas.log import Log, LogWriter
from schemas.messages import Forecast

SLACK = 0.5
"""A sample may come this much of the time between two forecasts before its time: clocks and networks jitter."""

FAULTS_LOGGED_EVERY = 60
"""So often the same kind of fault of a sample is logged once: a broken sensor must not fill the log."""

OWN_TREE = "(the vehicle's own tree)"
"""What is published in place of the rule where the vehicle made the model of its rows: that stays at the vehicle."""


class Forecaster:
    """Turns samples into explained, logged forecasts.

    Parameters
    ----------
    rows : LiveRows
    watch : ModelWatch
    log : ForecastLog
    every : float
        Seconds between two forecasts at least.
    alert : str or None
        A number, below which forecasts are alerts, or a class.
    publish : callable
        Takes each `Forecast` to be sent.
    say : Log
    clock : callable
        Seconds that only go forward.
    wall : callable
        Seconds since the epoch, for the records.

    Attributes
    ----------
    record : dict
        What was logged of the last forecast; empty before the first one.
    other_unit : str
        Which column is in another unit than the model has it, so that nothing can be forecast; empty: none.
    """

    def __init__(
        self,
        rows: LiveRows,
        watch: ModelWatch,
        log: ForecastLog,
        *,
        every: float,
        alert: str | None,
        publish: Callable[[Forecast], None],
        say: Log,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._rows = rows
        self._watch = watch
        self._log = log
        self._every = every
        self._alert = alert
        self._publish = publish
        self._say = say
        self._clock, self._wall = clock, wall
        self._due = self._seen = float("-inf")
        self._alerting = False
        self._asked_for_model = False
        self.record: dict[str, Any] = {}
        self.other_unit = ""
        self.counts: Counter[str] = Counter()
        for note in log.notes:
            # In the chain itself: whoever reads the log later shall know.
            say.error("forecast-log", note=note)
            log.append({"kind": "note", "time": wall(), "text": note})

    def forecast(self, sample: LiveSample | str) -> Forecast | None:
        """Return the forecast that was made of a sample, if one was due.

        Raises
        ------
        StorageError
            The forecast could not be recorded, and so was not made.
        """
        self.counts["samples"] += 1
        served, is_new = self._watch.look()
        if served is not None and is_new:
            self._log.keep_model(served.record.digest, served.content)
        if served is None and not self._asked_for_model:
            self._asked_for_model = True
            self._say.warning("waits-for-model", waits_for=self._watch.wanted)
        if isinstance(sample, str):
            self._fault("no-sample", sample)
            return None
        try:
            rows = self._rows.push(sample)
        except ValueError as fault:
            self._fault("unusable-sample", str(fault))
            return None
        for cut in self._rows.cuts():
            self._say.warning("new-drive", reason=str(cut))
        return self._of_rows(served, rows)

    def finish(self) -> Forecast | None:
        """Return the forecast of what waits for a later sample: there will be none."""
        return self._of_rows(self._watch.look()[0], self._rows.flush())

    def _of_rows(self, served: Served | None, rows: list[dict[str, Any]]) -> Forecast | None:
        """Return the forecast of the last row, if one is due."""
        inputs = None
        if served is not None and rows:
            try:
                inputs = inputs_of(rows[-1], served.model.domain)
            except KeyError as fault:
                self._fault("missing-field", f"the sample has no {fault.args[0]!r}")
            except (ValueError, TypeError) as fault:
                self._fault("unusable-sample", str(fault))
        if served is None or inputs is None or not self._is_due():
            self.counts["waiting"] += 1
            return None
        self.other_unit = unlike(served.model.domain, self._rows.units)
        if self.other_unit:
            self._fault("other-unit", self.other_unit)
            return None
        return self._record(served, inputs)

    def _is_due(self) -> bool:
        now = self._clock()
        if now < self._seen:  # a recording's clock that steps back; this machine's never does
            self._due = float("-inf")
        self._seen = now
        if now < self._due - SLACK * self._every:
            return False
        # By the schedule and not from now, so that a late sample does not cost the next one its forecast.
        behind = now - self._due > self._every
        self._due = (now if behind else self._due) + self._every
        return True

    def _record(self, served: Served, inputs: dict[str, float]) -> Forecast:
        explanation = explained(served.model, vector(inputs), served.reference)
        fired, record = explanation.fired, served.record
        prediction = explanation.prediction
        prediction = prediction if isinstance(prediction, str) else float(prediction)
        alert = is_alert(prediction, self._alert)
        at = round(self._wall(), 3)
        memberships = [float(degree) for degree in fired.memberships]
        self.record = {
            "kind": "forecast",
            "time": at,
            "model": {"name": record.name, "version": record.version, "digest": record.digest},
            "inputs": {name: None if isnan(value) else value for name, value in inputs.items()},
            "prediction": prediction,
            "rule": fired.rule.index,
            "strength": float(fired.strength),
            "memberships": memberships,
            "fallback": bool(explanation.fallback),
            **({} if explanation.interval is None else {"interval": list(explanation.interval)}),
            "alert": alert,
        }
        digest = self._log.append(self.record)
        forecast = Forecast(
            name=record.name,
            version=record.version,
            digest=record.digest,
            prediction=prediction,
            strength=min(1.0, max(0.0, float(fired.strength))),
            alert=alert,
            at=at,
            record=digest,
            # Thresholds and leaves of a vehicle's own tree are its alone; its log has the explanation.
            **({"rule": OWN_TREE} if served.is_personal else _explained(explanation, memberships)),
        )
        self.counts["forecasts"] += 1
        self._say.debug("forecast", prediction=prediction, rule=fired.rule.index, version=record.version)
        # The lines of this process are often collected elsewhere.
        self._tell_alert(forecast, {} if served.is_personal else {"because": forecast.rule})
        self._publish(forecast)
        return forecast

    def _tell_alert(self, forecast: Forecast, why: dict[str, str]) -> None:
        """Log where alerts begin and end; each alert's forecast is in the chain anyway."""
        if forecast.alert and not self._alerting:
            self.counts["alerts"] += 1
            self._say.warning("forecast-alert", prediction=forecast.prediction, threshold=self._alert, **why)
        elif self._alerting and not forecast.alert:
            self._say.info("forecast-alert-over", prediction=forecast.prediction)
        self._alerting = forecast.alert

    def _fault(self, code: str, text: str) -> None:
        self.counts[code] += 1
        if (self.counts[code] - 1) % FAULTS_LOGGED_EVERY == 0:
            self._say.warning("sample-ignored", reason=text, kind=code, so_far=self.counts[code])


def _explained(explanation: Explanation, memberships: list[float]) -> dict[str, Any]:
    """Return the fields of a `Forecast` that say why it was made."""
    return {
        "rule": str(explanation.fired.rule)[:4000],
        "memberships": [min(1.0, max(0.0, degree)) for degree in memberships],
        "shares": {name: float(share) for name, share in explanation.shares.items()},
        "base": float(explanation.base),
    }


def is_alert(prediction: float | str, threshold: str | None) -> bool:
    """Whether a forecast is below the number, or of the class, `threshold`."""
    if threshold is None:
        return False
    if isinstance(prediction, str):
        return prediction == threshold
    try:
        return prediction < float(threshold)
    except ValueError:
        return False


def run(config: ForecastConfig, tell: Callable[[dict[str, Any]], None] | None = None) -> Counter[str]:
    """Forecast until the source ends, or SIGTERM or SIGINT; return what was counted.

    Parameters
    ----------
    config : ForecastConfig
    tell : callable or None
        Takes the record of each forecast.

    Raises
    ------
    UsageError, DataError
        A setting or the source cannot be used.
    StorageError, IdentityError
        The log cannot be written, or another process writes it.
    NotFoundError
        The source ended, and there never was a model.
    """
    Log.write = LogWriter(config.log_level, config.log_format)
    say = Log(agent=config.id)
    with ExitStack() as stack:
        plan = LivePlan() if config.plan is None else LivePlan.read(config.plan, config.vss)
        log = ForecastLog(config.log_directory, max_bytes=config.log_max_bytes)
        stack.callback(log.close)
        access = _access(config)
        publish = to_fleet(config, stack)
        publish_signals = into_vehicle(config, access, stack)
        asked = plan.request(config.source, access=access, speed=config.speed)
        rows = LiveRows(plan, units=asked.units)
        samples = Samples(asked)
        stack.callback(samples.close)
        watch = ModelWatch(config.models_directory, config.model, say, config.data)
        forecaster = Forecaster(
            rows,
            watch,
            log,
            every=config.every,
            alert=config.alert,
            publish=publish,
            say=say,
            # What was recorded has its own time, however fast it comes.
            clock=(lambda: rows.now) if samples.is_replay else time.monotonic,
        )
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                stack.callback(signal.signal, number, signal.signal(number, lambda *_: samples.stop()))
        # Without user and password, if it is a URL that has them.
        source = config.source.rpartition("@")[2]
        say.info("forecaster", source=source, log=str(config.log_directory), records=log.head.n)

        def made(forecast: Forecast | None) -> None:
            if forecast is not None:
                publish_signals(forecaster.record)
                if tell is not None:
                    tell(forecaster.record)

        try:
            for sample in samples:
                made(forecaster.forecast(sample))
            made(forecaster.finish())
        finally:
            say.info("forecaster-ends", **forecaster.counts)
        _tell_if_in_vain(forecaster, watch, samples)
        return forecaster.counts


def _tell_if_in_vain(forecaster: Forecaster, watch: ModelWatch, samples: Samples) -> None:
    """Raise when a source ended that brought samples, but there never was a model to forecast with."""
    counts = forecaster.counts
    if not counts["samples"] or counts["forecasts"] or samples.is_stopped:
        return
    if forecaster.other_unit:
        raise DataError(f"the source ended, and not one forecast was made: {forecaster.other_unit}")
    if watch.look()[0] is None:
        if watch.complaint:
            raise NotFoundError(f"the source ended, and not one forecast was made: {watch.complaint}")
        raise NotFoundError(
            f"the source ended, and not one forecast was made, for there never was {watch.wanted}. "
            "Is --id the agent's, and has its fleet published a model (glassfleet model list)?"
        )


def _access(config: ForecastConfig) -> ServerAccess:
    folder, source, publish = config.source_identity, config.source, config.publish
    if folder is not None:
        if config.identity is not None and folder.resolve() == config.identity.resolve():
            raise UsageError(
                f"source_identity {folder} is --identity, too: a broker gives one connection to each certificate. "
                f"Enrol another one, such as {config.id}-samples"
            )
        if source.startswith("mqtts://") and publish.startswith("mqtts://"):
            raise UsageError(
                f"source_identity {folder} for --source and --publish: a broker gives one connection to each "
                "certificate. Publish to a databroker, or where a user name is enough"
            )
    access = ServerAccess(folder, config.source_ca_file, config.source_token_file, config.insecure_plaintext)
    if any((folder, access.ca_file, access.token_file)) and "://" not in f"{source}{publish}":
        raise UsageError(
            f"--source {source} is no server: leave out source_identity, source_ca_file and source_token_file"
        )
    return access
