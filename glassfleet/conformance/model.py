"""The model predicts, explains, and is its document; the scheme declares what it is."""

from __future__ import annotations

import importlib
import json
import math
import re
from collections.abc import Sequence
from functools import partial
from importlib import resources
from typing import Any, Final, get_args

import numpy as np
from pydantic import BaseModel, ValidationError

from glassfleet.conformance.bench import Bench, must_refuse, raises_only, replaced, require, value_paths
from glassfleet.contract.scheme import Abilities, Participation, Purpose
from glassfleet.data.documents import MEMBERS
from glassfleet.model.protocol import Model
from schemas.codec import canonical_json
from schemas.errors import DocumentError

_ODD_DOCUMENT_VALUES: Final[Sequence[Any]] = (None, "x", -1, 2.5, [], {}, 1e300, True)


def check_model(bench: Bench) -> None:
    """Check that the model predicts row by row as in a batch, explains that, and states its rules and size."""
    model = bench.outcome(bench.parameters).model
    require(isinstance(model, Model), "the outcome is a Model")
    require(model.scheme == bench.scheme.name, "the model names its scheme")
    require(model.domain == bench.domain, "the model holds its domain")
    predicted = checked_predictions(model, bench)
    rules = list(model.rules())
    require([rule.index for rule in rules] == list(range(len(rules))), "rules are numbered from 0, in order")
    for rule in rules:
        require(bool(str(rule).strip()) and 0.0 <= rule.weight <= 1.0, "a rule reads, and its weight is in [0, 1]")
    X = bench.inputs
    for row in range(0, len(X), max(1, len(X) // 12)):
        explanation = model.explain(X[row])
        expected = predicted[row]
        require(bool(explanation.prediction == expected), "explain() explains what predict() says")
        for activation in (explanation.fired, *explanation.runners_up):
            require(0.0 <= activation.strength <= 1.0, "strengths are in [0, 1]")
            require(activation.rule in rules, "an explanation names rules of the model")
        require(set(explanation.shares) <= set(bench.domain.names), "shares are of inputs")
        if explanation.shares and not isinstance(explanation.prediction, str):
            total = explanation.base + sum(explanation.shares.values())
            scale = abs(explanation.base) + sum(map(abs, explanation.shares.values())) + 1.0
            require(math.isclose(total, explanation.prediction, abs_tol=1e-9 * scale), "base and shares add up")
    sizes = model.complexity()
    require(bool(sizes) and all(math.isfinite(size) and size >= 0 for size in sizes.values()), "sizes are counts")


def check_document(bench: Bench) -> None:
    """Check that the document is complete: read again it gives the same document, digest and predictions."""
    model = bench.outcome(bench.parameters).model
    document = model.to_document()
    require(set(document) == MEMBERS, f"a document has the members {sorted(MEMBERS)}")
    text = canonical_json(document)
    again = bench.scheme.from_document(json.loads(text))
    require(canonical_json(again.to_document()) == text, "a document read and written again is the same")
    require(
        np.array_equal(model.predict(bench.inputs), again.predict(bench.inputs)),
        "it predicts the same, to the last bit",
    )
    require(dict(again.complexity()) == dict(model.complexity()), "it has the same size")
    require([str(rule) for rule in again.rules()] == [str(rule) for rule in model.rules()], "it has the same rules")
    wrong = {f"no {name!r}": {key: value for key, value in document.items() if key != name} for name in MEMBERS}
    wrong["an unknown member"] = {**document, "extra": 1}
    wrong["another scheme's name"] = {**document, "scheme": "no-such-scheme"}
    wrong["an unknown format"] = {**document, "format": 10**6}
    for what, other in wrong.items():
        must_refuse(DocumentError, f"a document with {what}", partial(bench.scheme.from_document, other))
    for path in value_paths(document, 300):
        for odd in _ODD_DOCUMENT_VALUES:
            read = partial(bench.scheme.from_document, replaced(document, path, odd))
            raises_only(DocumentError, f"a document with {'.'.join(map(str, path))}={odd!r}", read)


def checked_predictions(model: Model, bench: Bench) -> np.ndarray[Any, Any]:
    """Check that predictions are of the right shape and kind, row by row as in a batch; return them."""
    X = bench.inputs
    predicted = model.predict(X)
    require(predicted.shape == (len(X),), f"predict() returns shape {(len(X),)}, got {predicted.shape}")
    if predicted.dtype.kind == "f":
        require(bool(np.isfinite(predicted).all()), "predictions are finite")
    else:
        require(set(predicted.tolist()) <= set(bench.domain.classes), "predictions are class labels")
    single = np.concatenate([model.predict(X[row : row + 1]) for row in range(len(X))])
    require(np.array_equal(single, predicted), "a row's prediction does not depend on its batch")
    require(model.predict(X[:0]).shape == (0,), "no rows give no predictions")
    for what, wrong in (
        ("of the wrong width", X[:, 1:]),
        ("without a second dimension", X[0]),
        ("that are not finite", np.where(X.max() == X, np.nan, X)),
    ):
        must_refuse(ValueError, f"predict() of rows {what}", partial(model.predict, wrong))
    return predicted


# --- what a scheme says about itself: names, parameters, and a page that explains it ----------------------------------


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
