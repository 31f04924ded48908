"""What the classifier's pages state, on the real MAGIC data, and a digest that no change may move unseen."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="pip install glassfleet[experiments]")

from sklearn.metrics import f1_score, log_loss
from sklearn.model_selection import StratifiedKFold

from edge_agent.sources import read_source
from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain, Variable
from glassfleet.estimators import FuzzyModelTreeClassifier
from glassfleet.local import federated
from glassfleet.schemes.fmt_classes import SCHEME, Parameters
from schemas.documents import document_digest


@pytest.mark.slow
def test_classifier_has_the_stated_accuracy_with_at_most_twenty_rules(glassfleet_data: Path) -> None:
    data = read_source(glassfleet_data / "magic.csv.gz", labels=True).train
    scores = []
    for train, test in StratifiedKFold(5, shuffle=True, random_state=19).split(data.X, data.y):
        tree = FuzzyModelTreeClassifier(min_rows=1).fit(data.X[train], data.y[train])
        assert len(tree.rules_) <= 20
        f1 = f1_score(data.y[test], tree.predict(data.X[test]), average="macro")
        scores.append((f1, log_loss(data.y[test], tree.predict_proba(data.X[test]))))
    macro_f1, loss = np.mean(scores, axis=0)
    assert macro_f1 == pytest.approx(0.8526, abs=5e-4)  # of frbc with 1789 rules: 0.778
    assert loss == pytest.approx(0.3163, abs=5e-4)


def test_digest_of_a_small_run_is_the_same_everywhere() -> None:
    rng = np.random.default_rng(5)
    X = np.column_stack([rng.random(600), rng.integers(0, 10, 600), rng.random(600)])
    y = np.where(X[:, 0] + 0.3 * np.isin(X[:, 1], (2, 3, 7)) > 0.6, "a", np.where(X[:, 2] > 0.4, "b", "c"))
    cities = tuple(f"city {number}" for number in range(10))
    features = (
        Variable(name="u", low=0.0, high=1.0),
        Variable(name="city", low=0.0, high=9.0, categories=cities),
        Variable(name="v", low=0.0, high=1.0),
    )
    domain = Domain(features=features, label="class", classes=("a", "b", "c"))
    fleet = {f"v{i}": Dataset(domain.names, "class", X[i::4], y[i::4]) for i in range(4)}
    assert document_digest(federated(SCHEME, Parameters(min_rows=1), domain, fleet).model.to_document()) == DIGEST
    straight = federated(SCHEME, Parameters(min_rows=1, max_hinges=0), domain, fleet).model.to_document()
    del straight["parameters"]["max_hinges"]
    former = {**straight, "format": 1}
    assert SCHEME.from_document(former).to_document() == former


DIGEST = "820568c53b70449da8aa0a27aacc3e69579b69f33b40eec393f88970432b3085"
