"""docs/reference/settings.md names every timeout, retry and limit of the code with its present value."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from console.limits_page import FIXED, MODELS, NO_BOUNDS, NOT_LIMITS, render, value_of

ROOT = Path(__file__).resolve().parents[2]
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
    assert page == render(), "renew it: python -m console.limits_page > docs/reference/settings.md"


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
    excused = {name.removesuffix("*") for name in NOT_LIMITS}
    missing = [
        name
        for name in found
        if name not in FIXED
        and not any(name == each or (each.endswith(".") and name.startswith(each)) for each in excused)
    ]
    assert missing == [], "name them in console.limits_page: FIXED with what they bound, or NOT_LIMITS with the reason"


@pytest.mark.parametrize("name", [*FIXED, *(name for name in NOT_LIMITS if not name.endswith("*"))])
def test_page_names_no_number_that_is_not_there(name: str) -> None:
    assert value_of(name) is not None
