"""Fleets with ties, constants, collinear columns and values outside the domain, for properties of schemes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from hypothesis import strategies as st

from glassfleet import catalogue
from glassfleet.data.dataset import Dataset, pool
from glassfleet.data.domain import Domain, Variable
from glassfleet.scheme import Scheme

_of: Final = st.sampled_from
SETTINGS: Final[Mapping[str, Mapping[str, st.SearchStrategy[Any]]]] = {
    "frt": {
        "n_sets": st.integers(2, 7),
        "order": _of([0, 1]),
        "min_samples_fraction": _of([0.0, 0.05, 0.1]),
        "max_depth": _of([None, 0, 1, 2]),
        "prune": _of([0.0, 0.5, 2.0]),
        "max_slopes": _of([None, 0, 2]),
        "inference": _of(["maximum_matching", "weighted_average"]),
    },
    "fmt": {
        "n_sets": st.integers(2, 8),
        "other_sets": _of([(), (3,)]),
        "partition": _of(["uniform", "quantile", "union"]),
        "max_rules": _of([1, 3, 12]),
        "max_slopes": _of([0, 2, 64]),
        "max_regressors": _of([2, 16]),
        "max_split_features": _of([2, 16]),
        "holdout": _of([0.0, 0.2]),
        "inference": _of(["averaged", "one_rule"]),
    },
    "frbc": {
        "n_sets": st.integers(2, 7),
        "association": _of(["strength", "strength*weight"]),
        "max_rules": _of([None, 1, 5]),
        "min_support": _of([0.0, 0.02]),
        "fraction_bits": _of([48, 64, 80]),
    },
    "tsk": {
        "n_sets": st.integers(2, 4),
        "n_clusters": st.integers(1, 12),
        "max_iterations": st.integers(1, 25),
        "patience": st.integers(1, 8),
        "max_rounds": st.integers(1, 25),
        "otherwise": st.booleans(),
        "cluster_seed": st.integers(0, 3),
        "prune": _of([0.0, 0.5, 2.0]),
        "max_slopes": _of([None, 0, 2]),
        "inference": _of(["maximum_matching", "weighted_average"]),
    },
    "dp_tree": {"noise": st.just("none"), "n_bins": st.integers(2, 7), "max_depth": st.integers(1, 5)},
}
"""What is drawn for each scheme whose fleet's model is the central one."""


@dataclass(frozen=True)
class OddFleet:
    """A scheme's exact parameters, a domain, and rows spread over vehicles; `rng` draws what a test still needs."""

    scheme: Scheme
    parameters: Any
    domain: Domain
    parts: dict[str, Dataset]
    rng: np.random.Generator

    def pooled(self, *agents: str) -> Dataset:
        """Return the rows of some vehicles, or of all, in another order."""
        rows = pool([self.parts[agent] for agent in agents or sorted(self.parts)])
        order = self.rng.permutation(rows.rows)
        return Dataset(rows.features, rows.target, rows.X[order], rows.y[order])

    def inputs(self, rows: int) -> Any:
        """Return rows around the domain and beyond it."""
        return self.rng.normal(0.5, 0.5, (rows, len(self.domain.features)))


@st.composite
def odd_fleets(draw: Any, name: str, most: int = 300) -> OddFleet:
    """Draw a fleet for a scheme; one of its vehicles has no rows."""
    scheme = catalogue.load(name)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, f = draw(st.integers(1, most)), draw(st.integers(1, 5))
    names = tuple(f"x{i}" for i in range(f))
    X = rng.normal(0.5, 0.4, (n, f))
    if draw(st.booleans()):
        X = np.round(X * 4) / 4
    if draw(st.booleans()):
        X[:, 0] = 0.3
    if f > 1 and draw(st.booleans()):
        X[:, -1] = 1.0 - X[:, 0]
    y: Any = np.sin(3 * X[:, 0]) + X.sum(axis=1) ** 2 + rng.normal(0, 0.1, n)
    features = tuple(Variable(name=name, low=0.0, high=1.0) for name in names)
    domain = Domain(features=features, target=Variable(name="y", low=-1.0, high=5.0))
    if "regression" not in scheme.purpose:
        classes = tuple(f"class {i}" for i in range(draw(st.integers(2, 4))))
        domain = Domain(features=features, label="y", classes=classes)
        number = np.clip(np.floor(y), 0, len(classes) - 1).astype(int)
        y = np.array(classes, dtype="U11")[number if draw(st.booleans()) else rng.integers(0, len(classes), n)]
        if name == "frbc" and draw(st.booleans()):
            y[rng.random(n) < 0.1] = "of no class"
    agents = draw(st.integers(1, 5))
    # In the order of the target: vehicles with one class only, and rules that a vehicle alone has.
    place = np.argsort(np.argsort(y, kind="stable")) if draw(st.booleans()) else rng.permutation(n)
    owner = rng.integers(0, agents, n) if draw(st.booleans()) else place * agents // n
    parts = {f"a{i}": Dataset(names, "y", X[owner == i], y[owner == i]) for i in range(agents)}
    parts = {agent: part for agent, part in parts.items() if not part.rows or (part.y != "of no class").any()}
    parts["empty"] = Dataset(names, "y", X[:0], y[:0])
    chosen = {key: draw(strategy) for key, strategy in SETTINGS[name].items()}
    return OddFleet(scheme, scheme.exact(scheme.Parameters(**chosen)), domain, parts, rng)
