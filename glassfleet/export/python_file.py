"""A model as one Python file without dependencies, for devices that have an interpreter and nothing else."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from itertools import chain, cycle

from glassfleet.contract import catalogue
from glassfleet.data.cells import NOTHING, PAIRS
from glassfleet.export.tables import conditions_part, device_text, table_values
from glassfleet.model.protocol import Model, nature
from glassfleet.model.tables import RuleTables
from schemas.documents import document_digest

_PREDICT = '''

def predict(row: "dict[str, float | str] | list[float | str]", rule: bool = False) -> "float | str | tuple":
    """Return the forecast for one row: values by name, or in the order of INPUTS; with `rule` also the rule's number.

    A value is a finite number, its text, or a word in TRUTH. An input in CATEGORIES takes one of their texts, or its
    position, from 0; the model knows what to make of other texts, too. Where it knows empty cells, None, NaN and the
    texts in NOTHING are such.
    Raises ValueError that names the input and its fault; KeyError when an input is missing.
    """
    if isinstance(row, dict):
        missing = [name for name in INPUTS if name not in row]
        if missing:
            raise KeyError("the row has no %r; it needs: %s" % (missing[0], ", ".join(INPUTS)))
        row = [row[name] for name in INPUTS]
    if len(row) != len(INPUTS):
        raise ValueError("a row is %d values, and this one has %d" % (len(INPUTS), len(row)))
    row = [_number(name, value) for name, value in zip(INPUTS, row)]
    z = scaled(MODEL, row)
    output, decided = ANSWER
    told = CLASSES[int(output)] if CLASSES else output
    return (told, decided) if rule else told


def _number(name: str, value: "float | str") -> float:
    known, text = CATEGORIES.get(name, []), "" if value is None else str(value).strip()
    if value not in known and text.lower() in NOTHING:
        if name in GAPS:
            return math.nan
        if "missing" in known:
            return float(known.index("missing"))
    if known and text and isinstance(value, str):
        text = value if value in known else text
        return float(known.index(text)) if text in known else bisect.bisect_left(known, text) - 0.5
    try:
        number = TRUTH[text.lower()] if text.lower() in TRUTH else float(value)
    except (TypeError, ValueError, OverflowError):
        raise ValueError("%s must be a %s, got %r" % (name, "text" if known else "number", value)) from None
    if not math.isfinite(number):
        raise ValueError("%s must be a finite number, got %r" % (name, value))
    return number


if __name__ == "__main__":
    import csv
    import sys

    # One row per line on standard input, as CSV without a head: values in the order of INPUTS, categories as texts.
    faults, lines = 0, csv.reader(sys.stdin)
    answers = csv.writer(sys.stdout, lineterminator="\\n")
    for values in lines:
        if not values:
            continue
        try:
            answers.writerow(predict(values, rule=True))
        except ValueError as fault:
            faults += 1
            answers.writerow(["", ""])  # a line for each row, so that answers stay beside their rows
            print("line %d: %s" % (lines.line_num, fault), file=sys.stderr)
    sys.exit(1 if faults else 0)
'''


def to_python(model: Model, title: str = "") -> str:
    """Return the text of a Python file with ``predict(row)`` for a model; it needs Python 3.9 and no package.

    Parameters
    ----------
    model : Model
    title : str
        What the file says that it is, e.g. name and version.

    Raises
    ------
    UsageError
        The format cannot hold the model.
    """
    tables, domain = catalogue.tables_of(model), model.domain
    parts, answer = ["common", tables.evaluator], "answer(MODEL, z)"
    if isinstance(tables, RuleTables):
        parts.insert(1, conditions_part(tables))
        answer = "answer(MODEL, z, fire(MODEL, row, z))"
    digest = document_digest(model.to_document())
    head = [
        f'"""{_safe(title or f"A model of scheme {model.scheme}")}: forecasts {_safe(model.domain.target_name)}.',
        "",
        f"Made by glassfleet from the model with the digest {digest}.",
        "It answers as the model itself does, to the last bit. No dependencies; do not edit.",
        *(["A network has no rules: the number of the rule is always 0."] * (nature(model) == "network")),
        '"""',
        "",
        "import bisect",
        "import math",
        "",
        f"DIGEST = {digest!r}",
        f"INPUTS = {_listed(domain.names)}",
        f"UNITS = {_listed([variable.unit for variable in domain.features])}",
        f"TARGET = {domain.target_name!a}",
        f"CLASSES = {_listed(domain.classes)}",
        f"CATEGORIES = {_categories(model)}",
        f"NOTHING = {sorted({*NOTHING, 'nan'})!a}",
        f"TRUTH = {dict(zip(chain(*PAIRS), cycle((1.0, 0.0)), strict=False))!a}",
        f"GAPS = {_listed([domain.names[gap] for gap in domain.gaps])}",
        f"RULES = {_listed([] if nature(model) == 'network' else [str(rule) for rule in model.rules()])}",
        "",
    ]
    code = "".join(f"\n\n{_part_text(name)}" for name in parts)
    text = "\n".join(head) + f"MODEL = {_table(table_values(model, tables))}\n" + code
    return text + _PREDICT.replace("ANSWER", answer)


def _part_text(name: str) -> str:
    """Return a part's functions: what follows its imports, without the type names and marks of this package."""
    text = device_text(f"{name}.py")
    body = text[text.index("def ") :].rstrip() + "\n"
    body = re.sub(r", strict=(True|False)\)|  # noqa.*", lambda match: ")" * match[0].startswith(","), body)
    return re.sub(r"\b(Values|Fired)\b", lambda match: {"Values": '"dict"', "Fired": '"list"'}[match[0]], body)


def _table(values: dict[str, object]) -> str:
    # repr of a float is the shortest text that reads back as the same float.
    return "{\n" + "".join(f"    {json.dumps(name)}: {value!a},\n" for name, value in values.items()) + "}"


def _listed(texts: Sequence[str]) -> str:
    return "[\n" + "".join(f"    {text!a},\n" for text in texts) + "]" if texts else "[]"


def _categories(model: Model) -> str:
    """Return the texts of the columns of text, in the order of their numbers."""
    listed = {variable.name: list(variable.categories) for variable in model.domain.features if variable.categories}
    return "{\n" + "".join(f"    {name!a}: {texts!a},\n" for name, texts in listed.items()) + "}" if listed else "{}"


def _safe(text: str) -> str:
    return text.replace("\\", "/").replace('"', "'").encode("ascii", "replace").decode()
