"""What every model must answer."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from glassfleet.checks.bench import Bench, must_refuse, require
from glassfleet.scheme import Model


def check_predictions(model: Model, bench: Bench) -> np.ndarray[Any, Any]:
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
