"""A vehicle's answer in a private run, in two steps: what it looks at before it computes, and what leaves it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import ValidationError

from glassfleet.contract.messages import Contribution, Task
from glassfleet.contract.scheme import private_parameters
from glassfleet.errors import PrivacyError, TaskError
from glassfleet.private.chain import PAIRS_SCHEME, Chain, admit, afford, answered, follow, lay_out
from glassfleet.private.groups import Edition
from glassfleet.private.layout import Additive, Layout, Words, layout_of, question_digest
from glassfleet.private.masks import mask
from glassfleet.private.pairs import HEAD
from schemas.errors import UsageError


@dataclass(frozen=True)
class Asked:
    """A question that a vehicle will answer.

    Attributes
    ----------
    chain : Chain
        With the edition and the task; not yet with the answer.
    edition : Edition
    task : Task
    layout : Layout
    question : str
        Digest of the three, hex. The vehicle's noise is drawn by it.
    posed : Task
        What the client is given: `task`, for so many members.
    cost : float
        What the answer spends of the run's privacy budget, epsilon.
    """

    chain: Chain
    edition: Edition
    task: Task
    layout: Layout
    question: str
    posed: Task
    cost: float


def accept(  # noqa: PLR0917 - one call
    chain: Chain, scheme: Additive, task: Task, number: int, members: Sequence[str], question: str
) -> Asked:
    """Return what is asked, if the vehicle answers it.

    Parameters
    ----------
    chain : Chain
        Of the run.
    scheme : Additive
        The scheme of `task`, or domain discovery.
    task : Task
    number : int
        Of the edition.
    members : sequence of str
        Of the edition.
    question : str
        The digest of the question as the coordinator has it.

    Raises
    ------
    PrivacyError
        As :func:`~glassfleet.private.chain.follow` and :func:`~glassfleet.private.chain.admit` say; ``other-layout``;
        ``not-private``: with parameters of the scheme's other runs; ``budget-spent``.
    TaskError
        The task is malformed, or its answers are no sums.
    """
    chain, edition = follow(chain, number, members)
    chain = admit(chain, task)
    if task.scheme == chain.roster.terms.scheme:
        _check_parameters(scheme, task)
    layout = layout_of(scheme, task)
    chain = lay_out(chain, task.digest, layout.digest)
    if question_digest(edition, task.digest, layout.digest) != question:
        raise PrivacyError("other-layout", "the coordinator's question is another than the one that its task makes")
    private = scheme.abilities.private
    assert not isinstance(private, str)  # `layout_of` says so
    cost, budget = (0.0, math.inf) if private.spent is None else private.spent(task)
    afford(chain, question, cost, budget)
    among = private.among(task, edition.summed.honest)
    return Asked(chain, edition, task, layout, question, among, cost)


def reply(asked: Asked, contribution: Contribution, pairs: Mapping[str, bytes]) -> tuple[Chain, Words]:
    """Return the masked answer, and the chain that must be on the disk before it leaves.

    Parameters
    ----------
    asked : Asked
    contribution : Contribution
        The vehicle's own answer, which passed the scheme's ``check``: nobody else can check it any more.
    pairs : mapping of str to bytes
        From :func:`~glassfleet.private.masks.pair_keys`.

    Returns
    -------
    Chain
    ndarray of uint64, shape (asked.layout.size,)

    Raises
    ------
    PrivacyError
        ``other-layout``, ``other-answer``.
    """
    vector = asked.layout.flatten(contribution)
    if asked.task.scheme == PAIRS_SCHEME:
        words = _words_of_pairs(asked, pairs)
    else:
        words = mask(vector, asked.chain.agent, asked.edition, pairs, asked.task.digest)
    return answered(asked.chain, asked.question, words, asked.cost), words


def no_rows(asked: Asked) -> Contribution:
    """Return what stands for a vehicle's own answer where the question is not about its rows."""
    return Contribution(asked.task.kind, 0, {name: np.zeros(shape, np.int64) for name, shape in asked.layout.shapes})


def _words_of_pairs(asked: Asked, pairs: Mapping[str, bytes]) -> Words:
    """Return a 1 for each other member, masked for the two alone; see `glassfleet.private.pairs`.

    No edition that is answered has two members, so these streams mask nothing else.
    """
    agent, edition = asked.chain.agent, asked.edition
    if asked.layout.size != HEAD + len(edition.members):
        raise PrivacyError("other-layout", "a check of pairs that is not about this edition")
    words = np.zeros(asked.layout.size, dtype=np.uint64)
    for place, other in enumerate(edition.members, HEAD):
        if other != agent:
            both = Edition(edition.roster, edition.number, (min(agent, other), max(agent, other)))
            words[place] = mask(np.ones(1, dtype=np.int64), agent, both, pairs, asked.task.digest)[0]
    return words


def _check_parameters(scheme: Any, task: Task) -> None:
    """Raise PrivacyError where vehicles would withhold what is small: whether one can answer would tell of its rows."""
    try:
        parameters = scheme.Parameters.model_validate(task.body.get("parameters"))
        is_private = private_parameters(scheme, parameters) == parameters
    except ValidationError as fault:
        raise TaskError(f"parameters: {fault}"[:200]) from fault
    except UsageError as fault:
        raise PrivacyError("not-private", str(fault)) from fault
    if not is_private:
        raise PrivacyError("not-private", f"the parameters are not those of a private run of {task.scheme}")
