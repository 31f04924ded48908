"""A real PostgreSQL server for tests: in a folder of its own, on loopback, with a password; killed without mercy."""

from __future__ import annotations

import contextlib
import glob
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

USER = "glassfleet"
PASSWORD = "s3cret-for-tests"


def find_postgresql() -> str | None:
    """Folder of PostgreSQL's programs: the newest of Debian's, else of those on the PATH; None when not installed."""
    for folder in sorted(glob.glob("/usr/lib/postgresql/*/bin"), key=_version, reverse=True):  # noqa: PTH207
        if Path(folder, "initdb").exists():
            return folder
    found = shutil.which("initdb")
    return None if found is None else str(Path(found).resolve().parent)


def _version(folder: str) -> float:
    part = Path(folder).parent.name
    return float(part) if part.replace(".", "", 1).isdigit() else 0.0


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
    """One cluster, started, stopped and killed at will."""

    def __init__(self) -> None:
        programs = find_postgresql()
        assert programs is not None, "apt install postgresql"
        self._programs = Path(programs)
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
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    str(self._programs / "postgres"), "-D", str(self.folder / "data"), "-p", str(self.port),
                    "-k", str(self.folder), "-c", "listen_addresses=127.0.0.1", "-c", "max_connections=30",
                    "-c", "shared_buffers=16MB",
                ],
                stdout=log, stderr=log, cwd="/", env=self._environment(), start_new_session=True,
                preexec_fn=die_with_parent(),  # noqa: PLW1509  see die_with_parent
                **self._account,
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
        return psycopg.connect(
            host="127.0.0.1", port=self.port, user=USER, password=PASSWORD, dbname=database, autocommit=True
        )

    def database(self) -> str:
        """Make an empty database; returns its name."""
        self._databases += 1
        name = f"journal{self._databases}"
        with self.connect("postgres") as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return name

    def url(self, database: str, *, user: str = USER, password: str = PASSWORD) -> str:
        """Return a URL as people write it, for the journal."""
        return f"postgresql://{user}:{password}@127.0.0.1:{self.port}/{database}"

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
