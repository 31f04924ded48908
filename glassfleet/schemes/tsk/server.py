"""The coordinator's half: merges the agents' rules, or clusters with them, fits the consequents, weighs the rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassfleet.contract.messages import COLUMNS, SUPPORT, Contribution, Done, Next, Task
from glassfleet.contract.sums import Memory, Sums, add_up, ask, count_rows, with_digest
from glassfleet.data.domain import Domain
from glassfleet.fuzzy import linguistic_terms
from glassfleet.fuzzy.matching import WEIGHTS
from glassfleet.model.baseline import filled, typical_row
from glassfleet.model.intervals import rule_forecasts
from glassfleet.numerics.linear import consequents, moments
from glassfleet.numerics.statistics import carry, weigh
from glassfleet.private.columns import (
    common_of,
    decide_columns,
    decide_slopes,
    exposed_columns,
    fewest_rows,
    slopes_of,
)
from glassfleet.private.layout import DRAWN
from glassfleet.private.support import ALL, Place, decided, noted
from glassfleet.schemes.tsk.clusters import CHANGE_BITS, Moments, first_centres, grid_bits, settled
from glassfleet.schemes.tsk.messages import MAX_RULES, Kind, TskQuestion, read_rules, read_task
from glassfleet.schemes.tsk.model import TskSystem
from glassfleet.schemes.tsk.params import TskParameters
from glassfleet.schemes.tsk.rules import TskRuleBase, antecedents_of, average, has_otherwise, union, with_otherwise
from schemas.codec import Value
from schemas.errors import RunFailedError

MAX_ANSWER_BYTES = 48 * 1024 * 1024
"""An answer of Gram sums must fit a message (``schemas.limits.MAX_DECODED_BYTES``) with room to spare."""

MAX_LINES = 200


def first(parameters: TskParameters, domain: Domain, seed: int) -> Next:  # noqa: ARG001 - cluster_seed is used
    """Ask for rules, or for the first sums of the common clustering."""
    memory: Memory = {"sums_digest": "", "iterations": 0, "still": 0, "change": 0.0}
    if parameters.antecedents == "local":
        return ask(TskQuestion("rules", parameters, domain), memory)
    if parameters.support:
        return ask(TskQuestion("columns", parameters, domain), memory)
    return _ask_clusters(parameters, domain, memory)


def step(question: TskQuestion, memory: Memory, contributions: Sequence[Contribution]) -> Next | Done:
    """Return the next question, or the model."""
    rows = count_rows(contributions, question.parameters.max_rows)
    if question.kind == "rules":
        return _merge(question, memory, rows, contributions)
    if question.kind == COLUMNS:
        return _begun(question, memory, contributions)
    if question.kind == SUPPORT:
        return _supported(question, memory, contributions)
    sums = add_up(contributions)
    if question.kind == "strengths":
        return _cut(question, memory, sums)
    if question.kind == "sums":  # the limbs of a fleet's sums must be those of the pooled rows
        limbs = carry(sums["gram_high"], sums["gram_low"], bits=question.parameters.gram_bits)
        sums["gram_high"], sums["gram_low"] = limbs
    memory = with_digest(memory, rows, sums)
    if question.kind == "clusters":
        return _move(question, memory, sums)
    if question.kind == "sums":
        return _fit(question, memory, rows, sums)
    return _finish(question, memory, rows, sums)


def progress_of(question: TskQuestion, memory: Memory) -> dict[str, Value]:
    """Say how far the clustering is, and which rules there are."""
    lines: list[Value]
    if question.antecedents is None:
        stages = {"rules": "asking the agents for their rules", COLUMNS: "counting values"}
        rules, lines = 0, [stages.get(question.kind, "clustering together")]
    else:
        rules = len(question.antecedents)
        terms = [linguistic_terms(question.parameters.n_sets, variable) for variable in question.domain.features]
        otherwise = has_otherwise(question.antecedents, question.parameters.n_sets)
        named = question.antecedents[:-1] if otherwise else question.antecedents
        lines = [
            "IF " + " AND ".join(f"{name} is {terms[i][line[i]]}" for i, name in enumerate(question.domain.names))
            for line in named[: MAX_LINES - 1].tolist()
        ]
        lines += ["OTHERWISE"] * otherwise
    return {"rules": rules, "iterations": memory["iterations"], "change": memory["change"], "lines": lines}


def _merge(question: TskQuestion, memory: Memory, rows: int, contributions: Sequence[Contribution]) -> Next | Done:
    """Merge the agents' rules: average their consequents, or ask for sums over the union of antecedents."""
    bases = [read_rules(question, contribution) for contribution in contributions]
    if not any(base.size for base in bases):
        raise RunFailedError(_NOTHING_LEFT)
    if question.parameters.consequents == "pooled":
        return _ask_sums(question, union([base.antecedents for base in bases]), memory)
    base = average(bases)
    merged = {name: getattr(base, name) for name in ("antecedents", "coefficients", *WEIGHTS)}
    return _done(question, base, rows, with_digest(memory, rows, merged))


def _begun(question: TskQuestion, memory: Memory, contributions: Sequence[Contribution]) -> Next:
    """Begin with the clustering, unless its sums would tell rows of another value than all others have."""
    task, parameters = question.to_task(), question.parameters
    exposed = exposed_columns(contributions, task, parameters.support)
    # A run that has a record did not end here. Pooled, equal rows of several vehicles are one.
    if exposed and contributions[0].decided is None:
        names = ", ".join([*question.domain.names, "the target"][column] for column in exposed)
        least = fewest_rows(parameters.support)
        raise RunFailedError(
            f"fewer than {least} rows of some group, or of those who left it, differ from all others in {names}: sums "
            "over all rows would tell these. Leave such inputs out, or learn with tree, which sums no products of them"
        )
    decision = decide_columns(contributions, task, parameters.support)
    return _ask_clusters(parameters, question.domain, {**memory, "withheld": [noted(decision)], "values": decision})


def _ask_clusters(parameters: TskParameters, domain: Domain, memory: Mapping[str, Any]) -> Next:
    first = first_centres(parameters.n_clusters, len(domain.features) + 1, parameters.cluster_seed)
    return ask(TskQuestion("clusters", parameters, domain, centres=first[None]), memory)


def _move(question: TskQuestion, memory: Memory, sums: Sums) -> Next:
    """Move the centres, and ask again until they have settled; then ask for sums over their antecedents."""
    assert question.centres is not None
    parameters, known = question.parameters, question.centres
    latest = known[-1]
    moved = int(sums["change"][0])
    memory = {**memory, "change": float(np.sqrt(moved * 0.5**CHANGE_BITS))}
    if len(known) == 1 or not settled(moved, parameters.tolerance):
        bits = grid_bits(question.n_features + 1)
        new = Moments(sums["moment_high"], sums["moment_low"]).centres(bits, latest)
        same = np.array_equal(_antecedents(question, latest), _antecedents(question, new))
        memory["iterations"] += 1
        memory["still"] = memory["still"] + 1 if same else 0
        if memory["iterations"] < parameters.max_rounds and memory["still"] < parameters.patience:
            return ask(TskQuestion("clusters", parameters, question.domain, centres=np.stack([latest, new])), memory)
        latest = new
    return _ask_sums(question, _antecedents(question, latest), memory)


def _antecedents(question: TskQuestion, centres: NDArray[np.float64]) -> NDArray[np.int8]:
    return antecedents_of(centres[:, :-1], question.parameters.n_sets)


_NOTHING_LEFT = "no rule is left: no agent found one. Lower n_clusters or n_sets, or bring more rows"


def _ask_sums(question: TskQuestion, antecedents: NDArray[np.int8], memory: Mapping[str, Any]) -> Next:
    if question.parameters.otherwise:
        antecedents = with_otherwise(antecedents, question.parameters.n_sets)
    k = question.gram_columns
    most = min(MAX_RULES, MAX_ANSWER_BYTES // (16 * (k * (k + 1) // 2)))
    if len(antecedents) > most:
        raise RunFailedError(
            f"the agents found {len(antecedents)} rules; sums of at most {most} fit a message. Use fewer clusters "
            "(n_clusters), fewer sets or fewer inputs"
        )
    kind: Kind = "strengths" if question.parameters.support else "sums"
    return ask(TskQuestion(kind, question.parameters, question.domain, antecedents=antecedents), memory)


def _cut(question: TskQuestion, memory: Memory, sums: Sums) -> Next:
    """Ask on how many rows the rules rest; who has which strengths is no part of what the model is computed from."""
    common = common_of(memory["values"], range(question.n_features))
    return ask(replace(question, kind="support", cuts=cuts_of(sums["present"]), common=common), memory)


def _supported(question: TskQuestion, memory: Memory, contributions: Sequence[Contribution]) -> Next:
    """Ask for sums over the rules that rest on enough rows; without the others OTHERWISE has more, so it asks again."""
    assert question.antecedents is not None
    decision = decide_rules(question, contributions)
    memory["withheld"] = [*memory["withheld"], noted(decision)]
    columns = slopes_of(decision, question.common, question.n_features)
    enough = columns[:, -1]
    antecedents = question.antecedents
    named = slice(None, -1 if has_otherwise(antecedents, question.parameters.n_sets) else None)
    if not enough[named].any():
        raise RunFailedError(
            f"no rule is left: of each some group has fewer than {fewest_rows(question.parameters.support)} rows, "
            "and nothing is told of these. Bring more vehicles or rows, or ask for less support"
        )
    if named.stop and not enough[named].all():
        return _ask_sums(question, antecedents[named][enough[named]], memory)
    asked = TskQuestion("sums", question.parameters, question.domain, antecedents=antecedents[enough])
    return ask(replace(asked, columns=columns[enough]), memory)


# --- consequents and weights ----------------------------------------------------------------------------------------


def _fit(question: TskQuestion, memory: Mapping[str, Any], rows: int, sums: Sums) -> Next:
    """Fit each rule's polynomial; ask how good the rules are. Rules that nothing is known about are left out."""
    assert question.antecedents is not None
    known = sums["count"] > 0
    if not known.any():
        raise RunFailedError(_NOTHING_LEFT)
    columns = None if question.columns is None else question.columns[known]
    sums, antecedents = {name: array[known] for name, array in sums.items()}, question.antecedents[known]
    k, bits = question.gram_columns, question.parameters.gram_bits
    matrix = moments(sums, k, bits)
    coefficients = consequents(sums, k, bits)
    asked = replace(question, kind="weights", antecedents=antecedents, coefficients=coefficients, columns=None)
    sums_of_inputs = filled(matrix[0, :-1], columns)
    # The matrix begins with 1, a polynomial's intercept comes last.
    forecasts = rule_forecasts(
        question.domain, rows, matrix[:-1, :-1], np.roll(coefficients, 1, axis=1).T.copy(), range(question.n_features)
    )
    return ask(asked, {**memory, "reference": typical_row(question.domain, sums_of_inputs), "forecasts": forecasts})


def _finish(question: TskQuestion, memory: Mapping[str, Any], rows: int, sums: Sums) -> Done:
    """Weigh the rules (harmonic mean of confidence and support) and build the model."""
    assert question.antecedents is not None
    assert question.coefficients is not None
    ws, wq, bits = sums["ws"].copy(), sums["wq"].copy(), question.parameters.fraction_bits
    if question.parameters.support and has_otherwise(question.antecedents, question.parameters.n_sets):
        ws[-1], wq[-1] = (min(int(each[-1] / DRAWN), rows << bits) for each in (ws, wq))  # about what it would be
    shares = weigh(ws, wq, rows, bits)
    return _done(question, TskRuleBase(question.antecedents, question.coefficients, *shares), rows, memory)


def _done(question: TskQuestion, base: TskRuleBase, rows: int, memory: Mapping[str, Any]) -> Done:
    model = TskSystem(question.parameters, question.domain, base)
    summary = {
        "sums_digest": memory["sums_digest"],
        "rows": rows,
        "iterations": memory["iterations"],
        **model.complexity(),
        **{name: memory[name] for name in ("withheld", "reference", "forecasts") if name in memory},
    }
    return Done(model, summary)


# --- runs with `support`: on how many rows the sums of each rule rest, and of what weight -----------------------------
#
# A rule's sums are of products of all columns. Where all its rows but one have one value of a column, the products
# less this value are that one row's. So the rows of a rule are counted, and again without those of each common value
# (`glassfleet.private.columns`): there must be none or enough, or the input is no column of the rule. Nobody hides
# behind rows that weigh nothing beside another one: enough must be heavy, in the power of 8 of the rule's strongest row
# or in the next one. So first the fleet is asked for these powers.


Bools = NDArray[np.bool_]


def cuts_of(present: NDArray[np.int64]) -> NDArray[np.int8]:
    """Return the last power of 8 whose rows are heavy in each rule, shape (r,): the one after that of the strongest.

    Parameters
    ----------
    present : ndarray of int64, shape (r, POWERS)
        In how many vehicles a rule has rows of each power.
    """
    cuts: NDArray[np.int8] = (np.argmax(present > 0, axis=1) + 1).astype(np.int8)
    return cuts


def decide_rules(question: TskQuestion, contributions: Sequence[Contribution]) -> Bools:
    """Return which rules may be asked about, and by layer whether their columns may, shape (r, 1 + layers)."""
    cuts = _cuts(question)
    former = [_cuts(read_task(task)) for given in contributions for task, _ in given.former if task.kind == SUPPORT]
    # Where an earlier edition took other rows for heavy, nobody counted those who left as they are counted now.
    same = [all(before.get(rule, cut) == cut for before in former) for rule, cut in cuts.items()]

    def from_rows(parts: list[NDArray[np.int64]]) -> Bools:
        enough = decide_slopes(parts, question.least_of, question.parameters.support)
        enough[~np.array(same)] = False
        return enough

    return decided(contributions, _places, question.to_task(), from_rows)


def _cuts(question: TskQuestion) -> dict[Any, int]:
    """Return which rows are heavy in each rule, given by its sets; OTHERWISE by those of all other rules."""
    assert question.antecedents is not None
    assert question.cuts is not None
    rules: list[Any] = [tuple(line) for line in question.antecedents.tolist()]
    if has_otherwise(question.antecedents, question.parameters.n_sets):
        rules[-1] = tuple(rules[:-1])
    return dict(zip(rules, question.cuts.tolist(), strict=True))


def _places(task: Task) -> list[Any]:
    """Return what each line of counts is about: a rule and a layer."""
    question = read_task(task)
    return [Place(rule, layer) for rule in _cuts(question) for layer in (ALL, *question.common)]
