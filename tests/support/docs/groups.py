"""All groups of examples: what each needs, what it prints, and in which file of tests it is run.

Blocks marked ``<!-- run: GROUP -->`` of one page run in order, in one folder, as a reader would type them.
``<!-- file: NAME -->`` writes a block to a file; ``<!-- says: GROUP -->`` shows what the block before it prints. What
is not executed is listed, with its reason, in ``test_blocks.py``.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.support.docs.examples import programs, run, shown
from tests.support.docs.pages import pages

GROUPS = {f"{page.name}:{name}": (page, blocks) for page in pages() for name, blocks in page.groups().items()}


_DATA = pytest.mark.needs("data")
MARKS = {
    "README.md:tables": [_DATA, pytest.mark.slow],
    "docs/explanation/model-registry.md:registry": [pytest.mark.slow],
    "docs/explanation/privacy.md:leakage": [_DATA, pytest.mark.slow],
    "docs/howto/change-the-authority.md:change": [pytest.mark.slow],
    "docs/howto/every-night.md:nights": [pytest.mark.slow],
    "docs/howto/forecast-on-the-vehicle.md:forecast": [pytest.mark.slow],
    "docs/howto/operate.md:operate": [pytest.mark.slow],
    "docs/howto/read-a-model-with-an-auditor.md:audit": [pytest.mark.slow],
    "docs/howto/real-broker.md:broker": [pytest.mark.slow],
    "docs/howto/reproduce-the-papers.md:own": [pytest.mark.slow],
    "docs/howto/reproduce-the-papers.md:papers": [_DATA, pytest.mark.slow],
    "docs/howto/reproduce-the-papers.md:report": [_DATA, pytest.mark.slow],
    "docs/howto/reproduce-the-papers.md:table": [_DATA, pytest.mark.slow],
    "docs/howto/secure-fleet.md:secure": [pytest.mark.slow],
    "docs/reference/http-api.md:http": [pytest.mark.slow],
    "docs/tutorial/first-fleet.md:first-fleet": [pytest.mark.slow],
    "docs/tutorial/recorded-drives.md:recorded": [pytest.mark.slow],
}
"""What an example needs, beyond the programs that it types."""
CLONES = {"docs/howto/add-a-live-source.md:live", "docs/howto/add-a-scheme.md:scheme"}
"""Their reader works in a clone of the repository, and changes it: they get a copy."""
LONG = {"docs/howto/reproduce-the-papers.md:report": 3400.0}
"""Seconds that an example may take, where that is more than the others get."""
SAYS = {
    "docs/tutorial/first-fleet.md:first-fleet": [
        "vans/van-1.csv: 400 rows",
        "equal: the fleet learned exactly the central model",
        "trips v1",
        "IF ",
        "trips.h: a C99 header",
    ],
    "docs/howto/real-broker.md:broker": ["MQTT 5"],
    "docs/howto/use-the-estimators.md:estimators": ["Good"],
    "docs/howto/your-own-data.md:own-data": [
        "other.csv: rpm: '1.150' is 1.15 or 1150",
        "exit code 3",
        "60 samples taken, 0 refused, 0 lost; 50 rows",
    ],
    "docs/howto/reproduce-the-papers.md:papers": ["weather_izmir", "mortgage"],
    "docs/howto/reproduce-the-papers.md:table": ["frt-accuracy"],
    "README.md:apart": ["rule ", "THEN fuel = "],
    "README.md:estimators": ["FuzzyTreeRegressor: R2 0.48", "IF age is below"],
    "README.md:tables": ["federated (FL)    1.26788", "central (CL)       1.2795", "federated (FL)    1.11106"],
    "docs/howto/secure-fleet.md:secure": [
        "identity of coordinator coordinator in coordinator-identity",
        "identity of agent vehicle-07 in vehicle-07-identity",
        "enrolled as vehicle-08 until",
        "denied: vehicle-08, vehicle-07",
        "denied: vehicle-08",
    ],
    "docs/howto/change-the-authority.md:change": ["trips v1: signed by coordinator coordinator, verified"],
    "docs/explanation/privacy.md:leakage": ["28.9%", "membership AUC 0.493", "membership AUC 0.550"],
}
"""What some print, among other things and beside what their page shows."""

PARTS = {
    "fleets": [
        "README.md:apart",
        "docs/howto/forecast-on-the-vehicle.md:forecast",
        "docs/howto/real-broker.md:broker",
        "docs/howto/your-own-data.md:own-data",
        "docs/tutorial/first-fleet.md:first-fleet",
        "docs/tutorial/recorded-drives.md:recorded",
    ],
    "operators": [
        "docs/explanation/model-registry.md:registry", "docs/howto/a-large-fleet.md:apart",
        "docs/howto/change-the-authority.md:change", "docs/howto/deploy.md:cloud", "docs/howto/every-night.md:nights",
        "docs/howto/operate.md:operate", "docs/howto/secure-fleet.md:secure", "docs/reference/http-api.md:http",
    ],
    "models": [
        "docs/howto/add-a-live-source.md:live",
        "README.md:estimators",
        "README.md:tables",
        "docs/explanation/exactness.md:exactness",
        "docs/explanation/privacy.md:leakage",
        "docs/howto/add-a-scheme.md:scheme",
        "docs/howto/read-a-model-with-an-auditor.md:audit",
        "docs/howto/reproduce-the-papers.md:own",
        "docs/howto/reproduce-the-papers.md:papers",
        "docs/howto/reproduce-the-papers.md:report",
        "docs/howto/reproduce-the-papers.md:table",
        "docs/howto/use-the-estimators.md:estimators",
        "docs/reference/exports.md:explanations",
    ],
}  # fmt: skip
"""Which file of tests runs what: ``test_examples_fleets.py`` and so on, of about equal time."""


def parameters(names: Iterable[str]) -> list[Any]:
    """Return groups as parameters of a test, each with its marks."""
    result = []
    for name in names:
        marks = [*MARKS.get(name, []), pytest.mark.timeout(LONG.get(name, 540) + 60)]
        if typed := programs(GROUPS[name][1]):
            marks.append(pytest.mark.needs(*typed))
        result.append(pytest.param(name, marks=marks))
    return result


def check(group: str, folder: Path) -> None:
    """Run a group in `folder`, which is made, and compare what it says with what its page shows."""
    page, blocks = GROUPS[group]
    folder.mkdir()

    code, words = run(blocks, folder, clone=group in CLONES, seconds=LONG.get(group, 540))

    text = "".join(f"--- {blocks[number].begins if number >= 0 else ''}\n{part}" for number, part in words.items())
    assert code == 0, f"{page.name}\n{text[-6000:]}"
    for expected in SAYS.get(group, ()):
        assert expected in text, f"{expected!r} is not in\n{text[-6000:]}"
    for absent in shown(blocks, words):
        pytest.fail(f"{page.name} shows\n{absent}\nand it printed\n{text[-12000:]}")
