"""The genetic-algorithm paper: personal trees against local ones (Figures 3, 6, 7, 8, 10)."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean, median
from typing import Any

from glassfleet.contract import catalogue
from lab.papers import plots
from lab.papers.jobs import Arguments, Chapter, Job, Results, file_of, present
from lab.papers.page import Blocks, Picture, Table, Text

PAPER = "Personal trees by a genetic algorithm (FedGA)"

CLASSIFICATION = ("adult", "compas", "nursery", "magic")
REGRESSION = ("abalone", "wine_quality")
CURVES = ("compas", "abalone")
"""Sets that the generations and the participation are shown on."""

GENERATIONS = (0, 5, 10, 25, 50, 100)
SHARES = (1.0, 0.5, 0.25, 0.1)
TITLES = {"fedga": "FedGA", "dp_tree": "IBM tree"}
NOISES = {"": "FedGA", "paper": "IBM tree, the paper's noise (not private)", "local": "IBM tree, private at each agent"}
"""Line of the table by noise; FedGA has none."""


def _splits(full: bool) -> int:
    return 10 if full else 3


def _label(scheme: str, name: str, split: int, what: str = "") -> str:
    return f"{TITLES[scheme]} {name}{f', {what}' if what else ''}, split {split + 1}"


def _job(scheme: str, name: str, split: int, what: str, arguments: Arguments) -> Job:
    whole = {"scheme": scheme, "file": file_of(name), "split": split, "classes": name in CLASSIFICATION, **arguments}
    return Job("fedga", _label(scheme, name, split, what), whole, (file_of(name),))


def _jobs_of(names: tuple[str, ...], *noises: str) -> Any:
    def jobs(data: Path, full: bool) -> list[Job]:
        result = []
        for noise in ("", *noises):
            scheme = "dp_tree" if noise else "fedga"
            more: Arguments = {"parameters": {"noise": noise}} if noise else {}
            if scheme not in catalogue.names():
                continue
            for name in present(data, names):
                result += [_job(scheme, name, split, noise, more) for split in range(_splits(full))]
        return result

    return jobs


def _of(results: Results, scheme: str, name: str, what: str = "") -> list[Any]:
    return [results[label] for split in range(10) if (label := _label(scheme, name, split, what)) in results]


def _deltas(result: list[Any]) -> list[float]:
    return [delta for split in result for delta in split["deltas"]]


def _scores(result: list[Any], *, larger: bool) -> list[str]:
    """Return mean and median delta, share of the agents that are better (`larger`: by a larger score), and scores."""
    deltas = _deltas(result)
    return [
        f"{fmean(deltas):+.2f}",
        f"{median(deltas):+.2f}",
        f"{fmean((delta > 0) == larger and delta != 0 for delta in deltas):.0%}",
        *(f"{fmean(fmean(split[kind]) for split in result):.4f}" for kind in ("federated", "local")),
        f"{fmean(split['constant'] for split in result):.4f}",
    ]


def _classification(results: Results, data: Path) -> Blocks:
    rows, groups = [], {}
    for noise, title in NOISES.items():
        scheme = "dp_tree" if noise else "fedga"
        series = {
            name: result for name in present(data, CLASSIFICATION) if (result := _of(results, scheme, name, noise))
        }
        if not series:
            continue
        groups[title] = {name: _deltas(result) for name, result in series.items()}
        for name, result in series.items():
            rows.append(
                [
                    f"{title}, {name}",
                    *_scores(result, larger=True),
                    f"{fmean(fmean(split['macro']['federated']) for split in result):.4f}",
                    f"{fmean(fmean(split['macro']['local']) for split in result):.4f}",
                ]
            )
    header = ["set", "mean delta %", "median", "agents better", "F1", "F1 local", "F1 constant", "macro", "macro local"]
    sums = [
        f"{title}: {fmean(fmean(line) for line in series.values()):+.2f} %, "
        f"{fmean(delta > 0 for line in series.values() for delta in line):.0%} of the agents better"
        for title, series in groups.items()
    ]
    words = "Delta of F1 in percent, an agent and split a dot: right of the line the federated tree is better"
    return [
        Text(
            "20 agents, a common test set of 10 %, delta = (federated / local - 1) · 100 of the F1 of class 1 "
            "(more than two classes: the mean over classes). The paper: FedGA +5.58 over 14 sets, 75 % of "
            "the agents better, nursery negative; IBM tree -2.58, 31 %. The constant answer's F1 stands beside: on "
            "balanced data `always 1` scores 0.667."
        ),
        Picture("fedga-classification", words, plots.spreads(groups, "delta of F1 in %")),
        Table("Means over splits and agents", header, rows),
        Text(f"Mean over the sets here. {'; '.join(sums)}."),
        Text(
            "The IBM tree can beat local trees on one set and still lose on average: it grows from the counts of "
            "all agents, twenty times as many rows as a local tree has, and with the paper's noise little of that "
            "is hidden. It loses where five bins and depth 6 are too coarse. Its deltas depend on the draw of the "
            "noise: on compas by several percent. The magic of this folder is the whole, unbalanced set."
        ),
    ]


def _regression(results: Results, data: Path) -> Blocks:
    rows, series = [], {}
    for name in present(data, REGRESSION):
        result = _of(results, "fedga", name)
        series[name] = _deltas(result)
        rows.append([name, *_scores(result, larger=False)])
    header = ["set", "mean delta %", "median", "agents better", "RMSE", "RMSE local", "RMSE constant"]
    words = "Delta of the RMSE in percent, an agent and split a dot: left of the line the federated tree is better"
    return [
        Text("The paper: better in 10 of 14 sets. Below zero is better here: the score is an error."),
        Picture("fedga-regression", words, plots.spreads({"FedGA": series}, "delta of the RMSE in %")),
        Table("Means over splits and agents", header, rows),
    ]


def _sizes(results: Results, data: Path) -> Blocks:
    rows = []
    for name in present(data, (*CLASSIFICATION, *REGRESSION)):
        result = _of(results, "fedga", name)
        own, alone = (fmean(split["nodes"][kind] for split in result) for kind in ("federated", "local"))
        rows.append([name, f"{own:.1f}", f"{alone:.1f}", f"{own / alone - 1:+.0%}"])
    return [
        Text("The paper: the federated trees are smaller than the local ones."),
        Table("Mean number of nodes", ["set", "federated", "local", "difference"], rows),
    ]


def _curve_jobs(key: str, values: tuple[float, ...]) -> Any:
    def jobs(data: Path, full: bool) -> list[Job]:
        result = []
        for name in present(data, CURVES):
            for value in values:
                of_generations: Arguments = {"parameters": {"generations": int(value)}}
                more: Arguments = of_generations if key == "generations" else {"participation": value}
                result += [_job("fedga", name, split, f"{key} {value:g}", more) for split in range(_splits(full))]
        return result

    return jobs


def _curve(key: str, values: tuple[float, ...], words: str) -> Any:
    def make(results: Results, data: Path) -> Blocks:
        series: dict[str, tuple[list[float], list[float]]] = {}
        rows = []
        for name in present(data, CURVES):
            means = [fmean(_deltas(_of(results, "fedga", name, f"{key} {value:g}"))) for value in values]
            # An error that falls is better: turned, so that up is better for both.
            sign, score = (1.0, "F1") if name in CLASSIFICATION else (-1.0, "RMSE, sign turned")
            series[f"{name} ({score})"] = list(values), [sign * mean for mean in means]
            rows.append([f"{name} ({score})", *(f"{sign * mean:+.2f}" for mean in means)])
        picture = plots.curves(series, key, "delta in %, up is better")
        header = ["set", *(f"{value:g}" for value in values)]
        return [Picture(f"fedga-{key}", words, picture), Table(f"Mean delta in % by {key}", header, rows)]

    return make


_NEEDS, _ALL, _NEEDS_CURVES = (
    tuple(map(file_of, names)) for names in (CLASSIFICATION, (*CLASSIFICATION, *REGRESSION), CURVES)
)

CHAPTERS = (
    Chapter("fedga-classification", PAPER, "Figure 3: federated against local trees, classification",
            _jobs_of(CLASSIFICATION, "paper", "local"), _classification, _NEEDS, ("fedga-3",)),
    Chapter("fedga-regression", PAPER, "Figure 6: federated against local trees, regression",
            _jobs_of(REGRESSION), _regression, tuple(map(file_of, REGRESSION)), ("fedga-6",)),
    Chapter("fedga-size", PAPER, "Figure 7: size of the trees", _jobs_of((*CLASSIFICATION, *REGRESSION)), _sizes, _ALL,
            ("fedga-7",)),
    Chapter("fedga-generations", PAPER, "Figure 8: generations", _curve_jobs("generations", GENERATIONS),
            _curve("generations", GENERATIONS, "Mean delta against the number of generations"), _NEEDS_CURVES,
            ("fedga-8",)),
    Chapter("fedga-participation", PAPER, "Figure 10: part of the agents per generation",
            _curve_jobs("participation", SHARES),
            _curve("participation", SHARES, "Mean delta against the share of agents that answer a generation"),
            _NEEDS_CURVES, ("fedga-10",)),
)  # fmt: skip
