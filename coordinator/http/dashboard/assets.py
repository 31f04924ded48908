"""Templates and files for the browser, read once, when the coordinator starts.

An upgrade in place changes the files below a process that runs: what it shows must not be half of one version and half
of another, so nothing here is read again.
"""

from __future__ import annotations

import hashlib
import mimetypes
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import Response
from jinja2 import DictLoader, Environment, StrictUndefined

from coordinator.http.access import PAGE_AT_ONCE
from glassfleet.export.svg.shapes import STYLE

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Asset:
    """A file for the browser.

    Attributes
    ----------
    kind : str
        Media type.
    digest : str
        First digits of the content's SHA-256.
    """

    content: bytes
    kind: str
    digest: str


def read_assets(folder: Path = HERE / "static") -> dict[str, Asset]:
    """Return the files of a folder by name, and the style of the pictures."""
    assets = {}
    for path in [*sorted(folder.iterdir()), STYLE]:
        if path.is_file():
            content = path.read_bytes()
            # The tables of the machine may lack a type, or have one of their own.
            kind = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}.get(path.suffix)
            kind = kind or mimetypes.guess_type(path.name)[0] or "application/octet-stream"
            assets[path.name] = Asset(content, kind, hashlib.sha256(content).hexdigest()[:10])
    return assets


def addresses(assets: Mapping[str, Asset]) -> dict[str, str]:
    """Return the addresses of the files by name; each has its file's digest, so a new one is not taken for it."""
    return {name: f"/static/{name}?v={asset.digest}" for name, asset in assets.items()}


def styles(assets: Mapping[str, Asset]) -> list[str]:
    """Return the texts of the style sheets, in the order in which pages load them."""
    return [assets[name].content.decode() for name in ("pictures.css", "dashboard.css")]


def as_file(page: str) -> str:
    """Return a page that says the same without its coordinator: no forms, no links to other pages, little folded."""
    page = re.sub(r"<form\b.*?</form>", "", page, flags=re.DOTALL)
    page = re.sub(r'(<a\b[^>]*?) href="/[^"]*"', r"\1", page)
    return re.sub(r"<details\b(?![^>]*\b(?:open|folded)\b)", "<details open", page)


def add_assets(app: FastAPI, assets: Mapping[str, Asset]) -> None:
    """Give an application the files, below ``/static``."""

    @app.get("/static/{name}", dependencies=[PAGE_AT_ONCE], include_in_schema=False)
    def _asset(request: Request, name: str) -> Response:
        asset = assets.get(name)
        if asset is None:
            raise HTTPException(404, "no such file")
        mark = f'"{asset.digest}"'
        # Scripts name each other without a digest: browsers may keep them, but must ask.
        headers = {"ETag": mark, "Cache-Control": "no-cache"}
        if request.headers.get("if-none-match") == mark:
            return Response(status_code=304, headers=headers)
        return Response(asset.content, media_type=asset.kind, headers=headers)


def read_templates(
    filters: Mapping[str, Callable[..., Any]], values: Mapping[str, Any], folder: Path = HERE / "templates"
) -> Environment:
    """Return the templates of a folder; each is compiled when it is first shown: all of them take 0.3 s.

    Parameters
    ----------
    values : mapping of str to Any
        What every template may use.
    """
    texts = {path.name: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.html"))}
    made = Environment(
        loader=DictLoader(texts),
        autoescape=True,
        auto_reload=False,
        cache_size=-1,  # all of them, for good
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(filters)
    made.globals.update(values)
    return made
