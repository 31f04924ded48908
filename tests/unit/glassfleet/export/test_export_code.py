"""Exports as code forecast to the bit; the export command and MLflow."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from console.main import run
from glassfleet.contract import catalogue
from glassfleet.data.domain import Domain, Variable
from glassfleet.export.c_header import to_c
from glassfleet.export.python_file import to_python
from glassfleet.model.baseline import recorded
from glassfleet.model.forecasts import tell_forecasts
from glassfleet.model.intervals import errors_on, intervals
from lab.schemes.dp_tree import SCHEME as DP_TREE
from schemas.documents import document_digest
from schemas.errors import UsageError
from tests.support.agent_bench import record_of
from tests.support.sample_models import (
    GAPPY,
    KINDS,
    NAMES,
    TEXTUAL,
    TRIP,
    model,
    population,
    rows,
    texts,
    trips,
    wide_rows,
)

MAIN = """
#include "model.h"
#include <stdio.h>
int main(void)
{
    double x[4];
    int rule;
    while (scanf("%lf,%lf,%lf,%lf", x, x + 1, x + 2, x + 3) == 4) {
        KIND y = qoe_predict(x, &rule);
        printf("FORMAT,%d\\n", y, rule);
    }
    return 0;
}
"""


def _compiled(folder: Path, header: str, *more: str, classes: bool, main: str = MAIN) -> Path:
    (folder / "model.h").write_text(header, encoding="utf-8")
    main = main.replace("KIND", "int" if classes else "double").replace("FORMAT", "%d" if classes else "%a")
    (folder / "main.c").write_text(main, encoding="utf-8")
    program = folder / "program"
    flags = ["-std=c99", "-O2", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-pedantic", *more]
    subprocess.run(["gcc", *flags, "-o", program, folder / "main.c", "-lm"], check=True, capture_output=True, text=True)
    return program


def _extreme_rows(count: int) -> NDArray[np.float64]:
    largest, smallest = sys.float_info.max, 5e-324
    values = [0.0, -0.0, largest, -largest, smallest, -smallest, 1e308, 1e-17, 0.5, 1.0, 2.5, 5.0, 10.0, 50.0, 100.0]
    values += [math.nextafter(10.0, 11.0), math.nextafter(0.0, -1.0), math.nextafter(2.5, 0.0)]
    return np.random.default_rng(0).choice(values, (count, 4))


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("kind", [*KINDS, *TEXTUAL, *GAPPY])
def test_c_answers_as_the_model_to_the_bit_without_warnings_or_undefined_behaviour(kind: str, tmp_path: Path) -> None:
    learned = model(kind)
    classes = learned.domain.classes
    program = _compiled(tmp_path, to_c(learned, "qoe", "qoe v1"), "-fsanitize=undefined", classes=bool(classes))
    X = np.concatenate([wide_rows(4000), _extreme_rows(500)])
    if kind in (*TEXTUAL, *GAPPY):
        X = trips(4000, seed=1, gaps=kind in GAPPY, unknown=True)
    lines = [",".join(map(repr, row)) for row in X.tolist()]
    lines += ["nan,1,1,1", "1,inf,1,1", "1,1,1,-inf"]
    done = subprocess.run([program], input="\n".join(lines), capture_output=True, text=True, check=True)
    assert not done.stderr
    result = [line.split(",") for line in done.stdout.split()]
    answers = [classes[int(answer)] if classes else float.fromhex(answer) for answer, _ in result[:-3]]
    assert answers == learned.predict(X).tolist()
    assert [int(rule) for _, rule in result[:60]] == [learned.explain(row).fired.rule.index for row in X[:60]]
    # Not finite: nothing is answered.
    assert all(rule == "-1" for _, rule in result[-3:])
    assert all(answer == "-1" if classes else "nan" in answer for answer, _ in result[-3:])


@pytest.mark.needs("gcc")
def test_c_tells_the_interval_that_the_model_tells(tmp_path: Path) -> None:
    learned = catalogue.load("tree").from_document(model("tree").to_document())  # others use the sample as it is
    X = wide_rows(1500)
    # Far off one way: both ends are beyond a limit of the target for some rows.
    truth = learned.predict(X) + np.random.default_rng(1).normal(2.0, 0.5, len(X))
    lines = [{"rows": 0.1, "mean": 1.0, "low": 0.0, "high": 2.0}] * len(learned.rules())
    tell_forecasts(learned, recorded({"forecasts": {"rules": lines}}, errors_on(learned, X, truth)))
    tell = 'double low, high; qoe_interval(y, rule, &low, &high); printf("%a,%a\\n", low, high); if (0) '
    program = _compiled(tmp_path, to_c(learned, "qoe"), classes=False, main=MAIN.replace("printf", f"{tell}printf"))
    given = "\n".join(",".join(map(repr, row)) for row in [*X.tolist(), [math.nan] * 4])
    done = subprocess.run([program], input=given, capture_output=True, text=True, check=True)
    *result, last = [tuple(map(float.fromhex, line.split(","))) for line in done.stdout.split()]
    np.testing.assert_array_equal(result, intervals(learned, X))
    assert all(map(math.isnan, last))


@pytest.mark.parametrize("kind", KINDS)
def test_python_answers_as_the_model_to_the_bit_when_run_without_packages(kind: str, tmp_path: Path) -> None:
    learned = model(kind)
    file = tmp_path / "model.py"
    file.write_text(to_python(learned, "qoe v1"), encoding="utf-8")
    X = wide_rows(2000)
    lines = "\n".join(",".join(map(repr, row)) for row in X.tolist())
    # -I -S: no site packages, no environment, no working directory.
    command = [sys.executable, "-I", "-S", str(file)]
    result = subprocess.run(command, input=lines, capture_output=True, text=True, check=True).stdout.split()
    outcome = [line.split(",") for line in result]
    answers = learned.predict(X).tolist()
    assert [answer if learned.domain.classes else float(answer) for answer, _ in outcome] == answers
    assert [int(rule) for _, rule in outcome[:300]] == [learned.explain(row).fired.rule.index for row in X[:300]]


@pytest.mark.parametrize("kind", [*TEXTUAL, *GAPPY])
def test_python_takes_texts_of_categories_as_people_write_them_when_run(kind: str, tmp_path: Path) -> None:
    learned = model(kind)
    file = tmp_path / "model.py"
    file.write_text(to_python(learned, "qoe v1"), encoding="utf-8")
    X = trips(800, seed=1, gaps=kind in GAPPY, unknown=True)
    given = io.StringIO()
    csv.writer(given, lineterminator="\n").writerows(texts(row) for row in X)
    command = [sys.executable, "-I", "-S", "-X", "utf8", str(file)]
    result = subprocess.run(command, input=given.getvalue(), capture_output=True, encoding="utf-8", check=True).stdout
    answers = [answer for answer, _ in csv.reader(result.splitlines())]
    assert [answer if learned.domain.classes else float(answer) for answer in answers] == learned.predict(X).tolist()
    space: dict[str, Any] = {"__name__": "exported"}
    exec(file.read_text(encoding="utf-8"), space)
    assert space["CATEGORIES"] == {part.name: list(part.categories) for part in TRIP if part.categories}
    for row in X[:50]:
        expected = learned.predict(row[None, :])[0]
        named = dict(zip(learned.domain.names, texts(row), strict=True))
        assert space["predict"](named) == space["predict"](texts(row)) == space["predict"](row.tolist()) == expected


def test_python_names_the_input_and_its_fault_when_a_value_is_none(tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text(to_python(model("dp_tree-text")), encoding="utf-8")
    space: dict[str, Any] = {"__name__": "exported"}
    exec(file.read_text(encoding="utf-8"), space)
    good = {"day": "Mon", "dist": 1.0, "fare": "zone 1", "gate": "0"}
    assert space["predict"](good) in space["CLASSES"]
    for name, value, fault in (
        ("day", "", "day must be a text, got ''"),
        ("dist", "far", "dist must be a number, got 'far'"),
        ("dist", None, "dist must be a number, got None"),
        ("dist", math.inf, "dist must be a finite number, got inf"),
        ("fare", math.nan, "fare must be a finite number, got nan"),
    ):
        with pytest.raises(ValueError, match=re.escape(fault)):
            space["predict"]({**good, name: value})
    with pytest.raises(KeyError, match="the row has no 'gate'"):
        space["predict"]({"day": "Mon", "dist": 1.0, "fare": "zone 1"})
    # On standard input a faulty row is told by its line, and the others are answered beside their own.
    command = [sys.executable, "-I", "-S", "-X", "utf8", str(file)]
    lines = "Mon,yes,zone 1,0\n\nMon,far,zone 1,0\nMon,1,zone 1\nMon,1,zone 1,1\n"
    done = subprocess.run(command, input=lines, capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 1
    assert [bool(line.strip(",")) for line in done.stdout.split()] == [True, False, False, True]
    faults = ["line 3: dist must be a number, got 'far'", "line 4: a row is 4 values, and this one has 3"]
    assert done.stderr.splitlines() == faults


def test_file_is_read_though_one_row_has_a_category_that_the_model_was_not_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "d.csv").write_text("day,dist,fare,gate\nMon,1,zone 1,0\nMonday,1,zone 1,0\n")
    files = ["--file", str(_record(tmp_path, "dp_tree-text")), "--data", str(tmp_path / "d.csv")]
    for row, day in ("1", "Mon"), ("2", "an unknown category"):
        assert run(["model", "explain", *files, "--row", row, "--json"]) == 0
        assert day in {each["text"] for each in json.loads(capsys.readouterr().out)["inputs"]}


@pytest.mark.needs("gcc")
def test_hostile_names_stay_texts_when_code_is_written(tmp_path: Path) -> None:
    names = ['a"b\\', "*/ int x; /*", '"""', "ö\nü??/"]
    features = tuple(Variable(name=name, low=0, high=1, unit="*/") for name in names)
    domain = Domain(features=features, label='la"bel"""', classes=('"', "*/", "ö??/"))
    document = {**model("dp_tree").to_document(), "domain": domain.to_document()}
    learned = DP_TREE.from_document(document)
    space: dict[str, object] = {"__name__": "exported"}
    exec(to_python(learned, '"""\nimport os'), space)
    assert space["CLASSES"] == list(domain.classes)
    assert space["INPUTS"] == names
    header = to_c(learned, "qoe", "*/ int x;\n#define main")
    program = _compiled(tmp_path, header + "\n/* c */\n", classes=True)
    result = subprocess.run([program], input="1,1,0.5,1\n", capture_output=True, text=True, check=True).stdout
    assert domain.classes[int(result.split(",")[0])] == learned.predict(np.array([[1, 1, 0.5, 1.0]]))[0]


def test_code_is_refused_when_the_model_is_none_yet_or_the_prefix_is_no_name() -> None:
    for write in (to_c, to_python):
        with pytest.raises(UsageError, match="only a vehicle can make a tree"):
            write(population())
    for prefix in ("", "1a", "a-b", "a b", "ä"):
        with pytest.raises(UsageError, match="no C identifier"):
            to_c(model("frt"), prefix)


def _record(folder: Path, kind: str) -> Path:
    record = record_of(model(kind).to_document(), name="qoe", version=3, cohort=["va", "vb"])
    path = folder / "record.json"
    path.write_bytes(record.to_bytes())
    np.savetxt(folder / "drive.csv", rows()[:5], delimiter=",", header=",".join(NAMES), comments="")
    return path


@pytest.mark.parametrize("kind", ["json", "fml"])
def test_model_is_the_same_when_exported_and_read_again(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record, out = _record(tmp_path, "frt"), tmp_path / f"model.{kind}"
    assert run(["model", "export", str(record), "--format", kind, "-o", str(out)]) == 0
    assert "reads back" in capsys.readouterr().err
    assert run(["model", "export", "--file", str(out), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["digest"] == document_digest(model("frt").to_document())
    assert run(["model", "rules", "--file", str(out), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == len(model("frt").rules())
    assert run(["model", "show", "--file", str(out)]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"{out}  {document_digest(model('frt').to_document())}\n  scheme frt, a model alone")
    assert run(["model", "show", "--file", str(out), "--json"]) == 2
    csv = str(tmp_path / "drive.csv")
    assert run(["model", "predict", "--file", str(out), "--data", csv]) == 0
    assert run(["model", "explain", "--file", str(out), "--data", csv, "--row", "1"]) == 0


def test_document_alone_is_read_and_a_changed_one_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "document.json"
    document = model("tsk").to_document()
    file.write_text(json.dumps(document), encoding="utf-8")
    assert run(["model", "export", "--file", str(file), "--format", "markdown"]) == 0
    assert capsys.readouterr().out.startswith("# document")
    file.write_text(json.dumps({"document": document, "digest": "0" * 64}), encoding="utf-8")
    assert run(["model", "rules", "--file", str(file)]) == 8
    file.write_text("<fuzzySystem/>", encoding="utf-8")
    assert run(["model", "rules", "--file", str(file)]) == 10
    for text in ("[]", "{}", "no json", '{"document": 1, "digest": "x"}'):
        file.write_text(text, encoding="utf-8")
        assert run(["model", "rules", "--file", str(file)]) == 10, text


def test_rules_speak_as_engineers_do_when_words_are_given(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record, words = _record(tmp_path, "frt"), tmp_path / "words.json"
    words.write_text(
        '{"snr": {"unit": "dBm", "terms": ["awful", "poor", "usable", "good", "superb"]}, "mos": {"unit": "stars"}}'
    )
    assert run(["model", "rules", "--file", str(record), "--words", str(words)]) == 0
    result = capsys.readouterr().out
    assert "snr is superb" in result
    assert "stars" in result
    assert "snr is High" not in result
    for text, fault in (('{"height": {}}', "no variable 'height'"), ("[]", "JSON object"), ('{"snr": 1}', "write")):
        words.write_text(text)
        assert run(["model", "rules", "--file", str(record), "--words", str(words)]) == 2
        assert fault in capsys.readouterr().err


def test_export_is_refused_when_options_do_not_go_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = str(_record(tmp_path, "frt"))
    for more, code in (
        (["--format", "c", "--picture", "tree"], 2),
        (["--format", "svg", "--tracking-uri", "sqlite:///x.db"], 2),
        (["--format", "mlflow"], 2),
        (["--format", "c", "--prefix", "a b"], 2),
        (["--format", "c", "-o", str(tmp_path / "none" / "x.h")], 5),
    ):
        assert run(["model", "export", "--file", record, *more]) == code, more
        assert "glassfleet: error:" in capsys.readouterr().err


WATCHED = """
import socket
asked = []
def refuse(*given, **_):
    asked.append(str(given[-2:]))
    raise OSError("no network in this test")
socket.getaddrinfo = socket.create_connection = refuse
socket.socket.connect = socket.socket.connect_ex = refuse
"""
"""Opens a program that is to stay on its machine: whatever it would ask of another is noted and refused."""

REGISTER = """
import sys, time
from console.main import run
for record in sys.argv[2:]:
    assert run(["model", "export", "--file", record, "--format", "mlflow", "--tracking-uri", sys.argv[1]]) == 0
time.sleep(0.5)  # MLflow's telemetry has a thread of its own
assert not asked, asked
"""

FORECAST = """
import json, sys
import mlflow, pandas
mlflow.set_tracking_uri(sys.argv[1])
frame = pandas.read_csv("rows.csv", float_precision="round_trip")
for version in sys.argv[2:]:
    loaded = mlflow.pyfunc.load_model(f"models:/qoe/{version}")
    forecasts = [value if isinstance(value, str) else value.hex() for value in loaded.predict(frame)]
    print(json.dumps([loaded.get_raw_model().scheme, forecasts]))
assert not asked, asked
"""


def _fresh(program: str, folder: Path, *arguments: str) -> list[str]:
    """Run a program in a process of its own, where MLflow does not see that it is tested."""
    hidden = ("CI", "PYTEST", "MLFLOW", "DO_NOT_TRACK", "GITHUB")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    environment["PYTHONPATH"] = str(Path(__file__).resolve().parents[4])
    if program is FORECAST:
        environment["MLFLOW_DISABLE_TELEMETRY"] = "true"  # as docs/reference/exports.md tells those who load models
    command = [sys.executable, "-c", WATCHED + program, *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.slow
def test_mlflow_forecasts_to_the_bit_and_calls_nobody_when_fresh_processes_register_and_load(tmp_path: Path) -> None:
    for package in ("mlflow", "pandas"):
        pytest.importorskip(package, reason="install it: pip install 'glassfleet[mlflow]'")
    kinds = ("frt", "tree", "tsk-other", "frbc", "fedga-numbers", "dp_tree", "fedavg_mlp-numbers")
    records = []
    for kind in kinds:
        (tmp_path / kind).mkdir()
        records.append(str(_record(tmp_path / kind, kind)))
    X = rows()[:20]
    lines = [",".join(NAMES), *(",".join(map(repr, row)) for row in X.tolist())]
    (tmp_path / "rows.csv").write_text("\n".join(lines), encoding="utf-8")
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    result = _fresh(REGISTER, tmp_path, uri, *records)
    assert [line.split(" (")[0] for line in result] == [f"registered as models:/qoe/{n + 1}" for n in range(len(kinds))]
    result = _fresh(FORECAST, tmp_path, uri, *(str(number + 1) for number in range(len(kinds))))
    for kind, line in zip(kinds, result, strict=True):
        expected = model(kind).predict(X).tolist()
        assert json.loads(line) == [
            model(kind).scheme,
            [value if isinstance(value, str) else value.hex() for value in expected],
        ]
