"""A model as one C99 header without dependencies, for small devices."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import fields
from importlib import resources
from typing import Any

import numpy as np

from glassfleet.contract import catalogue
from glassfleet.data.domain import FARTHEST
from glassfleet.model.intervals import errors_by_rule
from glassfleet.model.protocol import Model, nature
from glassfleet.model.tables import RuleTables, Tables
from schemas.codec import document_digest
from schemas.errors import UsageError


def to_c(model: Model, prefix: str = "model", title: str = "") -> str:
    """Return the text of a C99 header with ``PREFIX_predict`` for a model; it includes only <math.h> and <float.h>.

    Parameters
    ----------
    model : Model
    prefix : str
        What all names begin with: a C identifier.
    title : str
        What the file says that it is, e.g. name and version.

    Raises
    ------
    UsageError
        The format cannot hold the model, or the prefix is no identifier.
    """
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", prefix):
        raise UsageError(f"prefix {prefix!r} is no C identifier: letters, digits and _, a letter first")
    tables = catalogue.tables_of(model)
    code = "\n".join(_device_text(f"{name}.c") for name in _parts(tables))
    kind = "int" if model.domain.classes else "double"
    parts = [_head(model, title), _data(model, _table_values(model, tables), code, kind), code, _predict(kind)]
    text = "\n".join([*parts, *_interval(model), "\n#endif\n"])
    lower, upper = prefix.lower(), prefix.upper()
    return re.sub(r"\bGF_", f"{upper}_", re.sub(r"\bgf_", f"{lower}_", text))


def _head(model: Model, title: str) -> str:
    domain = model.domain
    lines = [f"{_comment(title or f'A model of scheme {model.scheme}')}: forecasts {_comment(domain.target_name)}.", ""]
    faulty = "an input is not finite, NAN where it may be missing excepted" if domain.gaps else "an input is not finite"
    lines += [
        f"Made by glassfleet from the model with the digest {document_digest(model.to_document())}.",
        "Compile as ISO C (-std=c99) or with -ffp-contract=off: then it answers as the model itself does, to the bit.",
        "",
        "  int rule;",
        "  gf_predict(x, &rule)   x: GF_INPUTS numbers in the order below; rule may be NULL",
        "",
        *(
            [f"returns the number of the class in gf_classes, -1 when {faulty} (rule: -1 too)."]
            if domain.target is None
            else [f"returns the forecast{_unit(domain.target.unit)}, NAN when {faulty} (rule: -1)."]
        ),
        *(
            [
                "",
                "  gf_interval(forecast, rule, &low, &high)   of what gf_predict has returned, and by which rule",
                "",
                "nine of ten true values are within low and high, by the model's errors on test rows; NAN: not known.",
            ]
            * bool(np.isfinite(errors_by_rule(model)).any())
        ),
        *(["A network has no rules: the number of the rule is always 0."] * (nature(model) == "network")),
        "",
        "Inputs:",
    ]
    for index, variable in enumerate(domain.features):
        what = f"{variable.low:.6g} to {variable.high:.6g}{_unit(variable.unit)}"
        if variable.categories:
            what = ", ".join(f"{code} = {text}" for code, text in enumerate(variable.categories))
            what += "; another text: 0.5 less than the one that follows it here"
        if variable.missing is not None:
            what += f"; NAN where it is missing, then it is taken for {variable.missing:.6g}"
        lines.append(f"  x[{index}]  {_comment(variable.name)}: {_comment(what)}")
    body = "\n".join(f" * {line}".rstrip() for line in lines)
    return (
        f"/* {body[3:]}\n */\n#ifndef GF_MODEL_H\n#define GF_MODEL_H\n\n#include <float.h>\n#include <math.h>\n"
        "#include <stddef.h>\n\n#if defined(FLT_EVAL_METHOD) && FLT_EVAL_METHOD != 0\n"
        '#error "doubles are evaluated in another precision here: answers would differ from those of the model"\n'
        "#endif\n"
    )


def _parts(tables: Tables) -> list[str]:
    """Return the names of the device parts, each after those that it needs."""
    if not isinstance(tables, RuleTables):
        return ["common", tables.evaluator]
    conditions = _conditions_part(tables)
    sets = ["sets"] * (conditions in ("rule_list", "set_tree"))
    return ["common", *sets, "matching", *(["polynomial"] * bool(tables.constants)), tables.evaluator, conditions]


def _table_values(model: Model, tables: Tables) -> dict[str, Any]:
    """Return numbers, texts and nested tuples by name: the domain's limits and all tables, empty ones too."""
    domain, target = model.domain, model.domain.target
    values: dict[str, Any] = {
        "low": tuple(variable.low for variable in domain.features),
        "high": tuple(variable.high for variable in domain.features),
        "target": (0.0, 1.0) if target is None else (target.low, target.high),
        "classes": len(domain.classes),
        "clipped": False,
    }
    parts: list[Any] = [tables.conditions, tables] if isinstance(tables, RuleTables) else [tables]
    values |= {field.name: getattr(part, field.name) for part in parts for field in fields(part)}
    for done in ("evaluator", "conditions", "weights"):
        values.pop(done, None)
    values["levels"] = (values.get("levels") or ())[: len(domain.features)] or ((),) * len(domain.features)
    values["gaps"] = tuple(domain.gaps)
    values["taken_for"] = tuple(float(domain.features[index].missing or 0.0) for index in domain.gaps)
    values["excess"] = tuple(
        (at, 0 if own.side == "below" else 1, own.of.low if own.side == "below" else own.of.high, own.high)
        for at, own in zip(domain.excess_of, domain.excess, strict=True)
    )
    values["farthest"] = (FARTHEST,)
    if isinstance(tables, RuleTables):
        values["rank"] = tables.rank
        values["default"] = tables.rank.index(0) if tables.default is None else tables.default
    return values


def _device_text(name: str) -> str:
    """Return a file of :mod:`glassfleet.export.device`."""
    return (resources.files("glassfleet.export.device") / name).read_text(encoding="utf-8")


def _conditions_part(tables: RuleTables) -> str:
    """Return the name of the part that tells which rules fire: ``RuleList`` is ``rule_list``."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(tables.conditions).__name__).lower()


def _data(model: Model, values: dict[str, Any], code: str, kind: str) -> str:
    """Return the numbers and tables that `code` names; nested tables line by line."""
    numbers = {
        "INPUTS": len(model.domain.features),
        "COLUMNS": len(model.domain.inputs),
        "WIDEST": max(values.get("units", [0])),
    }
    arrays = []
    for name, value in values.items():
        if not isinstance(value, tuple):
            numbers[name.upper()] = int(value)
            continue
        nested = bool(value) and isinstance(value[0], tuple)
        lines = list(value) if nested else [value[at : at + 8] for at in range(0, len(value), 8)]
        if nested:
            width = max(map(len, value))
            numbers[f"{name.upper()}_WIDTH"] = width
            lines = [(*line, *[2.0] * (width - len(line))) for line in lines]
        numbers[f"{name.upper()}_COUNT"] = len(value)
        if re.search(rf"\bgf_{name}\b", code):
            arrays.append(_array(name, lines))
    stated = [f"    GF_{name} = {value},\n" for name, value in numbers.items() if re.search(rf"\bGF_{name}\b", code)]
    parts = ["enum {\n" + "".join(stated) + "};", f"typedef {kind} gf_output;"]
    if model.domain.classes:
        parts.insert(1, f"static const char *const gf_classes[] = {{{', '.join(map(_text, model.domain.classes))}}};")
    return "\n".join([*parts, *arrays]) + "\n"


def _predict(kind: str) -> str:
    nothing = "-1" if kind == "int" else "NAN"
    return (
        f"static inline {kind} gf_predict(const double *x, int *rule)\n{{\n    int decided = -1;\n"
        f"    {kind} output = {nothing};\n    int usable = 1;\n    for (int f = 0; f < GF_INPUTS; f++)\n"
        "        usable = usable && gf_usable(f, x[f]);\n    if (usable)\n        output = gf_answer(x, &decided);\n"
        "    if (rule != NULL)\n        *rule = decided;\n    return output;\n}\n"
    )


def _interval(model: Model) -> list[str]:
    """Return the errors by rule and the function that makes an interval of them; nothing where they are not known."""
    errors, target = errors_by_rule(model), model.domain.target
    if target is None or not np.isfinite(errors).any():
        return []
    code = (
        "static inline double gf_within(double value, double least, double most)\n{\n"
        "    return value < least ? least : value > most ? most : value;\n}\n\n"
        "static inline void gf_interval(double forecast, int rule, double *low, double *high)\n{\n"
        f"    const double least = fmin(forecast, {target.low!r}), most = fmax(forecast, {target.high!r});\n"
        "    *low = rule < 0 ? NAN : gf_within(forecast + gf_errors[2 * rule], least, most);\n"
        "    *high = rule < 0 ? NAN : gf_within(forecast + gf_errors[2 * rule + 1], least, most);\n}\n"
    )
    return [_array("errors", errors.tolist()).replace("nan", "NAN"), code]


def _array(name: str, lines: Sequence[Sequence[float]]) -> str:
    """Return an array of doubles, or of the smallest whole numbers that hold it; one 0 where it would be empty."""
    flat = [value for line in lines for value in line]
    largest = max(map(abs, flat), default=0)
    kind = "signed char" if largest < 2**7 else "short" if largest < 2**15 else "int"
    if any(isinstance(value, float) for value in flat):
        kind = "double"
    # repr of a float is the shortest decimal that reads back as the same double.
    text = "".join(f"    {', '.join(map(repr, line))},\n" for line in lines if line) or "    0,\n"
    return f"static const {kind} gf_{name}[{max(len(flat), 1)}] = {{\n{text}}};"


def _unit(unit: str) -> str:
    return f" {unit}" if unit else ""


def _text(text: str) -> str:
    """Return a C string: other characters than plain ones as octal escapes of their UTF-8."""
    plain = {byte: chr(byte) for byte in range(32, 127) if chr(byte) not in '"\\?'}
    return '"' + "".join(plain.get(byte, f"\\{byte:03o}") for byte in text.encode()) + '"'


def _comment(text: str) -> str:
    return text.replace("*/", "* /").replace("/*", "/ *").replace("\\", "/").replace("\n", " ")
