"""IEEE Std 1855-2016, the Fuzzy Markup Language: a model's rules as standard XML.

It states partitions, rules and consequents in the variables' own units, for any reader of FML; a comment names the
model's digest. It cannot hold what a model is read back from (consequents over scaled inputs, weights that only break
ties, parameters): the JSON export does.

Mapping. Regression: ``tskRuleBase``, first-order terms whose first value is the constant (as JFML, the reference
implementation, evaluates them); ``combination`` is ``WA`` where the rules that fire are averaged or exactly one fires,
else a custom name. Classification: ``mamdaniRuleBase`` with one singleton per class, accumulation ``MAX`` and
defuzzifier ``MOM``, so that the strongest rule's class answers. Names are made unique XML names, as the schema asks:
term ``Low`` of ``speed`` is ``speed.Low``.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from typing import Final

from glassfleet.contract import catalogue
from glassfleet.data.domain import Domain, Variable
from glassfleet.export.regions import Shape, is_ordered, regions, shape_of
from glassfleet.fuzzy.partition import linguistic_terms
from glassfleet.model.protocol import Model
from glassfleet.model.tables import NetworkTables, RuleList, RuleTables, SetTree, SplitTree, knots_of
from schemas.codec import document_digest
from schemas.errors import UsageError

NAMESPACE: Final = "http://www.ieee1855.org"
_OTHERWISE = "custom_otherwise"


def to_fml(model: Model, title: str = "") -> str:
    """Return a model as FML.

    Parameters
    ----------
    model : Model
    title : str
        Name of the system, e.g. name and version.

    Raises
    ------
    UsageError
        The model has no rules that FML could hold.
    """
    root = _standard(model, title or f"model of scheme {model.scheme}")
    digest = document_digest(model.to_document())
    root.insert(0, ET.Comment(f" made by glassfleet from the model with the digest {digest} "))
    ET.register_namespace("", NAMESPACE)
    ET.indent(root, "  ")
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _add(parent: ET.Element, tag: str, text: str = "", /, **attributes: str) -> ET.Element:
    element = ET.SubElement(parent, f"{{{NAMESPACE}}}{tag}", attributes)
    if text:
        element.text = text
    return element


class _Names:
    """XML names, each used once in the document, as xs:ID asks."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def new(self, text: str) -> str:
        """Return `text` as an XML name that nobody has."""
        plain = re.sub(r"[^\w.-]", "_", text)
        plain = plain if re.match(r"[^\W\d]", plain) else f"_{plain}"
        name, number = plain, 2
        while name in self._taken:
            name, number = f"{plain}_{number}", number + 1
        self._taken.add(name)
        return name


def _standard(model: Model, title: str) -> ET.Element:
    tables, domain = catalogue.tables_of(model), model.domain
    if isinstance(tables, NetworkTables):
        raise UsageError("FML holds fuzzy rules, and a network has none; json and c hold it")
    conditions, names = tables.conditions, _Names()
    if tables.levels or domain.excess:
        domain = _in_levels(domain)
    mamdani = bool(domain.classes) and tables.evaluator != "highest_score"
    root = ET.Element(f"{{{NAMESPACE}}}fuzzySystem", {"name": names.new(title)})
    base = _add(root, "knowledgeBase")
    where = regions(domain, conditions)
    rules = list(model.rules())
    words = [
        {f"{part.feature} is missing" if part.about_cell else part.feature: part.term for part in rule.conditions}
        for rule in rules
    ]
    # Where rules name single sets, all sets of an input are stated.
    knots = knots_of(conditions, len(domain.features)) if isinstance(conditions, RuleList | SetTree) else None
    inputs, terms = [], []
    for f, variable in enumerate(domain.features):
        used = {region[f]: by_term[variable.name] for region, by_term in zip(where, words, strict=True) if f in region}
        inputs.append(names.new(variable.name))
        terms.append(_variable(base, names, inputs[-1], variable, _sets(variable, knots[f] if knots else None) | used))
    otherwise = isinstance(conditions, RuleList) and conditions.otherwise
    free = None if all(where) else _anything(base, terms, inputs, names, otherwise=otherwise)
    outputs = _output(base, names, domain, tables)
    rulebase = _add(
        root,
        "mamdaniRuleBase" if mamdani else "tskRuleBase",
        name=names.new("rules"),
        activationMethod="PROD",
        andMethod="PROD",
        orMethod="MAX",
    )
    for number, region in enumerate(where):
        weight = tables.factors[number] if tables.factors else 1.0
        rule = _add(
            rulebase,
            "rule" if mamdani else "tskRule",
            name=names.new(f"rule{number}"),
            andMethod="PROD",
            connector="and",
            weight=repr(float(weight)),
        )
        clauses = [(inputs[f], terms[f][shape]) for f, shape in region.items()]
        _clauses(_add(rule, "antecedent"), "clause", clauses or [free or ("", "")])
        then = _add(_add(rule, "consequent" if mamdani else "tskConsequent"), "then" if mamdani else "tskThen")
        _clauses(then, "clause" if mamdani else "tskClause", outputs[number])
    return root


def _in_levels(domain: Domain) -> Domain:
    """Return the domain with levels, in [0, 1], in place of categories, and all inputs as features.

    FML has numbers alone, and no empty cells.
    """
    level = {"low": 0.0, "high": 1.0, "unit": "level", "categories": ()}
    features = tuple(
        one.model_copy(update=level if one.categories else {"missing": None, "lowest": None, "highest": None})
        for one in domain.inputs
    )
    return domain.model_copy(update={"features": features})


def _sets(variable: Variable, knots: Sequence[float] | None) -> dict[Shape, str]:
    """Return the whole partition of an input, for models whose rules name its sets."""
    if knots is None or variable.high <= variable.low:
        return {}
    names = linguistic_terms(len(knots), variable)
    return {shape_of(variable, knots, j, j): names[j] for j in range(len(knots))}


def _variable(
    base: ET.Element, names: _Names, name: str, variable: Variable, shapes: dict[Shape, str]
) -> dict[Shape, str]:
    """Add an input with its terms; return their names."""
    element = _add(
        base,
        "fuzzyVariable",
        name=name,
        scale=variable.unit,
        domainleft=repr(variable.low),
        domainright=repr(variable.high),
        type="input",
    )
    named = {}
    for shape, text in shapes.items():
        named[shape] = names.new(f"{name}.{text}")
        term = _add(element, "fuzzyTerm", name=named[shape], complement="false")
        points = shape.points if is_ordered(shape) else (shape.points[0],) * len(shape.points)
        _add(term, f"{shape.kind}Shape", **{f"param{i + 1}": repr(point) for i, point in enumerate(points)})
    if not shapes:
        _add_anything(element, names)  # a variable has at least one term
    return named


def _add_anything(variable: ET.Element, names: _Names) -> str:
    """Add a term that holds for every value of an input; return its name."""
    name = names.new(f"{variable.attrib['name']}.anything")
    low, high = float(variable.attrib["domainleft"]), float(variable.attrib["domainright"])
    width = (high - low) or 1.0
    term = _add(variable, "fuzzyTerm", name=name, complement="false")
    _add(term, "rectangularShape", param1=repr(low - 2.0 * width), param2=repr(high + 2.0 * width))
    return name


def _anything(
    base: ET.Element, terms: list[dict[Shape, str]], inputs: list[str], names: _Names, *, otherwise: bool
) -> tuple[str, str]:
    """Return the clause of a rule without conditions; FML has none, so it is about the first input."""
    first = base[0]
    if otherwise:
        name = names.new(f"{inputs[0]}.otherwise")
        term = _add(first, "fuzzyTerm", name=name, complement="false")
        _add(term, "customShape", name=_OTHERWISE)
        return inputs[0], name
    if not terms[0]:
        return inputs[0], first[0].attrib["name"]
    return inputs[0], _add_anything(first, names)


def _output(base: ET.Element, names: _Names, domain: Domain, tables: RuleTables) -> list[list[tuple[str, str]]]:
    """Add the output; return each rule's consequent clauses."""
    if tables.evaluator == "highest_score":
        scored = domain.classes[1:] if len(domain.classes) == 2 else domain.classes
        scores = [Variable(name=f"score of {name}", low=0.0, high=1.0) for name in scored]
        each = [
            _polynomial_output(base, names, score, "WA", _polynomials(domain, score, tables, at, len(scores)))
            for at, score in enumerate(scores)
        ]
        return [list(clauses) for clauses in zip(*each, strict=True)]
    if domain.target is None:
        output = names.new(domain.label or "class")
        element = _add(
            base,
            "fuzzyVariable",
            name=output,
            domainleft="0.0",
            domainright=repr(float(len(domain.classes) - 1)),
            type="output",
            accumulation="MAX",
            defuzzifier="MOM",
        )
        labels = []
        for number, label in enumerate(domain.classes):
            labels.append(names.new(f"{output}.{label}"))
            term = _add(element, "fuzzyTerm", name=labels[-1], complement="false")
            _add(term, "singletonShape", param1=repr(float(number)))
        return [[(output, labels[number])] for number in tables.votes]
    if tables.evaluator == "weighted_mean" or isinstance(tables.conditions, SplitTree):
        combination = "WA"
    else:
        combination = f"custom_{tables.evaluator}{'_normalised' * bool(tables.divisors)}"
    polynomials = _polynomials(domain, domain.target, tables)
    return [[clause] for clause in _polynomial_output(base, names, domain.target, combination, polynomials)]


def _polynomial_output(
    base: ET.Element, names: _Names, target: Variable, combination: str, polynomials: list[list[float]]
) -> list[tuple[str, str]]:
    """Add an output of polynomials; return each rule's consequent clause."""
    output, clauses = names.new(target.name), []
    element = _add(base, "tskVariable", name=output, scale=target.unit, type="output", combination=combination)
    for number, values in enumerate(polynomials):
        name = names.new(f"{output}.{number}")
        term = _add(element, "tskTerm", name=name, order="1" if len(values) > 1 else "0")
        for value in values:
            _add(term, "tskValue", repr(value))
        clauses.append((output, name))
    return clauses


def _polynomials(
    domain: Domain, target: Variable, tables: RuleTables, start: int = 0, step: int = 1
) -> list[list[float]]:
    """Return each rule's output in own units: the constant, then one slope per input; or the constant alone.

    Of rules that have `step` outputs, that numbered `start`.
    """
    width = target.high - target.low
    scales = [(variable.low, variable.high - variable.low) for variable in domain.features]
    polynomials = []
    for scaled, line in zip(tables.constants[start::step], tables.slopes[start::step], strict=True):
        constant, slopes = target.low + width * scaled, []
        for (low, span), coefficient in zip(scales, line, strict=False):
            slope = width * coefficient / span if span > 0 else 0.0
            constant -= slope * low
            slopes.append(slope)
        polynomials.append([constant, *slopes] if any(slopes) else [constant])
    return polynomials


def _clauses(parent: ET.Element, name: str, clauses: list[tuple[str, str]]) -> None:
    for variable, term in clauses:
        clause = _add(parent, name)
        _add(clause, "variable", variable)
        _add(clause, "term", term)
