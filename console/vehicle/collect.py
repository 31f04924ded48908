"""``glassfleet data collect``: keep the newest rows of a live stream in a window on disk."""

from __future__ import annotations

import math
import queue
import signal
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from console.common import print_json, result_options, rows_place
from console.lazy import is_quiet
from console.progress import Work, progress
from console.settings import retired_option
from schemas.errors import DataError, UsageError

if TYPE_CHECKING:
    from edge_agent.forecast.source import Samples
    from edge_agent.sources.window import WindowStore

BATCH = 500
"""Most samples that one transaction of a window store takes."""

TELL_EVERY = 10.0
"""Seconds between two lines about refused samples: a broken sensor must not fill the screen."""

REASONS = 5
"""Most different reasons in such a line."""

DAY = 24 * 3600.0


@click.command()
@click.option(
    "--source", envvar="GLASSFLEET_DATA_SOURCE", required=True, metavar="URL", callback=rows_place,
    help="mqtt[s]://[user@]host[:port]/TOPIC, a file or pipe of one JSON object per line, or - for standard input.",
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
    "--columns", metavar="A,B,...", help="Fields to keep, the target last. Default: those of the first sample."
)
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
@click.option(
    "--ca-file", envvar="GLASSFLEET_DATA_CA_FILE", type=click.Path(path_type=Path), metavar="FILE",
    help="Certificate authority for mqtts, in place of the identity's or the system's.",
)  # fmt: skip
@click.option(
    "--insecure-plaintext", envvar="GLASSFLEET_DATA_INSECURE_PLAINTEXT", is_flag=True,
    help="Allow mqtt to another machine, where everybody on the way can read and change what is said.",
)  # fmt: skip
@click.option(
    "--silence", type=click.FloatRange(0, 86_400), default=30.0, show_default=True, metavar="SECONDS",
    help="Say so when no sample came for so long: a sender that died, a wrong topic, and access rules that keep a "
    "topic from us all look like this. 0: never.",
)  # fmt: skip
@click.option("--count", type=click.IntRange(min=1), metavar="N", help="End after so many samples.")
@retired_option("--window-wait", "edge_agent.sources.window.BUSY_WAIT")
@retired_option("--queue-samples", "edge_agent.forecast.source.WAITING")
@retired_option("--max-sample-bytes", "edge_agent.forecast.source.MAX_BYTES")
@result_options
def collect(  # noqa: PLR0917 - click passes options by name
    source: str,
    store: Path,
    max_rows: int | None,
    max_days: float | None,
    columns: str | None,
    follow: bool,
    identity: Path | None,
    ca_file: Path | None,
    insecure_plaintext: bool,
    silence: float,
    count: int | None,
    as_json: bool,
) -> None:
    """Keep the newest rows of a live stream on disk, for an agent to learn from.

    A row is a JSON object of numbers and texts, complete with its target. What does not fit is refused and counted. It
    may be killed at any moment; started again, it goes on. The agent takes what is in the window when a run freezes
    its rows. Rows stay on this machine.

    \b
    Examples:
      glassfleet data collect --source mqtt://127.0.0.1:1883/vehicle/samples --store drive.window --max-days 7
      glassfleet data collect --source - --store drive.window --max-rows 20000 --columns speed,load,quality
      glassfleet data collect --source samples.jsonl --follow --store drive.window
      glassfleet data collect --source mqtts://broker.car/samples --identity collector --store drive.window
    """
    from edge_agent import logs
    from edge_agent.sources.window import ENDING, WindowStore

    if store.suffix != ENDING:
        raise UsageError(f"--store {store}: the name must end in {ENDING}, by which an agent knows what it is")
    wanted = [name.strip() for name in (columns or "").split(",") if name.strip()]
    logs.configure("error" if is_quiet() else "warning")
    place = f"place:{Path(source).absolute()}" if follow else ""
    behind = ""
    if follow and store.is_file():
        with closing(WindowStore.open(store)) as known:
            behind = known.noted(place)
    # First: a source that cannot be opened makes no window.
    samples = _samples(source, (identity, ca_file, insecure_plaintext), follow=follow, behind=behind)
    is_new = not store.exists()
    window = WindowStore(
        store, max_rows=max_rows, max_seconds=None if max_days is None else max_days * DAY, columns=wanted
    )
    # A service for weeks: it is silent where there is no terminal.
    with progress("collecting", count, silence=math.inf) as work:
        taken, refused, fault = _fill(window, samples, count, place, work, silence=silence)
    if not (taken or fault or samples.is_stopped):
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
    lost = samples.dropped
    if as_json:
        print_json({"taken": taken, "refused": refused, "lost": lost, "rows": rows, "store": str(store)})
    else:
        click.echo(f"{taken} samples taken, {refused} refused, {lost} lost; {rows} rows in {store}", err=True)
    if fault is not None:
        raise fault


def _samples(source: str, access: tuple[Path | None, Path | None, bool], *, follow: bool, behind: str) -> Samples:
    """Open a live source; an MQTT broker that is not there, or refuses us, is an error now, not a silent wait."""
    from broker.paho_transport import connect_once
    from edge_agent.forecast.source import Access, Samples, is_table, is_topic, link_of

    if is_topic(source):
        connect_once(link_of(source, Access(*access))[0])
    elif any(access):
        raise UsageError(f"--source {source} is no broker's topic: leave out --identity, --ca-file and the like")
    if follow and (is_topic(source) or source == "-" or is_table(source)):
        raise UsageError(f"--follow is for a file or named pipe of JSON lines, not for --source {source}")
    return Samples(
        source,
        speed=0.0,
        access=Access(*access),
        follow=follow,
        behind=behind,
        is_strict=False,  # the window judges the fields that it keeps
    )


def _next(arrived: queue.Queue[Any], silence: float, work: Work) -> Any:
    """Wait for the next sample; say once that none comes."""
    try:
        return arrived.get(timeout=silence or None)
    except queue.Empty:
        work.say(
            f"no sample for {silence:g} s: does the sender run, is the source's name right, and may we read it (a "
            "broker that forbids it may stay silent)?"
        )
        return arrived.get()


def _fill(
    window: WindowStore, samples: Samples, count: int | None, place: str, work: Work, *, silence: float
) -> tuple[int, int, Exception | None]:
    """Move samples into the window until the source ends or fails, `count` came, or a signal.

    Returns how many came, how many were refused, and why the source failed.
    """
    arrived: queue.Queue[Any] = queue.Queue(2 * BATCH)
    faults_of_source: list[Exception] = []

    def feed() -> None:
        try:
            for sample in samples:
                arrived.put((sample, samples.place))
        except Exception as fault:  # noqa: BLE001 - raised where the command ends
            faults_of_source.append(fault)
        arrived.put(None)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: samples.stop())
    threading.Thread(target=feed, name="collect", daemon=True).start()
    taken = refused = 0
    warned_at = float("-inf")
    reasons: dict[str, None] = {}
    open_ = True
    while open_ and (count is None or taken + refused < count):
        batch = [_next(arrived, silence, work)]
        most = BATCH if count is None else min(BATCH, count - taken - refused)
        while batch[-1] is not None and len(batch) < most and not arrived.empty():
            batch.append(arrived.get())
        open_ = batch[-1] is not None
        came = [each for each in batch if each is not None]
        rows = [sample for sample, _ in came if isinstance(sample, dict)]
        # The place is kept with the rows, in one transaction: neither is there without the other.
        about = {place: came[-1][1]} if place and came else {}
        faults = [sample for sample, _ in came if isinstance(sample, str)] + window.append(rows, **about)
        taken += len(came) - len(faults)
        refused += len(faults)
        work.at(taken + refused, doing=f"{taken} taken, {refused} refused")
        reasons = dict.fromkeys([*reasons, *dict.fromkeys(faults)][-REASONS:])
        if reasons and (time.monotonic() - warned_at > TELL_EVERY or not open_):
            warned_at = time.monotonic()
            work.say(f"refused ({refused} so far): {'; '.join(reasons)}")
            reasons = {}
    # It may have failed while the last batch was written; who has all that was asked for need not know.
    return taken, refused, None if open_ else next(iter(faults_of_source), None)
