"""Exported C and Python answer as the model, to the last bit, and need nothing."""

from __future__ import annotations

import ast
import csv
import io
import json
import math
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from glassfleet import catalogue
from glassfleet.data.domain import Domain, Variable
from glassfleet.export.c_header import to_c
from glassfleet.export.python_file import to_python
from glassfleet.forecasts import tell_forecasts
from glassfleet.intervals import errors_on, intervals
from glassfleet.reference import recorded
from glassfleet.scheme import Model
from glassfleet.schemes.dp_tree import SCHEME as DP_TREE
from schemas.errors import UsageError
from tests.support.sample_models import KINDS, TEXTUAL, TRIP, model, population, rows, texts, trips, wide_rows

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
    gcc = shutil.which("gcc")
    if gcc is None:
        pytest.skip("no C compiler here: apt install gcc")
    (folder / "model.h").write_text(header, encoding="utf-8")
    main = main.replace("KIND", "int" if classes else "double").replace("FORMAT", "%d" if classes else "%a")
    (folder / "main.c").write_text(main, encoding="utf-8")
    program = folder / "program"
    flags = ["-std=c99", "-O2", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-pedantic", *more]
    subprocess.run([gcc, *flags, "-o", program, folder / "main.c", "-lm"], check=True, capture_output=True, text=True)
    return program


def _extreme_rows(count: int) -> NDArray[np.float64]:
    largest, smallest = sys.float_info.max, 5e-324
    values = [0.0, -0.0, largest, -largest, smallest, -smallest, 1e308, 1e-17, 0.5, 1.0, 2.5, 5.0, 10.0, 50.0, 100.0]
    values += [math.nextafter(10.0, 11.0), math.nextafter(0.0, -1.0), math.nextafter(2.5, 0.0)]
    return np.random.default_rng(0).choice(values, (count, 4))


@pytest.mark.parametrize("kind", [*KINDS, *TEXTUAL])
def test_c_answers_as_the_model_to_the_bit_without_warnings_or_undefined_behaviour(kind: str, tmp_path: Path) -> None:
    learned = model(kind)
    classes = learned.domain.classes
    program = _compiled(tmp_path, to_c(learned, "qoe", "qoe v1"), "-fsanitize=undefined", classes=bool(classes))
    X = trips(4000, seed=1) if kind in TEXTUAL else np.concatenate([wide_rows(4000), _extreme_rows(500)])
    lines = [",".join(map(repr, row)) for row in X.tolist()]
    lines += ["nan,1,1,1", "1,inf,1,1", "1,1,1,-inf"]
    done = subprocess.run([program], input="\n".join(lines), capture_output=True, text=True, check=True)
    assert not done.stderr
    found = [line.split(",") for line in done.stdout.split()]
    answers = [classes[int(answer)] if classes else float.fromhex(answer) for answer, _ in found[:-3]]
    assert answers == learned.predict(X).tolist()
    assert [int(rule) for _, rule in found[:300]] == [learned.explain(row).fired.rule.index for row in X[:300]]
    # Not finite: nothing is answered.
    assert all(rule == "-1" for _, rule in found[-3:])
    assert all(answer == "-1" if classes else "nan" in answer for answer, _ in found[-3:])


def test_c_tells_the_interval_that_the_model_tells(tmp_path: Path) -> None:
    learned = catalogue.load("fmt").from_document(model("fmt").to_document())  # others use the sample as it is
    X = wide_rows(1500)
    # Far off one way: both ends are beyond a limit of the target for some rows.
    truth = learned.predict(X) + np.random.default_rng(1).normal(2.0, 0.5, len(X))
    lines = [{"rows": 0.1, "mean": 1.0, "low": 0.0, "high": 2.0}] * len(learned.rules())
    tell_forecasts(learned, recorded({"forecasts": lines}, errors_on(learned, X, truth)))
    tell = 'double low, high; qoe_interval(y, rule, &low, &high); printf("%a,%a\\n", low, high); if (0) '
    program = _compiled(tmp_path, to_c(learned, "qoe"), classes=False, main=MAIN.replace("printf", f"{tell}printf"))
    given = "\n".join(",".join(map(repr, row)) for row in [*X.tolist(), [math.nan] * 4])
    done = subprocess.run([program], input=given, capture_output=True, text=True, check=True)
    *found, last = [tuple(map(float.fromhex, line.split(","))) for line in done.stdout.split()]
    np.testing.assert_array_equal(found, intervals(learned, X))
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
    told = subprocess.run(command, input=lines, capture_output=True, text=True, check=True).stdout.split()
    found = [line.split(",") for line in told]
    answers = learned.predict(X).tolist()
    assert [answer if learned.domain.classes else float(answer) for answer, _ in found] == answers
    assert [int(rule) for _, rule in found[:300]] == [learned.explain(row).fired.rule.index for row in X[:300]]


@pytest.mark.parametrize("kind", TEXTUAL)
def test_python_takes_texts_of_categories_as_people_write_them_when_run(kind: str, tmp_path: Path) -> None:
    learned = model(kind)
    file = tmp_path / "model.py"
    file.write_text(to_python(learned, "qoe v1"), encoding="utf-8")
    X = trips(800, seed=1)
    given = io.StringIO()
    csv.writer(given, lineterminator="\n").writerows(texts(row) for row in X)
    command = [sys.executable, "-I", "-S", "-X", "utf8", str(file)]
    told = subprocess.run(command, input=given.getvalue(), capture_output=True, encoding="utf-8", check=True).stdout
    answers = [answer for answer, _ in csv.reader(told.splitlines())]
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
        ("day", "Monday", "day has no category 'Monday'; known: Fri, Mon, Sat"),
        ("gate", "2", "gate has no category '2'; known: 0, 1"),
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
    lines = "Mon,1,zone 1,0\n\nMonday,1,zone 1,0\nMon,1,zone 1\nMon,1,zone 1,1\n"
    done = subprocess.run(command, input=lines, capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 1
    assert [bool(line.strip(",")) for line in done.stdout.split()] == [True, False, False, True]
    assert "Traceback" not in done.stderr
    first, second = done.stderr.splitlines()
    assert first.startswith("line 3: day has no category 'Monday'; known: ")
    assert second == "line 4: a row is 4 values, and this one has 3"


@pytest.mark.parametrize("kind", [*KINDS, *TEXTUAL])
def test_python_file_imports_the_standard_library_alone_when_written(kind: str) -> None:
    tree = ast.parse(to_python(model(kind)), feature_version=(3, 9))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert imported <= {"csv", "math", "sys"}
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]


def test_python_file_takes_rows_by_name_and_refuses_bad_ones_when_called() -> None:
    space: dict[str, object] = {"__name__": "exported"}
    exec(to_python(model("frt")), space)
    predict = space["predict"]
    assert callable(predict)
    row = rows()[0]
    named = dict(zip(model("frt").domain.names, row.tolist(), strict=True))
    assert predict(named) == predict(row.tolist()) == model("frt").predict(row[None, :])[0]
    for bad, fault in (
        ([1.0], "a row is 4 values, and this one has 1"),
        ([math.nan] * 4, "snr must be a finite number"),
        ([0.0, 0.0, math.inf, 0.0], "load must be a finite number"),
    ):
        with pytest.raises(ValueError, match=fault):
            predict(bad)
    with pytest.raises(KeyError):
        predict({"snr": 1.0})


def _one_rule(kind: str) -> Model:
    """A model of one rule, which has no conditions."""
    document = json.loads(json.dumps(model(kind).to_document()))
    body = document["model"]
    if "nodes" in body:
        body["nodes"] = (
            [{"rule": 0}] if "rules" in body else [{k: body["nodes"][0][k] for k in ("value", "rows", "impurity")}]
        )
    if "rules" in body:
        body["rules"] = body["rules"][:1]
    if "splits" in body:
        body["splits"] = []
    if kind == "frbc":
        body["rules"][0]["sets"] = []
    return catalogue.load(kind).from_document(document)


@pytest.mark.parametrize("kind", ["frt", "fmt", "bmt", "frbc", "dp_tree"])
def test_code_answers_as_the_model_when_there_is_one_rule_without_conditions(kind: str, tmp_path: Path) -> None:
    learned = _one_rule(kind)
    assert len(learned.rules()) == 1
    classes = learned.domain.classes
    program = _compiled(tmp_path, to_c(learned, "qoe"), classes=bool(classes))
    told = subprocess.run([program], input="1,1,0.5,1\n", capture_output=True, text=True, check=True).stdout
    answer, rule = told.strip().split(",")
    space: dict[str, Any] = {"__name__": "exported"}
    exec(to_python(learned), space)
    expected = learned.predict(np.array([[1.0, 1.0, 0.5, 1.0]]))[0]
    assert (classes[int(answer)] if classes else float.fromhex(answer), rule) == (expected, "0")
    assert space["predict"]([1.0, 1.0, 0.5, 1.0], rule=True) == (expected, 0)


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
    told = subprocess.run([program], input="1,1,0.5,1\n", capture_output=True, text=True, check=True).stdout
    assert domain.classes[int(told.split(",")[0])] == learned.predict(np.array([[1, 1, 0.5, 1.0]]))[0]


def test_code_is_refused_when_the_model_is_none_yet_or_the_prefix_is_no_name() -> None:
    for write in (to_c, to_python):
        with pytest.raises(UsageError, match="only a vehicle can make a tree"):
            write(population())
    for prefix in ("", "1a", "a-b", "a b", "ä"):
        with pytest.raises(UsageError, match="no C identifier"):
            to_c(model("frt"), prefix)
