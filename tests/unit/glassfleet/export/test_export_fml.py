"""FML: the schema's structure, and what an independent implementation makes of the rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pyit2fls
import pytest
from numpy.typing import NDArray

from glassfleet.export.fml import to_fml
from schemas.codec import document_digest
from tests.support.sample_models import GAPPY, KINDS, TEXTUAL, model, rows, trips

HELD = [*(kind for kind in KINDS if not kind.startswith("fedavg_mlp")), *TEXTUAL]
NS = "{http://www.ieee1855.org}"

# The part of the standard's XML schema (IEEE 1855-2016, annex; as JFML, the reference implementation, ships it) that
# these files can use: by element its required and optional attributes, and its children in order with their numbers.
ONE, SOME = (1, 1), (1, 10**6)
RULE = {"name"}, {"andMethod", "orMethod", "connector", "weight", "networkAddress"}
BASE = {"name"}, {"activationMethod", "andMethod", "orMethod", "networkAddress"}
SHAPES = ("triangularShape", "trapezoidShape", "rectangularShape", "singletonShape", "customShape")
SCHEMA: dict[str, tuple[set[str], set[str], list[tuple[tuple[str, ...], tuple[int, int]]]]] = {
    "fuzzySystem": (
        {"name"},
        {"networkAddress"},
        [(("knowledgeBase",), ONE), (("mamdaniRuleBase", "tskRuleBase"), SOME)],
    ),
    "knowledgeBase": (set(), {"networkAddress"}, [(("fuzzyVariable", "tskVariable"), (2, 10**6))]),
    "fuzzyVariable": (
        {"name", "domainleft", "domainright"},
        {"scale", "type", "accumulation", "defuzzifier", "defaultValue", "networkAddress"},
        [(("fuzzyTerm",), SOME)],
    ),
    "fuzzyTerm": ({"name"}, {"complement"}, [(SHAPES, ONE)]),
    "triangularShape": ({"param1", "param2", "param3"}, set(), []),
    "trapezoidShape": ({"param1", "param2", "param3", "param4"}, set(), []),
    "rectangularShape": ({"param1", "param2"}, set(), []),
    "singletonShape": ({"param1"}, set(), []),
    "customShape": ({"name"}, set(), []),
    "tskVariable": (
        {"name", "type"},
        {"scale", "combination", "defaultValue", "networkAddress"},
        [(("tskTerm",), SOME)],
    ),
    "tskTerm": ({"name", "order"}, set(), [(("tskValue",), SOME)]),
    "tskValue": (set(), set(), []),
    "mamdaniRuleBase": (*BASE, [(("rule",), SOME)]),
    "tskRuleBase": (*BASE, [(("tskRule",), SOME)]),
    "rule": (*RULE, [(("antecedent",), ONE), (("consequent",), ONE)]),
    "tskRule": (*RULE, [(("antecedent",), ONE), (("tskConsequent",), ONE)]),
    "antecedent": (set(), set(), [(("clause",), SOME)]),
    "consequent": (set(), set(), [(("then",), ONE), (("else",), (0, 1))]),
    "tskConsequent": (set(), set(), [(("tskThen",), ONE), (("tskElse",), (0, 1))]),
    "then": (set(), set(), [(("clause",), SOME)]),
    "tskThen": (set(), set(), [(("tskClause",), SOME)]),
    "clause": (set(), {"modifier"}, [(("variable",), ONE), (("term",), ONE)]),
    "tskClause": (set(), set(), [(("variable",), ONE), (("term",), ONE)]),
    "variable": (set(), set(), []),
    "term": (set(), set(), []),
}
VALUES = {
    "type": {"input", "output"},
    "accumulation": {"MAX"},
    "defuzzifier": {"MOM"},
    "andMethod": {"PROD"},
    "orMethod": {"MAX"},
    "activationMethod": {"PROD"},
    "connector": {"and"},
    "order": {"0", "1"},
    "complement": {"false"},
}


def _check(element: ET.Element) -> None:
    name = element.tag.removeprefix(NS)
    required, optional, children = SCHEMA[name]
    assert required <= set(element.attrib) <= required | optional, name
    for key, value in element.attrib.items():
        assert key not in VALUES or value in VALUES[key], (name, key, value)
        assert not key.startswith(("param", "domain")) or np.isfinite(float(value))
        assert key != "combination" or value == "WA" or value.startswith("custom_")
    result = list(element)
    for kinds, (least, most) in children:
        count = 0
        while result and result[0].tag.removeprefix(NS) in kinds:
            _check(result.pop(0))
            count += 1
        assert least <= count <= most, (name, kinds)
    assert not result, (name, result[0].tag)


@pytest.mark.parametrize("kind", [*HELD, *GAPPY])
def test_fml_has_the_structure_and_unique_names_of_the_schema_when_written(kind: str) -> None:
    text = to_fml(model(kind), "qoe v1")
    assert f"digest {document_digest(model(kind).to_document())} -->" in text
    root = ET.fromstring(text)
    assert root.tag == f"{NS}fuzzySystem"
    _check(root)
    names = [element.attrib["name"] for element in root.iter() if "name" in element.attrib]
    assert len(set(names)) == len(names)
    assert all(name.replace(".", "_").replace("-", "_").isidentifier() for name in names)
    used = [text for tag in ("variable", "term") for text in (item.text for item in root.iter(f"{NS}{tag}"))]
    assert set(used) <= set(names)


def _rectangle(x: Any, points: list[float]) -> float:
    return float(points[0] <= x <= points[1])


def _number(_x: Any, points: list[float]) -> float:
    return points[0]


def _sets(root: ET.Element) -> dict[str, Callable[[Any], Any]]:
    """Return the memberships of all terms, as PyIT2FLS computes them."""
    made: dict[str, Callable[[Any], Any]] = {}
    for variable in root.iter(f"{NS}fuzzyVariable"):
        space = np.linspace(float(variable.attrib["domainleft"]), float(variable.attrib["domainright"]), 11)
        for term in variable:
            shape = term[0]
            points = [
                float(shape.attrib[f"param{i + 1}"])
                for i in range(len(shape.attrib))
                if f"param{i + 1}" in shape.attrib
            ]
            name = term.attrib["name"]
            match shape.tag.removeprefix(NS):
                case "triangularShape":
                    made[name] = pyit2fls.T1FS(space, pyit2fls.tri_mf, [*points, 1.0])
                case "trapezoidShape":
                    made[name] = pyit2fls.T1FS(space, pyit2fls.trapezoid_mf, [*points, 1.0])
                case "rectangularShape":
                    made[name] = pyit2fls.T1FS(space, _rectangle, points)
                case "singletonShape":
                    made[name] = pyit2fls.T1FS(space, _number, points)
    return made


Clauses = list[tuple[str, str]]
"""Variables and their terms."""


def _rules(root: ET.Element) -> list[tuple[Clauses, Clauses]]:
    """Return each rule's antecedent and consequent."""
    rules = [*root.iter(f"{NS}tskRule"), *root.iter(f"{NS}rule")]
    return [(_clauses(rule[0]), _clauses(rule[1][0])) for rule in rules]


def _clauses(element: ET.Element) -> Clauses:
    return [(clause[0].text or "", clause[1].text or "") for clause in element]


def _polynomials(root: ET.Element) -> Mapping[str, list[float]]:
    return {term.attrib["name"]: [float(value.text or "") for value in term] for term in root.iter(f"{NS}tskTerm")}


def _inputs(learned: Any, row: NDArray[np.float64]) -> tuple[float, ...]:
    """Return a row as FML's inputs: levels of texts, and indicators of empty cells."""
    body, features, empty = learned.to_document()["model"], learned.domain.features, np.isnan(row)
    x = [float(one.missing if gap else cell) for one, gap, cell in zip(features, empty, row, strict=True)]
    for f, one in enumerate(features):
        x[f] = body["levels"][f][int(x[f]) + 1] if one.categories else x[f]
    return (*x, *(float(gap) for one, gap in zip(features, empty, strict=True) if one.missing is not None))


TSK = ["frt-other", "tsk-other", "tree", "fedga-numbers", "tree-classes"]


@pytest.mark.parametrize("kind", [*TSK, "tree-numbers-text", "tree-text", *GAPPY])
def test_standard_part_alone_answers_as_the_model_when_pyit2fls_evaluates_it(kind: str) -> None:
    learned = model(kind)
    root = ET.fromstring(to_fml(learned))
    sets, polynomials = _sets(root), _polynomials(root)
    assert {item.attrib["combination"] for item in root.iter(f"{NS}tskVariable")} == {"WA"}
    system = pyit2fls.T1TSK()
    inputs = [item.attrib["name"] for item in root.iter(f"{NS}fuzzyVariable")]
    outputs = [item.attrib["name"] for item in root.iter(f"{NS}tskVariable")]
    for name in inputs:
        system.add_input_variable(name)
    for name in outputs:
        system.add_output_variable(name)
    for antecedent, consequent in _rules(root):
        if any(term not in sets for _, term in antecedent):
            continue  # OTHERWISE has a shape of its own, which a reader of the standard leaves out
        then = []
        for name, term in consequent:
            line = polynomials[term]
            then.append((name, lambda *x, line=line: line[0] + sum(a * b for a, b in zip(line[1:], x, strict=False))))
        system.add_rule([(name, sets[term]) for name, term in antecedent], then)
    target = learned.domain.target
    for row in trips(60, seed=11, gaps=kind in GAPPY) if kind in (*TEXTUAL, *GAPPY) else rows(60, seed=11):
        result = learned.explain(row)
        if result.fallback:
            continue
        x = _inputs(learned, row)
        answers = system.evaluate(dict(zip(inputs, x, strict=True)), x)
        expected = {f"score_of_{each.label}": each.score for each in result.chances}
        if target is not None:
            expected = {outputs[0]: float(result.prediction)}
            if kind.startswith("tree"):
                answers = {outputs[0]: min(max(float(answers[outputs[0]]), target.low), target.high)}
        width = target.high - target.low if target is not None else 1.0
        assert answers == pytest.approx(expected, abs=1e-9 * width + 1e-9)


def _height(x: Any, number_and_weight: list[float]) -> Any:
    """A singleton of the height of its rule's weight: with product activation this is how a weight counts."""
    number, weight = number_and_weight
    return np.where(np.asarray(x) == number, weight, 0.0)


@pytest.mark.parametrize("kind", ["frbc", "frbc-other", "dp_tree", "dp_tree-text", "fedga-classes"])
def test_standard_part_alone_classifies_as_the_model_when_pyit2fls_evaluates_it(kind: str) -> None:
    """PyIT2FLS computes memberships, rule activation (PROD) and accumulation (MAX); MOM is read off its fuzzy set."""
    learned = model(kind)
    root = ET.fromstring(to_fml(learned))
    sets = _sets(root)
    (output,) = (item for item in root.iter(f"{NS}fuzzyVariable") if item.attrib["type"] == "output")
    assert (output.attrib["accumulation"], output.attrib["defuzzifier"]) == ("MAX", "MOM")
    (base,) = root.iter(f"{NS}mamdaniRuleBase")
    assert (base.attrib["activationMethod"], base.attrib["andMethod"]) == ("PROD", "PROD")
    numbers = {term.attrib["name"]: float(term[0].attrib["param1"]) for term in output}
    places = np.linspace(float(output.attrib["domainleft"]), float(output.attrib["domainright"]), len(numbers))
    assert places.tolist() == sorted(numbers.values())
    system = pyit2fls.T1Mamdani(engine="Product", defuzzification="CoG")
    system.add_output_variable("class")
    inputs = [item.attrib["name"] for item in root.iter(f"{NS}fuzzyVariable") if item.attrib["type"] == "input"]
    for name in inputs:
        system.add_input_variable(name)
    for rule, (antecedent, [(_, term)]) in zip(root.iter(f"{NS}rule"), _rules(root), strict=True):
        then = pyit2fls.T1FS(places, _height, [numbers[term], float(rule.attrib["weight"])])
        system.add_rule([(name, sets[term]) for name, term in antecedent], [("class", then)])
    agreed = set()
    for row in trips(25, seed=12) if kind in TEXTUAL else rows(25, seed=12):
        accumulated, _ = system.evaluate(dict(zip(inputs, row.tolist(), strict=True)))
        degrees = np.asarray(accumulated["class"](places))
        (winner,) = np.flatnonzero(degrees == degrees.max())  # one class is highest: the mean of maxima is its number
        assert learned.domain.classes[winner] == learned.predict(row[None, :])[0]
        agreed.add(int(winner))
    assert len(agreed) >= 2
