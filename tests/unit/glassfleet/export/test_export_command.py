"""``glassfleet model export``, ``model explain`` with counterfactuals, MLflow: as their users call them."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

from console.main import run
from schemas.documents import document_digest
from tests.support.fake_coordinator import record_of
from tests.support.sample_models import NAMES, model, rows


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
    capsys.readouterr()
    assert run(["model", "show", "--file", str(out)]) == 2
    said = capsys.readouterr().err
    assert f"{out} is an export, a model alone in {kind.upper()}" in said
    named = said.partition("These read it: glassfleet model ")[2].replace(" and ", ", ").strip().split(", ")
    csv, options = str(tmp_path / "drive.csv"), {"explain": ["--row", "1"], "export": ["--format", "json"]}
    for command in named:
        given = ["--data", csv] if command in {"predict", "explain"} else []
        assert run(["model", command, "--file", str(out), *given, *options.get(command, [])]) == 0


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
    told = capsys.readouterr().out
    assert "snr is superb" in told
    assert "stars" in told
    assert "snr is High" not in told
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
    told = [value if isinstance(value, str) else value.hex() for value in loaded.predict(frame)]
    print(json.dumps([loaded.get_raw_model().scheme, told]))
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
    kinds = ("frt", "fmt", "tsk-other", "frbc", "fedga-numbers", "dp_tree", "fedavg_mlp-numbers")
    records = []
    for kind in kinds:
        (tmp_path / kind).mkdir()
        records.append(str(_record(tmp_path / kind, kind)))
    X = rows()[:20]
    lines = [",".join(NAMES), *(",".join(map(repr, row)) for row in X.tolist())]
    (tmp_path / "rows.csv").write_text("\n".join(lines), encoding="utf-8")
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    told = _fresh(REGISTER, tmp_path, uri, *records)
    assert [line.split(" (")[0] for line in told] == [f"registered as models:/qoe/{n + 1}" for n in range(len(kinds))]
    told = _fresh(FORECAST, tmp_path, uri, *(str(number + 1) for number in range(len(kinds))))
    for kind, line in zip(kinds, told, strict=True):
        expected = model(kind).predict(X).tolist()
        assert json.loads(line) == [
            model(kind).scheme,
            [value if isinstance(value, str) else value.hex() for value in expected],
        ]


@pytest.mark.slow
def test_mlflow_holds_a_model_that_predicts_and_explains_when_registered(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    mlflow = pytest.importorskip("mlflow", reason="install it: pip install 'glassfleet[mlflow]'")
    monkeypatch.chdir(tmp_path)
    record, uri = _record(tmp_path, "frt"), f"sqlite:///{tmp_path / 'mlflow.db'}"
    assert run(["model", "export", "--file", str(record), "--format", "mlflow", "--tracking-uri", uri]) == 0
    assert "registered as models:/qoe/1" in capsys.readouterr().out
    client = mlflow.MlflowClient(tracking_uri=uri, registry_uri=uri)
    version = client.get_model_version("qoe", "1")
    assert version.tags["glassfleet.digest"] == document_digest(model("frt").to_document())
    folder = Path(version.source.removeprefix("file://"))
    files = sorted(path.name for path in folder.iterdir())
    assert files == ["MLmodel", "model.html", "model.json", "python_env.yaml", "requirements.txt"]
    # As mlflow.pyfunc.load_model does it, here without a frame.
    flavour = yaml.safe_load((folder / "MLmodel").read_text())["flavors"]["python_function"]
    loaded = importlib.import_module(flavour["loader_module"])._load_pyfunc(str(folder / flavour["data"]))
    X = rows()[:4]
    expected = model("frt").predict(X).tolist()
    assert loaded.predict(X) == expected
    assert loaded.predict([dict(zip(NAMES, row, strict=True)) for row in X.tolist()]) == expected
    assert loaded.predict(dict(zip(NAMES, X.T.tolist(), strict=True))) == expected
    assert [told["prediction"] for told in loaded.predict(X, {"explain": True})] == expected
    assert loaded.get_raw_model().scheme == "frt"
    pandas = pytest.importorskip("pandas", reason="install it: pip install 'glassfleet[mlflow]'")
    whole = mlflow.pyfunc.load_model(str(folder))
    assert whole.predict(pandas.DataFrame(X, columns=list(NAMES))) == expected
    assert whole.get_raw_model().scheme == "frt"
