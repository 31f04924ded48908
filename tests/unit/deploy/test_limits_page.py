"""docs/reference/settings.md names every timeout, retry and limit of the code with its present value."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from deploy.site.limits_page import COMMANDS, FIXED, MODELS, NO_BOUNDS, NOT_LIMITS, PROOF, WIRE, render, value_of

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = ("schemas", "broker", "edge_agent", "coordinator")


def constants() -> Iterator[str]:
    """Dotted names of all numbers that modules define at their top."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.Assign | ast.AnnAssign):
                    for name in _named(node):
                        if name.isupper() and _is_number(module, name):
                            yield f"{module}.{name}"


def _named(node: ast.Assign | ast.AnnAssign) -> Iterator[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    for target in targets:
        for part in target.elts if isinstance(target, ast.Tuple) else [target]:
            if isinstance(part, ast.Name):
                yield part.id


def _is_number(module: str, name: str) -> bool:
    try:
        value_of(f"{module}.{name}")
    except (AssertionError, AttributeError, ImportError):
        return False
    return True


def test_page_is_what_the_code_says() -> None:
    page = (ROOT / "docs/reference/settings.md").read_text(encoding="utf-8")
    assert page == render(), "renew it: python -m deploy.site.limits_page > docs/reference/settings.md"


def test_page_names_every_number_among_the_settings() -> None:
    page = render()
    for of, model in MODELS:
        for name, field in model.model_fields.items():
            default = field.default
            if isinstance(default, int | float) and not isinstance(default, bool) and name not in NO_BOUNDS:
                assert f"| {of} | `{name}` | `{default}` |" in page


def test_page_names_every_fixed_number_of_the_code_or_says_why_it_is_no_limit() -> None:
    found = list(constants())
    assert len(found) > 20
    fixed = {place for places in FIXED.values() for place in places}
    excused = {name.removesuffix("*") for name in NOT_LIMITS}
    missing = [
        name
        for name in found
        if name not in fixed
        and not any(name == each or (each.endswith(".") and name.startswith(each)) for each in excused)
    ]
    assert missing == [], (
        "make it a setting of the process's configuration; or, if it is part of the contract between processes or of a "
        "proof, name it in deploy.site.limits_page, WIRE or PROOF (docs/adr/0008); or in NOT_LIMITS"
    )


def test_page_names_no_number_that_is_not_there() -> None:
    named = [*WIRE, *PROOF, *(name for name in NOT_LIMITS if not name.endswith("*"))]
    assert [name for name in named if value_of(name) is None] == []


def test_table_says_why_for_each_that_cannot_be_set() -> None:
    page = render()
    for why, places in FIXED.items():
        assert places, why
        for place in places:
            assert f"| {why} | `{place}` |" in page


def test_page_names_the_limits_of_commands_with_their_defaults_and_ranges() -> None:
    page = render()
    for command, names in COMMANDS:
        for name in names:
            assert f"| {command} | `--{name.replace('_', '-')}` | `" in page
    assert "| ca serve | `--lifetime` | `20.0` | > 0, ≤ 3600 |" in page


def test_coordinator_agent_and_forecaster_pass_their_settings_down() -> None:
    """Every number among the settings of a process is read somewhere else than where it is declared."""
    unused = []
    for (of, model), package in zip(MODELS[:3], ("edge_agent", "coordinator", "edge_agent/forecast"), strict=True):
        code = "".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / package).rglob("*.py")))
        unused += [f"{of}: {name}" for name in model.model_fields if not re.search(rf"(config|self)\.{name}\b", code)]
    assert unused == [], "a setting that nobody reads"
