"""LL, CL and FL in one process."""

from __future__ import annotations

import numpy as np

from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain, Variable
from glassfleet.local import federated, learn_local
from glassfleet.schemes.frt import SCHEME, Parameters
from schemas.documents import document_digest

NAMES = ("a", "b")
DOMAIN = Domain(
    features=tuple(Variable(name=name, low=0, high=1) for name in NAMES), target=Variable(name="y", low=0, high=2)
)


def _fleet(agents: int = 3, n: int = 120) -> dict[str, Dataset]:
    rng = np.random.default_rng(0)
    parts = {}
    for i in range(agents):
        X = rng.random((n, 2))
        parts[f"v{i}"] = Dataset(NAMES, "y", X, X[:, 0] + X[:, 1] ** 2)
    return parts


def test_outcome_counts_rounds_bytes_and_nullified_cells():
    outcome = federated(SCHEME, Parameters(), DOMAIN, _fleet())
    assert outcome.rounds >= 3
    assert outcome.bytes_up > outcome.bytes_down > 0
    assert outcome.nullified >= 0
    assert len(outcome.summary["sums_digest"]) == 64


def test_learn_local_gives_each_agent_its_own_model():
    fleet = _fleet()
    own = learn_local(SCHEME, Parameters(), DOMAIN, fleet)
    assert sorted(own) == sorted(fleet)
    assert len({document_digest(outcome.model.to_document()) for outcome in own.values()}) == 3
