"""The model: it predicts, explains, and is its document."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import numpy as np

from glassfleet.conformance.bench import Bench, must_refuse, raises_only, replaced, require, value_paths
from glassfleet.data.documents import MEMBERS
from glassfleet.model.protocol import Model
from schemas.documents import canonical_json
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
