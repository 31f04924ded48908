"""``glassfleet coordinator``: the service that opens and closes rounds; its journal verified and exported."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from console.common import F, file_option, json_option, print_json, state_dir_option
from console.settings import Given, settings_options
from coordinator.config import CoordinatorConfig
from schemas.errors import StorageError
from schemas.private_files import replacing

if TYPE_CHECKING:
    from coordinator.journal.port import Damaged


@click.group(invoke_without_command=True)
@settings_options(CoordinatorConfig)
@click.pass_context
def coordinator(context: click.Context, given: Given[CoordinatorConfig]) -> None:
    """Start the coordinator: it opens and closes rounds, keeps the journal, and publishes models.

    SIGTERM and Ctrl-C end it cleanly; killed and started again, it finishes its runs from the journal.

    \b
    Examples:
      glassfleet coordinator --broker mqtt://127.0.0.1
    """
    if context.invoked_subcommand is not None:
        return
    config = given.load()
    from coordinator.main import run_coordinator  # a wrong flag is told before all that is loaded

    run_coordinator(config)


_WAY_OUT = "restore the journal from a backup, or go on without: the coordinator serves nothing that is damaged"


@coordinator.group()
def journal() -> None:
    """Verify a coordinator's journal, and export it. Both only read: the coordinator may go on meanwhile.

    \b
    Examples:
      glassfleet coordinator journal verify
      glassfleet coordinator journal export --out journal.jsonl
    """


def _journal_options(function: F) -> F:
    function = state_dir_option(function)
    return click.option(
        "--journal", "url", envvar="GLASSFLEET_COORDINATOR_JOURNAL", metavar="URL",
        help="Journal to read. Default: STATE_DIR/journal.sqlite.",
    )(function)  # fmt: skip


@journal.command()
@_journal_options
@json_option
def verify(url: str | None, state_dir: Path, *, as_json: bool) -> int:
    """Hold every row of the journal against its checksum, and print what is damaged.

    Exit code 5 when something is.

    \b
    Examples:
      glassfleet coordinator journal verify
      glassfleet coordinator journal verify --journal postgresql://glassfleet@db/glassfleet --json
    """
    from coordinator.journal.inspect import rows  # extra coordinator
    from coordinator.journal.port import Damaged

    whole: Counter[str] = Counter()
    damaged: list[Damaged] = []
    for table, row in rows(_place(url, state_dir)):
        if isinstance(row, Damaged):
            damaged.append(row)
        else:
            whole[table] += 1
    if as_json:
        print_json({"whole": whole, "damaged": [asdict(each) for each in damaged]})
    else:
        for each in damaged:
            click.echo(f"damaged: {each}")
        text = ", ".join(f"{count} {table}" for table, count in whole.items()) or "nothing yet"
        click.echo(f"whole: {text}")
    return _code(damaged)


@journal.command()
@_journal_options
@file_option("--out", help="Write it there, for you alone (mode 0600). Default: stdout.")
def export(url: str | None, state_dir: Path, out: Path | None) -> int:
    """Write each row that can be read as a line of JSON, and name the others on stderr.

    Exit code 5 when rows had to be left out. Events are MessagePack, in Base64.

    \b
    Examples:
      glassfleet coordinator journal export --out journal.jsonl
      glassfleet coordinator journal export | jq -c 'select(.table == "models") | .record.document'
    """
    if out is None:
        return _write(_place(url, state_dir), sys.stdout.write)
    with replacing(out) as file:
        return _write(_place(url, state_dir), lambda line: file.write(line.encode()))


def _write(url: str, write: Callable[[str], object]) -> int:
    from coordinator.journal.inspect import as_document, rows  # extra coordinator
    from coordinator.journal.port import Damaged

    damaged: list[Damaged] = []
    for table, row in rows(url):
        if isinstance(row, Damaged):
            damaged.append(row)
            click.echo(f"damaged: {row}", err=True)
        else:
            write(json.dumps(as_document(table, row)) + "\n")
    return _code(damaged)


def _place(url: str | None, state_dir: Path) -> str:
    return url or f"sqlite:///{state_dir / 'journal.sqlite'}"


def _code(damaged: list[Damaged]) -> int:
    if not damaged:
        return 0
    click.echo(f"the journal is damaged: {_WAY_OUT}", err=True)
    return StorageError.exit_code
