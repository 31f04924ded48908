"""The C header forecasts to the bit; the export command."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from console.main import run
from glassfleet.contract import catalogue
from glassfleet.data.domain import Domain, Variable
from glassfleet.export.c_header import to_c
from glassfleet.model.baseline import recorded
from glassfleet.model.intervals import errors_on, intervals, tell_forecasts
from lab.schemes.dp_tree import SCHEME as DP_TREE
from schemas.codec import document_digest
from schemas.errors import UsageError
from tests.support.agent_bench import record_of
from tests.support.sample_models import GAPPY, KINDS, NAMES, TEXTUAL, model, population, rows, trips, wide_rows

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


def test_file_is_read_though_one_row_has_a_category_that_the_model_was_not_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "d.csv").write_text("day,dist,fare,gate\nMon,1,zone 1,0\nMonday,1,zone 1,0\n")
    files = [str(_record(tmp_path, "dp_tree-text")), "--data", str(tmp_path / "d.csv")]
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
    header = to_c(learned, "qoe", "*/ int x;\n#define main")
    program = _compiled(tmp_path, header + "\n/* c */\n", classes=True)
    result = subprocess.run([program], input="1,1,0.5,1\n", capture_output=True, text=True, check=True).stdout
    assert domain.classes[int(result.split(",")[0])] == learned.predict(np.array([[1, 1, 0.5, 1.0]]))[0]


def test_code_is_refused_when_the_model_is_none_yet_or_the_prefix_is_no_name() -> None:
    with pytest.raises(UsageError, match="only a vehicle can make a tree"):
        to_c(population())
    for prefix in ("", "1a", "a-b", "a b", "ä"):
        with pytest.raises(UsageError, match="no C identifier"):
            to_c(model("frt"), prefix)


def _record(folder: Path, kind: str) -> Path:
    record = record_of(model(kind).to_document(), name="qoe", version=3, cohort=["va", "vb"])
    path = folder / "record.json"
    path.write_bytes(record.to_bytes())
    np.savetxt(folder / "drive.csv", rows()[:5], delimiter=",", header=",".join(NAMES), comments="")
    return path


def test_model_is_the_same_when_exported_and_read_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record, out = _record(tmp_path, "frt"), tmp_path / "model.json"
    assert run(["model", "export", str(record), "--format", "json", "-o", str(out)]) == 0
    assert "reads back" in capsys.readouterr().err
    assert run(["model", "export", str(out), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["digest"] == document_digest(model("frt").to_document())
    assert run(["model", "rules", str(out), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == len(model("frt").rules())
    assert run(["model", "show", str(out)]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"{out}  {document_digest(model('frt').to_document())}\n  scheme frt, a model alone")
    assert run(["model", "show", str(out), "--json"]) == 2
    csv = str(tmp_path / "drive.csv")
    assert run(["model", "predict", str(out), "--data", csv]) == 0
    assert run(["model", "explain", str(out), "--data", csv, "--row", "1"]) == 0


def test_document_alone_is_read_and_a_changed_one_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "document.json"
    document = model("tsk").to_document()
    file.write_text(json.dumps(document), encoding="utf-8")
    assert run(["model", "export", str(file), "--format", "fml"]) == 0
    assert 'fuzzySystem xmlns="http://www.ieee1855.org" name="document"' in capsys.readouterr().out
    file.write_text(json.dumps({"document": document, "digest": "0" * 64}), encoding="utf-8")
    assert run(["model", "rules", str(file)]) == 8
    for text in ("[]", "{}", "no json", "<fuzzySystem/>", '{"document": 1, "digest": "x"}'):
        file.write_text(text, encoding="utf-8")
        assert run(["model", "rules", str(file)]) == 10, text


def test_rules_speak_as_engineers_do_when_words_are_given(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record, words = _record(tmp_path, "frt"), tmp_path / "words.json"
    words.write_text(
        '{"snr": {"unit": "dBm", "terms": ["awful", "poor", "usable", "good", "superb"]}, "mos": {"unit": "stars"}}'
    )
    assert run(["model", "rules", str(record), "--words", str(words)]) == 0
    result = capsys.readouterr().out
    assert "snr is superb" in result
    assert "stars" in result
    assert "snr is High" not in result
    for text, fault in (('{"height": {}}', "no variable 'height'"), ("[]", "JSON object"), ('{"snr": 1}', "write")):
        words.write_text(text)
        assert run(["model", "rules", str(record), "--words", str(words)]) == 2
        assert fault in capsys.readouterr().err


def test_export_is_refused_when_options_do_not_go_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = str(_record(tmp_path, "frt"))
    for more, code in (
        (["--format", "python"], 2),
        (["--format", "c", "--prefix", "a b"], 2),
        (["--format", "c", "-o", str(tmp_path / "none" / "x.h")], 5),
    ):
        assert run(["model", "export", record, *more]) == code, more
        assert "glassfleet: error:" in capsys.readouterr().err
