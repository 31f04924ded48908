"""Curves: lines that bend go through the rule's points, and every class has its chances and its name."""

from __future__ import annotations

from itertools import pairwise
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from glassfleet.data.domain import Variable
from glassfleet.explain import Effect, effect, starting_row
from glassfleet.export import to_html
from glassfleet.export.svg.bends import bent_lines
from glassfleet.export.svg.effects import Scale, effect_curve
from glassfleet.rules import BentInput, Consequent, Rule, Slope
from tests.support.sample_models import model

AGE = ((0.0, 0.0), (40.0, 2.0), (80.0, -1.5))


def lines_of(root: ET.Element, kind: str = "inner") -> list[np.ndarray[Any, Any]]:
    """Return the lines of a picture, in pixels."""
    wanted = [each for each in root.iter("polyline") if each.attrib["class"] == f"line {kind}"]
    return [np.array([pair.split(",") for pair in each.attrib["points"].split()], dtype=float) for each in wanted]


def texts_of(root: ET.Element) -> list[str]:
    return [each.text or "" for each in root.iter("text")]


def test_bent_lines_are_drawn_through_the_points_of_the_rule_in_the_inputs_unit() -> None:
    rules = model("fmt_classes").rules()
    bent = [rule for rule in rules if rule.bent]
    assert 0 < len(bent) < len(rules)  # a straight line has no picture
    assert to_html(model("fmt_classes")).count("Lines that bend in rule") == 2 * len(bent)
    for rule in bent:
        ((heading, svg),) = bent_lines(rule.bent)
        root = ET.fromstring(svg)
        assert heading == "dist (m)"
        slopes = [slope for score in rule.consequent.scores for slope in score.slopes or () if slope.feature == "dist"]
        heights = [height for slope in slopes for _, height in slope.points]
        grid = [each.attrib for each in root.iter("line") if each.attrib["class"] == "grid"]
        level = [each for each in grid if each["y1"] == each["y2"]]  # from the lowest height to the highest
        x = float(level[0]["x1"]), float(level[0]["x2"])
        y = float(level[0]["y1"]), float(level[-1]["y1"])
        for slope, line in zip(slopes, lines_of(root), strict=True):
            where, height = np.array(slope.points).T
            assert np.interp(line[:, 0], x, (where[0], where[-1])) == pytest.approx(where, abs=0.05)
            drawn = np.interp(-line[:, 1], np.negative(y), (min(heights), max(heights)))
            assert drawn == pytest.approx(height, abs=0.02)
            assert {f"{where[0]:.4g}", "30.34", f"{where[-1]:.4g} m"} <= set(texts_of(root))  # as the words say it
            assert f"{height[1]:.3g} at 30.34".replace("-", "−") in svg
        assert {"bad", "fair", "good"} <= set(texts_of(root))


def test_score_that_is_straight_or_rests_is_drawn_beside_those_that_bend() -> None:
    scores = (
        Consequent("score of a", 1.0, "", (Slope("age", 0.05, -3.5, AGE, "years"), Slope("snr", 2.0, 4.0))),
        Consequent("score of b", 1.0, "", (Slope("age", -0.1, -8.0), Slope("age", 1.0, 1.0, when_missing=True))),
        Consequent("score of c", 1.0, "", ()),
    )
    rule = Rule(0, (), Consequent("bought", "a", scores=scores), 1.0, 1.0, 1.0)
    straight = ((0.0, 0.0), (80.0, -8.0)), ((0.0, 0.0), (80.0, 0.0))
    wanted = (("score of a", AGE), ("score of b", straight[0]), ("score of c", straight[1]))
    assert rule.bent == (BentInput("age", "years", wanted),)
    ((heading, svg),) = bent_lines(rule.bent)
    assert heading == "age (years)"
    assert "score of b 0 at 0, −8 at 80 years; score of c" in svg


def test_one_line_has_no_name_and_hostile_names_stay_texts() -> None:
    evil = "<script>x</script>"
    rule = Rule(0, (), Consequent(evil, 1.0, evil, (Slope(evil, 0.05, -3.5, AGE, evil),)), 1.0, 1.0, 1.0)
    ((_, svg),) = bent_lines(rule.bent)
    root = ET.fromstring(svg)
    assert [each.tag for each in root.iter("script")] == []
    assert len(lines_of(root, "together")) == 1
    assert texts_of(root)[-3:] == ["0", f"80 {evil}", "40"]


@pytest.mark.parametrize("kind", ["fmt_classes", "fmt_classes-text"])
def test_every_class_has_a_curve_of_its_chances_with_its_name(kind: str) -> None:
    learned = model(kind)
    domain = learned.domain
    for variable in domain.features:
        moved = effect(learned, starting_row(learned, None).row, variable.name)
        scale = Scale.of([moved], domain.classes)
        root = ET.fromstring(effect_curve(moved, scale, domain.classes))
        assert scale.shown == domain.classes
        assert set(domain.classes) <= set(texts_of(root))
        level = [each.attrib["y1"] for each in root.iter("line") if each.attrib["class"] == "grid"]
        for label, line in zip(domain.classes, lines_of(root), strict=not variable.categories):
            chances = np.interp(-line[:, 1], (-float(level[0]), -float(level[-1])), (scale.low, scale.high))
            assert chances == pytest.approx(np.array(moved.chances[label]), abs=0.06)


def test_of_many_classes_the_likeliest_have_a_curve_and_their_names_do_not_touch() -> None:
    classes = tuple(f"a class of the name {place}" for place in range(12))
    chances = {label: (float(place), 100.0 / 12) for place, label in enumerate(classes)}
    moved = Effect(Variable(name="x", low=0, high=1), (0.0, 1.0), (classes[0], classes[1]), None, chances)
    scale = Scale.of([moved], classes)
    svg = effect_curve(moved, scale, classes)
    assert scale.shown == (*classes[:5], *classes[9:])
    root = ET.fromstring(svg)
    names = [each for each in root.iter("text") if "…" in (each[0].tail or "" if len(each) else "")]
    heights = sorted(float(each.attrib["y"]) for each in names)
    assert len(names) == 8
    assert all(after - before >= 12.0 for before, after in pairwise(heights))
    assert 8.0 <= heights[0] < heights[-1] <= 8.0 + 96.0 + 4.0
    assert "4 other classes never more" in svg
