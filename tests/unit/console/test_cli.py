"""The command line: what it refuses and how, what it loads, and that its reference page tells the truth."""

from __future__ import annotations

import csv
import json
import re
import socket
import sys
from pathlib import Path

import click
import numpy as np
import pytest

from console.main import COMMANDS, run
from console.operator.published import PublishedModels
from console.services.tap import decode, whole
from deploy.site.reference import SETTINGS
from glassfleet import simulation
from glassfleet.contract import catalogue
from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain, Variable
from glassfleet.explain import explain_row
from glassfleet.model.baseline import recorded, reference_of
from schemas.envelope import Envelope
from schemas.errors import VerificationError
from schemas.messages import Part, Receipt, Request
from schemas.record import ModelRecord
from schemas.topics import Topics
from tests.support.agent_bench import record_of, write_database
from tests.support.processes import ROOT, every_command, policy_file, python

pytestmark = pytest.mark.usefixtures("own_state")


@pytest.fixture(scope="module")
def record() -> ModelRecord:
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 10, (400, 2))
    data = Dataset(("speed", "load"), "quality", X, np.clip(X[:, 0] / 10 - 0.3 * (X[:, 1] > 5), 0, 1))
    domain = Domain(
        features=(Variable(name="speed", low=0, high=10, unit="m/s"), Variable(name="load", low=0, high=10)),
        target=Variable(name="quality", low=0, high=1),
    )
    scheme = catalogue.load("frt")
    document = simulation.central(scheme, scheme.Parameters(), domain, data).model.to_document()
    return record_of(document, name="qoe", fleet="demo", run="run-1", cohort=["a", "b"])


@pytest.fixture
def record_file(tmp_path: Path, record: ModelRecord) -> Path:
    (tmp_path / "qoe.json").write_bytes(record.to_bytes())
    return tmp_path / "qoe.json"


@pytest.fixture
def drive(tmp_path: Path) -> Path:
    (tmp_path / "drive.csv").write_text("load,speed,extra\n1,2,9\n7.5,8,9\n")
    return tmp_path / "drive.csv"


def test_reference_page_says_what_every_command_says() -> None:
    # In a process of its own: the page is rendered with another state folder.
    rendered = python("from deploy.site.reference import render; print(render(), end='')").stdout
    page = (ROOT / "docs/reference/cli.md").read_text(encoding="utf-8")
    assert rendered == page, "renew it: python -m deploy.site.reference > docs/reference/cli.md"
    for path, command in every_command():
        assert f"## {path}\n" in page or f"- `{path}" in page, f"{path} is not documented"
        for parameter in command.params:
            if isinstance(parameter, click.Option) and not parameter.hidden:
                known = path.startswith("glassfleet lab") or parameter.name in SETTINGS
                assert known or parameter.opts[-1] in page, f"{path}: {parameter.opts}"
                assert parameter.help, f"{path} {parameter.opts}"


def test_exit_code_page_lists_every_error_of_ours() -> None:
    from console.client import CoordinatorError
    from schemas import errors

    page = (ROOT / "docs/reference/exit-codes.md").read_text(encoding="utf-8")
    base = errors.GlassfleetError
    kinds: list[type[errors.GlassfleetError]] = [
        kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, base)
    ]
    kinds.append(CoordinatorError)
    for kind in kinds:
        if kind is not base:
            assert f"| {kind.exit_code} | `{kind.__name__}` |" in page


NOBODY, ELSEWHERE = "mqtt://127.0.0.1:9", "mqtt://10.255.255.1"


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["nosuch"], 2, "No such command 'nosuch'"),
        (["run", "start", "--nosuch"], 2, "see: glassfleet run start --help"),
        (["run", "list"], 2, "no coordinator: give --coordinator URL"),
        (["run", "list", "--coordinator", "http://127.0.0.1:9"], 11, "no coordinator answers at http://127.0.0.1:9"),
        (["run", "list", "--coordinator", "nonsense"], 2, "is not a URL"),
        (["run", "start", "--min-agents", "many"], 2, "write a number of agents"),
        (["run", "start", "--policy", "nofile"], 2, "cannot read nofile"),  # before it looks for a coordinator
        (["model", "list"], 2, "no broker: give --broker URL"),
        (["model", "list", "--broker", NOBODY], 4, "nothing listens at 127.0.0.1:9"),
        (["model", "list", "--broker", ELSEWHERE], 2, "plain MQTT can be read and changed"),
        (["broker", "tap", "--count", "1", "--broker", ELSEWHERE], 2, "plain MQTT can be read and changed"),
        (["model", "rules"], 2, "Missing argument"),
        (["model", "rules", "nofile.json"], 10, "cannot read nofile.json"),
        (["broker", "tap", "--broker", "http://x", "--kind", "request cleared"], 2, "mqtt://"),
        (["broker", "tap", "--broker", "http://x", "--kind", "reciept"], 2, "--kind reciept: no message is of it."),
        (["agent"], 2, "id is missing: give --id"),
        (["agent", "--config", "nofile.toml"], 2, "cannot read nofile.toml"),
        (["coordinator", "--config", "nofile.toml"], 2, "cannot read"),
        (["lab", "chaos", "--faults", "0", "--keep", "/proc"], 2, "is not empty"),
        (["demo", "--drop", "2"], 2, "2.0 is not in the range 0<=x<=1"),
        (["demo", "--scheme", "nosuch"], 9, "no scheme 'nosuch'"),
        (["demo", "--data", "nofolder"], 3, "is not a folder"),
        (["demo", "--scheme", "frbc", "--private"], 2, "a private run finds no classes"),
        (["demo", "--policy", "nofile"], 2, "cannot read nofile"),
        (["demo", "--secure", "--kind", "embedded"], 2, "the embedded broker has no TLS"),
    ],
)
def test_command_line_tells_the_fault_in_one_line_when_it_is_the_users(
    capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, words: str
) -> None:
    assert run(arguments) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("glassfleet: error: ")
    assert err.count("\n") == 1
    assert words in err


AGENT = ["agent", "--id", "car", "--broker-wait", "0.1", "--data", "drive.csv", "--broker"]
COORDINATOR = ["coordinator", "--api-port", "0", "--broker-wait", "0.1", "--broker"]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ([*AGENT, NOBODY, "--target", "y"], 3, "'red' (line 3) is no number"),
        ([*AGENT, NOBODY, "--data", "nofile.csv"], 3, "no such file"),
        ([*AGENT, NOBODY], 4, "nothing listens"),
        ([*AGENT, ELSEWHERE], 2, "plain MQTT can be read and changed"),
        ([*COORDINATOR, ELSEWHERE], 2, "plain MQTT can be read and changed"),
        ([*AGENT, "silent"], 4, "right port"),
        ([*COORDINATOR, NOBODY], 4, "nothing listens"),
        ([*AGENT, NOBODY, "--state-dir", "drive.csv/state"], 5, "drive.csv/state"),
        ([*COORDINATOR, NOBODY, "--state-dir", "drive.csv/state"], 5, "drive.csv/state"),
        (["broker", "--port", "0", "--kind", "embedded", "--state-dir", "drive.csv/state"], 5, "drive.csv/state"),
    ],
)
@pytest.mark.usefixtures("structlog_defaults")
def test_service_ends_with_the_code_of_what_it_cannot_use_its_data_before_the_broker(  # noqa: PLR0917
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    arguments: list[str], code: int, words: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GLASSFLEET_CONNECT_TIMEOUT", "0.5")
    (tmp_path / "drive.csv").write_text(f"a,y\n1,2\n3,{'red' if 'y' in arguments else 4}\n")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        urls = {"silent": f"mqtt://127.0.0.1:{silent.getsockname()[1]}"}
        assert run([urls.get(word, word) for word in arguments]) == code
    *_, error = capsys.readouterr().err.splitlines()
    assert error.startswith("glassfleet: error: ")
    assert words in error


@pytest.mark.parametrize(
    ("content", "options", "code", "words"),
    [
        ("modle = 1", [], 2, "modle: there is no such key; did you mean model?"),
        ("rounds.dedline = 1", [], 2, "rounds.dedline: there is no such key; did you mean deadline?"),
        ("private.zzz = 1", [], 2, "private.zzz: no such key. Known: floor, company, patience, support"),
        ("rounds = 1", ["--deadline", "5"], 2, "rounds: "),
        ("parameters.max_rules = 0", ["--exact"], 2, "parameters.max_rules"),
        ("parameters.max_rule = 6", ["--exact"], 2, "no parameter 'max_rule' in scheme tree; did you mean max_rules?"),
        ('scheme = "nosuch"', ["--exact"], 9, "no scheme 'nosuch'"),
        ("= broken", [], 2, "not valid TOML"),
    ],
)
@pytest.mark.parametrize("command", [["run", "start"], ["run", "schedule", "add", "x", "--at", "0 2 * * *"]])
def test_policy_file_is_refused_with_the_key_at_fault_and_the_nearest_that_there_is(  # noqa: PLR0917
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: list[str], content: str, options: list[str], code: int,
    words: str,
) -> None:  # fmt: skip
    (tmp_path / "policy.toml").write_text(content)
    where = ["--policy", str(tmp_path / "policy.toml"), "--coordinator", "http://127.0.0.1:9"]
    assert run([*command, *options, *where]) == code
    assert words in capsys.readouterr().err


def test_demo_is_refused_in_one_line_when_a_file_or_a_name_cannot_be_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "car.csv").write_text("a,y\n1,2\n3,x\n")
    for words, code, named in (
        (["--data", str(tmp_path)], 3, "car.csv"),
        (policy_file(tmp_path, model="a/b"), 2, "model"),
    ):
        assert run(["demo", *words]) == code
        assert re.search(rf"^glassfleet: error: .*{named}.*\n\Z", capsys.readouterr().err, re.MULTILINE)


def test_missing_extra_is_named_with_its_pip_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "httpx", None)
    monkeypatch.delitem(sys.modules, "console.client", raising=False)
    assert run(["run", "list", "--coordinator", "http://127.0.0.1:9"]) == 2
    assert "pip install 'glassfleet[operator]'" in capsys.readouterr().err


def test_coordinator_loads_nothing_that_only_some_fleets_need() -> None:
    heavy = ["cryptography", "rich", "scipy", "sklearn"]
    some = [*heavy, "lab.audit.journal", "glassfleet.schemes.frt"]
    code = (
        "import sys; from console.main import run; run(['coordinator', '--fleet', '!']); import coordinator.main; "
        f"import coordinator.http.api; print([name for name in {some} if name in sys.modules])"
    )
    assert python(code).stdout.strip() == "[]"


def test_help_imports_no_command() -> None:
    modules = sorted({place.partition(":")[0] for commands in COMMANDS.values() for place, _ in commands.values()})
    code = (
        "import sys; from console.main import run; run(['--help']); "
        f"print([name for name in {modules} if name in sys.modules])"
    )
    assert python(code).stdout.strip().splitlines()[-1] == "[]"


def test_model_rules_are_printed_in_words_the_most_used_first(
    capsys: pytest.CaptureFixture[str], record_file: Path
) -> None:
    assert run(["model", "rules", str(record_file), "--json"]) == 0
    rules = json.loads(capsys.readouterr().out)
    assert [rule["support"] for rule in rules] == sorted((rule["support"] for rule in rules), reverse=True)
    assert run(["model", "rules", str(record_file), "--top", "2"]) == 0
    text = capsys.readouterr().out
    assert text.count("THEN quality = ") == 2
    assert re.search(r"IF  speed is \w+ \([\d.]+ to [\d.]+ m/s, most at [\d.]+ m/s\)", text)


def test_model_forecasts_and_explains_rows_of_a_database(
    capsys: pytest.CaptureFixture[str], record_file: Path, drive: Path
) -> None:
    pytest.importorskip("sqlalchemy")
    names, *rows = csv.reader(drive.read_text().splitlines())
    table = write_database(drive.with_suffix(".db"), names, rows)
    for words in (["predict"], ["explain", "--row", "2"]):
        printed = []
        for place in (str(drive), table):
            assert run(["model", *words, str(record_file), "--data", place]) == 0
            printed.append(capsys.readouterr().out)
        assert printed[0] == printed[1]


def test_model_predicts_and_explains_the_rows_of_a_file_when_columns_are_in_another_order(
    capsys: pytest.CaptureFixture[str], record_file: Path, drive: Path, record: ModelRecord
) -> None:
    learned = catalogue.load("frt").from_document(record.document)
    expected = learned.predict(np.array([[2.0, 1.0], [8.0, 7.5]]))
    assert run(["model", "predict", str(record_file), "--data", str(drive), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"target": "quality", "predictions": expected.tolist()}
    assert run(["model", "predict", str(record_file), "--data", str(drive)]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "quality"
    assert run(["model", "explain", str(record_file), "--data", str(drive), "--row", "2", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["prediction"] == pytest.approx(expected[1])
    assert result["base"] + sum(result["shares"].values()) == pytest.approx(expected[1])
    words = ["model", "explain", str(record_file), "--data", str(drive), "--row", "2"]
    assert run(words) == 0
    text = capsys.readouterr().out
    assert "because of rule" in text
    assert re.search(r"\nfor another outcome \(quality is at least [\d.]+ or at most .*:\n  \(none was named", text)
    assert run([*words, "--goal", "-10%"]) == 0
    text = capsys.readouterr().out
    assert re.search(r"\nfor another outcome \(quality is at most [\d.]+\):", text)
    assert "none was named" not in text


def test_model_explain_compares_with_the_records_typical_row_or_with_another_row(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, drive: Path, record: ModelRecord
) -> None:
    typical = recorded({"reference": {"speed": 5.0, "load": 4.0}})
    file = tmp_path / "typical.json"
    file.write_bytes(record.model_copy(update={"parameters": typical}).to_bytes())
    learned = catalogue.load("frt").from_document(record.document)
    words = ["model", "explain", str(file), "--data", str(drive), "--row", "2"]
    assert run([*words, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    expected = explain_row(learned, [8.0, 7.5], reference_of(typical, learned.domain)).to_dict()
    assert {name: result[name] for name in expected} == expected
    assert run(words) == 0
    text = capsys.readouterr().out
    assert "base: the forecast for a typical row, the fleet's mean of each input" in text
    assert re.search(r"  [+-][\d.]+  speed 8 instead of 5 m/s\n", text)
    assert run([*words, "--against", "1"]) == 0
    assert "base: the forecast for row 1\n" in capsys.readouterr().out
    changed = {"reference": {**typical["reference"], "row": {"speed": 6.0, "load": 4.0}}}
    file.write_bytes(record.model_copy(update={"parameters": changed}).to_bytes())
    assert run(words) == VerificationError.exit_code
    assert "the typical row in the model's record was changed" in capsys.readouterr().err


def test_model_explain_is_refused_when_row_or_column_is_not_there(
    capsys: pytest.CaptureFixture[str], record_file: Path, drive: Path, tmp_path: Path
) -> None:
    assert run(["model", "explain", str(record_file), "--data", str(drive), "--row", "3"]) == 2
    assert "has 2 rows" in capsys.readouterr().err
    (tmp_path / "other.csv").write_text("speed,height\n1,2\n")
    assert run(["model", "predict", str(record_file), "--data", str(tmp_path / "other.csv")]) == 3
    assert "input 'load' is no column" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "fault"), [("qoe@latest", "write NAME@VERSION, e.g. qoe@3"), ("qoe@", "write NAME@VERSION")]
)
@pytest.mark.parametrize("command", ["show", "rules"])
def test_model_version_is_refused_before_a_broker_is_asked_when_it_cannot_be_meant(
    capsys: pytest.CaptureFixture[str], command: str, name: str, fault: str
) -> None:
    assert run(["model", command, name, "--broker", "mqtt://127.0.0.1:9"]) == 2
    assert fault in capsys.readouterr().err


def test_model_is_looked_for_by_name_and_version_when_both_are_in_one_word(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], record: ModelRecord
) -> None:
    registry = PublishedModels(records={("qoe", 1): record})
    monkeypatch.setattr("console.operator.published.read_registry", lambda _url, _fleet: registry)
    assert run(["model", "show", "qoe@1", "--broker", "mqtt://127.0.0.1:9"]) == 0
    assert record.digest in capsys.readouterr().out
    assert run(["model", "show", "qoe@77", "--broker", "mqtt://127.0.0.1:9"]) == 9
    assert "model qoe has no version 77 here; versions: 1" in capsys.readouterr().err


def test_tap_decodes_arrays_as_type_and_shape_and_faults_as_reasons() -> None:
    topics = Topics("demo")
    task = {"scheme": "frt", "kind": "level", "body": {"edges": np.zeros((3, 4))}}
    request = Envelope("demo", Request(task=task, task_digest="0" * 64, remaining=2.0), run="r", scheme="frt", round=2)
    line = decode(topics.request("r"), request.to_bytes(), topics)
    assert line["kind"] == "request"
    assert line["round"] == 2
    assert line["body"]["task"]["body"]["edges"] == "<float64 3x4>"
    receipt = Envelope("demo", Receipt(run="r", task_digest="0" * 64, outcome="late"), agent="a")
    assert decode(topics.receipt("a"), receipt.to_bytes(), topics)["body"]["outcome"] == "late"
    assert decode(topics.receipt("a"), b"\xc1", topics)["fault"].startswith("malformed")
    assert decode("elsewhere", b"", topics)["fault"].startswith("foreign-fleet")
    assert decode(topics.request("r"), b"", topics)["kind"] == "request cleared"


def test_doctor_passes_on_a_sound_machine_and_fails_when_the_data_are_wrong(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, drive: Path
) -> None:
    drive.write_text("load,speed\n" + "".join(f"{n % 7},{n % 7 * 2}\n" for n in range(25)))
    assert run(["doctor", "--state-dir", str(tmp_path / "s"), "--data", str(drive)]) == 0
    assert "19 rows to train, 5 to test" in capsys.readouterr().out, "as its agent holds them back"
    drive.write_text("a,b\n1,x\n")
    assert run(["doctor", "--state-dir", str(tmp_path / "s"), "--data", str(drive), "--json"]) == 1
    result = {item["check"]: item for item in json.loads(capsys.readouterr().out)}
    assert not result["data"]["ok"]
    assert result["core packages"]["ok"]


@pytest.mark.parametrize(
    ("typed", "text"),
    [
        (["modl"], "Did you mean glassfleet model?"),
        (["Doctor"], "Did you mean glassfleet doctor?"),
        (["run", "lst"], "Did you mean glassfleet run list?"),
        (["ca", "tokn"], "Did you mean glassfleet ca token"),
        (["xyzzy"], "No such command 'xyzzy'. (see: glassfleet --help)"),
        (["run", "list", "--jsn"], "--json"),
    ],
)
def test_mistyped_command_is_told_with_the_nearest_at_every_level(
    capsys: pytest.CaptureFixture[str], typed: list[str], text: str
) -> None:
    assert run(typed) == 2
    result = capsys.readouterr().err
    assert text in result
    assert result.count("Did you mean") <= 1


def test_full_tap_has_all_of_a_message() -> None:
    body = Part(digest="0" * 64, index=0, count=1, data=b"\x00\xff")
    payload = Envelope(fleet="f", body=body, run="r1", agent="a", time=0.5).to_bytes()
    line = decode(Topics("f").contribution("a"), payload, Topics("f"), whole)
    assert line["body"]["data"] == {"bytes": "00ff"}
    assert whole({"x": [np.array([1, 2]), 0.1]}) == {
        "x": [{"array": "<i8", "shape": [2], "data": "01" + "00" * 7 + "02" + "00" * 7}, {"float": "0.1"}]
    }
