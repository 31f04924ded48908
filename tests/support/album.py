"""Pictures of pages: taken of the whole of what they are to show, looked over, and kept small."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from PIL import Image
from playwright.sync_api import Page

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
