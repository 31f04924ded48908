"""A real PostgreSQL server for tests: in a folder of its own, with a password; killed without mercy.

On loopback, or at the address of a machine with a network of its own.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import psutil
import psycopg
from psycopg import sql

from broker.servers.process import die_with_parent, free_port
from tests.support.needs import programs
from tests.support.netns import Machine

USER = "glassfleet"
PASSWORD = "s3cret-for-tests"


def _account() -> dict[str, Any]:
    """Arguments of ``subprocess`` that make a child somebody else: PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    raise RuntimeError("PostgreSQL does not run as root, and there is no user postgres or nobody")


class PostgresServer:
    """One cluster, started, stopped and killed at will; with a machine it runs there, at this `host`."""

    def __init__(self, machine: Machine | None = None, host: str = "127.0.0.1") -> None:
        self.host = host
        self._machine = machine
        self._programs = Path(programs.path("initdb")).resolve().parent
        self._account = _account()
        # Not in pytest's folder: only its owner may enter that one. In memory where that is possible: what is tested is
        # killed processes, not cut power, and a busy disk would cost a minute.
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.folder = Path(tempfile.mkdtemp(prefix="glassfleet-pg-", dir=memory))
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._databases = 0
        secret = self.folder / "secret"
        secret.write_text(PASSWORD + "\n")
        for path in (self.folder, secret):
            path.chmod(0o700)
            if self._account:
                os.chown(path, self._account["user"], self._account["group"])
        made = subprocess.run(
            [
                str(self._programs / "initdb"), "--pgdata", str(self.folder / "data"), "--username", USER,
                "--pwfile", str(secret), "--auth", "scram-sha-256", "--encoding", "UTF8", "--locale", "C", "--no-sync",
            ],
            capture_output=True, text=True, cwd="/", env=self._environment(), check=False, **self._account,
        )  # fmt: skip
        assert made.returncode == 0, made.stderr
        if machine is not None:
            with (self.folder / "data" / "pg_hba.conf").open("a") as rules:
                rules.write(f"host all all {host}/24 scram-sha-256\n")

    def _environment(self) -> Mapping[str, str]:
        return {"PATH": os.environ.get("PATH", ""), "LANG": "C", "TZ": "UTC"}

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def start(self) -> None:
        """Start it and wait until it answers."""
        if self._process is not None:
            return
        command = [
            str(self._programs / "postgres"), "-D", str(self.folder / "data"), "-p", str(self.port),
            "-k", str(self.folder), "-c", f"listen_addresses={self.host}", "-c", "max_connections=30",
            "-c", "shared_buffers=16MB",
        ]  # fmt: skip
        account = self._account
        if self._machine is not None:  # only root enters a network, and becomes somebody else there
            command, account = self._machine.command(command, account.get("user"), account.get("group")), {}
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(  # `lab.processes` makes nobody somebody else
                command,
                stdout=log, stderr=log, cwd="/", env=self._environment(), start_new_session=True,
                preexec_fn=die_with_parent(),  # noqa: PLW1509  see die_with_parent
                **account,
            )  # fmt: skip
        end = time.monotonic() + 60
        while True:
            try:
                self.connect("postgres").close()
            except psycopg.OperationalError:
                assert self._process.poll() is None, self.log()
                assert time.monotonic() < end, self.log()
                time.sleep(0.05)
            else:
                return

    def connect(self, database: str) -> psycopg.Connection[Any]:
        """Return a connection of the owner's that commits each statement."""

        def connect() -> psycopg.Connection[Any]:
            return psycopg.connect(
                host=self.host, port=self.port, user=USER, password=PASSWORD, dbname=database, autocommit=True
            )

        return connect() if self._machine is None else self._machine.visit(connect)

    def database(self) -> str:
        """Make an empty database; returns its name."""
        self._databases += 1
        name = f"journal{self._databases}"
        with self.connect("postgres") as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return name

    def end_holder(self, database: str) -> None:
        """End the connection that holds the lock of a journal."""
        with self.connect(database) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted "
                "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
            )

    def url(self, database: str, *, user: str = USER, password: str = PASSWORD) -> str:
        """Return a URL as people write it, for the journal."""
        return f"postgresql://{user}:{password}@{self.host}:{self.port}/{database}"

    def kill(self) -> None:
        """SIGKILL to the server and all its children: what a power cut leaves is on the disk."""
        if self._process is not None:
            # Each child leads a group of its own. The parent first: it would begin to recover otherwise.
            children = psutil.Process(self._process.pid).children(recursive=True)
            self._process.kill()
            for child in children:
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()
            self._process.wait()
            psutil.wait_procs(children, timeout=30)
            self._process = None

    def stop(self) -> None:
        """End it at once, cleanly."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(30)
            self._process = None

    def remove(self) -> None:
        """End it and leave nothing behind."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def log(self) -> str:
        """Return the end of its log."""
        return (self.folder / "log").read_text(errors="replace")[-3000:]
