"""Learning in one process, with the very halves that vehicles and coordinator run: LL, CL and FL."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from glassfleet.contract.messages import COUNTS, Contribution, Done, Next, Task
from glassfleet.contract.scheme import Scheme, alone_parameters
from glassfleet.data.condense import condensed
from glassfleet.data.dataset import Dataset, pool
from glassfleet.data.domain import Domain
from glassfleet.data.sampling import draw, recent
from glassfleet.errors import ContributionError
from glassfleet.model.baseline import recorded
from glassfleet.private.support import read_noted
from schemas.codec import Value, encode
from schemas.errors import UsageError
from schemas.rounds import Window

MAX_ROUNDS = 10_000
"""A scheme that has not finished by then never will."""


@dataclass(frozen=True)
class Outcome:
    """What a run in this process came to.

    Attributes
    ----------
    model : Model
        The finished model.
    rounds : int
        Questions asked.
    summary : Mapping[str, Value]
        What the scheme reports beside the model.
    nullified : int
        Statistics that agents set to zero, over all rounds (frt as in its paper, fedga).
    bytes_down, bytes_up : int
        Size of the encoded tasks (once each, not per agent) and of all encoded contributions.
    """

    model: Any
    rounds: int
    summary: Mapping[str, Value] = field(default_factory=dict)
    nullified: int = 0
    bytes_down: int = 0
    bytes_up: int = 0


Listen = Callable[[Task, Contribution], None]
"""Is told each task and each answer to it, which says by whom it is."""

Present = Callable[[int, Sequence[str]], Sequence[str]]
"""(round from 1, all agents) -> those that answer it, at least one."""


def drawn(count: int, seed: int) -> Present:
    """Return who answers when `count` agents are drawn at random, anew in each round (elastic participation)."""

    def present(number: int, agents: Sequence[str]) -> list[str]:
        rng = np.random.default_rng((seed, number))
        return [agents[index] for index in rng.choice(len(agents), min(count, len(agents)), replace=False)]

    return present


def federated(
    scheme: Scheme,
    parameters: Any,
    domain: Domain,
    datasets: Mapping[str, Dataset],
    seed: int = 0,
    *,
    present: Present | None = None,
    max_rows_each: int = 0,
    listen: Listen | None = None,
    withheld: Sequence[Mapping[str, Value]] = (),
) -> Outcome:
    """Learn from several agents' datasets as a fleet would (FL), without faults.

    Parameters
    ----------
    scheme : Scheme
        From :mod:`glassfleet.contract.catalogue`.
    parameters : scheme.Parameters
        The run's parameters.
    domain : Domain
        The run's domain.
    datasets : Mapping of str to Dataset
        By agent id.
    seed : int
        For the server half and, in place of agents' secrets, for privacy noise.
    present : callable, optional
        Who answers a round, as in elastic participation; without it everybody does. See :func:`drawn`.
    max_rows_each : int
        At most so many rows of each agent count; 0: all. See :func:`counted_rows`.
    listen : callable, optional
        Hears what leaves the agents, as the broker does.
    withheld : sequence of mapping
        What a private run decided from the answers to its questions of `COUNTS`, in their order; see :func:`central`.

    Raises
    ------
    ContributionError
        An answer cannot be true.
    RunFailedError
        These rows give no model.
    """
    if not datasets:
        raise ValueError("a fleet needs at least one agent")
    _check_inputs(scheme, domain)
    agents = sorted(datasets)
    datasets = {agent: counted_rows(data, domain, max_rows_each) for agent, data in datasets.items()}
    step: Next | Done = scheme.server.start(parameters, domain, seed)
    rounds = nullified = down = up = supports = 0
    while isinstance(step, Next):
        if rounds == MAX_ROUNDS:
            raise RuntimeError(f"scheme {scheme.name!r} did not finish in {MAX_ROUNDS} rounds")
        task = step.task
        rounds += 1
        written = encode(task.to_value())
        down += len(written)
        digest = hashlib.sha256(written).hexdigest()
        contributions = []
        for agent in agents if present is None else sorted(present(rounds, agents)):
            contribution = scheme.client.contribute(task, datasets[agent], _noise(seed, agent, digest))
            scheme.server.check(task, contribution)
            if contribution.rows > max_rows_each > 0:
                raise ContributionError(f"{agent} claims {contribution.rows} rows; {max_rows_each} count of each")
            nullified += contribution.nullified
            up += len(encode(contribution.to_value()))
            contributions.append(replace(contribution, agent=agent))
            if listen is not None:
                listen(task, contributions[-1])
        if task.kind in COUNTS and withheld:
            if supports == len(withheld):
                raise UsageError(f"the record of what was withheld has {supports} decisions: it is of another run")
            contributions = [replace(each, decided=read_noted(withheld[supports])) for each in contributions]
            supports += 1
        step = scheme.server.reduce(step.state, contributions)
    return Outcome(step.model, rounds, step.summary, nullified, down, up)


def _check_inputs(scheme: Scheme, domain: Domain) -> None:
    """Raise UsageError where a domain has inputs that `scheme` does not know."""
    if domain.gaps and not scheme.abilities.missing_cells:
        raise UsageError(
            f"{scheme.name} takes no empty cells, and the domain has such: {domain.names[domain.gaps[0]]!r}"
        )
    if domain.excess and not scheme.abilities.excess:
        name = domain.excess[0].of.name
        raise UsageError(f"{scheme.name} has no lines that go on beyond limits, and the domain has such for {name!r}")


def counted_rows(data: Dataset, domain: Domain, max_rows_each: int, window: Window | None = None) -> Dataset:
    """Return the rows of one agent that a run with `domain` counts: drawn by hash.

    A model's record says ``max_rows_each`` and ``window`` in its parameters where there was a limit; whoever pools the
    rows of its cohort to learn the central model takes these.
    """
    own = data if window is None else recent(data, window)
    return draw(own, domain.names, max_rows_each)


def central(  # noqa: PLR0917 - as `federated`, and what one argument more says
    scheme: Scheme,
    parameters: Any,
    domain: Domain,
    dataset: Dataset,
    seed: int = 0,
    withheld: Sequence[Mapping[str, Value]] = (),
) -> Outcome:
    """Learn from pooled rows on one machine, as they are (CL).

    `withheld`, from the summary (or the model's record) of a private run with `support`, says what that run did not ask
    because too few rows were in a group, or left one: pooled rows have no groups. The central model of the run is the
    one under it.

    The central model of a run whose vehicles have more than its ``max_rows_each`` rows is learned from their
    :func:`counted_rows`.
    """
    return federated(scheme, scheme.exact(parameters), domain, {"central": dataset}, seed, withheld=withheld)


def central_of(  # noqa: PLR0917 - as `central`
    scheme: Scheme,
    parameters: Any,
    domain: Domain,
    cohort: Mapping[str, Dataset],
    seed: int = 0,
    withheld: Sequence[Mapping[str, Value]] = (),
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the document that a fleet's model must equal: learned on one machine, from the rows its vehicles use.

    With it comes what the model's record must say beside it, see :func:`glassfleet.model.baseline.recorded`.

    Parameters
    ----------
    scheme, parameters, domain, seed, withheld
        Of the run; `withheld` as for :func:`central`.
    cohort : Mapping of str to Dataset
        By agent id. Their rows are condensed, each vehicle's by themselves, where `parameters` say so, then pooled.
    """
    group_rows = getattr(parameters, "group_rows", 1)
    names = domain.names
    used = [condensed(cohort[agent].select(names), domain, group_rows) for agent in sorted(cohort)]
    outcome = central(scheme, parameters, domain, pool(used), seed, withheld)
    return {**outcome.model.to_document(), "parameters": parameters.model_dump(mode="json")}, recorded(outcome.summary)


def learn_local(
    scheme: Scheme, parameters: Any, domain: Domain, datasets: Mapping[str, Dataset], seed: int = 0
) -> dict[str, Outcome]:
    """Learn one model per agent from its own rows, as they are (LL); by agent id.

    That is a run with one agent, unless the scheme's ``abilities.alone`` is something else.
    """
    alone = scheme.abilities.alone
    if alone is not None:
        return {agent: Outcome(alone(parameters, domain, datasets[agent], seed), 0) for agent in sorted(datasets)}
    exact = alone_parameters(scheme, parameters)
    return {agent: federated(scheme, exact, domain, {agent: datasets[agent]}, seed) for agent in sorted(datasets)}


def _noise(seed: int, agent: str, digest: str) -> np.random.Generator:
    """Return the generator for an agent's privacy noise: repeatable here, where there are no secrets."""
    text = f"{seed}/{agent}/{digest}"
    return np.random.default_rng(int.from_bytes(hashlib.sha256(text.encode()).digest()[:16], "big"))
