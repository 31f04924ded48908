"""``glassfleet lab papers``: the report's parts, and that an interrupted report goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from scipy import stats

from console.progress import Work
from lab.papers.command import papers
from lab.papers.frbc import Spread, rules_of
from lab.papers.jobs import Job, results_of
from lab.papers.page import (
    Cell,
    Picture,
    Report,
    Section,
    Table,
    Text,
    as_html,
    as_markdown,
    number,
    wilcoxon,
    write_report,
)
from schemas.errors import RunFailedError

pytest.importorskip("sklearn", reason="pip install glassfleet[experiments]")

PNG = b"\x89PNG\r\n\x1a\n"


# --- the page ---------------------------------------------------------------------------------------------------------


def test_report_says_how_many_printed_values_come_out_and_names_the_others() -> None:
    table = Table("t", ["set", "a", "b"], [["x", number(1.0, 1.0), number(2.0, 3.0)], ["y", "-", number(5.0)]])
    few = Table("u", ["set", "a"], [["x", number(1.0, 9.0)]], counted=False)
    report = Report({"paper": [Section("k", "Table 1", [table, few])]})
    assert report.verdicts() == (1, ["Table 1: x, b: 2.00 here, 3.00 printed"])
    for page in (as_markdown(report), as_html(report)):
        assert "1 of 2 printed values come out to the digit; 1 differ" in page


def test_pages_hold_pictures_tables_and_escaped_words(tmp_path: Path) -> None:
    blocks: list[Text | Table | Picture] = [
        Text("use `x` < y & z"),
        Table("t", ["a", "b|c"], [["p|q", Cell("1", "2")]]),
        Picture("dot", "a <b>", PNG),
    ]
    write_report(Report({"paper": [Section("k", "Table 1", blocks)]}, ["a note"]), tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert "use <code>x</code> &lt; y &amp; z" in page
    assert "data:image/png;base64,iVBORw0KGgo=" in page
    assert 'alt="a &lt;b&gt;"' in page
    assert "src=" in page
    assert 'src="http' not in page
    text = (tmp_path / "report.md").read_text()
    assert "![a <b>](pictures/dot.png)" in text
    assert "p\\|q" in text
    assert (tmp_path / "pictures" / "dot.png").read_bytes() == PNG


def test_wilcoxon_is_that_of_scipy_and_knows_equal_samples() -> None:
    rng = np.random.default_rng(0)
    first = rng.normal(size=25)
    second = first + rng.normal(0.4, 0.5, 25)
    plus, minus, p = wilcoxon(first.tolist(), second.tolist())
    reference: Any = stats.wilcoxon(first, second)
    assert p == reference.pvalue
    assert min(plus, minus) == reference.statistic
    assert plus + minus == 25 * 26 / 2
    assert wilcoxon([1.0, 2.0], [1.0, 2.0]) == (0.0, 0.0, 1.0)


# --- computing --------------------------------------------------------------------------------------------------------


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rng = np.random.default_rng(5)
    X = rng.uniform(0, 10, (150, 3))
    y = X[:, 0] * 2 + np.where(X[:, 1] > 5, X[:, 2], 0)
    lines = [",".join(f"{value:.6f}" for value in row) for row in np.column_stack([X, y])]
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "table.csv").write_text("a,b,c,y\n" + "\n".join(lines) + "\n")
    return folder


def jobs_of(count: int, **more: Any) -> list[Job]:
    some = {"scheme": "frt", "file": "table.csv", "settings": ["federated"], "clients": 3, **more}
    return [Job("fold", {"fold": fold, **some}) for fold in range(count)]


class LoggedWork(Work):
    def __init__(self) -> None:
        super().__init__("computing", silence=1e9)
        self.lines: list[str] = []

    def say(self, line: str, *, out: bool = False) -> None:
        assert not out
        self.lines.append(line)


def test_results_are_kept_and_only_missing_ones_are_computed(data: Path, tmp_path: Path) -> None:
    work = LoggedWork()
    lines = work.lines

    def results(count: int) -> Any:
        lines.clear()
        return results_of(jobs_of(count), data, tmp_path / "kept", processes=1, work=work)

    first = results(2)
    assert [line.partition(",")[0] for line in lines] == ["[1/2] fold: fold 0", "[2/2] fold: fold 1"]
    more = results(3)
    assert lines[0] == "2 of 3 results are there from before"
    assert len(lines) == 2
    assert {label: more[label] for label in first} == first
    (kept, *_) = (tmp_path / "kept").iterdir()
    kept.write_text('{"cut short')
    assert results(3).keys() == more.keys()
    assert len(lines) == 2


def test_failing_job_is_named_and_what_was_done_is_kept(data: Path, tmp_path: Path) -> None:
    (bad,) = jobs_of(1, clients=1000)
    for processes in (1, 2):
        kept = tmp_path / f"kept{processes}"
        with pytest.raises(RunFailedError, match="clients 1000"):
            results_of([*jobs_of(1), bad], data, kept, processes=processes, work=LoggedWork())
    assert len(list((tmp_path / "kept1").iterdir())) == 1


@pytest.mark.timeout(300)
def test_command_makes_a_report_with_the_published_digits(glassfleet_data: Path, tmp_path: Path) -> None:
    data, out = tmp_path / "data", tmp_path / "out"
    data.mkdir()
    (data / "weather_izmir.csv.gz").symlink_to(glassfleet_data / "weather_izmir.csv.gz")
    arguments = ["frt-accuracy", "frt-size", "frbc-1", "--data-dir", str(data), "--out", str(out), "--jobs", "1"]
    result = CliRunner().invoke(papers, arguments)
    assert result.exit_code == 0, result.output
    assert "frbc-1 is left out" in result.stderr
    assert result.stdout.splitlines() == [str(out / "report.md"), str(out / "report.html")]
    text = (out / "report.md").read_text()
    # Accuracy (7) and size (4); client 4 is known to come out as 1.35.
    assert "10 of 11 printed values come out to the digit; 1 differ:" in text
    assert "weather_izmir, FL client 4: 1.35 here, 1.36 printed" in text
    again = CliRunner().invoke(papers, arguments)
    assert "from before" in again.stderr
    assert "[1/" not in again.stderr
    assert (out / "report.md").read_text() == text
    assert all(json.loads(path.read_text()) for path in (out / "results").iterdir())


def test_rules_of_a_single_fold_do_not_spread() -> None:
    assert rules_of([{"federated": {"sizes": [{"rules": 7}]}}]) == {"FL": Spread(7.0, 0.0)}
