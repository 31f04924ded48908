"""Commands as processes, what they say, and how a test waits; all commands there are; servers that take messages."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import selectors
import shutil
import socketserver
import struct
import subprocess
import sys
import termios
import textwrap
import threading
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from email import message_from_bytes, policy
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path
from typing import Any

import click
import httpx

from console.main import cli
from lab.processes import PROGRAM, Process, ProcessFleet

ROOT = Path(__file__).resolve().parents[2]
Call = Callable[..., subprocess.CompletedProcess[str]]
"""Runs a command, given its words, to its end."""


def eventually(condition: Callable[..., Any], what: str = "it came true", seconds: float = 60.0) -> Any:
    """Wait until a condition holds, and return what it gave; fails with `what` after so many seconds."""
    end = time.monotonic() + seconds
    while not (result := condition()):
        assert time.monotonic() < end, f"never: {what}"
        time.sleep(0.05)
    return result


def without_settings() -> dict[str, str]:
    """Return this process's environment without the settings of a fleet."""
    return {name: value for name, value in os.environ.items() if not name.startswith("GLASSFLEET_")}


def glassfleet(
    *arguments: str, timeout: float = 120, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; `environment`: in place of this process's without its settings."""
    return subprocess.run(
        [*PROGRAM, *arguments], cwd=ROOT, check=False, timeout=timeout,
        capture_output=True, text=True, env=without_settings() if environment is None else environment,
    )  # fmt: skip


def python(
    code: str, *arguments: str, check: bool = True, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run Python code in a process of its own, with further variables in its environment."""
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=ROOT, check=check, timeout=60,
        capture_output=True, text=True, env={**os.environ, **(environment or {})},
    )  # fmt: skip


def brought_by(*extras: str) -> set[str]:
    """Return the top-level modules of the packages that ``pip install glassfleet[EXTRAS]`` brings, theirs included."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    todo = [*project["dependencies"], *(each for extra in extras for each in project["optional-dependencies"][extra])]
    wanted: set[str] = set()
    while todo:
        name = re.split(r"[^A-Za-z0-9._-]", todo.pop())[0].lower().replace("_", "-")
        if name not in wanted:
            wanted.add(name)
            with contextlib.suppress(PackageNotFoundError):  # for an older Python, or another system
                todo.extend(entry for entry in requires(name) or [] if "extra ==" not in entry)
    return {
        module
        for module, owners in packages_distributions().items()
        if any(owner.lower().replace("_", "-") in wanted for owner in owners)
    }


ONLY = """
import sys

class Only:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in {*sys.argv[1:], *sys.stdlib_module_names} and not name.startswith("_"):
            raise ModuleNotFoundError(f"not installed here: {name}", name=name)

sys.meta_path.insert(0, Only())
"""
OURS = ("schemas", "glassfleet", "broker", "coordinator", "edge_agent", "console", "lab")


def python_where(code: str, *extras: str, ours: Sequence[str] = OURS) -> subprocess.CompletedProcess[str]:
    """Run Python code as where nothing but `ours` and the packages of these extras is installed."""
    return python(ONLY + textwrap.dedent(code), *brought_by(*extras), *ours, check=False)


class Processes(ProcessFleet):
    """The processes of a fleet that share a state folder, and the commands that are run beside them.

    What process number n, started with the command C, prints goes to ``C-n.out`` in the folder, its log to ``C-n.log``.

    Parameters
    ----------
    folder : Path
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, {**without_settings(), "GLASSFLEET_STATE_DIR": str(folder)})
        self.folder = folder

    def start(
        self,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
        program: Sequence[str] = PROGRAM,
        folder: Path | None = None,
        stdin: int = subprocess.DEVNULL,
    ) -> Process:
        """Start a command that goes on; `program`: what takes its words, `folder`: where it works."""
        process = self.add(f"{arguments[0]}-{len(self)}", arguments, environment or {}, program)
        process.results, process.folder = process.log.with_suffix(".out"), folder
        process.start(stdin)
        return process

    def call(self, *arguments: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return glassfleet(*arguments, timeout=timeout, environment=self.environment)

    def note(self, name: str) -> str:
        """Return what stands in a file of the folder; empty: there is none."""
        path = self.folder / name
        return path.read_text().strip() if path.exists() else ""

    def is_healthy(self) -> bool:
        """Whether the coordinator answers, and has its broker."""
        with contextlib.suppress(httpx.HTTPError):
            url = self.note("api-url")
            return bool(url) and httpx.get(f"{url}/api/health", trust_env=False).json()["connected"] is True
        return False

    def until(self, happened: Callable[[], Any], process: Process | None = None, patience: float = 60) -> None:
        """Wait for something that should come true, while `process` lives; fails with all logs."""
        end = time.monotonic() + patience
        while not happened():
            assert time.monotonic() < end, self.logs()
            assert process is None or process.is_running, self.logs()
            time.sleep(0.05)

    def logs(self) -> str:
        """Return the end of each log."""
        return "\n".join(f"== {path.name}\n{path.read_text()[-3000:]}" for path in sorted(self.folder.glob("*.log")))


def on_terminal(command: Sequence[str], *, columns: int = 100, **environment: str) -> tuple[int, str]:
    """Run a command on a terminal; exit code and what was sent.

    One that begins with a dash is Python's; any other is ``glassfleet``'s.
    """
    main, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    kept = {name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "COLUMNS", "FORCE_COLOR"}}
    program = command if command[0].startswith("-") else ["-m", "console.main", *command]
    process = subprocess.Popen(  # `lab.processes` has no terminals
        [sys.executable, *program], stdin=side, stdout=side, stderr=side,
        env={**kept, "TERM": "xterm-256color", "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), **environment},
    )  # fmt: skip
    os.close(side)
    sent = b""
    ready = selectors.DefaultSelector()
    ready.register(main, selectors.EVENT_READ)
    while ready.select(60):
        try:
            part = os.read(main, 65536)
        except OSError:  # the other side is closed
            break
        if not part:
            break
        sent += part
    ready.close()
    os.close(main)
    return process.wait(20), sent.decode()


@contextlib.contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Serve HTTP on loopback, in a thread; give the address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def policy_file(folder: Path, **keys: Any) -> tuple[str, str]:
    """Write a policy file with these keys; return the option that names it."""
    path = folder / f"policy-{len(list(folder.glob('policy-*')))}.json"
    path.write_text(json.dumps(keys), encoding="utf-8")
    return "--policy", str(path)


def every_command(group: click.Group = cli, path: str = "glassfleet") -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group, info_name=path)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield f"{path} {name}", command
        if isinstance(command, click.Group):
            yield from every_command(command, f"{path} {name}")


class Received(list[str]):
    """Messages that came, each as its title and its lines; while it `is_shut` the server refuses all."""

    url: str
    is_shut = False


@contextlib.contextmanager
def webhook() -> Iterator[Received]:
    """A server for JSON by POST."""
    received = Received()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if not received.is_shut:
                received.append(f"{body['title']}\n{body['message']}")
            self.send_response(503 if received.is_shut else 200)
            self.end_headers()

        def log_message(self, *_: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server, _serving(server):
        received.url = f"json://127.0.0.1:{server.server_address[1]}/duty"
        yield received


@contextlib.contextmanager
def mailbox() -> Iterator[Received]:
    """A mail server, as much of RFC 5321 as takes one message."""
    received = Received()

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.wfile.write(b"220 here\r\n")
            while line := self.rfile.readline():
                verb = line.split()[0].upper() if line.strip() else b""
                if verb == b"DATA":
                    self.wfile.write(b"354 go on\r\n")
                    lines = list(iter(self.rfile.readline, b".\r\n"))
                    message = message_from_bytes(b"".join(lines), policy=policy.default)
                    part = message.get_body(("plain",))
                    assert part is not None
                    received.append(f"{message['subject']}\n{part.get_content().strip()}".replace("\r\n", "\n"))
                refuses = received.is_shut and verb == b"MAIL"
                self.wfile.write(b"221 bye\r\n" if verb == b"QUIT" else b"451 later\r\n" if refuses else b"250 ok\r\n")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server, _serving(server):
        received.url = f"mailto://127.0.0.1:{server.server_address[1]}?from=fleet@example.org&to=duty@example.org"
        yield received


@contextlib.contextmanager
def _serving(server: socketserver.BaseServer) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()


@contextlib.contextmanager
def small_disk(folder: Path, size: str) -> Iterator[bool]:
    """Mount a disk of so many bytes in memory on a folder; False: none may be mounted, or nothing here can."""
    places = os.pathsep.join((os.environ.get("PATH", ""), "/usr/bin", "/bin", "/usr/sbin", "/sbin"))
    mount, umount = (shutil.which(each, path=places) for each in ("mount", "umount"))
    command = [mount or "", "-t", "tmpfs", "-o", f"size={size},mode=700", "tmpfs", str(folder)]
    is_one = None not in {mount, umount} and subprocess.run(command, check=False, capture_output=True).returncode == 0
    try:
        yield is_one
    finally:
        if is_one:
            subprocess.run([umount or "", str(folder)], check=True)
