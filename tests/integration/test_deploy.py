"""What is in ``deploy/`` is sound: linted, of the right structure, and every command in it is one that we have."""

from __future__ import annotations

import configparser
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from broker.identity import save_identity
from console.main import cli
from coordinator.config import CoordinatorConfig
from edge_agent.config import AgentConfig

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
BIN = Path(sys.executable).parent
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))


def load(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))


COMPOSE = load(DEPLOY / "compose" / "compose.yaml")[0]
TOOLS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
BUILD = TOOLS["hatch"]["build"]["targets"]


def test_tools_and_packages_know_every_top_folder_of_the_house() -> None:
    folders = [path for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith((".", "docs", "site"))]
    code = {path.name for path in folders if any(path.rglob("*.py"))}
    installed = code - {"deploy", "tests"}

    assert set(BUILD["wheel"]["packages"]) == installed
    assert set(BUILD["sdist"]["include"]) == code | {"docs", "mkdocs.yml"}
    assert set(TOOLS["mypy"]["packages"]) == code
    assert set(TOOLS["ruff"]["lint"]["isort"]["known-first-party"]) == code
    assert set(TOOLS["importlinter"]["root_packages"]) == installed | {"deploy"}


# Linters


@pytest.mark.parametrize(
    ("linter", "arguments"),
    [
        ("hadolint", ["deploy/container/Containerfile"]),
        ("yamllint", ["--strict", "--config-file", "deploy/yamllint.yaml", "deploy"]),
        ("shellcheck", ["deploy/compose/provision.sh"]),
    ],
)
def test_linter_finds_nothing(linter: str, arguments: list[str]) -> None:
    done = subprocess.run([BIN / linter, *arguments], capture_output=True, text=True, cwd=ROOT, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def unit(path: Path) -> configparser.RawConfigParser:
    """Read a unit; of a key that is given several times the last value counts here."""
    parser = configparser.RawConfigParser(strict=False, comment_prefixes=("#",), delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(path.read_text(encoding="utf-8"))
    return parser


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_unit_is_hardened_and_starts_again_only_when_that_helps(path: Path) -> None:
    service = unit(path)["Service"]
    for key, value in {
        "DynamicUser": "yes", "NoNewPrivileges": "yes", "ProtectSystem": "strict", "ProtectHome": "yes",
        "PrivateDevices": "yes", "CapabilityBoundingSet": "", "RestrictNamespaces": "yes", "UMask": "0077",
    }.items():  # fmt: skip
        assert service[key] == value, key
    assert service["StateDirectoryMode"] == "0700"
    assert "WatchdogSec" not in service, "no process of ours speaks the watchdog's protocol"
    if service["Type"] != "oneshot":
        assert service["Restart"] == "on-failure"
        assert {"2", "7"} <= set(service["RestartPreventExitStatus"].split())


@pytest.mark.needs("systemd")
def test_systemd_takes_the_units() -> None:
    for path in [*UNITS, *(DEPLOY / "systemd").glob("*.timer")]:
        assert unit(path)["Unit"]["Description"]
        done = subprocess.run(["systemd-analyze", "verify", path], capture_output=True, text=True, check=False)
        complaints = [line for line in done.stderr.splitlines() if "is not executable" not in line]
        assert [line for line in complaints if path.name.replace("@", "@i").split(".")[0] in line] == []


# Every command is one that we have


def from_units() -> Iterator[tuple[str, list[str]]]:
    for path in UNITS:
        words = shlex.split(unit(path)["Service"]["ExecStart"].replace("%i", "vehicle-07"))
        assert words[0] == "/opt/glassfleet/bin/glassfleet"
        yield path.name, words[1:]


def from_containers() -> Iterator[tuple[str, list[str]]]:
    for name, service in COMPOSE["services"].items():
        if "build" in service and "command" in service:
            yield f"compose {name}", service["command"]
    script = (DEPLOY / "compose" / "provision.sh").read_text(encoding="utf-8")
    for line in script.splitlines():
        if match := re.match(r"\s*(?:\[[^]]*\] \|\| )?glassfleet (.*)", line):
            yield f"provision {match[1][:24]}", shlex.split(match[1].replace("$port", "8883"))
    for document in load(DEPLOY / "kubernetes" / "coordinator.yaml"):
        if document["kind"] == "Deployment":
            yield "kubernetes coordinator", document["spec"]["template"]["spec"]["containers"][0]["args"]


COMMANDS = [*from_units(), *from_containers()]


@pytest.mark.parametrize("words", [pytest.param(words, id=name) for name, words in COMMANDS])
def test_command_is_one_that_we_have_with_these_options(words: list[str], tmp_path: Path) -> None:
    command: click.Command = cli
    context = click.Context(cli, info_name="glassfleet")
    words = [word for word in words if word != "--help"]
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        result = command.get_command(context, words[0])
        assert result is not None, f"there is no command {words[0]!r}"
        command, words = result, words[1:]
    # Paths of the deployment do not exist here; everything else about the options is checked.
    for parameter in command.params:
        if isinstance(parameter.type, click.Path):
            parameter.type = click.Path(path_type=Path)
    required = [p for p in command.params if p.required and p.envvar]
    for parameter in required:
        parameter.required = False
    made = command.make_context("glassfleet", list(words), parent=context)
    if command.name not in ("coordinator", "agent"):
        return
    identity = tmp_path / "identity"
    save_identity(identity, key=b"k", certificate=b"c", ca=b"a")
    flags = {name: value for name, value in made.params.items() if name != "config_file" and value is not None}
    flags |= {"identity": identity, "state_dir": tmp_path}
    flags.setdefault("broker", "mqtts://broker.example.org")
    if command.name == "coordinator":
        assert CoordinatorConfig.load(**flags).broker.startswith("mqtts://")
    elif "id" in flags:
        assert AgentConfig.load(**flags).id


# Compose


def test_compose_file_fits_together() -> None:
    services, volumes = COMPOSE["services"], COMPOSE["volumes"]
    assert {"provision", "broker", "database", "coordinator", "standby", "vehicle-1"} <= set(services)
    assert services["coordinator"]["command"] == services["standby"]["command"]
    assert "--standby" in services["standby"]["command"]
    known = {
        "build", "image", "read_only", "tmpfs", "cap_drop", "security_opt", "restart", "depends_on", "entrypoint",
        "environment", "healthcheck", "volumes", "user", "command", "ports",
    }  # fmt: skip
    for name, service in services.items():
        assert set(service) <= known, name
        for other, how in service.get("depends_on", {}).items():
            assert how["condition"] in {"service_started", "service_healthy", "service_completed_successfully"}
            if how["condition"] == "service_healthy":
                assert "healthcheck" in services[other]
        for mount in service.get("volumes", []):
            source = mount.split(":")[0]
            if source.startswith("."):
                assert source == "./data" or (DEPLOY / "compose" / source).exists(), mount
            else:
                assert source in volumes, mount
        if "build" in service:
            stage = service["build"]["target"]
            assert f"AS {stage}\n" in (DEPLOY / "container" / "Containerfile").read_text(encoding="utf-8")
        else:
            assert re.search(r":\d+\.\d+", service["image"]), "images are pinned"
    # Every host name in an address is a service.
    for host in re.findall(r"(?:mqtts|postgresql)://(?:\w+@)?([a-z]+)", json.dumps(services)):
        assert host in services


def test_compose_vehicles_are_those_that_are_provisioned() -> None:
    named = set(COMPOSE["services"]["provision"]["environment"]["VEHICLES"].split())
    vehicles = {name for name in COMPOSE["services"] if name.startswith("vehicle-")}
    assert named == vehicles
    for name in vehicles:
        words = COMPOSE["services"][name]["command"]
        assert f"--id={name}" in words
        assert f"--identity=/srv/identities/{name}" in words
    script = (DEPLOY / "compose" / "provision.sh").read_text(encoding="utf-8")
    assert set(re.findall(r"VEHICLES:-([^}]*)", script)[0].split()) == vehicles


def test_containers_run_as_nobody_in_particular() -> None:
    text = (DEPLOY / "container" / "Containerfile").read_text(encoding="utf-8")
    users = re.findall(r"^USER (.*)$", text, re.MULTILINE)
    assert users == ["10001:10001"]
    assert COMPOSE["services"]["broker"]["user"] == users[0]
    copied = re.findall(r"^COPY (?:--\S+ )*(\S+) \S+$", text, re.MULTILINE)
    assert [each for each in copied if not each.startswith("/") and not (ROOT / each).exists()] == []
    assert set(BUILD["wheel"]["packages"]) <= set(copied), "every package is in the image"


# Kubernetes


def test_kubernetes_manifests_fit_together() -> None:
    listed = load(DEPLOY / "kubernetes" / "kustomization.yaml")[0]["resources"]
    assert sorted(listed) == [path.name for path in MANIFESTS if path.name != "kustomization.yaml"]
    documents = [document for path in MANIFESTS for document in load(path)]
    assert all({"apiVersion", "kind"} <= set(document) for document in documents)
    by_kind = {document["kind"]: document for document in documents}
    deployment = by_kind["Deployment"]["spec"]
    pod = deployment["template"]["spec"]
    labels = deployment["template"]["metadata"]["labels"]
    # One of the two is never ready: a rolling update would wait for it for ever.
    assert (deployment["replicas"], deployment["strategy"]) == (2, {"type": "Recreate"})
    for selector in (
        deployment["selector"]["matchLabels"],
        by_kind["Service"]["spec"]["selector"],
        by_kind["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"],
    ):
        assert selector.items() <= labels.items()
    container = pod["containers"][0]
    assert "--standby" in container["args"]
    probes = {name: container[f"{name}Probe"]["httpGet"]["path"] for name in ("liveness", "startup", "readiness")}
    assert probes == {"liveness": "/api/health", "startup": "/api/health", "readiness": "/api/ready"}
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    assert container["envFrom"][0]["configMapRef"]["name"] == by_kind["ConfigMap"]["metadata"]["name"]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert pod["securityContext"]["runAsNonRoot"] is True
    page = (ROOT / "docs" / "howto" / "deploy.md").read_text(encoding="utf-8")
    for secret in ("coordinator-identity", "coordinator-database"):
        assert secret in page, "what is made by hand is told"


def test_kubernetes_settings_are_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    settings = load(DEPLOY / "kubernetes" / "settings.yaml")[0]["data"]
    for name in [name for name in os.environ if name.startswith("GLASSFLEET_")]:
        monkeypatch.delenv(name)
    for name, value in settings.items():
        assert isinstance(value, str)
        monkeypatch.setenv(name, value)
    config = CoordinatorConfig.load(state_dir=tmp_path)
    for name, value in settings.items():
        field = name.removeprefix("GLASSFLEET_").removeprefix("COORDINATOR_").lower()
        assert str(getattr(config, field)).lower() == value.lower(), f"{name} is read by nobody"
