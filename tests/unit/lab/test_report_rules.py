"""What the report at the end of a demonstration says of rules, of structures, and of a model that has none."""

from __future__ import annotations

from glassfleet.nature import readable_rules
from lab.demo.report import _parts, _what_it_says
from tests.support.sample_models import model, population


def test_report_tells_the_most_used_rules_when_the_model_has_rules() -> None:
    lines = _what_it_says(model("tsk"), 2)
    assert lines[0] == f"the 2 most used of {len(model('tsk').rules())} rules:"
    assert sum(" support " in line for line in lines) == 2
    assert any(line.strip().startswith("OTHERWISE") for line in lines)
    assert _what_it_says(model("tsk"), 1000)[0] == f"all {len(model('tsk').rules())} rules:"


def test_report_tells_the_fittest_structures_when_the_model_is_a_population() -> None:
    learned = population()
    ranked = readable_rules(learned)
    lines = _what_it_says(learned, 2)
    assert lines[0] == f"the 2 fittest of {len(ranked)} structures:"
    told = " ".join(line.strip() for line in lines[1:])
    assert told == f"{ranked[0]} {ranked[1]}"
    assert " mean nodes" in _parts(learned)


def test_report_says_that_there_are_no_rules_when_the_model_is_a_network() -> None:
    assert _what_it_says(model("fedavg_mlp-classes"), 5) == ["this model is a network: it has no rules"]
