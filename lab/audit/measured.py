"""What is measured: on a run of the journal, on a simulated fleet, and with shadows of a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from console.common import parse_parameters
from console.operator.specification import checked_parameters
from coordinator.engine import Engine
from coordinator.engine.learning import discovery_of
from coordinator.journal.inspect import entries, runs
from edge_agent.session.answers import DOMAIN, answer
from edge_agent.sources import Source
from edge_agent.sources.readers import vehicle_files
from glassfleet.contract import catalogue
from glassfleet.contract.scheme import Scheme, private_parameters
from glassfleet.data.dataset import Dataset, pool
from glassfleet.discovery import discover
from glassfleet.errors import TaskError
from glassfleet.model.protocol import Model
from glassfleet.private.groups import LEAST_FLOOR, SUPPORT_ROWS
from glassfleet.simulation import counted_rows, federated
from lab.audit.journal import Transcript, conduct, may_lose, transcript_of
from lab.audit.model import Shadowed, model_alone, shadowed
from lab.audit.options import LeakageOptions
from lab.audit.report import AttackLine, protection_of, truth
from lab.audit.report import audit as attack
from lab.audit.transcript import Opened
from lab.experiments.rows import source_of
from schemas.errors import DataError, NotFoundError, UsageError
from schemas.leakage import SavedModel

LAST = "last"

HELD_OUT = 0.2
"""Share of a file's rows that no vehicle is dealt: the others that membership is measured with."""

Measured = tuple[dict[str, Any], list[AttackLine], list[SavedModel]]
"""What it was measured on, what attacks came to, and what the models alone tell."""


def of_run(options: LeakageOptions) -> Measured:
    """Attack what the vehicles of a run sent; raises DataError where the rows given are not theirs."""
    run, transcript = _read_transcript(options)
    state, domain = transcript.state, transcript.state.domain
    opened = [each for each in transcript.answers if each.task.scheme == state.spec.scheme]
    if domain is None or not opened:
        raise NotFoundError(f"run {run!r}: no vehicle answered a question about its rows, so nothing was told")
    scheme = catalogue.load(state.spec.scheme)
    protection = protection_of(scheme, state.parameters, state.nullified, private=state.spec.private is not None)
    agents = sorted(frozenset().union(*(each.members for each in opened)))
    files = dict(vehicle_files(options.data))
    if missing := [agent for agent in agents if agent not in files]:
        raise DataError(f"--data {options.data} has no file of {', '.join(missing[:5])}: {missing[0]}.csv, .csv.gz ...")
    target = domain.target_name
    fleet = {
        agent: source_of(files[agent], target, scheme, labels=domain.target is None, hold_back=True) for agent in agents
    }
    _check_same(transcript, protection, {agent: each.train for agent, each in fleet.items()})
    rows = {agent: counted_rows(each.train, domain, state.max_rows_each) for agent, each in fleet.items()}
    lines = attack(protection, opened, {agent: truth(domain, data) for agent, data in rows.items()})
    models = []
    if state.model is not None:
        others = pool([counted_rows(each.test, domain, 0) for each in fleet.values()])
        models.append(model_alone(state.model, pool([rows[agent] for agent in state.cohort]), others, protection))
    count = sum(data.rows for data in rows.values())
    document = {"run": run, "scheme": scheme.name, "vehicles": len(agents), "rows": count, "left_out": {}}
    return document, lines, models


def _read_transcript(options: LeakageOptions) -> tuple[str, Transcript]:
    url = options.journal or f"sqlite:///{options.state_dir / 'journal.sqlite'}"
    known = runs(url)
    run = known[-1] if options.run_id == LAST and known and LAST not in known else str(options.run_id)
    transcript = transcript_of(Engine(fleet=options.fleet), entries(url, run))
    if transcript is None:
        named = f"it has events of {', '.join(known[:-6:-1])}" if known else "it has events of no run"
        raise NotFoundError(f"the journal has no events of run {run!r}; {named}. They go records_days after its end")
    return run, transcript


def _check_same(transcript: Transcript, protection: str, rows: Mapping[str, Dataset]) -> None:
    """Raise DataError unless these are the rows that the vehicles answered from, as far as that can be told.

    Their numbers can; and answers that need no secret, about limits or from rows as they are, are computed again.
    """
    way_out = "give the rows as they were when the run began"
    private = transcript.state.spec.private is not None
    for agent, (count, _) in sorted(transcript.state.frozen.items()):
        most = transcript.state.max_rows_each or count
        if not private and agent in rows and min(count, most) != min(rows[agent].rows, most):
            raise DataError(f"{agent} answered from {count} rows, --data has {rows[agent].rows} of it: {way_out}")
    unknown = set(rows)
    for each in transcript.answers:
        is_asked = each.task.scheme == DOMAIN or (
            (private or protection == "exact") and each.task.scheme == transcript.state.spec.scheme
        )
        if not is_asked or not each.members <= rows.keys() or unknown.isdisjoint(each.members):
            continue
        unknown -= each.members
        who = ", ".join(sorted(each.members)[:5])
        try:
            parts = [answer(each.task, rows[agent], b"")["contribution"]["sums"] for agent in each.members]
        except TaskError as fault:
            raise DataError(f"the rows of {who} in --data cannot answer what was answered ({fault})") from fault
        for name, array in each.sums.items():
            if not np.array_equal(sum(part[name] for part in parts), array):
                raise DataError(f"the rows of {who} in --data have other values than those of the answers: {way_out}")


def simulated(options: LeakageOptions) -> Measured:
    """Attack what simulated vehicles send, with the parameters as given, with rows as they are, and privately."""
    scheme = catalogue.load(str(options.scheme))
    parameters = checked_parameters(scheme, parse_parameters(options.pairs))
    fleet = _fleet(options, scheme)
    rows = {agent: each.train for agent, each in fleet.items()}
    one = next(iter(rows.values()))
    domain = discover(discovery_of(one.features, one.target, {}, scheme), list(rows.values()))
    true = {agent: truth(domain, data) for agent, data in rows.items()}
    others = pool([vehicle.test for vehicle in fleet.values()])
    lines: list[AttackLine] = []
    models = []
    rounds = 0
    for each in dict.fromkeys((parameters, scheme.exact(parameters))):
        opened: list[Opened] = []

        def listen(task: Any, answer: Any, opened: list[Opened] = opened) -> None:
            opened.append(Opened(task, frozenset({answer.agent}), answer.sums))

        outcome = federated(scheme, each, domain, rows, listen=listen)
        rounds = outcome.rounds
        protection = protection_of(scheme, each, outcome.nullified)
        lines += attack(protection, opened, true)
        models.append(model_alone(outcome.model, pool(list(rows.values())), others, protection))
    ways, left_out = _private_ways(scheme, parameters, len(rows))
    for each in ways:
        # One vehicle is lost as late as the course with exact sums is sure to last: what the two editions that answer
        # differ by is attacked, too.
        lose_after = rounds - 1 if may_lose(len(rows)) else None
        protection = protection_of(scheme, each, 0, private=True)
        try:
            opened, private = conduct(scheme, each, domain, rows, lose_after)
        except UsageError as fault:  # not of such columns
            left_out[protection] = str(fault)
            continue
        lines += attack(protection, opened, true)
        cohort = pool([rows[agent] for agent in private.cohort])
        models.append(model_alone(private.model, cohort, others, protection))
    count = sum(data.rows for data in rows.values())
    document = {"run": "", "scheme": scheme.name, "vehicles": len(rows), "rows": count, "left_out": left_out}
    return document, lines, models


def shadows(options: LeakageOptions) -> dict[str, Shadowed]:
    """Attack models of halves of all rows, by protection."""
    scheme = catalogue.load(str(options.scheme))
    parameters = checked_parameters(scheme, parse_parameters(options.pairs))
    fleet = {agent: pool([each.train, each.test]) for agent, each in _fleet(options, scheme).items()}
    every, one = pool(list(fleet.values())), next(iter(fleet.values()))
    domain = discover(discovery_of(one.features, one.target, {}, scheme), list(fleet.values()))
    ends = np.cumsum([each.rows for each in fleet.values()])[:-1]
    found = {}
    for each in dict.fromkeys(
        (parameters, scheme.exact(parameters), *_private_ways(scheme, parameters, len(fleet))[0])
    ):

        def learn(mask: Any, each: Any = each) -> Model:
            parts = zip(fleet.items(), np.split(mask, ends), strict=True)
            halves = {agent: data.at(np.flatnonzero(own)) for (agent, data), own in parts}
            model: Model = federated(scheme, each, domain, halves).model
            return model

        private = bool(getattr(each, "support", 0))
        found[protection_of(scheme, each, 0, private=private)] = shadowed(learn, every, int(options.shadows or 0))
    return found


def _private_ways(scheme: Scheme, parameters: Any, vehicles: int) -> tuple[list[Any], dict[str, str]]:
    """Return the parameters of private runs, without and with support, and why there is none of some protection."""
    if vehicles < LEAST_FLOOR:
        return [], {"private": f"{LEAST_FLOOR} vehicles are needed, these are {vehicles}"}
    try:
        given = private_parameters(scheme, parameters)
    except UsageError as fault:
        return [], {"private": str(fault)}
    most = getattr(given, "support", 0) or SUPPORT_ROWS
    if "support" not in scheme.Parameters.model_fields:
        return [given], {f"private, support {most}": f"not supported: {scheme.name} has no parameter of this name"}
    ways, left_out = [], {}
    for least in (0, most):
        try:
            ways.append(private_parameters(scheme, parameters, least))
        except UsageError as fault:
            left_out[f"private, support {least}"] = str(fault)
    return ways, left_out


def _fleet(options: LeakageOptions, scheme: Scheme) -> dict[str, Source]:
    if options.vehicles is None:
        files = vehicle_files(options.data)
        return {agent: source_of(path, options.target, scheme, hold_back=True) for agent, path in files}
    data = source_of(options.data, options.target, scheme).train
    order = np.random.default_rng(0).permutation(data.rows)
    cut = int(data.rows * (1 - HELD_OUT))
    if cut < options.vehicles:
        raise DataError(f"{options.data}: {data.rows} rows are too few for {options.vehicles} vehicles")

    parts = [data.at(places) for places in np.array_split(order[:cut], options.vehicles)]
    held = [data.at(order[cut:]), *(data.at(order[:0]) for _ in parts[1:])]
    return {f"v{number:03d}": Source(*each) for number, each in enumerate(zip(parts, held, strict=True))}
