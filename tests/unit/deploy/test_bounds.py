"""Bounds of dependencies are the versions that `make test-lowest` runs with, and everything can be imported."""

from __future__ import annotations

import importlib
import pkgutil
import re
from importlib.metadata import version

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from deploy.lock import LOWEST, wanted

PACKAGES = ("schemas", "glassfleet", "broker", "coordinator", "edge_agent", "console", "lab", "deploy")


def bounds() -> dict[str, Version]:
    """Return the lowest version of each direct dependency that runs; each has one."""
    found = {}
    for line in wanted("test"):
        asked = Requirement(line)
        (lowest,) = [each.version for each in asked.specifier if each.operator in {">=", "=="}]
        found[asked.name.lower()] = Version(lowest)
    return found


def test_lowest_lock_has_each_dependency_in_the_version_that_its_bound_names() -> None:
    locked = dict(re.findall(r"^([a-z0-9.-]+)==([^ ;]+)", LOWEST.read_text(), re.MULTILINE))
    assert {name: Version(locked[name]) for name in bounds()} == bounds()


@pytest.mark.parametrize("name", sorted(bounds()))
def test_installed_version_is_allowed(name: str) -> None:
    assert Version(version(name)) >= bounds()[name]


@pytest.mark.parametrize("package", PACKAGES)
def test_every_module_can_be_imported(package: str) -> None:
    for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
        if not module.name.endswith(".__main__"):  # it runs when it is imported
            importlib.import_module(module.name)
