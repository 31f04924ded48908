"""The sums that a private run with support opens give no whole row away, where those of one without do."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glassfleet import catalogue
from glassfleet.audit import banded, bmt
from glassfleet.audit.report import matches, truth
from glassfleet.audit.sums import bands, columns, covariances, remainders, spans
from glassfleet.audit.transcript import Opened, differences, views
from glassfleet.data.dataset import pool
from glassfleet.private.groups import Terms, parameters_digest
from glassfleet.private.layout import layout_of
from glassfleet.private.masks import RunKey
from glassfleet.private.simulation import Heard, PrivateFleet, Vehicle
from glassfleet.private.sums import Words, add
from glassfleet.traits import private_parameters
from tests.support.privacy.transcripts import Count, Fleet, domain_of, qoe, table, total

SETS: dict[str, Any] = {"weather_izmir": lambda folder: table(folder, "weather_izmir", 15), "qoe": lambda f: qoe(f, 15)}
ATTACKS: dict[str, Any] = {
    "fmt": (bands, spans, columns, covariances),
    "frt": (spans, columns, covariances, remainders),
    "bmt": (bmt.bins, bmt.spans, banded.columns, banded.margins, banded.remainders),
}
"""Bands between cuts, spans and pairs of bands of two inputs, differences of rank one, withheld cells; any two sums.

And columns of which all rows but one have one value.
"""

KNOWN = {("frt", "qoe"): 1, ("bmt", "qoe"): 1, ("fmt", "qoe"): 7}
"""Rows that are read all the same: alone with another value of a column in their leaf or band, among 6,883."""

CROSSED = (bmt.spans, banded.margins, banded.remainders)
"""Attacks that take the sums of several editions."""


def opened(
    name: str, fleet: Fleet, support: int, left: dict[str, int], draw: int = 0, **chosen: Any
) -> tuple[list[Opened], Any]:
    """Return the sums that a private run opens, as the coordinator computes them from masked answers.

    Keys follow from `draw`, and from these who goes with the vehicle that is lost.
    """
    scheme: Any = catalogue.load(name)
    domain, heard = domain_of(fleet, name), list[Heard]()
    parameters = private_parameters(scheme, scheme.Parameters(**chosen), support)
    terms = Terms("fleet", "run", "nonce", name, parameters_digest(parameters))
    keys = {agent: RunKey(hashlib.sha256(f"{draw} {agent}".encode()).digest()) for agent in fleet}
    vehicles = [Vehicle(agent, data, keys[agent], left.get(agent)) for agent, data in fleet.items()]
    PrivateFleet(terms, vehicles, watch=heard.append).learn(scheme, parameters, domain)
    words: dict[Any, list[Words]] = defaultdict(list)
    for each in heard:
        words[each.edition.members, each.task.digest].append(each.words)
    tasks = {each.task.digest: each.task for each in heard}
    result = []
    for (members, digest), answers in words.items():
        if len(answers) == len(members):
            sums = layout_of(scheme, tasks[digest]).read(add(answers), len(members)).sums
            result.append(Opened(tasks[digest], frozenset(members), sums))
    return result, domain


def attacked(name: str, fleet: Fleet, support: int, left: dict[str, int], draw: int = 0, **chosen: Any) -> Count:
    """Return what all attacks together read, of each edition and of those who left.

    Of `fmt` and `bmt` a row counts that was read in all columns of the products: not all inputs are.
    """
    some, domain = opened(name, fleet, support, left, draw, **chosen)
    counts, every = [], []
    for part in (some, differences(some)):
        for members, view in views(part).items():
            rows = truth(domain, pool([fleet[agent] for agent in members]))
            counts += [counted(name, attack(view), rows) for attack in ATTACKS[name]]
            every.append(view)
    if name == "bmt":  # sums of all editions, subtracted from one another
        rows = truth(domain, pool(list(fleet.values())))
        counts += [counted(name, attack(*every), rows) for attack in CROSSED]
    return Count(sum(each.read for each in counts), pool(list(fleet.values())).rows, total(counts).false)


def counted(name: str, candidates: Any, rows: Any) -> Count:
    whole, parts, false = matches(candidates, rows)
    return Count(len(whole) + (len(parts) if name in {"fmt", "bmt"} else 0), len(rows), false)


@pytest.mark.parametrize(
    "left", [pytest.param({}, id="all stay", marks=pytest.mark.slow), pytest.param({"v03": 9}, id="three leave")]
)
@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("fmt", "weather_izmir"),
        ("bmt", "weather_izmir"),
        *(pytest.param(name, "qoe", marks=pytest.mark.slow) for name in ("fmt", "bmt")),
        *(("frt", data) for data in SETS),
    ],
)
def test_no_row_is_read_from_the_sums_of_a_private_run(
    name: str, data: str, left: dict[str, int], glassfleet_data: Path
) -> None:
    result = attacked(name, SETS[data](glassfleet_data), 3, left)
    assert result.read <= KNOWN.get((name, data), 0), result


def test_rows_of_little_weight_hide_nobody(glassfleet_data: Path) -> None:
    # Of the twelve that stay in this draw two rows were read: others counted that weighed nearly nothing beside them.
    result = attacked("fmt", SETS["weather_izmir"](glassfleet_data), 3, {"v03": 9}, draw=6)
    assert result.read == 0, result


def test_without_support_rows_are_read(glassfleet_data: Path) -> None:
    result = attacked("fmt", SETS["weather_izmir"](glassfleet_data), 0, {}, max_rules=16)
    assert result.read > 0.05 * result.rows, result


def test_bands_and_pairs_of_too_few_rows_give_rows_away(glassfleet_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def enough(parts: list[Any], least: int) -> Any:
        return np.ones(parts[0].shape, dtype=bool)

    monkeypatch.setattr("glassfleet.schemes.bmt.support.holds", enough)
    result = attacked("bmt", SETS["weather_izmir"](glassfleet_data), 3, {}, max_rules=8)
    assert result.read > 20, result


@pytest.mark.slow
def test_without_draws_inputs_that_say_nearly_the_same_give_rows_away(
    glassfleet_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("glassfleet.schemes.bmt.client.draws", lambda rows, about: np.ones(rows.count))
    result = attacked("bmt", SETS["qoe"](glassfleet_data), 3, {})
    assert result.read > 5, result


def test_an_input_that_is_mostly_zero_gives_rows_away_as_a_column_of_products(
    glassfleet_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("glassfleet.private.support.MOST_EQUAL", 1.0)
    result = attacked("fmt", SETS["weather_izmir"](glassfleet_data), 3, {}, max_rules=16)
    assert result.read > 5, result
