"""How far long work is: a bar on a terminal, plain lines elsewhere, nothing with ``--quiet``; always on stderr."""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

import click

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn, TaskID

Unit = Literal["steps", "bytes", "percent"]

SILENCE = 10.0
"""Seconds without a line after which plain lines say how far it is."""

_SPAN = 3600.0
"""Seconds over which the speed is averaged: a step may take minutes."""


class Work:
    """Long work, as whoever waits for it sees it. This one tells it in plain lines.

    Parameters
    ----------
    what : str
        What is done, in a few words.
    total : float or None
        How many steps it has; None: nobody knows.
    unit : "steps", "bytes" or "percent"
    silence : float
        Seconds without a line after which one says how far it is.
    clock : callable
        Seconds that only go forward.
    """

    def __init__(
        self,
        what: str,
        total: float | None = None,
        unit: Unit = "steps",
        *,
        silence: float = SILENCE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._what = what
        self._total = total
        self._unit = unit
        self._done = 0.0
        self._doing = ""
        self._silence = silence
        self._clock = clock
        self._last_at = clock()

    def __call__(self, line: str = "") -> None:
        """Take note that a step is done; `line`, unless empty, stays."""
        if line:
            self.say(line)
        self.at(self._done + 1)

    def at(self, done: float | None = None, total: float | None = None, doing: str | None = None) -> None:
        """Take note of how much is done, of how much there is, and of what is being done; None: as before."""
        self._done = self._done if done is None else done
        self._total = self._total if total is None else total
        self._doing = self._doing if doing is None else doing
        self._show()

    def say(self, line: str, *, out: bool = False) -> None:
        """Write a line that stays, to stderr or, as a part of the result, to stdout."""
        self._last_at = self._clock()
        click.echo(line, err=not out)

    def _show(self) -> None:
        if self._clock() - self._last_at >= self._silence:
            self.say(self._in_words())

    def _in_words(self) -> str:
        done = f"{self._done:.0f}"
        if self._unit == "bytes":
            done, of = f"{self._done / 1e6:.1f} MB", "" if self._total is None else f" of {self._total / 1e6:.1f} MB"
        elif self._unit == "percent":
            of = " %"
        else:
            of = "" if self._total is None else f" of {self._total:.0f}"
        parts = [f"{done}{of}"] if self._done or of else []
        return ": ".join([self._what, ", ".join(filter(None, [self._doing, *parts]))]).rstrip(": ")


class _Drawn(Work):
    """Work whose state is one line at the bottom of the terminal."""

    def __init__(self, what: str, total: float | None, unit: Unit, bar: Progress) -> None:
        super().__init__(what, total, unit)
        self._bar = bar
        self._task: TaskID = bar.add_task(what, total=total, doing="")

    def say(self, line: str, *, out: bool = False) -> None:
        # The bar is taken away for a moment: stdout and stderr are the same terminal, or one of them is a file.
        self._bar.stop()
        click.echo(line, err=not out)
        self._bar.start()
        self._bar.console.show_cursor()

    def _show(self) -> None:
        doing = f"  {self._doing}" if self._doing else ""
        self._bar.update(self._task, completed=self._done, total=self._total, doing=doing)


@contextmanager
def progress(
    what: str, total: float | None = None, unit: Unit = "steps", *, silence: float = SILENCE
) -> Iterator[Work]:
    """Show how far long work is: a bar with the time left on a terminal, taken away at the end; elsewhere lines.

    Parameters
    ----------
    what : str
        What is done, in a few words.
    total : float or None
        How many steps, or bytes, it has; None: not known (yet), the time that it took is shown in place of what is
        left.
    unit : "steps", "bytes" or "percent"
    silence : float
        Seconds without a line after which one says how far it is, where there is no bar; ``inf`` for a service.

    Yields
    ------
    Work
        To be called after each step with a line that stays, or with none; or to be told of by `Work.at`.
    """
    lively = sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    if not lively or importlib.util.find_spec("rich") is None:
        yield Work(what, total, unit, silence=silence)
        return
    from rich.console import Console  # only on a terminal
    from rich.progress import Progress

    console = Console(stderr=True, highlight=False, emoji=False)
    bar = Progress(
        *_columns(total, unit),
        console=console,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
        refresh_per_second=4,
        speed_estimate_period=_SPAN,
    )
    with bar:
        # Rich hides the cursor, which would stay so if this process were killed.
        console.show_cursor()
        yield _Drawn(what, total, unit, bar)


def _columns(total: float | None, unit: Unit) -> list[ProgressColumn]:
    from rich.progress import (  # only on a terminal
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    text = TextColumn("{task.description}{task.fields[doing]}", markup=False)
    if unit == "bytes":
        return [text, BarColumn(), DownloadColumn(), TimeRemainingColumn()]
    if unit == "percent":
        return [text, BarColumn(), TaskProgressColumn(), TimeRemainingColumn()]
    if total is None:
        return [text, BarColumn(bar_width=12), TimeElapsedColumn()]
    return [text, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()]
