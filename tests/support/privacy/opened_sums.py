"""The sums that a private run opens, as the coordinator computes them from masked answers, and all attacks on them."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassfleet.contract import catalogue
from glassfleet.contract.scheme import private_parameters
from glassfleet.data.dataset import pool
from glassfleet.private.groups import Terms, parameters_digest
from glassfleet.private.layout import DRAWS, Words, add, layout_of
from glassfleet.private.masks import RunKey
from glassfleet.private.simulation import Heard, PrivateFleet, Vehicle
from glassfleet.schemes.tree.params import SCORE_BITS
from lab.audit import banded, tree
from lab.audit.report import TOLERANCE, matches, truth
from lab.audit.sums import columns, covariances, remainders, spans
from lab.audit.transcript import Opened, differences, views
from tests.support.privacy.transcripts import Count, Fleet, domain_of, total

ATTACKS: dict[str, Any] = {
    "frt": (spans, columns, covariances, remainders),
    "tsk": (spans, columns, covariances),
    "tree": (tree.bins, tree.spans, banded.columns, banded.margins, banded.remainders, banded.classes),
}
"""Bands between cuts, spans and pairs of bands of two inputs, differences of rank one, withheld cells; any two sums.

And columns of which all rows but one have one value, and classes of one row.
"""

CROSSED = (tree.spans, banded.margins, banded.remainders)
"""Attacks that take the sums of several editions."""


def opened(
    name: str, fleet: Fleet, support: int, left: dict[str, int], draw: int = 0, *, domain: Any = None, **chosen: Any
) -> tuple[list[Opened], Any]:
    """Return the sums that a private run opens, as the coordinator computes them from masked answers.

    Keys follow from `draw`, and from these who goes with the vehicle that is lost.
    """
    scheme: Any = catalogue.load(name)
    domain, heard = domain or domain_of(fleet, name), list[Heard]()
    parameters = private_parameters(scheme, scheme.Parameters(**chosen), support)
    terms = Terms("fleet", "run", "nonce", name, parameters_digest(parameters))
    keys = {agent: RunKey(hashlib.sha256(f"{draw} {agent}".encode()).digest()) for agent in fleet}
    vehicles = [Vehicle(agent, data, keys[agent], left.get(agent)) for agent, data in fleet.items()]
    PrivateFleet(terms, vehicles, watch=heard.append).learn(scheme, parameters, domain)
    words: dict[Any, list[Words]] = defaultdict(list)
    for each in heard:
        words[each.edition.members, each.task.digest].append(each.words)
    tasks = {each.task.digest: each.task for each in heard}
    result = []
    for (members, digest), answers in words.items():
        if len(answers) == len(members):
            sums = layout_of(scheme, tasks[digest]).read(add(answers), len(members)).sums
            result.append(Opened(tasks[digest], frozenset(members), sums))
    return result, domain


def attacked(name: str, fleet: Fleet, support: int, left: dict[str, int], draw: int = 0, **chosen: Any) -> Count:
    """Return what all attacks together read, of each edition and of those who left.

    Of `tree` a row counts that was read in all columns of the products: not all inputs are.
    """
    some, domain = opened(name, fleet, support, left, draw, **chosen)
    counts, every = [], []
    for part in (some, differences(some)):
        for members, view in views(part).items():
            rows = truth(domain, pool([fleet[agent] for agent in members]))
            counts += [counted(name, attack(view), rows) for attack in ATTACKS[name]]
            every.append(view)
    if name == "tree":  # sums of all editions, subtracted from one another
        rows = truth(domain, pool(list(fleet.values())))
        counts += [counted(name, attack(*every), rows) for attack in CROSSED]
    return Count(sum(each.read for each in counts), pool(list(fleet.values())).rows, total(counts).false)


def counted(name: str, candidates: Any, rows: Any) -> Count:
    whole, parts, false = matches(candidates, rows)
    return Count(len(whole) + (len(parts) if name == "tree" else 0), len(rows), false)


def alone_in_a_band(some: list[Opened]) -> list[NDArray[np.float64]]:
    """Return what the last two columns may be of rows that alone are not 0 in a band of `tree`, for each draw.

    Residuals times a column, by the column, are the residual of that row, for either column.
    """
    result = []
    for each in some:
        if each.task.kind == "bands":
            for means, scores in zip(each.sums["means"][:, -2:], each.sums["scores"][:, -2:], strict=True):
                if means.all() and abs(np.subtract(*(scores / means))) < TOLERANCE:
                    result += [means / 2.0**SCORE_BITS / draw for draw in DRAWS]
    return result
