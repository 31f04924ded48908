"""A model as the tables that the engines for small devices work on, read from its document."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from glassfleet.export.device.common import Tables
from schemas.errors import UsageError

if TYPE_CHECKING:
    from glassfleet.scheme import Model


def tables(model: Model) -> tuple[str, Tables]:
    """Return the name of the model's engine and its tables.

    Raises
    ------
    UsageError
        No engine knows the model: another package's scheme, or structures that are no model yet.
    """
    document = model.to_document()
    body = document["model"]
    found: Tables = {
        "inputs": list(model.domain.names),
        "units": [variable.unit for variable in model.domain.features],
        "low": [variable.low for variable in model.domain.features],
        "high": [variable.high for variable in model.domain.features],
        "target": model.domain.target_name,
        "classes": list(model.domain.classes),
    }
    if model.domain.target is not None:
        found |= {"target_low": model.domain.target.low, "target_high": model.domain.target.high}
    if body.get("kind") == "population":
        raise UsageError(
            "this is a population of tree structures, not a tree: only a vehicle can make a tree of it, with its own "
            "rows. Export the vehicle's own model, or the population as json, markdown or html, or a structure as svg "
            "or png"
        )
    builders = {"frt": _frt, "fmt": _fmt, "tsk": _tsk, "frbc": _frbc, "fedavg_mlp": _mlp}
    if model.scheme in builders:
        return model.scheme.replace("fedavg_", ""), found | builders[model.scheme](model, document)
    if "nodes" in body and "impurity" in body["nodes"][0]:
        return "tree", found | _tree(model, body["nodes"])
    raise UsageError(f"there is no engine for models of scheme {model.scheme!r}; json, markdown and html hold them")


def _ranked(weights: list[float]) -> Tables:
    """Return who wins ties (the highest weight, then the first), and the default: the first of that order."""
    order = np.lexsort((np.arange(len(weights)), -np.array(weights)))
    rank = np.empty(len(order), dtype=np.intp)
    rank[order] = np.arange(len(order))
    return {"rank": rank.tolist(), "default": int(order[0])}


def _lines(rules: list[dict[str, Any]], names: tuple[str, ...]) -> list[list[float]]:
    """Return each rule's coefficients in the order of inputs, intercept last."""
    found = []
    for rule in rules:
        told = rule["coefficients"]
        line = [told.get(name, 0.0) for name in names] if isinstance(told, dict) else list(told)
        found.append([*(float(value) for value in line or [0.0] * len(names)), float(rule["intercept"])])
    return found


def _frt(model: Model, document: dict[str, Any]) -> Tables:
    nodes, rules = document["model"]["nodes"], document["model"]["rules"]
    n_sets = document["parameters"]["n_sets"]
    return {
        "n_sets": n_sets,
        "averaged": document["parameters"]["inference"] == "weighted_average",
        "rule_of": [node.get("rule", -1) for node in nodes],
        "split": [node.get("feature", -1) for node in nodes],
        "child": [[-1 if c is None else c for c in node.get("children", [None] * n_sets)] for node in nodes],
        "coefficients": _lines(rules, model.domain.names),
        "mean_strength": [float(rule["mean_strength"]) for rule in rules],
        **_ranked([rule["weight"] for rule in rules]),
    }


def _fmt(model: Model, document: dict[str, Any]) -> Tables:
    body = document["model"]
    split_of = {split["node"]: index for index, split in enumerate(body["splits"])}
    leaves, stack = [], [0]
    while stack:
        node = stack.pop()
        if node in split_of:
            stack += [2 * split_of[node] + 2, 2 * split_of[node] + 1]
        else:
            leaves.append(node)
    return {
        "averaged": document["parameters"]["inference"] == "averaged",
        "knots": [[float(knot) for knot in line] for line in body["knots"]],
        "splits": [[split["node"], split["feature"], split["cut"]] for split in body["splits"]],
        "leaves": leaves,
        "coefficients": _lines(body["rules"], model.domain.names),
    }


def _tsk(model: Model, document: dict[str, Any]) -> Tables:
    rules, n_sets = document["model"]["rules"], document["parameters"]["n_sets"]
    # OTHERWISE names no sets. With a set that no input has it never fires; as the default it answers when none does.
    otherwise = [n_sets] * len(model.domain.features)
    ties = _ranked([rule["weight"] for rule in rules])
    if not rules[-1]["antecedent"]:
        ties["default"] = len(rules) - 1
    return {
        "n_sets": n_sets,
        "averaged": document["parameters"]["inference"] == "weighted_average",
        "sets": [list(rule["antecedent"] or otherwise) for rule in rules],
        "coefficients": _lines(rules, model.domain.names),
        **ties,
    }


def _frbc(model: Model, document: dict[str, Any]) -> Tables:  # noqa: ARG001 - the builders are called alike
    rules = document["model"]["rules"]
    return {
        "n_sets": document["parameters"]["n_sets"],
        "weighted": document["parameters"]["association"] != "strength",
        "sets": [list(rule["sets"]) for rule in rules],
        "class": [rule["class"] for rule in rules],
        "weight": [float(rule["weight"]) for rule in rules],
        **_ranked([rule["weight"] for rule in rules]),
    }


def _tree(model: Model, nodes: list[dict[str, Any]]) -> Tables:
    leaf_of: list[int] = []
    leaves = 0
    for node in nodes:
        leaf_of.append(-1 if "feature" in node else leaves)
        leaves += "feature" not in node
    target = model.domain.target
    if target is None:
        answers: list[Any] = [int(np.argmax(node["value"])) for node in nodes]
    else:
        answers = [target.low + float(node["value"][0]) * (target.high - target.low) for node in nodes]
    return {
        "feature": [node.get("feature", -1) for node in nodes],
        "threshold": [float(node.get("threshold", 0.0)) for node in nodes],
        "right": [node.get("right", -1) for node in nodes],
        "rule_of": leaf_of,
        "answer": answers,
    }


def _mlp(model: Model, document: dict[str, Any]) -> Tables:  # noqa: ARG001 - the builders are called alike
    units, weights = document["model"]["units"], document["model"]["weights"]
    layers, at = [], 0
    for above, below in itertools.pairwise(units):
        lines = [list(weights[at + i * below : at + (i + 1) * below]) for i in range(above)]
        at += above * below
        layers.append([lines, list(weights[at : at + below])])
        at += below
    return {"layers": layers, "layer_units": list(units)}
