"""A model as one C99 header without dependencies, for small devices."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import resources
from typing import TYPE_CHECKING, Any

from glassfleet.export.device.common import Tables
from glassfleet.export.tables import tables
from glassfleet.nature import nature
from schemas.documents import document_digest
from schemas.errors import UsageError

if TYPE_CHECKING:
    from glassfleet.scheme import Model

_PARTS = {
    "frt": ("common", "sets", "polynomial", "frt"),
    "fmt": ("common", "polynomial", "fmt"),
    "tsk": ("common", "sets", "strength", "polynomial", "tsk"),
    "frbc": ("common", "sets", "strength", "frbc"),
    "tree": ("tree",),
    "mlp": ("common", "mlp"),
}
"""Pieces of each engine, in order."""


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
    engine, found = tables(model)
    pieces = [(resources.files("glassfleet.export.device") / f"{name}.c").read_text("utf-8") for name in _PARTS[engine]]
    text = "\n".join([_head(model, title), _numbers(engine, found), _data(engine, found), *pieces, _predict(found)])
    lower, upper = prefix.lower(), prefix.upper()
    return re.sub(r"\bGF_", f"{upper}_", re.sub(r"\bgf_", f"{lower}_", text))


def _head(model: Model, title: str) -> str:
    domain = model.domain
    lines = [f"{_comment(title or f'A model of scheme {model.scheme}')}: forecasts {_comment(domain.target_name)}.", ""]
    lines += [
        f"Made by glassfleet from the model with the digest {document_digest(model.to_document())}.",
        "Compile as ISO C (-std=c99) or with -ffp-contract=off: then it answers as the model itself does, to the bit.",
        "",
        "  int rule;",
        "  gf_predict(x, &rule)   x: GF_INPUTS numbers in the order below; rule may be NULL",
        "",
        *(
            ["returns the number of the class in gf_classes, -1 when an input is not finite (rule: -1 too)."]
            if domain.target is None
            else [f"returns the forecast{_unit(domain.target.unit)}, NAN when an input is not finite (rule: -1)."]
        ),
        *(["A network has no rules: the number of the rule is always 0."] * (nature(model) == "network")),
        "",
        "Inputs:",
    ]
    for index, variable in enumerate(domain.features):
        what = f"{variable.low:.6g} to {variable.high:.6g}{_unit(variable.unit)}"
        if variable.categories:
            what = ", ".join(f"{code} = {text}" for code, text in enumerate(variable.categories))
        lines.append(f"  x[{index}]  {_comment(variable.name)}: {_comment(what)}")
    body = "\n".join(f" * {line}".rstrip() for line in lines)
    return (
        f"/* {body[3:]}\n */\n#ifndef GF_MODEL_H\n#define GF_MODEL_H\n\n#include <float.h>\n#include <math.h>\n"
        "#include <stddef.h>\n\n#if defined(FLT_EVAL_METHOD) && FLT_EVAL_METHOD != 0\n"
        '#error "doubles are evaluated in another precision here: answers would differ from those of the model"\n'
        "#endif\n"
    )


def _numbers(engine: str, found: Tables) -> str:
    numbers = {"INPUTS": len(found["inputs"]), "CLASSES": len(found["classes"])}
    if engine in ("frt", "tsk", "frbc"):
        numbers |= {"SETS": found["n_sets"], "DEFAULT": found["default"]}
    if engine in ("frt", "tsk", "fmt"):
        numbers |= {"AVERAGED": int(found["averaged"]), "RULES": len(found["coefficients"])}
    if engine == "frt":
        numbers["NODES"] = len(found["split"])
    if engine == "fmt":
        numbers["SPLITS"] = len(found["splits"])
    if engine == "frbc":
        numbers |= {"WEIGHTED": int(found["weighted"]), "RULES": len(found["class"])}
    if engine in ("tsk", "frbc"):
        numbers["CONDITIONS"] = len(found["sets"][0])
    if engine == "mlp":
        numbers |= {"LAYERS": len(found["layers"]), "WIDEST": max(found["layer_units"])}
    return "enum {\n" + "".join(f"    GF_{name} = {value},\n" for name, value in numbers.items()) + "};\n"


def _data(engine: str, found: Tables) -> str:
    kind = "int" if found["classes"] else "double"
    parts = []
    if found["classes"]:
        parts.append(f"static const char *const gf_classes[] = {{{', '.join(map(_text, found['classes']))}}};")
    elif engine != "tree":  # which states its answers in the target's unit, and compares raw inputs
        parts.append(
            f"static const double gf_target_low = {_number(found['target_low'])}, "
            f"gf_target_high = {_number(found['target_high'])};"
        )
    if engine in ("tree", "mlp"):
        parts.append(f"typedef {kind} gf_output;")
    if engine != "tree":
        parts += [_array("double", name, found[name]) for name in ("low", "high")]
    arrays: dict[str, list[tuple[str, str, Sequence[Any]]]] = {
        "frt": _listed(found, int=("rank", "rule_of", "split", "child"), double=("coefficients", "mean_strength")),
        "tsk": [*_listed(found, int=("rank",), double=("coefficients",)), *_sets(found)],
        "fmt": _fmt(found) if engine == "fmt" else [],
        # A weight that does not count is not stated: rules then compete by strength alone.
        "frbc": [
            *_listed(found, int=("rank", "class")),
            *_sets(found),
            ("double", "weight", found["weight"] if found.get("weighted") else [1.0]),
        ]
        if engine == "frbc"
        else [],
        "tree": [
            *_listed(found, int=("feature", "right", "rule_of"), double=("threshold",)),
            (kind, "answers", found.get("answer", [])),
        ],
        "mlp": [("double", "weights", _flat(found)), ("int", "units", found.get("layer_units", []))],
    }
    parts += [_array(*array) for array in arrays[engine]]
    if engine == "mlp":
        parts.append(_last(found))
    return "\n".join(parts) + "\n"


def _listed(found: Tables, **names: Sequence[str]) -> list[tuple[str, str, Sequence[Any]]]:
    return [(kind, name, found[name]) for kind, listed in names.items() for name in listed if name in found]


def _sets(found: Tables) -> list[tuple[str, str, Sequence[Any]]]:
    return [("signed char", "sets", [line or [0] for line in found.get("sets", [])])]


def _fmt(found: Tables) -> list[tuple[str, str, Sequence[Any]]]:
    widest = max(len(line) for line in found["knots"])
    return [
        ("double", "coefficients", found["coefficients"]),
        ("double", "knots", [line + [1.0] * (widest - len(line)) for line in found["knots"]]),
        ("int", "knot_count", [len(line) for line in found["knots"]]),
        ("int", "splits", found["splits"] or [[0, 0, 0]]),
        ("int", "leaves", found["leaves"]),
    ]


def _flat(found: Tables) -> list[float]:
    return [value for lines, biases in found.get("layers", []) for line in [*lines, biases] for value in line]


def _last(found: Tables) -> str:
    """Return how a network's last layer is read."""
    if not found["classes"]:
        body = "    return gf_target_low + last[0] * (gf_target_high - gf_target_low);"
    else:
        body = (
            "    int best = 0;\n    for (int i = 1; i < GF_CLASSES; i++)\n        if (last[i] > last[best])\n"
            "            best = i;\n    return best;"
        )
    return f"\nstatic inline gf_output gf_last(const double *last)\n{{\n{body}\n}}"


def _predict(found: Tables) -> str:
    kind, nothing = ("int", "-1") if found["classes"] else ("double", "NAN")
    return (
        f"static inline {kind} gf_predict(const double *x, int *rule)\n{{\n    int decided = -1;\n"
        f"    {kind} output = {nothing};\n    int finite = 1;\n    for (int f = 0; f < GF_INPUTS; f++)\n"
        "        finite = finite && isfinite(x[f]);\n    if (finite)\n        output = gf_answer(x, &decided);\n"
        "    if (rule != NULL)\n        *rule = decided;\n    return output;\n}\n\n#endif\n"
    )


def _array(kind: str, name: str, values: Sequence[Any]) -> str:
    size = f"[{len(values)}]"
    if isinstance(values[0], list):
        lines = ",\n".join(f"    {{{', '.join(map(_number, line))}}}" for line in values)
        return f"static const {kind} gf_{name}{size}[{len(values[0])}] = {{\n{lines},\n}};"
    lines = ",\n".join(f"    {', '.join(map(_number, values[at : at + 8]))}" for at in range(0, len(values), 8))
    return f"static const {kind} gf_{name}{size} = {{\n{lines},\n}};"


def _number(value: float) -> str:
    # repr of a float is the shortest decimal that reads back as the same double.
    return repr(value)


def _unit(unit: str) -> str:
    return f" {unit}" if unit else ""


def _text(text: str) -> str:
    """Return a C string: other characters than plain ones as octal escapes of their UTF-8."""
    plain = {byte: chr(byte) for byte in range(32, 127) if chr(byte) not in '"\\?'}
    return '"' + "".join(plain.get(byte, f"\\{byte:03o}") for byte in text.encode()) + '"'


def _comment(text: str) -> str:
    return text.replace("*/", "* /").replace("/*", "/ *").replace("\\", "/").replace("\n", " ")
