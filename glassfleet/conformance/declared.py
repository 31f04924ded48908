"""What a scheme says about itself: names, parameters, and a page that explains it."""

from __future__ import annotations

import importlib
import json
import re
from functools import partial
from importlib import resources
from typing import get_args

from pydantic import BaseModel, ValidationError

from glassfleet.conformance.bench import Bench, must_refuse, require
from glassfleet.contract.scheme import Abilities, Participation, Purpose


def check_declarations(bench: Bench) -> None:
    """Check that name, title, purposes, participation modes and halves are declared as the contract says."""
    scheme = bench.scheme
    name = scheme.name
    require(name.isidentifier() and name == name.lower(), f"name {name!r} is a lower-case identifier")
    require(bool(scheme.title.strip()), "the title says what the scheme is")
    for what, declared, known in (
        ("purpose", scheme.purpose, frozenset(get_args(Purpose))),
        ("participation", scheme.participation, frozenset(get_args(Participation))),
    ):
        require(
            bool(declared) and declared <= known, f"{what} is a non-empty subset of {sorted(known)}, got {declared}"
        )
    require(isinstance(scheme.abilities, Abilities), "abilities are Abilities")
    for half, methods in ((scheme.client, ("contribute",)), (scheme.server, ("start", "check", "reduce", "progress"))):
        for method in methods:
            require(callable(getattr(half, method, None)), f"{type(half).__name__} has a method {method}")


def check_parameters(bench: Bench) -> None:
    """Check that parameters have defaults, a JSON schema and form, are frozen, and refuse what they do not know."""
    Parameters = bench.scheme.Parameters
    require(issubclass(Parameters, BaseModel), "Parameters is a pydantic model")
    json.dumps(Parameters.model_json_schema())
    defaults = Parameters()
    require(bool(Parameters.model_config.get("frozen")), "Parameters are frozen")
    form = json.loads(json.dumps(defaults.model_dump(mode="json"), allow_nan=False))
    require(Parameters.model_validate(form) == defaults, "parameters survive the way through JSON")
    read = partial(Parameters.model_validate, {**form, "no_such_parameter": 1})
    must_refuse(ValidationError, "an unknown parameter (extra='forbid')", read)
    exact = bench.scheme.exact(bench.parameters)
    require(isinstance(exact, Parameters), "exact() returns Parameters")
    require(bench.scheme.exact(exact) == exact, "exact() of exact parameters changes nothing")


def check_readme(bench: Bench) -> None:
    """Check that the scheme's folder has a README.md with a drawing of the messages and the equations."""
    module = importlib.import_module(type(bench.scheme).__module__)
    package = module.__package__ or ""
    readme = resources.files(package).joinpath("README.md") if package else None
    require(readme is not None and readme.is_file(), f"the folder of {package or module.__name__} has a README.md")
    assert readme is not None
    text = readme.read_text(encoding="utf-8")
    require(len(text) >= 200, "README.md says what is learned and what travels")
    blocks = re.findall(r"^```[^\n]*\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    drawn = any("->" in block and "<-" in block for block in blocks)
    require(drawn, "README.md draws the messages between ``` lines, with arrows --> to the vehicles and <-- back")
    # An equation has a name or a sign of a sum on its left and some arithmetic on its right; `min_rows=1` has not.
    parts = [*blocks, *re.findall(r"`[^`\n]+`", text), *re.findall(r"\$[^$]+\$", text)]
    equation = re.compile(r"[=~].*([-+*/^]| sum|\\sum|\\frac|\()|\bsum_\w+ ")
    require(any(equation.search(part) for part in parts), "README.md gives an equation, between ` or $ signs")
