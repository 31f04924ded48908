"""Readers for blocks of configuration in pages: the real ones, so that what a page shows would be taken."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from coordinator import config as coordinator_config
from coordinator.http.dashboard.explain_api import Otherwise
from coordinator.http.dashboard.scores import ScoresDocument, VehicleDocument
from coordinator.runs.view import suspended_document
from coordinator.specification.rollout import RolloutPlan
from coordinator.specification.run import RunSpec
from edge_agent import config as agent_config
from edge_agent.live.plan import LivePlan
from glassfleet.contract import catalogue

ROLLOUT = {
    "": "rollout model version champion phase stage reports mean worse reason plan started ended remaining needed"
    " awaited stages agents cannot",
    "stages": "share asked reported cannot opened closed verdict",
}
"""Fields of a rollout in the coordinator's answer (``coordinator.models.rollout.shell``)."""


def _agent_toml(text: str, folder: Path) -> None:
    path = folder / "agent.toml"
    path.write_text(text)
    agent_config.AgentConfig.load(path)


def _entry_point(text: str, folder: Path) -> None:
    del folder
    assert list(tomllib.loads(text)["project"]["entry-points"]) == [catalogue.GROUP]


def _environment(load: Callable[..., Any], service: str, **of_the_unit: str) -> Callable[[str, Path], None]:
    def read(text: str, folder: Path) -> None:
        settings = dict(line.split("=", 1) for line in text.splitlines() if line.startswith("GLASSFLEET_"))
        assert settings
        flags = {name.removeprefix("GLASSFLEET_").removeprefix(service).lower(): settings[name] for name in settings}
        flags.pop("authority", None)  # of `agent enrol` and `agent renew`, which have no file
        path = folder / "settings.toml"
        path.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in flags.items()))
        load(path, **of_the_unit)

    return read


def _prometheus(text: str, folder: Path) -> None:
    del folder
    (job,) = yaml.safe_load(text)["scrape_configs"]
    assert set(job) == {"job_name", "static_configs"}
    assert all(isinstance(target, str) for part in job["static_configs"] for target in part["targets"])


def _run_answer(text: str, folder: Path) -> None:
    del folder
    known = {"run": "run-1", "spec": {}, "started": "", "reason": ""}
    assert set(json.loads(text)) == {*suspended_document(known), "notes"}  # which the API makes of `far_out`


def _rollout_answer(text: str, folder: Path) -> None:
    del folder
    (shown,) = json.loads(text)
    assert set(shown) == set(ROLLOUT[""].split())
    assert set(shown["stages"][0]) == set(ROLLOUT["stages"].split())


def _scores_answer(text: str, folder: Path) -> None:
    del folder
    shown = json.loads(text)
    assert set(shown) == set(ScoresDocument.__annotations__)
    assert all(set(each) == set(VehicleDocument.__annotations__) for each in shown["vehicles"].values())


def _json(read: Callable[[Any], object]) -> Callable[[str, Path], None]:
    def reader(text: str, folder: Path) -> None:
        del folder
        read(json.loads(text))

    return reader


def _time_plan(text: str, folder: Path) -> None:
    path = folder / "plan.toml"
    path.write_text(text)
    LivePlan.read(str(path))


def _policy_toml(text: str, _folder: Path) -> None:
    RunSpec.from_document(tomllib.loads(text))


READERS: dict[str, Callable[[str, Path], None]] = {
    "agent-environment": _environment(agent_config.AgentConfig.load, "AGENT_", id="vehicle-07", data="drive.csv"),
    "agent-toml": _agent_toml,
    "coordinator-environment": _environment(coordinator_config.CoordinatorConfig.load, "COORDINATOR_"),
    "entry-point": _entry_point,
    "explain-request": _json(Otherwise.model_validate),
    "policy-toml": _policy_toml,
    "prometheus": _prometheus,
    "rollout-answer": _rollout_answer,
    "rollout-plan": _json(RolloutPlan.model_validate),
    "run-answer": _run_answer,
    "scores-answer": _scores_answer,
    "run-spec": _json(RunSpec.from_document),
    "time-plan": _time_plan,
}
"""Readers by the name that a page gives: ``<!-- is: NAME -->``. Each raises when the text is not taken."""
