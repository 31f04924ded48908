"""What holds for every command: examples, nonsense told in one line, JSON, quiet, colours, completion, Ctrl-C."""

from __future__ import annotations

import dataclasses
import inspect
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from console.main import cli, run
from tests.support.docs.commands import fault
from tests.support.processes import Processes, eventually, every_command, on_terminal, python, python_where

BIN = Path(sys.executable).parent

DOCUMENTS = {
    "glassfleet lab conformance rows": "writes files",
    "glassfleet broker config": "prints the broker's own file",
    "glassfleet ca crl": "prints a PEM file",
    "glassfleet coordinator": "a service; its log can be JSON (--log-format)",
    "glassfleet agent": "a service; its log can be JSON (--log-format)",
    "glassfleet model export": "writes a document",
    "glassfleet coordinator journal export": "writes JSON lines",
}
"""Commands without --json that have no result of ours to print."""


COMMANDS = dict(every_command())
LEAVES = {
    path: command
    for path, command in COMMANDS.items()
    if not isinstance(command, click.Group) or command.invoke_without_command
}


SETTINGS_OF_A_SERVICE = ("glassfleet agent", "glassfleet coordinator", "glassfleet forecast run")
"""Their options are made from a model of settings, which checks them."""


@pytest.fixture(autouse=True)
def _own_folder(own_state: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def examples(command: click.Command) -> list[str]:
    _, result, block = inspect.cleandoc(command.help or "").partition("\b\nExamples:\n")
    return [line.strip() for line in block.split("\n\n")[0].splitlines() if line.strip()] if result else []


def test_examples_of_every_help_text_are_commands_that_click_takes() -> None:
    given = {path: examples(command) for path, command in {"glassfleet": cli, **COMMANDS}.items()}
    assert [path for path, each in given.items() if not each] == []
    for path, example in ((path, example) for path, each in given.items() for example in each):
        line = re.split(r" [|>] ", example)[0]
        assert line.startswith("glassfleet ")
        assert isinstance(COMMANDS.get(path, cli), click.Group) or line.startswith(path), f"{path}: {example}"
        assert fault(shlex.split(line)[1:], whole=True) is None, f"{path}: {example}"


def nonsense(command: click.Command) -> Iterator[list[str]]:
    """Yield arguments that no command can take."""
    yield ["--nosuch"]
    yield ["--config", "nofile.toml"] if any(parameter.name.startswith("config") for parameter in command.params
                                             if parameter.name) else ["--nosuch=\n"]  # fmt: skip
    if not any(isinstance(parameter, click.Argument) for parameter in command.params):
        yield ["no such\nargument"]
    for parameter in command.params:
        if isinstance(parameter, click.Option) and not parameter.is_flag and not isinstance(
            parameter.type, click.types.StringParamType | click.Path
        ):  # fmt: skip
            yield [parameter.opts[-1], "non\nsense"]
            yield [parameter.opts[-1], "-1e999"]


def test_nonsense_is_told_in_one_line_with_a_documented_code(capsys: pytest.CaptureFixture[str]) -> None:
    for more in ([*path.split()[1:], *wrong] for path, command in LEAVES.items() for wrong in nonsense(command)):
        code = run(more)
        out, err = capsys.readouterr()
        assert 2 <= code <= 10, (more, err)
        assert out == "", more
        assert err.startswith("glassfleet: error: "), more
        assert err.count("\n") == 1, (more, err)
        assert "Traceback" not in err


WITH_PASSWORD = "postgresql://u:secret@127.0.0.1/db?table=r"
NAMES_ROWS = {"--data", "--csv", "--source", "source", "file", "exports"}
MORE = {"glassfleet coordinator": ("--broker-wait", "0.1"), "glassfleet forecast run": ("--id", "v0")}


def named(parameter: click.Parameter, value: str) -> list[str]:
    return [value] if isinstance(parameter, click.Argument) else [parameter.opts[-1], value]


@pytest.mark.usefixtures("structlog_defaults")
def test_no_command_prints_the_password_of_a_url(capsys: pytest.CaptureFixture[str]) -> None:
    seen = set()
    for path, command in LEAVES.items():
        for parameter in command.params:
            if parameter.opts[-1] not in NAMES_ROWS and parameter.metavar not in {"URL", "URI", "SOURCE"}:
                continue
            words = [*path.split()[1:], *MORE.get(path, ())]
            for other in command.params:
                if other.required and other is not parameter:
                    words += named(other, "x.window" if other.name == "store" else "1")
            for url in (WITH_PASSWORD, "http://u:secret@127.0.0.1:9"):
                code = run([*words, *named(parameter, url)])
                printed = "".join(capsys.readouterr())
                assert code != 0
                assert "secret" not in printed, (path, parameter.opts)
                if "u:***@" in printed:
                    seen.add(f"{path} {parameter.opts[-1]}")
    rows = {f"{path} {each.opts[-1]}" for path, command in LEAVES.items() for each in command.params
            if each.opts[-1] in NAMES_ROWS}  # fmt: skip
    assert rows <= seen


def flags(path: str) -> set[str]:
    return {flag for parameter in LEAVES[path].params for flag in parameter.opts}


def test_every_command_prints_json_or_has_nothing_to_print() -> None:
    assert [path for path in LEAVES if "--json" not in flags(path) and path not in DOCUMENTS] == []
    assert set(DOCUMENTS) <= set(COMMANDS)


def test_every_command_takes_each_of_its_options_by_a_typed_name() -> None:
    wrong = {}
    for path in LEAVES.keys() - set(SETTINGS_OF_A_SERVICE):
        function = inspect.unwrap(LEAVES[path].callback or int)
        taken = inspect.signature(function).parameters
        kinds = [function.__globals__.get(str(each.annotation)) for each in taken.values()]
        names = {each.name for kind in kinds if dataclasses.is_dataclass(kind) for each in dataclasses.fields(kind)}
        names = names or taken.keys() - {"ctx", "context"}
        names = names - {"api"} | {"coordinator", "token", "state_dir"} if "api" in names else names
        if names != {each.name for each in LEAVES[path].params if each.expose_value}:
            wrong[path] = names
    assert not wrong


def test_every_command_can_be_quiet_or_has_a_log_level() -> None:
    single = [path for path, command in LEAVES.items() if not isinstance(command, click.Group)]
    assert [path for path in single if ("--quiet" in flags(path)) == ("--log-level" in flags(path))] == []


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "rows.csv"
    path.write_text("a,b,y\n" + "".join(f"{row % 13},{row % 7},{row % 5 + row % 13}\n" for row in range(120)))
    return path


LONG = ["lab", "experiment", "--csv", "rows.csv", "--clients", "2", "--folds", "50"]
EXPERIMENT = ["lab", "experiment", "--folds", "2", "--clients", "2", "--jobs", "1", "--settings", "central", "--csv"]


def test_quiet_leaves_the_result_and_the_errors(rows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*EXPERIMENT, str(rows)]) == 0
    loud = capsys.readouterr()
    assert "fold 1" in loud.err
    assert run([*EXPERIMENT, str(rows), "--quiet", "--json"]) == 0
    quiet = capsys.readouterr()
    assert quiet.err == ""
    assert json.loads(quiet.out)["rows"] == 120
    for wrong in (["-q", "--folds", "x"], ["-q", "--target", "nosuch"], ["--nosuch", "-q"]):
        assert run([*EXPERIMENT, str(rows), *wrong]) in (2, 3)
        assert capsys.readouterr().err.startswith("glassfleet: error: ")


COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def test_colours_come_on_a_terminal_only_and_never_with_no_color(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "odd.csv").write_text("a,y\n1,1\n1,3\n1,2\n")  # all values of an input are the same: a warning
    arguments = ["data", "import", "odd.csv"]
    code, sent = on_terminal(arguments, NO_COLOR="")
    assert code == 0
    assert COLOUR.search(sent)
    code, sent = on_terminal(arguments, NO_COLOR="1")
    assert (code, COLOUR.search(sent)) == (0, None)
    assert run(arguments) == 0
    assert not COLOUR.search(capfd.readouterr().out)


COMPLETED = {
    "da": {"data"},
    "model ex": {"explain", "export"},
    "data import --ta": {"--target"},
    "demo --scheme tree": {"tree"},
    "lab experiment --scheme tree --param max_ru": {"max_rules="},
}
LINES = " ".join(map(repr, COMPLETED))
# What each shell is told in its own way: take the script, then say what it would offer for each line that was typed.
# The candidates of zsh go to `compadd` and `_describe` (which tell descriptions, too), so these print what they get.
SHELLS = {
    "bash --norc": f"""
        eval "$(glassfleet --completion bash)"
        complete -p glassfleet >&2
        for line in {LINES}; do
            COMPREPLY=(); COMP_WORDS=(glassfleet $line); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
            _glassfleet_completion glassfleet
            printf '%s\\n' "${{COMPREPLY[@]}}" :
        done
    """,
    "zsh -f": f"""
        autoload -Uz compinit; compinit -D -u
        source <(glassfleet --completion zsh)
        print -u2 registered=$_comps[glassfleet]
        _describe() {{ local each; for each in ${{(P)3}}; do print -r -- ${{each%%:*}}; done }}
        compadd() {{ print -r -l -- ${{(P)@[-1]}} }}
        for line in {LINES}; do words=(glassfleet ${{=line}}); CURRENT=$#words; _glassfleet_completion; print :; done
    """,
    "fish --no-config": f"""
        glassfleet --completion fish | source
        echo registered=(complete --command glassfleet | string match --regex _glassfleet_completion) >&2
        for line in {LINES}; complete --do-complete "glassfleet $line" | string split --fields 1 \\t; echo :; end
    """,
}


@pytest.mark.parametrize("shell", [pytest.param(shell, marks=pytest.mark.needs(shell.split()[0])) for shell in SHELLS])
def test_shell_completes_commands_and_options_when_the_script_is_sourced(shell: str, tmp_path: Path) -> None:
    name, option = shell.split()
    done = subprocess.run(
        [name, option, "-c", SHELLS[shell]],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "HOME": str(tmp_path)},
    )
    assert "_glassfleet_completion" in done.stderr
    offered = [set(words.split()) for words in done.stdout.split(":\n")[:-1]]
    assert dict(zip(COMPLETED, offered, strict=True)) == COMPLETED


@pytest.mark.parametrize("streams", ["stdout", "both"])
@pytest.mark.parametrize("words", [["--completion", "bash"], ["model", "rules", "nofile.json"], ["--help"]])
def test_command_ends_quietly_when_nobody_reads_what_it_says(words: list[str], streams: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [str(BIN / "glassfleet"), *words],
        stdout=writing,
        stderr=writing if streams == "both" else subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writing)
    is_fault = "nofile.json" in words
    assert done.returncode == (10 if is_fault and streams == "stdout" else 141)
    assert "Traceback" not in (done.stderr or "")
    assert "Exception ignored" not in (done.stderr or "")


@pytest.mark.parametrize(
    "words",
    [
        ["broker", "--port", "0", "--kind", "embedded"],
        ["coordinator", "--broker-wait", "0"],
        ["agent", "--id", "v1", "--data", "rows.csv", "--broker-wait", "0"],
        ["demo", "--vehicles", "3"],
        pytest.param([*LONG, "--jobs=1"], marks=pytest.mark.slow),
        pytest.param([*LONG, "--jobs=2"], marks=pytest.mark.slow),
        ["data", "collect", "--source", "-", "--store", "x.window"],
        ["run", "start", "--wait", "--coordinator", "http://127.0.0.1:9"],
    ],
    ids=lambda words: " ".join(words[:2]) + words[-1],
)
def test_ctrl_c_ends_a_command_with_a_word_and_a_documented_code(
    words: list[str], rows: Path, processes: Processes
) -> None:
    read, write = os.pipe()  # to which nobody writes
    process, store = processes.start(*words, stdin=read, folder=rows.parent), rows.with_name("x.window")
    # Before it is at work, Python itself may still be starting, and tells of Ctrl-C in its own way.
    eventually(lambda: store.exists() or process.printed() or process.logged(), f"{words} is at work")
    time.sleep(0.3)
    # A terminal sends it to every process of the command.
    os.killpg(process.pid, signal.SIGINT)
    code, out, err = process.reap(60), process.printed(), process.logged()
    os.close(read)
    os.close(write)
    service = words[0] in {"broker", "coordinator", "agent"} or words[1] == "collect"
    assert "Traceback" not in err + out
    # A service that has spoken, but not begun its work yet, is interrupted like any other command.
    assert code in ({0, 130} if service else {130}), (out, err)
    if code == 130:
        assert err.endswith("glassfleet: error: interrupted\n")


SLOW = """
import os, signal, subprocess, time, weakref
import click

def interrupt():
    os.kill(os.getpid(), signal.SIGINT)
"""
# What is raised in a finalizer, or in a hook of a fork, Python prints and drops; libraries written in C do the same.
AT_A_BAD_MOMENT = {
    "import": """
weakref.finalize(type("Dropped", (), {})(), interrupt)
@click.command()
def slow():
    time.sleep(10)
""",
    "fork": """
os.register_at_fork(before=interrupt)
@click.command()
def slow():
    subprocess.run(["/bin/sh", "-c", ":"], preexec_fn=int)
    time.sleep(10)
""",
}
RUN_SLOW = "import sys; from console.main import *; COMMANDS['x'] = {'slow': ('slow:slow', '')}; exit(run(['slow']))"


@pytest.mark.parametrize("moment", AT_A_BAD_MOMENT)
def test_ctrl_c_ends_a_command_that_is_loaded_or_makes_a_process(moment: str, tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW + AT_A_BAD_MOMENT[moment])
    done = python(RUN_SLOW, check=False, environment={"PYTHONPATH": str(tmp_path)})
    assert (done.returncode, done.stderr.strip()) == (130, "glassfleet: error: interrupted")


SIGNALLED_WHILE_HANDLING = """
import signal, sys
from console.common import StopFlag

stop, left = StopFlag(), [50]

def again(frame, event, argument):
    if left[0] and event == "line":
        left[0] -= 1
        signal.raise_signal(signal.SIGINT if left[0] % 2 else signal.SIGTERM)
    return again

sys.settrace(again)  # a signal comes before every line that is run from here on, the handler's and the lock's included
signal.raise_signal(signal.SIGTERM)
sys.settrace(None)
print(stop.wait(60), left[0] < 50)
"""


def test_stop_flag_is_set_when_a_signal_comes_while_another_is_handled() -> None:
    child = python(SIGNALLED_WHILE_HANDLING, check=False)
    assert (child.stdout.strip(), child.stderr) == ("True True", "")


WITHOUT_LAB = """
import sys
sys.modules["lab"] = None  # to import it, or what is in it, is to find that it is not there
from console.main import run
sys.exit(max(run(line.split()) for line in sys.argv[1:] or [""]))
"""


def glassfleet(*lines: str) -> subprocess.CompletedProcess[str]:
    return python(WITHOUT_LAB, *lines, check=False)


def test_command_of_a_vehicle_or_a_coordinator_works_without_the_laboratory() -> None:
    lines = [f"{command} --help" for command in ("", "agent", "coordinator", "run", "model", "doctor")]
    done = glassfleet(*lines)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("Usage: glassfleet") == len(lines)


def test_completion_goes_on_without_the_laboratory(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"COMPLETE": "bash_complete", "COMP_WORDS": "glassfleet ag", "COMP_CWORD": "1"}.items():
        monkeypatch.setenv(f"_GLASSFLEET_{name}" if name == "COMPLETE" else name, value)
    done = glassfleet()
    assert (done.stdout.split(), done.stderr) == (["plain,agent"], "")


def test_broker_of_another_kind_is_launched_without_the_library_of_the_embedded_one() -> None:
    done = python("import sys; sys.modules['amqtt'] = None; import broker.servers.launch", check=False)
    assert (done.returncode, done.stderr) == (0, "")


LOADED_BY_COMMANDS = {
    "": """
        import console.services.authority, coordinator.authority.store, coordinator.config
        import coordinator.specification.run, lab.conformance.command, lab.processes
        from console.main import run

        lines = ("coordinator --help", "coordinator journal --help", "ca init --quiet")
        assert [run(line.split()) for line in lines] == [0, 0, 0]
    """,
    "operator": """
        import importlib, pkgutil
        import console.operator, coordinator.specification.run

        for each in pkgutil.iter_modules(console.operator.__path__, "console.operator."):
            importlib.import_module(each.name)
        spec = {"run": "", "scheme": "frt", "parameters": {}, "rounds": {}}
        assert not sys.modules["console.operator.runs"].could_be_private(spec, 20)
    """,
}


@pytest.mark.parametrize("extra", LOADED_BY_COMMANDS)
def test_command_works_without_the_packages_of_extras_that_it_does_not_need(extra: str) -> None:
    done = python_where(LOADED_BY_COMMANDS[extra], *filter(None, [extra]))
    assert (done.returncode, done.stderr) == (0, "")


def test_command_of_the_laboratory_says_what_is_missing() -> None:
    done = glassfleet("demo")
    assert done.returncode == 2
    assert done.stderr == (
        "glassfleet: error: this is a command of the laboratory, the package lab, which is left out here: install all "
        "of glassfleet\n"
    )
