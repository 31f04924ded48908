"""How large an answer can get is known before a run: none is larger, and a run that may have larger ones says so."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from glassfleet.contract import catalogue
from glassfleet.contract.messages import Contribution, Task
from glassfleet.contract.scheme import too_large
from glassfleet.data.dataset import Dataset
from glassfleet.schemes.tree import SCHEME, TreeParameters
from glassfleet.schemes.tree.messages import read_task
from glassfleet.simulation import federated
from schemas.limits import MAX_DECODED_BYTES
from tests.support.sample_models import class_domain, unit_domain

LARGE = (
    "with 40 inputs an answer may have up to 96 MB where 67 MB can be sent: ask for fewer rules (max_rules), fewer "
    "inputs, or compact"
)


@pytest.mark.parametrize("settings", [{}, {"compact": True, "max_split_features": 2}], ids=["plain", "compact"])
@pytest.mark.parametrize("classes", [(), ("a", "b", "c")], ids=["number", "classes"])
def test_no_answer_is_larger_than_was_said(classes: tuple[str, ...], settings: dict[str, Any]) -> None:
    rng = np.random.default_rng(0)
    names = tuple("uvwx")
    X = rng.random((300, 4))
    y: Any = np.where(X[:, 0] > 0.5, X[:, 1], X[:, 2] ** 2)
    domain = class_domain(names, "y", *classes) if classes else unit_domain(names)
    if classes:
        y = np.array(classes)[(3 * y).astype(int).clip(0, 2)]
    parameters = TreeParameters(min_rows=1, max_rules=12, **settings)
    sizes = []

    def listen(task: Task, given: Contribution) -> None:
        most = SCHEME.abilities.most_bytes(parameters, read_task(task).n_inputs, len(classes))[0]
        sizes.append(sum(part.nbytes for part in given.sums.values()) / most)

    federated(SCHEME, parameters, domain, {"v": Dataset(names, "y", X, y)}, listen=listen)
    assert 0.1 < max(sizes) <= 1.0


@pytest.mark.parametrize(
    ("scheme", "parameters", "inputs", "words"),
    [
        ("tree", {}, 256, ""),
        ("tree", {"max_rules": 128, "compact": True}, 40, ""),
        ("tree", {"max_rules": 128}, 40, LARGE),
        ("frt", {}, 4000, ""),
    ],
)
def test_run_with_answers_that_may_be_too_large_says_so_with_the_way_out(
    scheme: str, parameters: dict[str, Any], inputs: int, words: str
) -> None:
    known = catalogue.load(scheme)
    assert too_large(known, known.Parameters(**parameters), inputs, 0, MAX_DECODED_BYTES) == words
