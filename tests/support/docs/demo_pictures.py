"""The demonstration at a terminal, and the album of pictures of its dashboard."""

from __future__ import annotations

import fcntl
import io
import math
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import psutil
from PIL import Image
from playwright.sync_api import Page
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.ansi import AnsiDecoder
from rich.console import Console
from rich.terminal_theme import TerminalTheme

TALLEST = 1500
"""Pixels of the upper part of a page; elements are taken whole."""
MARGIN = 16
FAITHFUL = 16
"""So much, of 255, may a colour differ from what was seen: each picture has 256 of its own, to be small."""


@dataclass(frozen=True)
class Look:
    """A window, and whether its owner likes it dark."""

    name: str
    width: int
    height: int
    scheme: Literal["light", "dark"] = "light"


LIGHT = Look("light", 1280, 900)
DARK = Look("dark", 1280, 900, "dark")
PHONE = Look("phone", 390, 844)


@dataclass(frozen=True)
class Shot:
    """What a picture is of.

    Attributes
    ----------
    name : str
    address : str
        Of the page.
    looks : tuple of Look
    parts : tuple of str
        Selectors: the picture is of these, one below the other, whole. Empty: of the upper part of the page.
    """

    name: str
    address: str
    looks: tuple[Look, ...]
    parts: tuple[str, ...] = ()

    def file(self, look: Look) -> str:
        """Return the picture's file name."""
        return f"dashboard-{self.name}-{look.name}.png"


class Album:
    """A folder of pictures, and the digests of the sources that they are of."""

    def __init__(self, folder: Path, sources: Mapping[str, str]) -> None:
        self.folder = folder
        self.sources = sources
        self.taken: list[str] = []
        folder.mkdir(parents=True, exist_ok=True)

    def keep(self, name: str, content: bytes) -> None:
        """Write a picture."""
        (self.folder / name).write_bytes(content)
        self.taken.append(name)

    def take(self, page: Page, shot: Shot, look: Look) -> None:
        """Photograph what `shot` is of, and check that there is something to see."""
        # Boxes that scroll by themselves are opened to their full height; nothing else is changed.
        page.evaluate("for (const each of document.querySelectorAll('.tall, .taller')) each.style.maxHeight = 'none'")
        whole = page.evaluate("document.documentElement.scrollHeight")
        boxes = [page.locator(part).first.evaluate(_BOX) for part in shot.parts or ("footer",)]
        top = max(0, math.floor(min(box[0] for box in boxes)) - MARGIN) if shot.parts else 0
        bottom = min(whole, math.ceil(max(box[1] for box in boxes)) + MARGIN)
        if not shot.parts:
            bottom = min(bottom, TALLEST)
        clip = {"x": 0.0, "y": float(top), "width": float(look.width), "height": float(bottom - top)}
        picture = Image.open(io.BytesIO(page.screenshot(full_page=True, clip=clip))).convert("RGB")  # type: ignore[arg-type]
        seen = np.asarray(picture).astype(int)
        assert picture.size == (look.width, bottom - top)
        assert np.unique(seen[::2, ::2] // 17 @ np.array([256, 16, 1])).size > 12, f"{shot.name} is blank"
        assert (seen.mean() < 128) == (look.scheme == "dark")
        # This way keeps rare colours, such as a key in a legend; the others mix them with what is frequent.
        few = picture.quantize(256, method=Image.Quantize.MAXCOVERAGE, kmeans=4, dither=Image.Dither.NONE)
        assert np.abs(np.asarray(few.convert("RGB")) - seen).max() <= FAITHFUL, f"{shot.name} has other colours"
        written = io.BytesIO()
        few.save(written, "PNG", optimize=True)
        self.keep(shot.file(look), written.getvalue())

    def finish(self, note: str, text: str) -> None:
        """Take away pictures of former days, and write down what these are of."""
        for old in self.folder.glob("dashboard-*.png"):
            if old.name not in self.taken:
                old.unlink()
        (self.folder / note).write_text(text, encoding="utf-8", newline="\n")


_BOX = "each => { const box = each.getBoundingClientRect(); return [box.top + scrollY, box.bottom + scrollY]; }"


ROOT = Path(__file__).resolve().parents[2]
HOME = "\x1b[H"
"""What begins a frame: the cursor goes to the upper left corner."""
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")
INK = TerminalTheme(
    (17, 22, 21),
    (214, 220, 217),
    [(17, 22, 21), (232, 104, 92), (110, 190, 120), (226, 182, 84), (104, 160, 224), (200, 140, 220), (96, 190, 190),
     (214, 220, 217)],
    [(120, 130, 126), (240, 130, 118), (140, 210, 150), (240, 204, 120), (140, 186, 240), (220, 170, 236),
     (130, 214, 214), (245, 248, 246)],
)  # fmt: skip
"""Colours of the picture: those of the dashboard by night."""


class Terminal:
    """A terminal in which ``glassfleet demo`` runs."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self.columns, self.lines = 100, 36
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", self.lines, self.columns, 0, 0))
        unset = ("NO_COLOR", "COLUMNS", "LINES", "FORCE_COLOR", "CI")
        environment = {name: value for name, value in os.environ.items() if name not in unset}
        environment |= {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8", "PYTHONIOENCODING": "utf-8"}
        self.process = subprocess.Popen(  # `lab.processes` has no terminals
            [sys.executable, "-m", "console.main", "demo", *arguments],
            stdin=slave, stdout=slave, stderr=slave, cwd=ROOT, env=environment, start_new_session=True,
            # So that Ctrl-C, pressed there, is for this process.
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509  before this process has threads
        )  # fmt: skip
        os.close(slave)
        self._came = bytearray()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                piece = os.read(self._master, 65536)
            except OSError:  # Linux says so when the other side has closed
                return
            if not piece:
                return
            self._came += piece

    @property
    def raw(self) -> str:
        return self._came.decode(errors="replace")

    @property
    def text(self) -> str:
        """All that was written, without colours and moves."""
        return ESCAPES.sub("", self.raw)

    def wait_for(self, words: str, seconds: float) -> str:
        end = time.monotonic() + seconds
        while words not in self.text:
            assert self.process.poll() is None, self.text[-3000:]
            assert time.monotonic() < end, self.text[-3000:]
            time.sleep(0.1)
        return self.text

    def frames(self) -> list[str]:
        """Return the screens that were drawn whole, in the order of time, with their colours."""
        drawn = self.raw.split("\x1b[?1049h", 1)[-1].split("\x1b[?1049l", 1)[0]
        return [frame for frame in drawn.split(HOME)[1:] if frame.count("\n") >= self.lines - 1]

    def press_ctrl_c(self) -> None:
        os.write(self._master, b"\x03")

    def close(self) -> None:
        children = psutil.Process(self.process.pid).children(recursive=True) if self.process.poll() is None else []
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        psutil.wait_procs(children, timeout=20)
        self._reader.join(5)
        os.close(self._master)


@contextmanager
def terminal(arguments: Sequence[str]) -> Iterator[Terminal]:
    made = Terminal(arguments)
    try:
        yield made
    finally:
        made.close()


def plain(frame: str) -> list[str]:
    """Return a frame's lines without colours."""
    return ESCAPES.sub("", frame).split("\n")


def as_svg(frame: str, columns: int, title: str) -> str:
    """Return a frame as a picture; the fonts are the reader's own, so that it asks nobody for anything."""
    console = Console(record=True, width=columns, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    for line in AnsiDecoder().decode(frame.replace("\r", "").rstrip("\n")):
        console.print(line, overflow="crop", no_wrap=True)
    style = re.sub(r"@font-face \{\{.*?\}\}\n", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    fonts = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
    style = style.replace("Fira Code, monospace", fonts).replace("font-family: arial", f"font-family: {fonts}")
    drawn = console.export_svg(title=title, theme=INK, code_format=style, unique_id="demo")
    return "\n".join(line.rstrip() for line in drawn.splitlines()) + "\n"
