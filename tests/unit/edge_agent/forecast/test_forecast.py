"""Live features, the model that is followed, sources, and a forecaster that must not fall over what it is fed."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_agent.forecast.config import ForecastConfig
from edge_agent.forecast.log import ForecastLog
from edge_agent.forecast.model import ModelWatch, inputs_of
from edge_agent.forecast.serve import Forecaster
from edge_agent.forecast.serve import run as run_forecaster
from edge_agent.forecast.verify import at_time, model_of, verify
from edge_agent.live.plan import LivePlan
from edge_agent.live.port import MAX_BYTES, LiveSample, parse, seconds_of
from edge_agent.live.rows import LiveRows
from edge_agent.sources import read_source
from glassfleet import simulation
from glassfleet.contract import catalogue
from glassfleet.data.dataset import Dataset
from glassfleet.data.timeplan import TimePlan
from glassfleet.discovery import DiscoveryParameters, discover
from glassfleet.model.baseline import recorded
from glassfleet.model.intervals import errors_on, intervals, tell_forecasts
from schemas.codec import document_digest
from schemas.errors import NotFoundError
from schemas.log import Log
from schemas.messages import Forecast
from schemas.record import ModelRecord
from tests.support import sample_models
from tests.support.agent_bench import record_of, write_rows


def rows(seed: int = 0, count: int = 60) -> Dataset:
    rng = np.random.default_rng(seed)
    X = rng.random((count, 2))
    return Dataset(("a", "b"), "y", X, X[:, 0] + 0.3 * X[:, 1])


def record(version: int = 1, names: tuple[str, ...] = ("a", "b"), **parameters: Any) -> ModelRecord:
    scheme = catalogue.load("frt")
    data = rows().select(names)
    domain = discover(DiscoveryParameters(features=names, target="y"), [data])
    settings = scheme.exact(scheme.Parameters.model_validate({"max_depth": 2, **parameters}))
    document = simulation.central(scheme, settings, domain, data).model.to_document()
    return record_of(document, version=version)


FIRST, SECOND, PLAIN = record(), record(2, max_depth=1), record(3, ("a",))


def samples(data: Dataset) -> list[dict[str, float]]:
    return [dict(zip(data.features, row, strict=True)) for row in data.X.tolist()]


class Bench:
    """A forecaster with a model folder, a log and a clock that is moved by hand."""

    def __init__(
        self,
        folder: Path,
        *,
        alert: str | None = None,
        every: float = 1.0,
        data: Path | None = None,
        units: dict[str, str] | None = None,
    ) -> None:
        self.models = folder / "models"
        self.models.mkdir(exist_ok=True)
        self.folder = folder / "forecasts"
        self.log = ForecastLog(self.folder)
        self.now = 100.0
        self.published: list[Forecast] = []
        self.forecaster = Forecaster(
            LiveRows(None, units=units),
            ModelWatch(self.models, None, Log(), None if data is None else str(data), clock=lambda: self.now),
            self.log,
            every=every,
            alert=alert,
            publish=self.published.append,
            say=Log(),
            clock=lambda: self.now,
            wall=lambda: self.now,
        )

    def keep(self, kept: ModelRecord) -> None:
        draft = self.models / ".m.json.tmp"
        draft.write_bytes(kept.to_bytes())
        draft.replace(self.models / "m.json")

    def forecast(self, sample: Any, seconds: float = 1.0) -> Forecast | None:
        self.now += seconds
        return self.forecaster.forecast(sample if isinstance(sample, str) else LiveSample(sample))

    def made(self, sample: Any) -> Forecast:
        forecast = self.forecast(sample)
        assert forecast is not None
        return forecast


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_forecaster_makes_no_forecast_of_rows_in_another_unit_than_the_models(tmp_path):
    units = {"speed": "km/h"}
    bench = Bench(tmp_path, units=units)
    bench.keep(record_of(sample_models.model("dp_tree").to_document()))
    sample = dict.fromkeys(sample_models.NAMES, 1.0)
    assert bench.forecast(sample) is None
    assert bench.forecaster.other_unit.startswith("'speed' is in km/h here, and the model has it in m/s")
    assert bench.forecaster.counts["other-unit"] == 1
    units["speed"] = "m/s"
    assert bench.made(sample).name == "m"


def test_forecaster_serves_what_the_model_says_of_the_rows_it_was_trained_on(bench):
    bench.keep(FIRST)
    model = catalogue.load("frt").from_document(FIRST.document)
    data = rows()
    served = [bench.forecast(sample) for sample in samples(data)]
    assert [forecast.prediction for forecast in served] == model.predict(data.X).tolist()
    assert all(
        sum(forecast.shares.values()) + forecast.base == pytest.approx(forecast.prediction) for forecast in served
    )
    assert verify(bench.folder).last == data.rows
    assert at_time(bench.folder, 103.0, within=0.1)["inputs"] == dict(zip("ab", data.X[2].tolist(), strict=True))


def test_log_has_the_interval_of_each_forecast_when_the_record_tells_errors(bench):
    model, data = catalogue.load("frt").from_document(FIRST.document), rows()
    line = {"rows": 0.5, "mean": 0.5, "low": 0.0, "high": 1.0}
    errors = errors_on(model, data.X, data.y + np.linspace(-0.1, 0.1, data.rows))
    beside = recorded({"forecasts": {"rules": [line] * len(model.rules())}}, errors)
    tell_forecasts(model, beside)
    bench.keep(FIRST.model_copy(update={"parameters": {**FIRST.parameters, **beside}}))
    bench.forecast(samples(data)[0])

    assert at_time(bench.folder, 101.0, within=0.1)["interval"] == intervals(model, data.X[:1])[0].tolist()


def test_forecaster_takes_over_a_new_model_between_two_forecasts(bench):
    data = samples(rows())
    bench.keep(FIRST)
    assert [bench.forecast(sample).version for sample in data[:4]] == [1] * 4
    bench.keep(SECOND)
    assert bench.forecast(data[4]).version == 2
    bench.keep(PLAIN)
    assert bench.forecast(data[5]).version == 3
    assert at_time(bench.folder, bench.now, within=0.1)["inputs"] == {"a": data[5]["a"]}
    bench.keep(FIRST)
    assert bench.forecast(data[6]).version == 1
    assert verify(bench.folder).models == (FIRST.digest, SECOND.digest, PLAIN.digest)


def test_forecaster_goes_on_with_the_fleets_model_when_its_central_reference_is_kept_beside_it(bench):
    reference = SECOND.model_copy(
        update={"name": "m.central", "cohort": [], "parameters": {"source": "central", "about": "all rows"}}
    )
    beside = bench.models / "m.central.json"
    beside.write_bytes(reference.to_bytes())
    data = samples(rows())
    assert bench.forecast(data[0]) is None, "a reference alone is nothing to forecast with"
    bench.keep(FIRST)
    assert bench.forecast(data[1]).version == 1
    bench.keep(PLAIN)
    assert bench.forecast(data[2]).version == 3
    beside.write_bytes(b"{")
    bench.keep(FIRST)
    assert bench.forecast(data[3]).version == 1
    # A run of the fleet may have such a name, too: then there are two to choose from, and the one in use stays.
    beside.write_bytes(SECOND.model_copy(update={"name": "m.central"}).to_bytes())
    bench.keep(PLAIN)
    assert bench.forecast(data[4]).version == 1


@cache
def _population() -> ModelRecord:
    """A population of structures, and what it says by itself, for a vehicle with rows (a, b) to make its tree of."""
    scheme: Any = catalogue.load("fedga")
    data = rows(count=120)
    domain = discover(DiscoveryParameters(features=("a", "b"), target="y"), [data])
    document = simulation.central(scheme, scheme.abilities.trial, domain, data).model.to_document()
    return FIRST.model_copy(update={"document": document, "digest": document_digest(document), "scheme": "fedga"})


def _own_rows(path: Path, seed: int = 5) -> Dataset:
    data = rows(seed, 120)
    write_rows(path, data)
    return data


def test_forecaster_serves_and_keeps_the_vehicles_own_tree_when_the_model_is_a_population(tmp_path):
    own = _own_rows(tmp_path / "own.csv")
    bench, shared = Bench(tmp_path, data=tmp_path / "own.csv"), _population()
    bench.keep(shared)
    scheme: Any = catalogue.load("fedga")
    tree = scheme.from_document(shared.document).personalise(read_source(tmp_path / "own.csv").train)
    served = [forecast for sample in samples(own)[:40] if (forecast := bench.forecast(sample)) is not None]
    assert [forecast.prediction for forecast in served] == tree.predict(own.X[:40]).tolist()
    assert len({forecast.prediction for forecast in served}) > 1
    assert {forecast.digest for forecast in served} == {document_digest(tree.to_document())}
    # The log explains it without the rows, and says whose child the tree is.
    kept = model_of(bench.folder, served[0].digest)
    explanation = kept.model.explain(own.X[0])
    assert str(explanation.fired.rule).startswith("IF ")
    assert any(explanation.shares.values())
    assert kept.model.to_document() == tree.to_document()
    assert kept.record.parents == [shared.digest]
    assert not kept.record.signatures
    assert verify(bench.folder).last == 40


def test_forecaster_publishes_no_rule_of_the_vehicles_own_tree_when_it_is_told_to_publish(tmp_path, said):
    own = _own_rows(tmp_path / "own.csv")
    bench = Bench(tmp_path, alert="1e9", data=tmp_path / "own.csv")
    bench.keep(_population())
    made = [bench.forecast(sample) for sample in samples(own)]
    assert bench.published == made
    assert {(each.rule, str(each.memberships), str(each.shares), each.base) for each in bench.published} == {
        ("(the vehicle's own tree)", "[]", "{}", 0.0)
    }
    # Whatever is published or logged later: no number of the tree's is in it but what a forecast answers.
    tree = model_of(bench.folder, bench.published[0].digest).model
    rules = {str(tree.explain(row).fired.rule) for row in own.X}
    assert len(rules) > 1
    thresholds = {number for rule in rules for number in re.findall(r"-?\d+\.\d+", rule.partition(" THEN ")[0])}
    assert thresholds
    heard = "".join(each.model_dump_json() for each in bench.published) + json.dumps(said)
    assert [text for text in [*rules, *thresholds, "IF "] if text in heard] == []
    alerts = [line for line in said if line["event"] == "forecast-alert"]
    assert [sorted(line) for line in alerts] == [["event", "prediction", "threshold"]]


def test_forecaster_ends_with_the_reason_when_the_only_model_cannot_be_used(tmp_path):
    models = tmp_path / "models"
    models.mkdir()
    (models / "m.json").write_bytes(_population().to_bytes())
    (tmp_path / "drive.csv").write_text("a,b\n0.5,0.5\n", encoding="utf-8")
    config = ForecastConfig.load(
        id="v", state_dir=tmp_path / "state", source=str(tmp_path / "drive.csv"), models=models, speed=0.0
    )
    with pytest.raises(NotFoundError, match=r"not one forecast was made: .*give them with --data"):
        run_forecaster(config)


@pytest.mark.parametrize("content", [b"", b"{", b"{}", FIRST.to_bytes().replace(b'"max_depth":2', b'"max_depth":3')])
def test_forecaster_stays_with_the_last_good_model_when_the_file_is_damaged(bench, content):
    bench.keep(FIRST)
    data = samples(rows())
    assert bench.forecast(data[0]).version == 1
    (bench.models / "m.json").write_bytes(content)
    assert bench.forecast(data[1]).version == 1
    (bench.models / "m.json").unlink()
    assert bench.forecast(data[2]).version == 1


def test_forecaster_counts_what_is_no_sample_and_goes_on(bench):
    bench.keep(FIRST)
    good = samples(rows())
    bench.forecast(good[0])
    bad = ["not JSON", {}, {**good[1], "a": "red"}, {**good[1], "a": float("nan")}, {**good[1], "b": None}]
    assert [bench.forecast(sample) for sample in bad] == [None] * len(bad)
    assert bench.forecast(good[1]).prediction is not None
    assert at_time(bench.folder, bench.now, within=0.1)["inputs"] == good[1]
    counts = bench.forecaster.counts
    assert (counts["no-sample"], counts["missing-field"], counts["unusable-sample"]) == (1, 1, 3)


def test_forecaster_makes_one_forecast_a_second_from_faster_and_from_jittering_samples(tmp_path):
    bench = Bench(tmp_path)
    bench.keep(PLAIN)
    fast = [bench.forecast({"a": 0.5, "b": 0.5}, 0.1) for _ in range(100)]
    assert 10 <= sum(forecast is not None for forecast in fast) <= 11
    bench.now += 10
    jitter = [bench.forecast({"a": 0.5, "b": 0.5}, seconds) for seconds in (1.0, 1.3, 0.7, 1.0, 0.8, 1.2, 1.0)]
    assert None not in jitter


def test_alert_begins_and_ends_once_and_is_in_the_record(tmp_path):
    bench = Bench(tmp_path, alert="0.5")
    bench.keep(PLAIN)
    made = [bench.forecast({"a": a, "b": 0.2}) for a in (0.9, 0.1, 0.2, 0.9, 0.1)]
    alerts = [forecast.alert for forecast in made if forecast is not None]
    assert alerts == [False, True, True, False, True]
    assert bench.forecaster.counts["alerts"] == 2
    assert [forecast.alert for forecast in bench.published] == alerts


def test_rows_are_made_by_the_plan_and_begin_anew_at_a_new_drive_and_after_a_gap():
    inputs = {take: {"signal": "a", "take": take, "seconds": 2} for take in ("mean", "slope")}
    plan = {"column": "at", "drive": "trip", "rows": "a", "gap": 1.5, "start": 1, "inputs": inputs}
    rows = LiveRows(LivePlan(TimePlan.from_document(plan), clock="at"))
    samples = [(1, 0, 1), (1, 1, 3), (1, 4, 9), (1, 5, 9), (2, 6, 1)]
    got = [rows.push(LiveSample({"trip": trip, "at": at, "a": a})) for trip, at, a in samples]
    assert got[0] == got[2] == got[4] == []
    assert got[1] == [{"trip": 1, "at": 1, "mean": 2, "slope": 2}]
    assert got[3] == [{"trip": 2, "at": 5, "mean": 9, "slope": 0}]
    assert [str(cut) for cut in rows.cuts()] == ["nothing comes for 3 s, up to 4"]
    for odd, words in (
        ({"at": 6, "a": 1}, "its time, 6, was taken already"),
        ({"a": 1}, "does not tell its time, 'at'"),
        ({"at": 7, "a": "?"}, "its slope is asked for"),
    ):
        with pytest.raises(ValueError, match=words):
            rows.push(LiveSample({"trip": 2, **odd}))


def test_sample_that_was_stored_makes_no_row_unless_it_tells_its_time():
    rows = LiveRows(None)
    with pytest.raises(ValueError, match="had it stored, and it does not tell its time"):
        rows.push(LiveSample({"a": 1}, topic="t", is_stored=True))
    assert rows.push(LiveSample({"a": 1}, 5.0, topic="t", is_stored=True)) == [{"a": 1}]
    with pytest.raises(ValueError, match=r"give it with --plan"):
        rows.push(LiveSample({"a": 1}, is_whole=False))


@pytest.mark.parametrize(
    "line",
    [b"", b"[1]", b"{", b"\xff", b"[" * 5000, b" " * MAX_BYTES + b"{}", b'{"ts": "noon", "path": "a", "value": 1}'],
)
def test_line_that_is_no_sample_is_told_as_what_it_is(line):
    assert isinstance(parse(line), str)


def test_line_of_one_signal_is_a_sample_with_its_own_time():
    line = b'{"ts": "2026-03-01T14:05:09.5+01:00", "path": "Vehicle.Speed", "value": 3}'
    assert parse(line) == LiveSample({"Vehicle.Speed": 3}, 1772370309.5, is_whole=False)
    assert seconds_of("1772370309.5") == seconds_of("2026-03-01T13:05:09.5") == 1772370309.5
    with pytest.raises(ValueError, match="milliseconds"):
        seconds_of(1772370309500)


def test_truth_values_and_null_are_fields_of_a_sample_and_become_what_the_model_takes():
    sample = parse(b'{"a": true, "b": false, "c": null}')
    assert isinstance(sample, LiveSample)
    assert sample.values == {"a": True, "b": False, "c": None}
    domain = discover(DiscoveryParameters(features=("a", "b"), target="y"), [rows()])
    assert inputs_of(sample.values, domain) == {"a": 1.0, "b": 0.0}
    with pytest.raises(ValueError, match="'b' is empty, and the model takes a number"):
        inputs_of({"a": 1, "b": None}, domain)
    words = domain.features[1].model_copy(update={"low": 0.0, "high": 2.0, "categories": ("missing", "no", "yes")})
    with_words = domain.model_copy(update={"features": (domain.features[0], words)})
    for cell, code in ((True, 2.0), (False, 1.0), ("yes", 2.0)):
        assert inputs_of({"a": 1, "b": cell}, with_words) == {"a": 1.0, "b": code}


def test_features_of_a_model_that_knows_empty_cells_take_them_and_texts_that_no_vehicle_told():
    domain = discover(DiscoveryParameters(features=("a", "b"), target="y"), [rows()])
    known = domain.features[0].model_copy(update={"missing": domain.features[0].low})
    place = domain.features[1].model_copy(update={"low": 0.0, "high": 1.0, "categories": ("Natal", "Recife")})
    told = domain.model_copy(update={"features": (known, place)})
    for cell in (None, "", float("nan")):
        taken = inputs_of({"a": cell, "b": "Oz"}, told)
        assert np.isnan(taken["a"])
        assert taken["b"] == 0.5
    for none in (None, 7):
        with pytest.raises(ValueError, match=f"'b' is {none}, and the model takes a text"):
            inputs_of({"a": 1.0, "b": none}, told)
    with pytest.raises((ValueError, TypeError)):
        inputs_of({"a": None, "b": 1.0}, domain)
