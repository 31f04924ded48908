"""A model as one Python file without dependencies, for devices that have an interpreter and nothing else."""

from __future__ import annotations

import json
from importlib import resources
from typing import TYPE_CHECKING

from glassfleet.export.tables import tables
from schemas.documents import document_digest

if TYPE_CHECKING:
    from glassfleet.scheme import Model

_PREDICT = '''

def predict(row: "dict[str, float] | list[float]", rule: bool = False) -> "float | str | tuple[float | str, int]":
    """Return the forecast for one row: numbers by name, or in the order of INPUTS; with `rule` also the rule's number.

    Raises ValueError when an input is not finite, KeyError when one is missing.
    """
    values = [float(row[name]) for name in INPUTS] if isinstance(row, dict) else [float(value) for value in row]
    if len(values) != len(INPUTS) or not all(math.isfinite(value) for value in values):
        raise ValueError("a row is %d finite numbers" % len(INPUTS))
    output, decided = answer(MODEL, values)
    told = CLASSES[int(output)] if CLASSES else output
    return (told, decided) if rule else told


if __name__ == "__main__":
    import sys

    # One row per line on standard input, numbers separated by commas, in the order of INPUTS.
    for line in sys.stdin:
        if line.strip():
            print(*predict(line.split(","), rule=True), sep=",")
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
    engine, found = tables(model)
    digest = document_digest(model.to_document())
    head = [
        f'"""{_safe(title or f"A model of scheme {model.scheme}")}: forecasts {_safe(model.domain.target_name)}.',
        "",
        f"Made by glassfleet from the model with the digest {digest}.",
        "It answers as the model itself does, to the last bit. No dependencies; do not edit.",
        '"""',
        "",
        "import math",
        "",
        f"DIGEST = {digest!r}",
        f"INPUTS = {_listed(found.pop('inputs'))}",
        f"UNITS = {_listed(found.pop('units'))}",
        f"TARGET = {found.pop('target')!a}",
        f"CLASSES = {_listed(found['classes'])}",
        f"RULES = {_listed([str(rule) for rule in model.rules()])}",
        "",
    ]
    code = "".join(f"\n\n{_engine_text(name)}" for name in ("common", engine))
    return "\n".join(head) + f"MODEL = {_table(found)}\n" + code + _PREDICT


def _engine_text(name: str) -> str:
    """Return an engine's functions: what follows its imports, without the type names of this package."""
    text = (resources.files("glassfleet.export.device") / f"{name}.py").read_text(encoding="utf-8")
    body = text[text.index("def ") :].rstrip() + "\n"
    return body.replace("m: Tables", 'm: "dict"').replace(", strict=True)", ")").replace(", strict=False)", ")")


def _table(found: dict[str, object]) -> str:
    lines = [f"    {json.dumps(name)}: {_plain(value)}," for name, value in found.items()]
    return "{\n" + "\n".join(lines) + "\n}"


def _plain(value: object) -> str:
    # repr of a float is the shortest text that reads back as the same float.
    return ascii(value)


def _listed(texts: list[str]) -> str:
    return "[\n" + "".join(f"    {text!a},\n" for text in texts) + "]" if texts else "[]"


def _safe(text: str) -> str:
    return text.replace("\\", "/").replace('"', "'").encode("ascii", "replace").decode()
