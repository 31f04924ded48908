"""What one input does to an answer, asked of models without rows."""

from __future__ import annotations

import numpy as np
import pytest

from glassfleet.explain import effect, importance, starting_row
from glassfleet.explain.example import moved_into, row_at
from glassfleet.nature import readable_rules
from glassfleet.reference import Reference
from schemas.errors import UsageError
from tests.support import sample_models
from tests.support.sample_models import model

KINDS = ("frt", "fmt", "tsk", "frbc", "fmt_classes-text", "dp_tree", "fmt-numbers-text", "fedavg_mlp-classes")


@pytest.mark.parametrize("kind", KINDS)
def test_effect_is_what_the_model_predicts_when_one_value_is_replaced(kind: str) -> None:
    learned = model(kind)
    row = starting_row(learned, None).row
    for place, variable in enumerate(learned.domain.features):
        told = effect(learned, row, variable.name)
        assert (told.values[0], told.values[-1]) == (variable.low, variable.high)
        for at in (0, len(told.values) // 3, -1):
            changed = row.copy()
            changed[place] = told.values[at]
            assert told.answers[at] == learned.predict(changed[None])[0]
        assert told.value == row[place]


@pytest.mark.parametrize("kind", KINDS)
def test_importance_is_nothing_for_inputs_that_no_rule_uses_and_most_for_what_the_target_follows(kind: str) -> None:
    learned = model(kind)
    found = importance(learned, None, learned.domain.names)
    rules = readable_rules(learned)
    said = [part for rule in rules for part in (rule.consequent, *rule.consequent.scores)]
    used = {part.feature for rule in rules for part in rule.conditions}
    used |= {slope.feature for part in said for slope in part.slopes or ()}
    assert not rules or {name for name, moved in found.items() if moved > 0.0} <= used
    # The targets of the samples follow these.
    assert max(found, key=found.__getitem__) in ({"dist", "fare"} if "text" in kind else {"snr", "dist"})


@pytest.mark.parametrize("kind", ["frt", "fmt", "bmt", "tsk", "dp_tree", "dp_tree-text"])
def test_row_that_is_moved_into_a_rule_fulfils_its_conditions_and_stays_where_nothing_is_asked(kind: str) -> None:
    learned = model(kind)
    row = row_at(learned.domain, 0.4)
    rules = [each for each in learned.rules() if not each.otherwise]
    met = 0
    for rule in rules:
        moved = moved_into(learned.domain, rule, row)
        asked = {part.feature for part in rule.conditions}
        assert all(a == b for name, a, b in zip(learned.domain.names, moved, row, strict=True) if name not in asked)
        told = learned.explain(moved)
        fired = [each for each in (told.fired, *told.runners_up) if each.rule.index == rule.index]
        met += len(fired)
        assert all(degree >= 0.5 - 1e-9 for each in fired for degree in each.memberships)
    assert met > 0.7 * len(rules)


def test_category_that_the_typical_row_does_not_have_is_not_marked() -> None:
    learned = model("fmt-numbers-text")
    row = row_at(learned.domain, 0.5)
    row[learned.domain.names.index("fare")] = -0.5
    assert effect(learned, row, "fare").value is None
    assert effect(learned, row, "dist").value is not None


def test_unknown_inputs_and_structures_are_refused_by_name() -> None:
    learned = model("fmt")
    with pytest.raises(UsageError, match="no input 'hour'; there are: snr, dist, load, speed"):
        effect(learned, np.zeros(4), "hour")
    with pytest.raises(UsageError, match="every row gets the same answer"):
        effect(sample_models.population(), np.zeros(4), "snr")
    assert importance(sample_models.population(), None, ["snr"]) == {}


def test_typical_row_is_where_the_curves_are_taken() -> None:
    learned = model("fmt")
    typical = Reference(row_at(learned.domain, 0.3), "a typical row")
    assert starting_row(learned, typical) is typical
