"""A forecast each second: sample, inputs, model, explanation, record, alert. `run` is the process around it."""

from __future__ import annotations

import itertools
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from math import isnan
from typing import Any

from broker.paho_transport import PahoTransport
from broker.port import Handlers, Link
from broker.signed import signed
from broker.tls import tls_of
from edge_agent import logs
from edge_agent.forecast.config import ForecastConfig
from edge_agent.forecast.features import LiveFeatures, vector
from edge_agent.forecast.log import ForecastLog
from edge_agent.forecast.model import ModelWatch, Served
from edge_agent.forecast.source import Access, Sample, Samples, is_topic
from glassfleet.data.windows import WindowPlan
from glassfleet.explanation import Explanation
from glassfleet.reference import explained
from schemas.envelope import Envelope
from schemas.errors import NotFoundError, UsageError
from schemas.messages import Forecast
from schemas.topics import Topics

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
    features : LiveFeatures
    watch : ModelWatch
    log : ForecastLog
    every : float
        Seconds between two forecasts at least.
    alert : str or None
        A number, below which forecasts are alerts, or a class.
    publish : callable
        Takes each `Forecast` to be sent.
    say : structlog logger
    clock : callable
        Seconds that only go forward.
    wall : callable
        Seconds since the epoch, for the records.

    Attributes
    ----------
    record : dict
        What was logged of the last forecast; empty before the first one.
    """

    def __init__(
        self,
        features: LiveFeatures,
        watch: ModelWatch,
        log: ForecastLog,
        *,
        every: float,
        alert: str | None,
        publish: Callable[[Forecast], None],
        say: Any,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._features = features
        self._watch = watch
        self._log = log
        self._every = every
        self._alert = alert
        self._publish = publish
        self._say = say
        self._clock, self._wall = clock, wall
        self._due = float("-inf")
        self._alerting = False
        self._asked_for_model = False
        self.record: dict[str, Any] = {}
        self.counts: Counter[str] = Counter()
        for note in log.notes:
            # In the chain itself: whoever reads the log later shall know.
            say.error("forecast-log", note=note)
            log.append({"kind": "note", "time": wall(), "text": note})

    def forecast(self, sample: Sample | str) -> Forecast | None:
        """Return the forecast that was made of a sample, if one was due.

        Raises
        ------
        StorageError
            The forecast could not be recorded, and so was not made.
        """
        self.counts["samples"] += 1
        served, is_new = self._watch.look()
        if served is not None and is_new:
            self._features.serve(served.model.domain)
            self._log.keep_model(served.record.digest, served.content)
        if served is None and not self._asked_for_model:
            self._asked_for_model = True
            self._say.warning("waits-for-model", waits_for=self._watch.wanted)
        if isinstance(sample, str):
            self._fault("no-sample", sample)
            return None
        try:
            inputs = self._features.push(sample)
        except KeyError as fault:
            self._fault("missing-field", f"the sample has no {fault.args[0]!r}")
            return None
        except (ValueError, TypeError) as fault:
            self._fault("unusable-sample", str(fault))
            return None
        if served is None or inputs is None or not self._is_due():
            self.counts["waiting"] += 1
            return None
        return self._record(served, inputs)

    def _is_due(self) -> bool:
        now = self._clock()
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


def run(
    config: ForecastConfig, plan: WindowPlan | None = None, tell: Callable[[dict[str, Any]], None] | None = None
) -> Counter[str]:
    """Forecast until the source ends, or SIGTERM or SIGINT; return what was counted.

    Parameters
    ----------
    config : ForecastConfig
    plan : WindowPlan or None
        What becomes of the samples; None: they are rows already.
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
    logs.configure(config.log_level, config.log_format)
    say = logs.get_logger("glassfleet.forecast", agent=config.id)
    for note in config.notes:
        say.warning("retired-setting", note=note)
    with ExitStack() as stack:
        features = LiveFeatures(plan, config.observed)
        log = ForecastLog(config.log_directory, max_bytes=config.log_max_bytes)
        stack.callback(log.close)
        publish = _publisher(config, stack)
        samples = Samples(config.source, speed=config.speed, access=_access(config))
        stack.callback(samples.close)
        watch = ModelWatch(config.models_directory, config.model, say, config.data)
        forecaster = Forecaster(
            features,
            watch,
            log,
            every=config.every,
            alert=config.alert,
            publish=publish,
            say=say,
            # A replayed row is a second, however fast it comes.
            clock=itertools.count().__next__ if samples.is_replay else time.monotonic,
        )
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                stack.callback(signal.signal, number, signal.signal(number, lambda *_: samples.stop()))
        # Without user and password, if it is a URL that has them.
        source = config.source.rpartition("@")[2]
        say.info("forecaster", source=source, log=str(config.log_directory), records=log.head.n)
        try:
            for sample in samples:
                if forecaster.forecast(sample) is not None and tell is not None:
                    tell(forecaster.record)
        finally:
            say.info("forecaster-ends", **forecaster.counts)
        _tell_if_in_vain(forecaster.counts, watch, samples)
        return forecaster.counts


def _tell_if_in_vain(counts: Counter[str], watch: ModelWatch, samples: Samples) -> None:
    """Raise NotFoundError when a source ended that brought samples, but there never was a model to forecast with."""
    if counts["samples"] and not counts["forecasts"] and not samples.is_stopped and watch.look()[0] is None:
        if watch.complaint:
            raise NotFoundError(f"the source ended, and not one forecast was made: {watch.complaint}")
        raise NotFoundError(
            f"the source ended, and not one forecast was made, for there never was {watch.wanted}. "
            "Is --id the agent's, and has its fleet published a model (glassfleet model list)?"
        )


def _access(config: ForecastConfig) -> Access:
    folder, ca_file = config.source_identity, config.source_ca_file
    if (folder or ca_file) and not is_topic(config.source):
        raise UsageError(
            f"--source {config.source} is no broker's topic: leave out --source-identity and --source-ca-file"
        )
    if folder is not None and config.identity is not None and folder.resolve() == config.identity.resolve():
        raise UsageError(
            f"--source-identity {folder} is --identity, too: a broker gives one connection to each certificate. Enrol "
            f"another one, such as {config.id}-samples"
        )
    return Access(folder, ca_file, config.insecure_plaintext)


def _publisher(config: ForecastConfig, stack: ExitStack) -> Callable[[Forecast], None]:
    if config.publish == "none" or config.broker is None:
        return lambda _forecast: None
    speaker, credentials = config.id, None
    if config.identity is not None:
        from broker.credentials import FolderCredentials  # noqa: PLC0415 - loaded by fleets that sign
        from broker.identity import check_owner  # noqa: PLC0415

        speaker = check_owner(config.identity, "agent").owner.id
        if speaker == config.id:
            raise UsageError(
                f"--identity {config.identity} is agent {config.id}'s own: a broker gives one connection to each "
                "certificate, so publishing would throw the agent out. Enrol a second one, such as "
                f"{config.id}-forecast"
            )
        credentials = FolderCredentials(config.identity)
    topics = Topics(config.fleet)
    link = Link(
        url=config.broker,
        client_id=f"gf-{config.fleet}-forecast-{config.id}",
        session_expiry=0,
        tls=tls_of(config.identity, config.ca_file),
        insecure_plaintext=config.insecure_plaintext,
    )
    # It subscribes to nothing but, perhaps, the revocation list: there is nothing else to refuse.
    transport = signed(link, topics, credentials, lambda _message, _fault: None, PahoTransport)
    topic = topics.forecast(speaker)
    transport.start(Handlers(lambda _message: None, lambda: None, lambda _why: None))
    stack.callback(transport.stop)
    stack.callback(transport.flush, 1.0)

    def publish(forecast: Forecast) -> None:
        # What nobody could hear at its time is not news later: nothing is queued while the broker is away.
        if transport.is_connected and (config.publish == "all" or forecast.alert):
            envelope = Envelope(fleet=config.fleet, body=forecast, agent=speaker, time=forecast.at)
            transport.publish(topic, envelope.to_bytes())

    return publish
