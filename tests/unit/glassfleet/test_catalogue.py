"""The catalogue finds schemes and says why one cannot be used."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

import pytest

from glassfleet import catalogue
from schemas.errors import NotFoundError


@pytest.fixture
def others(monkeypatch, tmp_path):
    """Offer more modules beside ours: good ones and bad ones."""
    good, needy, empty = (ModuleType(f"{name}_scheme") for name in ("good", "needy", "empty"))
    vars(good)["SCHEME"] = object()
    vars(needy).update(SCHEME=object(), REQUIRES=("no_such_package_here", "no_such.part"))
    for module in (good, needy, empty):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    modules = {"frt": "glassfleet.schemes.frt", "good": "good_scheme", "needy": "needy_scheme"}
    modules |= {"empty": "empty_scheme", "broken": "not_there_at_all", "faulty": "faulty_scheme"}
    (tmp_path / "faulty_scheme.py").write_text("SCHEME = 1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(catalogue, "_modules", lambda: modules)
    catalogue._reason.cache_clear()
    yield good
    catalogue._reason.cache_clear()


def test_catalogue_finds_frt():
    assert "frt" in catalogue.names()
    assert catalogue.load("frt").name == "frt"


def test_catalogue_loads_others_schemes(others):
    assert catalogue.names() == ["frt", "good"]
    assert catalogue.load("good") is others.SCHEME


@pytest.mark.usefixtures("others")
def test_catalogue_tells_why_a_scheme_is_unavailable():
    reasons = catalogue.unavailable()
    assert set(reasons) == {"needy", "empty", "broken", "faulty"}
    assert "no_such_package_here" in reasons["needy"]
    assert "not_there_at_all" in reasons["broken"]
    assert "SCHEME" in reasons["empty"]
    assert "ZeroDivisionError" in reasons["faulty"]
    assert "no_such.part" in reasons["needy"]
    with pytest.raises(NotFoundError, match="no_such_package_here"):
        catalogue.load("needy")


def test_what_our_modules_require_is_read_as_it_stands():
    for place in catalogue._modules().values():
        assert catalogue._stated(place) == getattr(importlib.import_module(place), "REQUIRES", ()), place


def test_catalogue_lists_what_it_knows_for_an_unknown_name():
    with pytest.raises(NotFoundError, match="frt"):
        catalogue.load("nothing")
