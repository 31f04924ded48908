"""Domains of columns between 0 and 1, for tests that do not care about limits."""

from __future__ import annotations

from collections.abc import Iterable

from glassfleet.data.domain import Domain, Variable


def unit_domain(names: Iterable[str], target: str = "y", low: float = 0.0, high: float = 1.0) -> Domain:
    """Return a domain of inputs in [0, 1], and of a target in [`low`, `high`]."""
    return Domain(features=_inputs(names), target=Variable(name=target, low=low, high=high))


def class_domain(names: Iterable[str], label: str, *classes: str) -> Domain:
    """Return a domain of inputs in [0, 1], and of these classes."""
    return Domain(features=_inputs(names), label=label, classes=classes)


def _inputs(names: Iterable[str]) -> tuple[Variable, ...]:
    return tuple(Variable(name=name, low=0.0, high=1.0) for name in names)
