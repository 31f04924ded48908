"""dp_tree in private runs: noise that only sums have, fresh for each edition, and a budget that losses are part of."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coordinator.specification.run import RunSpec
from edge_agent.session.private_rows import PrivateFiles
from edge_agent.sources import Source
from glassfleet.contract import catalogue
from glassfleet.contract.messages import Next, Task
from glassfleet.contract.scheme import private_parameters
from glassfleet.data.dataset import Dataset, pool
from glassfleet.data.domain import Domain, Variable
from glassfleet.errors import PrivacyError
from glassfleet.private.answering import Asked, accept, reply
from glassfleet.private.chain import Chain, meet
from glassfleet.private.groups import Announcement, Edition, Roster, Terms, parameters_digest
from glassfleet.private.layout import add, layout_of, question_digest
from glassfleet.private.masks import RunKey, pair_keys
from lab.schemes.dp_tree import DpTreeQuestion
from lab.schemes.dp_tree.growth import Growth
from lab.schemes.dp_tree.params import deviation
from schemas import codec
from schemas.errors import UsageError
from tests.support.memory_broker import Faults
from tests.support.simulation import Simulation

NAMES = tuple(f"v{number:02d}" for number in range(15))
DP_TREE: Any = catalogue.load("dp_tree")
FUELS = ("diesel", "gas", "petrol")
DOMAIN = Domain(
    features=(Variable(name="speed", low=0.0, high=1.0), Variable(name="fuel", low=0.0, high=2.0, categories=FUELS)),
    label="use",
    classes=("car", "van"),
)


pytestmark = pytest.mark.usefixtures("quiet_logs")


def rows_of(name: str) -> Dataset:
    rng = np.random.default_rng(NAMES.index(name))
    X = np.column_stack([rng.random(60), rng.integers(0, 3, 60)])
    y = np.where((X[:, 0] > 0.5) ^ (X[:, 1] == 2), "van", "car")
    return Dataset(("speed", "fuel"), "use", X, y, categories={"fuel": FUELS})


# --- one vehicle's rules ---------------------------------------------------------------------------------------------


class Group:
    """The members of one group, with their chains, and a coordinator that may ask them anything."""

    def __init__(self, **parameters: Any) -> None:
        self.parameters = private_parameters(DP_TREE, DP_TREE.Parameters(noise="aggregate", **parameters))
        terms = Terms("fleet", "run", "nonce", "dp_tree", parameters_digest(self.parameters))
        keys = {name: RunKey.generate() for name in NAMES}
        founders = tuple(Announcement(name, keys[name].public, "rows") for name in NAMES)
        self.roster = Roster(terms, 0, founders)
        self.chains: dict[str, Chain] = {
            name: meet(each, terms, self.roster) for name, each in zip(NAMES, founders, strict=True)
        }
        self.pairs = {name: pair_keys(keys[name], name, self.roster) for name in NAMES}

    def edition(self, number: int, without: int = 0) -> Edition:
        return Edition(self.roster, number, NAMES[without:])

    def accept(self, name: str, task: Task, edition: Edition) -> Asked:
        question = question_digest(edition, task.digest, layout_of(DP_TREE, task).digest)
        return accept(self.chains[name], DP_TREE, task, edition.number, edition.members, question)

    def ask(self, task: Task, edition: Edition, *, by_task: bool = False) -> Any:
        """Return the sums over an edition; `by_task`: with noise that knows the task alone, as it must not be."""
        words = []
        for name in edition.members:
            asked = self.accept(name, task, edition)
            seed = list(f"{name} {task.digest if by_task else asked.question}".encode())
            posed = task if by_task else asked.posed
            given = DP_TREE.client.contribute(posed, rows_of(name), np.random.default_rng(seed))
            self.chains[name], own = reply(asked, given, self.pairs[name])
            words.append(own)
        total = layout_of(DP_TREE, task).read(add(words), len(edition.members))
        DP_TREE.server.check(task, total)
        return replace(total, summed=edition.summed)

    def edges_task(self) -> tuple[Any, Task]:
        step = DP_TREE.server.start(self.parameters, DOMAIN, 0)
        hello = self.ask(replace(step.task, nonce="nonce"), self.edition(0))
        step = DP_TREE.server.reduce(step.state, [hello])
        assert isinstance(step, Next)
        return step.state, replace(step.task, nonce="nonce")


def counts(names: tuple[str, ...]) -> Any:
    """Return the true histogram of some vehicles' rows."""
    exact = DP_TREE.Parameters(noise="none")
    hello = DP_TREE.server.start(exact, DOMAIN, 0)
    answers = [DP_TREE.client.contribute(hello.task, rows_of(name), None) for name in names]
    edges = DP_TREE.server.reduce(hello.state, answers)
    rows = pool([rows_of(name) for name in names])
    return DP_TREE.client.contribute(edges.task, rows, np.random.default_rng(0)).sums["histogram"]


def test_difference_of_two_editions_has_the_noise_of_both() -> None:
    draws = []
    for _ in range(8):  # with the 128 draws of one group, one time in a hundred would be below
        group = Group(epsilon=0.5, losses=3)
        _, task = group.edges_task()
        before, after = (group.ask(task, each) for each in (group.edition(0), group.edition(1, without=3)))
        draws.append((before.sums["histogram"] - after.sums["histogram"]) - counts(NAMES[:3]))
    whole = deviation(DP_TREE.read(task).sums()["histogram"][1], "local", 1)
    assert np.std(draws) > 1.2 * whole  # sqrt(2) of it
    # The attack that it is against: what stays of shares that are the same in both editions is those of three.
    group = Group(epsilon=0.5, losses=3)
    before, after = (group.ask(task, each, by_task=True) for each in (group.edition(0), group.edition(1, without=3)))
    result = (before.sums["histogram"] - after.sums["histogram"]) - counts(NAMES[:3])
    assert result.std() < 0.8 * whole


def test_shares_are_for_the_members_of_an_edition_whatever_the_coordinator_says() -> None:
    group = Group()
    _, task = group.edges_task()
    lie = replace(task, body={**task.body, "agents": 1_000_000})
    for without, number in ((0, 0), (4, 1)):
        posed = group.accept("v14", lie, group.edition(number, without)).posed
        assert posed.body["agents"] == len(NAMES) - without  # of company 3 one may look on: the others suffice


def test_asking_again_costs_and_a_vehicle_answers_no_more_than_the_budget_has() -> None:
    group = Group(max_depth=1, losses=1, edge_share=0.5)
    state, task = group.edges_task()
    spent = DP_TREE.read(task).cost
    sums = group.ask(task, group.edition(0))
    assert [chain.spent for chain in group.chains.values()] == pytest.approx([spent] * len(NAMES))
    again = group.ask(task, group.edition(0))
    assert np.array_equal(again.sums["histogram"], sums.sums["histogram"])  # the same answer tells nothing new
    assert group.chains["v14"].spent == pytest.approx(spent)
    sums = group.ask(task, group.edition(1, without=3))
    assert group.chains["v14"].spent == pytest.approx(2 * spent)
    assert group.chains["v00"].spent == pytest.approx(spent)
    stored = codec.decode(codec.encode(group.chains["v14"].to_value()))
    assert Chain.from_value(stored).spent == group.chains["v14"].spent
    step = DP_TREE.server.reduce(state, [sums])
    level = replace(step.task, nonce="nonce")
    group.ask(level, group.edition(1, without=3))
    last = group.edition(2, without=6)
    group.ask(level, last)  # as dear as a level: the second loss is of one that was never asked
    assert group.chains["v14"].spent == pytest.approx(group.parameters.epsilon)
    group.ask(level, last)
    with pytest.raises(PrivacyError, match="budget-spent"):
        group.ask(replace(task, body={**task.body, "agents": 7}), last)
    with pytest.raises(PrivacyError, match="budget-spent"):
        group.ask(task, last)


def test_epsilon_of_a_run_is_divided_among_its_questions_and_the_losses() -> None:
    for losses in (0, 1, 3, 20):
        parameters = DP_TREE.Parameters(losses=losses, max_depth=4, edge_share=0.3)
        levels = [replace(Growth.root(), level=np.full(1, depth, dtype=np.int32)) for depth in range(5)]
        asked = [DpTreeQuestion("level", parameters, DOMAIN, 3, growth=growth) for growth in levels]
        costs = [each.cost for each in (DpTreeQuestion("edges", parameters, DOMAIN, 3), *asked)]
        assert sum(costs) + losses * max(costs) == pytest.approx(parameters.epsilon)
    assert private_parameters(DP_TREE, DP_TREE.Parameters()).losses == 3


# --- the fleet -------------------------------------------------------------------------------------------------------


SOURCES = {name: Source(rows_of(name), rows_of(name)) for name in NAMES}


def spec(scheme: str = "dp_tree", **changes: Any) -> RunSpec:
    return RunSpec.from_document(
        {
            "run": "r1",
            "scheme": scheme,
            "model": "m",
            "participation": "elastic" if scheme == "dp_tree" else "cohort",
            "domain": DOMAIN.to_document(),
            "private": {},
            "rounds": {"deadline": 5, "gather_agents": len(NAMES), "extensions": 2},
            **changes,
        }
    )


def fleet(folder: Path) -> Simulation:
    simulation = Simulation(SOURCES, folder, faults=Faults(delay=(0.05, 0.1)))
    simulation.begin(1.0)
    return simulation


def test_a_loss_asks_the_open_question_again_and_former_sums_stand(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spent: dict[str, float] = {}
    save = PrivateFiles.save

    def noted(self: PrivateFiles, run: str, met: Any) -> None:
        save(self, run, met)
        if met.chain is not None:
            spent[met.own.agent] = met.chain.spent

    monkeypatch.setattr(PrivateFiles, "save", noted)
    simulation = fleet(state_dir)
    simulation.start_run(spec(parameters={"noise": "aggregate", "epsilon": 200.0, "max_depth": 3}))
    coordinator = simulation.coordinator
    assert coordinator is not None
    while len(coordinator.runs.live["r1"].rounds) < 4:
        simulation.advance(0.05)
    for name in NAMES[:2]:
        simulation.kill_agent(name)
    document = simulation.run_until_ended("r1", within=200.0)
    assert document["outcome"] == "finished", document["reason"]
    asked = [(each["phase"], each["kind"], each["number"]) for each in document["rounds"]]
    again = [each for each in set(asked) if asked.count(each) > 1]
    assert len(again) == 1, "one question, once more"
    assert "candidate" in document["scores"], document["scores"]
    assert document["cohort"] == list(NAMES), "all were counted, two of them and their company not to the end"
    assert len([each for each in document["agents"].values() if each["status"] == "lost"]) == 3
    record = simulation.record("m")
    assert record.parameters["private"]["vehicles"] == 12
    summary = record.parameters["summary"] if "summary" in record.parameters else document["summary"]
    assert summary["epsilon_sum"] == 200.0
    assert summary["epsilon_spent"] == pytest.approx(max(spent.values()))
    assert summary["epsilon_spent"] <= 200.0
    rows = pool([rows_of(name) for name in NAMES])
    model = DP_TREE.from_document(record.document)
    assert float((model.predict(rows.X) == rows.y).mean()) > 0.9


@pytest.mark.parametrize(
    ("scheme", "parameters"),
    [
        ("dp_tree", {"noise": "none", "max_depth": 2}),
        ("frbc", {}),
        ("fedavg_mlp", {"rounds": 1, "epochs": 1}),
        ("tree", {"max_rules": 4}),
    ],
)
def test_declared_classes_and_categories_are_learned_from_in_private(
    state_dir: Path, scheme: str, parameters: dict[str, Any]
) -> None:
    domain = DOMAIN
    if scheme not in ("dp_tree", "tree"):  # numbers alone
        domain = DOMAIN.model_copy(update={"features": DOMAIN.features[:1]})
    simulation = fleet(state_dir)
    simulation.start_run(spec(scheme, parameters=parameters, domain=domain.to_document()))
    document = simulation.run_until_ended("r1", within=300.0)
    assert document["outcome"] == "finished", document["reason"]
    assert document["cohort"] == list(NAMES)


def test_what_is_no_sum_is_refused_before_anybody_is_asked_and_the_reason_says_what_to_do(state_dir: Path) -> None:
    simulation = fleet(state_dir)
    for scheme in ("dp_tree", "frbc"):
        with pytest.raises(UsageError, match="in the run's domain"):
            simulation.start_run(spec(scheme, domain=None))
    with pytest.raises(UsageError, match="fedga has no private runs"):
        simulation.start_run(spec("fedga", participation="elastic"))
    for own in ({"antecedents": "local"}, {"consequents": "averaged"}):
        with pytest.raises(UsageError, match='antecedents="federated"'):
            simulation.start_run(spec("tsk", parameters=own))
    with pytest.raises(UsageError, match="support goes with cohort participation"):
        simulation.start_run(spec("frt", participation="elastic", domain=None))
    with pytest.raises(UsageError, match="make it a private run"):
        simulation.start_run(spec(parameters={"noise": "aggregate"}, private=None))
    with pytest.raises(UsageError, match='noise="aggregate" or "local"'):
        simulation.start_run(spec(parameters={"noise": "paper"}))
    assert not simulation.coordinator.runs.live  # type: ignore[union-attr]


def test_more_colluders_are_allowed_for_where_company_is_larger() -> None:
    group = Group()
    terms = replace(group.roster.terms, company=5)
    assert replace(group.roster, terms=terms).first().summed.honest == len(NAMES) - 3
