"""Curves: every class has its chances and its name."""

from __future__ import annotations

from itertools import pairwise
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from glassfleet.data.domain import Variable
from glassfleet.explain import Effect, effect, starting_row
from glassfleet.export.svg.effects import Scale, effect_curve
from tests.support.sample_models import model


def lines_of(root: ET.Element, kind: str = "inner") -> list[np.ndarray[Any, Any]]:
    """Return the lines of a picture, in pixels."""
    wanted = [each for each in root.iter("polyline") if each.attrib["class"] == f"line {kind}"]
    return [np.array([pair.split(",") for pair in each.attrib["points"].split()], dtype=float) for each in wanted]


def texts_of(root: ET.Element) -> list[str]:
    return [each.text or "" for each in root.iter("text")]


@pytest.mark.parametrize("kind", ["tree-classes", "tree-text"])
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
