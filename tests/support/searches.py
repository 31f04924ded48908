"""A fleet's search for the limits of its columns, in this process and as it goes over the wire."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from glassfleet.data.dataset import Dataset
from glassfleet.discovery import DISCOVERY, DiscoveryParameters
from glassfleet.scheme import Contribution, Done, Next, Task
from schemas.codec import decode, encode

RNG = np.random.default_rng(0)


def search(
    parameters: DiscoveryParameters,
    fleet: Sequence[Dataset],
    told: Callable[[Task, Contribution], Contribution] = lambda _, answer: answer,
) -> tuple[list[tuple[Next, list[Contribution]]], Done]:
    """Return the rounds with the answers of vehicles ``v00`` and so on, each of which can be true, and the end.

    `told` is what becomes of an answer on its way.
    """
    step: Next | Done = DISCOVERY.server.start(parameters)
    rounds = []
    while isinstance(step, Next):
        answers = []
        for number, data in enumerate(fleet):
            given = decode(encode(DISCOVERY.client.contribute(step.task, data, RNG).to_value()))
            answers.append(told(step.task, replace(Contribution.from_value(given), agent=f"v{number:02d}")))
            DISCOVERY.server.check(step.task, answers[-1])
        rounds.append((step, answers))
        step = DISCOVERY.server.reduce(decode(encode(dict(step.state))), answers)
    return rounds, step
