"""The coordinator's half: agrees on a depth, and evolves structures by the vehicles' scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from glassfleet.contract.checks import check_head
from glassfleet.contract.messages import Contribution, Done, Next, State, Task
from glassfleet.contract.sums import ask
from glassfleet.contract.tasks import check_class_order, usage_errors
from glassfleet.crisp import Forest
from glassfleet.crisp.cuts import GRID
from glassfleet.crisp.forest import widen
from glassfleet.data.domain import Domain
from glassfleet.schemes.fedga.evolution import Evolution, begin, string_of
from glassfleet.schemes.fedga.messages import NAME, FedgaQuestion, check_answer, read_task
from glassfleet.schemes.fedga.model import Population, draw_structure
from glassfleet.schemes.fedga.params import FedgaParameters
from schemas.codec import Value
from schemas.errors import RunFailedError

_DRAWN = 5
"""Structures that progress shows."""


class FedgaServer:
    """Turns depths, structures and scores into the next question, or into the population."""

    def start(self, parameters: FedgaParameters, domain: Domain, seed: int) -> Next:
        """Ask for depths and row counts."""
        with usage_errors():
            check_class_order(domain)
        return ask(FedgaQuestion("depth", parameters, domain, seed % 2**63), {"best": []})

    def check(self, task: Task, contribution: Contribution) -> None:
        """Raise :class:`ContributionError` unless `contribution` can be a true answer to `task`."""
        question = read_task(task)
        check_head(task, contribution)
        check_answer(question, contribution)

    def reduce(self, state: State, contributions: Sequence[Contribution]) -> Next | Done:
        """Turn the answers to the state's task into the next task or the population.

        Raises
        ------
        RunFailedError
            Nobody who answered has any rows.
        """
        question = read_task(Task(NAME, state["kind"], state["body"]))
        answers = {
            contribution.agent or f"#{number}": contribution
            for number, contribution in enumerate(contributions)
            if contribution.rows
        }
        if not answers:
            raise RunFailedError("no agent that answered has any rows", "no-rows")
        if question.kind == "depth":
            return _agree(question, state, answers)
        if question.kind == "local":
            return _begin(question, state, answers)
        return _evolve(question, state, answers)

    def progress(self, state: State) -> Mapping[str, Value]:
        """Say which generation is open, how good the best structure is, and draw the best few."""
        question = read_task(Task(NAME, state["kind"], state["body"]))
        shown: dict[str, Value] = {"stage": question.kind, "generation": question.generation, "depth": question.depth}
        lines: list[str] = []
        if state["best"]:
            shown["fitness"] = state["best"][-1]
        if question.forest is not None:
            evolution = Evolution.from_value(state["evolution"])
            scored = evolution.settled
            shown["population"] = scored
            fitness, structures = evolution.fitness, evolution.structures()
            lines = [
                f"{fitness[line]:.4f}  {draw_structure(structures[line], question.domain)}"
                for line in range(min(scored, _DRAWN))
            ]
        return {**shown, "lines": lines}


def _agree(question: FedgaQuestion, state: State, answers: Mapping[str, Contribution]) -> Next:
    """Take the median of the depths, and the fleet's plain answer."""
    depth = int(np.floor(np.median([answer.values["depth"] for answer in answers.values()])))
    name = "target" if question.domain.target is not None else "class_rows"
    total = np.sum([answer.sums[name] for answer in answers.values()], axis=0)
    if question.domain.target is not None:
        prior = [float(total[1]) / float(total[0]) / GRID if total[0] else 0.5]
    else:
        whole = int(total.sum())
        prior = [float(count) / whole if whole else 1.0 / len(total) for count in total]
    memory = {
        "best": state["best"],
        "prior": prior,
        "weights": {name: answer.values["weight"] for name, answer in answers.items()},
    }
    return ask(replace(question, kind="local", depth=depth), memory)


def _begin(question: FedgaQuestion, state: State, answers: Mapping[str, Contribution]) -> Next:
    """Count the votes and ask for the scores of the first structures."""
    parameters, classes = question.parameters, question.domain.target is None
    votes = [answer.values["votes"] for answer in answers.values()]
    own = {
        name: string_of(genes, question.depth)
        for name, answer in answers.items()
        if len(genes := widen(answer.values["structure"], question.n_features))
    }
    evolution = begin(
        parameters,
        depth=question.depth,
        n_features=question.n_features,
        size=parameters.size(classes=classes),
        own=list(own.values()),
        rng=np.random.default_rng([question.seed, 0]),
    )
    evolution = replace(evolution, introduced=tuple(answers))
    evolution = evolution.with_agents(state["weights"], state["weights"].values())
    asked = replace(
        question,
        kind="candidates",
        fit_on_all=_decide(
            parameters.fit_on_all, [vote["fit_on_all"] for vote in votes], otherwise=False, ask=not classes
        ),
    )
    elitism = _decide(parameters.elitism, [vote["elitism"] for vote in votes], otherwise=True, ask=not classes)
    memory = {"best": state["best"], "prior": state["prior"], "elitism": elitism}
    return _propose(asked, memory, evolution, np.arange(len(evolution.strings)))


def _decide(choice: str, votes: Sequence[bool], *, otherwise: bool, ask: bool) -> bool:
    if choice != "vote":
        return choice == "always"
    return 2 * sum(votes) > len(votes) if ask else otherwise


def _propose(question: FedgaQuestion, memory: Mapping[str, Value], evolution: Evolution, asked: Any) -> Next:
    """Ask for the scores of the strings `asked`."""
    structures = evolution.structures()
    forest = Forest.of([structures[line] for line in asked])
    remembered = {**memory, "evolution": evolution.to_value(), "asked": np.asarray(asked, dtype=np.int64)}
    return ask(replace(question, forest=forest), remembered)


def _evolve(question: FedgaQuestion, state: State, answers: Mapping[str, Contribution]) -> Next | Done:
    """Weigh the scores, let the best survive, and breed."""
    parameters = question.parameters
    size = parameters.size(classes=question.domain.target is None)
    evolution = Evolution.from_value(state["evolution"])
    # An agent that was not there when row counts were asked for counts with the rows that every answer states.
    evolution = evolution.with_agents(answers, [float(answer.rows) for answer in answers.values()])
    evolution = evolution.with_scores(
        state["asked"], {name: answer.values["scores"] for name, answer in answers.items()}
    )
    evolution = evolution.survive(size, elitism=bool(state["elitism"]))
    best = [*state["best"], float(evolution.fitness[0])]
    memory = {"best": best, "prior": state["prior"], "elitism": state["elitism"]}
    if question.generation >= parameters.generations:
        return _finish(question, memory, evolution)
    grown = evolution.breed(parameters, size)
    joined = [
        string_of(widen(answer.values["structure"], question.n_features), question.depth)
        for name, answer in answers.items()
        if name not in evolution.introduced and len(answer.values["structure"])
    ]
    if joined:
        grown = grown.join(np.concatenate(joined))
    introduced = (*evolution.introduced, *(name for name in answers if name not in evolution.introduced))
    grown = replace(grown, introduced=introduced)
    # Scores of parents stand while everybody answers. When only some do, others will answer next, and parents and
    # children must be compared by the same judges.
    everybody = len(answers) == len(evolution.agents)
    asked = np.arange(grown.settled if everybody else 0, len(grown.strings))
    if not len(asked):  # every structure that can be has been seen
        asked = np.arange(len(grown.strings))
    return _propose(replace(question, generation=question.generation + 1), memory, grown, asked)


def _finish(question: FedgaQuestion, memory: Mapping[str, Any], evolution: Evolution) -> Done:
    fitness = evolution.fitness
    model = Population(
        question.parameters,
        question.domain,
        depth=question.depth,
        seed=question.seed,
        fit_on_all=question.fit_on_all,
        forest=Forest.of(evolution.structures()),
        fitness=tuple(float(value) for value in fitness),
        prior=tuple(memory["prior"]),
    )
    summary: dict[str, Value] = {
        "generations": question.generation,
        "fitness_first": memory["best"][0],
        "fitness_last": memory["best"][-1],
        "history": memory["best"],
        "agents": len(evolution.agents),
        "fit_on_all": question.fit_on_all,
        "elitism": memory["elitism"],
        **model.complexity(),
    }
    return Done(model, summary)
