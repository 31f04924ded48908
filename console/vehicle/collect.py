"""``glassfleet data collect``: keep the newest rows of a live stream in a window on disk."""

from __future__ import annotations

import hashlib
import json
import math
import queue
import signal
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from console.common import ca_file_option, file_option, json_option, print_json, rows_place, token_file_option
from console.lazy import is_quiet
from console.progress import Work, progress
from schemas.errors import DataError, UsageError
from schemas.log import Log, LogWriter
from schemas.text import counted

if TYPE_CHECKING:
    from edge_agent.live.port import LiveSample, SampleRequest
    from edge_agent.live.rows import LiveRows, Samples
    from edge_agent.sources.window import WindowStore

BATCH = 500
"""Most samples that one transaction of a window store takes."""

TELL_EVERY = 10.0
"""Seconds between two lines about refused samples: a broken sensor must not fill the screen."""

REASONS = 5
"""Most different reasons in such a line."""

DAY = 24 * 3600.0

SILENCE = 30.0
"""Seconds without a sample after which it is said, once: a dead sender, a wrong topic and access rules look alike."""

TOPICS = 4096
"""Most topics of which the last sample is known again."""


@click.command()
@click.option(
    "--source", envvar="GLASSFLEET_DATA_SOURCE", required=True, metavar="URL", callback=rows_place,
    help="mqtt[s]://[user@]host[:port]/TOPIC, viss+mqtt[s]://host/VEHICLE, kuksa[s]://host:port, "
    "can:CHANNEL?database=FILE, a recording or table to replay, a file or pipe of one JSON object per line, or - for "
    "standard input.",
)  # fmt: skip
@click.option(
    "--store", type=click.Path(dir_okay=False, path_type=Path), required=True, metavar="FILE.window",
    help="Where the window is kept; an agent takes it as --data.",
)  # fmt: skip
@click.option(
    "--max-rows", type=click.IntRange(2, 100_000_000),
    help="Newest rows to keep. Default: as the store was made, or 50000.",
)  # fmt: skip
@click.option(
    "--max-days", type=click.FloatRange(0, 36_500),
    help="Rows that came longer ago go; 0: never. Default: as the store was made, or 0.",
)  # fmt: skip
@click.option(
    "--plan", metavar="FILE.toml",
    help="Plan whose table [time] says how samples become rows, as in learning. Default: each sample is a row.",
)  # fmt: skip
@file_option(
    "--vss", "catalogues", multiple=True,
    help="Catalogue of VSS for a plan with its paths; several: what a later one says counts.",
)  # fmt: skip
@click.option("--columns", metavar="A,B,...", help="Fields to keep, the target last. Default: all that come.")
@click.option(
    "--follow", is_flag=True,
    help="At the end of a file wait for more lines, at the end of a pipe for the next writer. Started again, it goes "
    "on in the file behind the last row that it kept.",
)  # fmt: skip
@click.option(
    "--identity", envvar="GLASSFLEET_DATA_IDENTITY", type=click.Path(path_type=Path), metavar="DIR",
    help="Folder with key.pem, cert.pem and ca.pem for mqtts; of an id of its own, since brokers give each "
    "certificate one connection.",
)  # fmt: skip
@token_file_option
@ca_file_option("GLASSFLEET_DATA_CA_FILE")
@click.option(
    "--insecure-plaintext", envvar="GLASSFLEET_DATA_INSECURE_PLAINTEXT", is_flag=True,
    help="Allow mqtt or kuksa to another machine, where everybody on the way can read and change what is said.",
)  # fmt: skip
@click.option("--count", type=click.IntRange(min=1), metavar="N", help="End after so many samples.")
@json_option
def collect(  # noqa: PLR0917 - click passes options by name
    source: str,
    store: Path,
    max_rows: int | None,
    max_days: float | None,
    plan: str | None,
    catalogues: tuple[Path, ...],
    columns: str | None,
    follow: bool,
    identity: Path | None,
    token_file: Path | None,
    ca_file: Path | None,
    insecure_plaintext: bool,
    count: int | None,
    as_json: bool,
) -> None:
    """Keep the newest rows of a live stream on disk, for an agent to learn from.

    A row is a JSON object of numbers and texts, its target last, or what a plan makes of signals at their own times. A
    field that comes later is a column from then on. What is no row is refused and counted. It may be killed at any
    moment; started again, it goes on.

    The agent takes what is in the window when a run freezes its rows. It leaves out, with a word, rows without a
    target, and those with an empty input unless it takes empty cells. Rows stay on this machine.

    \b
    Examples:
      glassfleet data collect --source mqtt://127.0.0.1:1883/vehicle/samples --store drive.window --max-days 7
      glassfleet data collect --source - --store drive.window --max-rows 20000 --columns speed,load,quality
      glassfleet data collect --source mqtts://broker.car/samples --identity collector --store drive.window
      glassfleet data collect --source kuksa://127.0.0.1:55555 --plan plan.toml --store drive.window
    """
    from edge_agent.live.plan import LivePlan
    from edge_agent.live.port import ServerAccess
    from edge_agent.live.rows import LiveRows, Samples
    from edge_agent.sources.window import ENDING, WindowStore

    if store.suffix != ENDING:
        raise UsageError(f"--store {store}: the name must end in {ENDING}, by which an agent knows what it is")
    if plan and columns:
        raise UsageError("--columns: the plan names the columns already")
    Log.write = LogWriter("error" if is_quiet() else "warning")
    live = LivePlan.read(plan, catalogues) if plan else LivePlan()
    wanted = live.names or tuple(filter(None, (name.strip() for name in (columns or "").split(","))))
    asked = live.request(
        source,
        access=ServerAccess(identity, ca_file, token_file, insecure_plaintext),
        follow=follow,
        speed=0.0,
        is_urgent=True,  # a server that is not there, or refuses us, is an error now, not a silent wait
    )
    _check(asked)
    notes = Notes(f"place:{Path(source).absolute()}" if follow else "", store)
    asked.behind = notes.place
    # First: a source that cannot be opened makes no window.
    samples = Samples(asked)
    is_new = not store.exists()
    window = WindowStore(
        store, max_rows=max_rows, max_seconds=None if max_days is None else max_days * DAY, columns=wanted
    )
    # A service for weeks: it is silent where there is no terminal.
    with progress("collecting", count, silence=math.inf) as work:
        filling = Filling(
            window,
            LiveRows(live, units=asked.units, drive=notes.drive + 1),
            notes,
            work,
            is_planned=live.time is not None,
        )
        fault = filling.run(samples, count)
    taken, refused, known = filling.taken, filling.refused, filling.known
    if not (taken or known or fault or samples.is_stopped):
        refusals = f" ({refused} refused)" if refused else ""
        fault = DataError(
            f"--source {source}: it had no sample to take{refusals}. A sample is a JSON object of field and value, on "
            "a line of its own"
        )
    samples.close()
    rows, _, _ = window.span()
    window.close()
    if is_new and fault is not None and not taken:
        store.unlink(missing_ok=True)
    counts = {"taken": taken, "refused": refused, "known": known, "lost": samples.lost}
    if as_json:
        print_json({**counts, "rows": rows, "store": str(store)})
    else:
        already = f"{known} known already, " if known else ""
        summary = f"{counted(taken, 'samples taken')}, {refused} refused, {already}{samples.lost} lost"
        click.echo(f"{summary}; {counted(rows, 'rows')} in {store}", err=True)
    if fault is not None:
        raise fault


def _check(asked: SampleRequest) -> None:
    is_server = "://" in asked.source
    access = asked.access
    if not is_server and any((access.identity, access.ca_file, access.token_file, access.insecure_plaintext)):
        raise UsageError(f"--source {asked.source} is no server: leave out --identity, --ca-file and the like")
    from edge_agent.live.adapters import adapter_of

    if asked.follow and (asked.source == "-" or adapter_of(asked.source).files != "lines"):
        raise UsageError(f"--follow is for a file or named pipe of JSON lines, not for --source {asked.source}")


class Notes:
    """What a window notes of its source, in one transaction with the rows: neither is there without the other.

    Parameters
    ----------
    key : str
        Under which the place in a followed file is noted; empty: the source has none.
    store : Path
        The window; it need not be there.
    """

    def __init__(self, key: str, store: Path) -> None:
        from edge_agent.sources.window import WindowStore

        self._key = key
        self._digests: dict[str, str] = {}
        self.place = ""
        self.newest = -math.inf
        self.drive = 0
        if store.is_file():
            with closing(WindowStore.open(store)) as known:
                self.place = known.noted(key) if key else ""
                self._digests = json.loads(known.noted("topics") or "{}")
                self.newest = float(known.noted("newest") or -math.inf)
                self.drive = int(known.noted("drive") or 0)

    def is_known(self, sample: LiveSample) -> bool:
        """Whether a stored sample was taken before; remembers it, and where it ends."""
        self.place = sample.place
        if not sample.topic:
            return False
        digest = hashlib.blake2b(repr((sample.time, sample.values)).encode(), digest_size=8).hexdigest()
        is_known = sample.is_stored and self._digests.get(sample.topic) == digest
        if sample.topic in self._digests or len(self._digests) < TOPICS:
            self._digests[sample.topic] = digest
        return is_known

    def about(self) -> dict[str, str]:
        """Return what to note."""
        about = {self._key: self.place} if self._key else {}
        if self._digests:
            about["topics"] = json.dumps(self._digests)
        if self.newest > -math.inf:
            about |= {"newest": repr(self.newest), "drive": str(self.drive)}
        return about


class Filling:
    """Moves samples into a window.

    Attributes
    ----------
    taken, refused, known : int
        Samples that were taken, that are none, and that were known already.
    """

    def __init__(self, window: WindowStore, rows: LiveRows, notes: Notes, work: Work, *, is_planned: bool) -> None:
        self._window, self._rows, self._notes, self._work = window, rows, notes, work
        self._is_planned, self._is_first_drive, self._had_stored = is_planned, True, False
        self._reasons: dict[str, None] = {}
        self._told_at = -math.inf
        self.taken = self.refused = self.known = 0

    def run(self, samples: Samples, count: int | None) -> Exception | None:
        """Work until the source ends or fails, `count` came, or a signal; return why the source failed."""
        arrived: queue.Queue[LiveSample | str | None] = queue.Queue(2 * BATCH)
        faults: list[Exception] = []

        def feed() -> None:
            try:
                for sample in samples:
                    arrived.put(sample)
            except Exception as fault:  # noqa: BLE001 - raised where the command ends
                faults.append(fault)
            arrived.put(None)

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: samples.stop())
        threading.Thread(target=feed, name="collect", daemon=True).start()
        is_open = True
        while is_open and (count is None or self._came < count):
            batch = [_next(arrived, self._work)]
            most = BATCH if count is None else min(BATCH, count - self._came)
            while batch[-1] is not None and len(batch) < most and not arrived.empty():
                batch.append(arrived.get())
            is_open = batch[-1] is not None
            self._take([each for each in batch if each is not None])
            self._work.at(self._came, doing=f"{self.taken} taken, {self.refused} refused")
            self._tell(at_once=not is_open)
        # It may have failed while the last batch was written; who has all that was asked for need not know.
        self._append(self._new(self._rows.flush()))
        return None if is_open else next(iter(faults), None)

    @property
    def _came(self) -> int:
        return self.taken + self.refused + self.known

    def _take(self, batch: Sequence[LiveSample | str]) -> None:
        rows: list[dict[str, Any]] = []
        for sample in batch:
            if isinstance(sample, str):
                self._refuse(sample)
            elif self._notes.is_known(sample):
                self.known += 1
            else:
                self._had_stored |= sample.is_stored
                try:
                    # It was stored, but is not known yet: a measurement that was missed, taken once.
                    made = self._rows.push(replace(sample, is_stored=False) if sample.topic else sample)
                except ValueError as fault:
                    self._refuse(str(fault))
                else:
                    self.taken += 1
                    rows += self._new(made)
        for cut in self._rows.cuts():
            self._is_first_drive = False
            self._work.say(f"a new drive begins: {cut}")
        self._append(rows)

    def _new(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Leave out the rows that a former process had made of values that the source still had."""
        newest = self._notes.newest
        times = self._rows.times
        if rows and self._is_planned:
            if self._is_first_drive and self._had_stored:
                rows = [row for at, row in zip(times, rows, strict=True) if not newest - DAY < at <= newest]
            self._notes.newest, self._notes.drive = times[-1], self._rows.drive
        return rows

    def _append(self, rows: list[dict[str, Any]]) -> None:
        for fault in self._window.append(rows, units=json.dumps(self._rows.units), **self._notes.about()):
            self.taken -= 1
            self._refuse(fault)

    def _refuse(self, reason: str) -> None:
        self.refused += 1
        self._reasons = dict.fromkeys([*self._reasons, reason][-REASONS:])

    def _tell(self, *, at_once: bool) -> None:
        if self._reasons and (at_once or time.monotonic() - self._told_at > TELL_EVERY):
            self._told_at = time.monotonic()
            self._work.say(f"refused ({self.refused} so far): {'; '.join(self._reasons)}")
            self._reasons = {}


def _next(arrived: queue.Queue[Any], work: Work) -> Any:
    """Wait for the next sample; say once that none comes."""
    try:
        return arrived.get(timeout=SILENCE)
    except queue.Empty:
        work.say(
            f"no sample for {SILENCE:g} s: does the sender run, is the source's name right, and may we read it (a "
            "broker that forbids it may stay silent)?"
        )
        return arrived.get()
