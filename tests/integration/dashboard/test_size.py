"""Large fleets and models: pages stay small and quick; every scheme has its pages, whatever its columns are called."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coordinator.fleet.directory import Fleet
from coordinator.http.dashboard import show
from coordinator.http.dashboard.growth import growing, growing_list, grown
from coordinator.http.dashboard.model_pages import _terms
from glassfleet import catalogue, local
from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain, Variable
from glassfleet.explain import ConditionView, FuzzySet, Partition
from glassfleet.export.svg.branches import grow, most_used, opened
from glassfleet.export.svg.rounds import answers, timeline
from glassfleet.export.svg.sets import memberships
from glassfleet.export.svg.text import number, size
from glassfleet.fuzzy.spans import span_condition
from glassfleet.outline import OutlineNode, outlined
from glassfleet.rules import Condition, Consequent, Rule
from glassfleet.scheme import Done, Next
from schemas.messages import AgentState, Evaluation
from tests.support.coordinator_http import EVIL, births, publish, served

VEHICLES = 500


def dataset(names: tuple[str, ...], *, labels: bool, rows: int = 600) -> Dataset:
    rng = np.random.default_rng(5)
    X = rng.random((rows, len(names)))
    y: Any = X[:, 0] + np.sin(5 * X[:, 1]) * X[:, -1]
    if labels:
        y = np.where(y > np.median(y), EVIL[:60], "Poor")
    return Dataset(names, "quality <b>", X, y)


def domain_of(data: Dataset, *, labels: bool) -> Domain:
    features = tuple(Variable(name=name, low=0, high=1, unit="<i>") for name in data.features)
    if labels:
        return Domain(features=features, label=data.target, classes=tuple(sorted(set(data.y.tolist()))))
    return Domain(features=features, target=Variable(name=data.target, low=0, high=2, unit="<u>"))


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Five hundred vehicles with scores, and a tree of more than two hundred rules."""
    scheme = catalogue.load("frt")
    data = dataset(tuple(f"column_{number}" for number in range(20)), labels=False, rows=4000)
    parameters = scheme.Parameters.model_validate({"max_depth": 4, "min_samples_fraction": 0.005})
    model = local.central(scheme, parameters, domain_of(data, labels=False), data).model
    with served(tmp_path_factory.mktemp("large")) as (service, client):
        births(service, VEHICLES)
        record = publish(service, model, "large", [f"vehicle-{number:04d}" for number in range(VEHICLES)])
        for number in range(VEHICLES):
            scores = Evaluation(
                name="large",
                version=1,
                digest=record.digest,
                metric="rmse",
                federated=0.2 + number / 5000,
                local=0.3,
                rows=100,
            )
            service.coordinator.fleet.evaluated(f"vehicle-{number:04d}", scores)
        yield service, client, model


@pytest.mark.parametrize(
    ("address", "most"),
    [
        ("/", 90_000),
        ("/?page=10", 90_000),
        ("/models/large", 130_000),
        ("/models/large/1?page=3&s=20", 130_000),
        ("/models/large/1/forecast", 130_000),
    ],
)
def test_page_of_a_large_fleet_and_model_stays_small(
    large: Any, capsys: pytest.CaptureFixture[str], address: str, most: int
) -> None:
    _, client, model = large
    assert len(model.rules()) >= 200
    begun = time.perf_counter()
    answer = client.get(address)
    took = time.perf_counter() - begun
    again = time.perf_counter()
    client.get(address)
    with capsys.disabled():
        print(
            f"\n{address}: {len(answer.content)} bytes; first {1000 * took:.0f} ms, then "
            f"{1000 * (time.perf_counter() - again):.0f} ms; {len(model.rules())} rules, {VEHICLES} vehicles"
        )
    assert answer.status_code == 200
    assert len(answer.content) < most


def test_fleet_pages_hold_every_vehicle_once(large: Any) -> None:
    _, client, _ = large
    found: list[str] = []
    for page in range(1, 11):
        text = client.get("/", params={"page": page}).text
        found += [part.split("</th>")[0] for part in text.split('scope="row" class="id">')[1:]]
    assert found == [f"vehicle-{number:04d}" for number in range(VEHICLES)]
    assert "Page 10 of 10" in client.get("/", params={"page": 999}).text
    assert client.get("/", params={"page": "x"}).status_code == 422


def test_rule_pages_hold_every_rule_once(large: Any) -> None:
    _, client, model = large
    found: set[int] = set()
    count = 0
    for page in range(1, 2 + len(model.rules()) // 25):
        text = client.get("/models/large/1", params={"page": page}).text
        indices = [int(part.split('"')[0]) for part in text.split('<li id="rule-')[1:]]
        found |= set(indices)
        count += len(indices)
    assert count == len(found) == len(model.rules())


@pytest.mark.parametrize("name", catalogue.names())
def test_every_scheme_has_its_pages_and_hostile_columns_stay_texts(name: str, tmp_path: Path) -> None:
    scheme = catalogue.load(name)
    labels = "regression" not in scheme.purpose
    data = dataset((EVIL, "b & c", "d'\"/", "é"), labels=labels)
    parameters = getattr(scheme, "trial", None) or scheme.Parameters()
    domain = domain_of(data, labels=labels)
    model = local.federated(scheme, parameters, domain, {"a": data}).model
    with served(tmp_path) as (service, client):
        record = publish(service, model, "m", ["a"])
        publish(service, model, "m", ["a"])
        texts = [
            client.get(address)
            for address in (
                "/models",
                "/models/m",
                "/models/m/1/forecast",
                "/models/m/1/against/1",
                "/models/m/1?branch=0",
            )
        ]
        row = {variable.name: 0.4 for variable in domain.features}
        told = client.post("/api/models/m/explain", json={"row": row})
        other = client.post("/api/models/m/counterfactual", json={"row": row})
        summed = client.get("/api/models/m/summary")
    assert [each.status_code for each in (*texts, told, other, summed)] == [200] * 8
    for each in texts:
        assert EVIL not in each.text
        assert '<b>"' not in each.text
    assert "&lt;script&gt;" in texts[1].text
    assert summed.json()["digest"] == record.digest
    predicted = model.predict(np.full((1, 4), 0.4))[0]
    assert told.json()["prediction"] == (str(predicted) if labels else pytest.approx(float(predicted), abs=0))
    if told.json()["shares"] and not labels and name != "fedga":
        body = told.json()
        assert sum(body["shares"].values()) + body["base"] == pytest.approx(body["prediction"])


@pytest.mark.parametrize(
    ("name", "changes", "participation", "words"),
    [
        ("frt", {"nullify": False, "min_rows": 1}, "cohort", ""),
        ("frt", {"nullify": False, "min_rows": 1}, "elastic", "the run was elastic"),
        ("frt", {"nullify": True, "min_rows": 5}, "cohort", "central model of condensed rows"),
        ("tsk", {"nullify": False, "min_rows": 1, "antecedents": "local"}, "cohort", "tsk does not promise it"),
        ("dp_tree", {}, "elastic", "dp_tree does not promise it"),
    ],
)
def test_central_score_is_claimed_only_where_equality_is_promised(
    name: str, changes: dict[str, Any], participation: str, words: str, tmp_path: Path
) -> None:
    scheme = catalogue.load(name)
    labels = "regression" not in scheme.purpose
    data = dataset(("a", "b"), labels=labels, rows=300)
    parameters = scheme.Parameters.model_validate(changes)
    model = local.federated(scheme, parameters, domain_of(data, labels=labels), {"a": data}).model
    with served(tmp_path) as (service, client):
        births(service, 1)
        record = publish(service, model, "m", ["a"], participation)
        metric = "f1" if labels else "rmse"
        scores: dict[str, Any] = {"metric": metric, "federated": 0.123, "local": 0.456, "rows": 10}
        service.coordinator.fleet.evaluated(
            "vehicle-0000", Evaluation(name="m", version=1, digest=record.digest, **scores)
        )
        text = client.get("/models/m").text
    assert ("so CL is FL" in text) == (not words)
    assert text.count("0.123</td>") == (1 if words else 2)
    assert words in text


def test_run_page_tells_who_missed_single_rounds_and_who_answered_all() -> None:
    row = {"phase": "domain", "number": 1, "asked": 2, "accepted": 1, "late": 0}
    missed = {**row, "dropped_agents": {"v2": "went down"}, "late_agents": []}
    whole = {**row, "phase": "statistics", "accepted": 2, "dropped_agents": {}, "late_agents": []}
    member = {"status": "member", "reason": ""}
    document = {"rounds": [missed, whole], "agents": {"v1": member, "v2": member}}
    assert show.absences(document) == [("v2", "domain 1")]
    assert not show.all_answered(document)
    assert show.all_answered({"rounds": [whole], "agents": {}})
    assert not show.all_answered({"rounds": [], "agents": {}})
    lost = {**document, "agents": {"v1": member, "v2": {"status": "lost", "reason": "went down"}}}
    assert show.absences(lost) == []
    assert show.trouble(lost) == [("v2", "lost", "went down")]


@pytest.mark.parametrize(
    ("born", "since"), [(1.7e9 - 400, 1.7e9 - 400), (0.0, 1.7e9), (12.5, 1.7e9), (2e9, 1.7e9), (float("nan"), 1.7e9)]
)
def test_vehicle_met_while_up_counts_since_its_process_began(born: float, since: float) -> None:
    body = AgentState(status="up", incarnation="1", software="s", schemes=["frt"], features=["a"], target="b")
    fleet = Fleet(lambda: 1.7e9)
    fleet.up("v", body, born)
    assert fleet.document()[0]["since"] == since


def rule(index: int, support: float, *parts: str) -> Rule:
    conditions = tuple(Condition(part[0], part[1:], 0, 1, 0.5) for part in parts)
    return Rule(index, conditions, Consequent("t", index), 1, support, 1)


RULES = (rule(0, 0.1, "aLow"), rule(1, 0.2, "aHigh", "bLow"), rule(2, 0.5, "aHigh", "bHigh", "cLow"), rule(3, 0.2))


def test_rules_that_begin_alike_share_a_branch() -> None:
    root = grow(RULES)
    assert (root.count, root.feature, [child.count for child in root.children]) == (4, "a", [1, 2])
    assert root.rules == [RULES[3]]
    high = root.children[1]
    assert (high.key, high.feature) == ("1", "b")
    assert high.support == pytest.approx(0.7)
    assert [branch.key for branch in opened(root, "1.1")] == ["", "1", "1.1"]
    assert [branch.key for branch in most_used(root)] == ["", "1", "1.1"]


@pytest.mark.parametrize("key", ["7", "1.x", "1..", "-1", "²", "0.0.0.0"])
def test_branch_that_does_not_exist_opens_as_far_as_it_does(key: str) -> None:
    assert len(opened(grow(RULES), key)) <= 2


@pytest.mark.parametrize(("first", "last"), [(0, 0), (0, 2), (1, 1), (1, 3), (2, 4), (4, 4), (0, 4)])
def test_run_of_sets_is_found_again_from_its_words(first: int, last: int) -> None:
    knots = (0.0, 0.2, 0.5, 0.7, 1.0)
    words = ("a", "b", "c", "d", "e")
    peaks = [10 * knot for knot in knots]
    sets = tuple(
        FuzzySet(term=words[j], low=peaks[max(j - 1, 0)], peak=peaks[j], high=peaks[min(j + 1, 4)]) for j in range(5)
    )
    partition = Partition(feature="x", unit="", low=0, high=10, sets=sets)
    variable = Variable(name="x", low=0, high=10, terms=words)
    part = ConditionView.of(span_condition(variable, knots, first, last))
    assert _terms(partition, part) == list(words[first : last + 1])
    text = memberships(partition, 3.5, _terms(partition, part))
    (line,) = re.findall(r'class="set on" points="([^"]*)"', text)
    drawn = dict(re.findall(r"([\d.]+),([\d.]+)", line))
    inside = {drawn[f"{8 + 32.4 * peak:.1f}"] for peak in peaks[first : last + 1]}
    assert inside == {"24.0"}, "fulfilled to the degree 1 all over the run"
    assert "at 3.5: b 0.50 and c 0.50" in text


def test_timeline_shows_all_rounds_of_a_long_run() -> None:
    row = {"phase": "statistics", "attempt": 1, "asked": 5, "accepted": 4, "late": 1, "dropped": 1, "rejected": 0}
    rounds = [{**row, "number": index, "seconds": 0.1, "bytes": 1000} for index in range(200)]
    text = timeline(rounds)
    assert text.count("<g>") == 200
    assert "200 rounds. The table" in text
    rounds += [{**row, "number": 200 + index, "seconds": 0.1, "bytes": 1000} for index in range(800)]
    text = timeline(rounds)
    assert "1000 rounds, 5 in a column" in text
    assert text.count("<g>") == 200
    assert "statistics 995 to statistics 999: 25 asked, 20 in, 5 late, 5 dropped, 0 rejected; 0.5 s, 4.9 KiB" in text
    assert len(text) < 160_000
    assert timeline(rounds, 296, 74).count("<g>") <= 74


def test_vehicle_that_was_dropped_and_answered_later_is_drawn_once() -> None:
    told = {"dropped_agents": {"v1": "deadline", "v2": "deadline"}, "late_agents": ["v2", "v3"]}
    row = {"phase": "domain", "attempt": 1, "asked": 6, "accepted": 3, "late": 2, "dropped": 2, "rejected": 0, **told}
    shares = dict(re.findall(r'class="k-(\w+)" x="[\d.]+" width="([\d.]+)"', answers(row)))
    assert shares == {"accepted": "60.0", "late": "40.0", "dropped": "20.0"}
    assert '">6</text>' in timeline([{**row, "number": 1, "seconds": 0.1, "bytes": 1000}])


def test_late_answers_of_those_who_were_not_asked_are_told_apart_so_that_no_more_answered_than_were_asked() -> None:
    asked = [f"v{number}" for number in range(3, 16)]
    row = {"phase": "domain", "number": 2, "attempt": 1, "asked": 13, "accepted": 13, "late": 2, "dropped": 0}
    row |= {"rejected": 0, "seconds": 0.1, "bytes": 1000, "asked_agents": asked, "late_agents": ["v1", "v2"]}
    assert 'aria-label="13 in of 13 asked, 2 late (2 not asked)"' in answers(row)
    assert "domain 2: 13 asked, 13 in, 2 late (2 not asked), 0 dropped, 0 rejected; 0.1 s" in timeline([row])
    late = {**row, "accepted": 12, "dropped": 1, "dropped_agents": {"v3": "deadline"}, "late_agents": ["v1", "v3"]}
    assert 'aria-label="12 in of 13 asked, 2 late (1 not asked), 1 dropped"' in answers(late)
    assert "2 late (1 not asked), 1 dropped" in timeline([late])
    assert 'aria-label="12 in of 13 asked, 1 dropped"' in answers({**late, "late": 0, "late_agents": []})


NODES = [
    OutlineNode(0),
    OutlineNode(1, "a is b", "Low"),
    OutlineNode(2, "c", "High", open=True),
    OutlineNode(2, "c", "Low", open=True),
    OutlineNode(1, "a is b", "High"),
]
TREE = {"outline": [asdict(node) for node in NODES], "more": 7}


def test_outline_is_a_tree_that_grows() -> None:
    found = grown(TREE)
    assert found.tree is not None
    assert found.rest == "7 more"
    assert (found.tree.counts, found.tree.feature, found.tree.leaves) == ((4, 2, 2), "a is b", 3)
    assert [child.key for child in found.tree.children] == ["0.0", "0.1"]
    text = growing(found.tree)
    assert text.count('class="box grows"') == 2
    assert "4 nodes below the root and 7 more, 2 levels; 2 may still grow" in growing(found.tree, found.rest)
    said = growing_list(found.tree)
    assert said.count("<li") == 5
    assert '<li class="grows">c is High <span class="quiet">may still grow</span></li>' in said
    over = grown(TREE, ended=True).tree
    assert over is not None
    assert "may still grow" not in growing(over) + growing_list(over)


@pytest.mark.parametrize(
    "lines",
    [[], ["a", "b"], ["IF a is Low", "OTHERWISE"], ["  deep", "deeper"], ["x: 1 to 2"], "text", None, [EVIL, 3]],
)
def test_lines_without_an_outline_stay_a_list(lines: Any) -> None:
    found = grown({"lines": lines})
    assert found.tree is None
    assert found.lines == ([str(line) for line in lines] if isinstance(lines, list) else [])
    assert grown({"outline": lines, "lines": lines}).lines == found.lines


def test_large_tree_that_grows_draws_quiet_siblings_as_one_box() -> None:
    terms = ("Low", "Medium", "High")
    nodes = [OutlineNode(0)]
    for first in range(20):
        nodes += [OutlineNode(1, EVIL, str(first)), *(OutlineNode(2, "b", term, term == "High") for term in terms)]
    tree = grown(outlined(nodes, len(nodes))).tree
    assert tree is not None
    text = growing(tree)
    assert text.count("<g ") == 1 + 20 * 3
    assert text.count(">2 leaves</text>") == 20
    assert "Low, Medium" in text
    assert EVIL not in text + growing_list(tree)


@pytest.mark.parametrize("name", catalogue.names())
def test_every_scheme_draws_what_grows(name: str) -> None:
    scheme = catalogue.load(name)
    labels = "regression" not in scheme.purpose
    data = dataset(("a", "b", "c"), labels=labels, rows=300)
    parameters = getattr(scheme, "trial", None) or scheme.Parameters()
    trees: list[int] = []
    step: Next | Done = scheme.server.start(parameters, domain_of(data, labels=labels), 0)
    for _ in range(200):
        if isinstance(step, Done):
            break
        found = grown(scheme.server.progress(step.state))
        if found.tree is not None:
            told = scheme.server.progress(step.state)
            trees.append(found.tree.counts[0])
            assert (told["nodes"], told["depth"]) == (found.tree.counts[0], found.tree.counts[2])
            assert growing(found.tree)
        step = scheme.server.reduce(step.state, [scheme.client.contribute(step.task, data, np.random.default_rng(0))])
    # fmt and fmt_classes take back what did not help on held-out rows.
    assert name in {"fmt", "fmt_classes"} or trees == sorted(trees)
    assert bool(trees) == (name in {"frt", "fmt", "fmt_classes", "bmt", "dp_tree"})


def test_numbers_are_told_shortly() -> None:
    assert (number(-0.5), number(12345), number(None), number("Good")) == ("−0.5", "12 345", "–", "Good")
    assert (size(900), size(25_000), size(5e9)) == ("900 B", "24.4 KiB", "4.7 GiB")
