"""What the site needs beyond ``mkdocs.yml``: pages that live elsewhere, formulas without scripts.

- Each scheme's README is a page of the reference; a new folder under ``glassfleet/schemes/`` appears by itself. The
  change log and the guide for contributors are pages, too.
- Links are written for readers of the repository. Those that lead to files that are no pages become the file's name.
- TeX formulas become SVG here, so that the site loads nothing from anywhere.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

import yaml
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from deploy.site import content

ROOT = Path(__file__).resolve().parents[2]
DESCRIBED = "reference/asyncapi.yaml"
MESSAGES = "reference/messages.md"
DECISIONS = "adr/index.md"
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s]+)\)")
_ROLE = re.compile(r":(?:attr|class|data|exc|func|meth|mod):(?=<code>)")
"""A role of reStructuredText in a docstring."""


def borrowed() -> dict[str, str]:
    """Return which pages live outside ``docs``: their place in the site, and their file in the repository."""
    schemes = sorted(path.parent.name for path in (ROOT / "glassfleet" / "schemes").glob("*/README.md"))
    pages = {f"reference/schemes/{name}.md": f"glassfleet/schemes/{name}/README.md" for name in schemes}
    return pages | {"contributing.md": "CONTRIBUTING.md", "changelog.md": "CHANGELOG.md"}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the schemes, the decisions, and pages that nobody has placed yet into the navigation."""
    added: dict[str, list[Any]] = {
        "Schemes": [{Path(page).stem: page} for page in borrowed() if posixpath.dirname(page) == "reference/schemes"],
        "Decisions": [f"adr/{name}" for name in decisions()],
    }
    placed = yaml.safe_dump(config.nav)
    for section, folder in (("How to", "howto"), ("Reference", "reference"), ("Why", "explanation")):
        pages = [f"{folder}/{path.name}" for path in sorted((ROOT / "docs" / folder).glob("*.md"))]
        added[section] = [page for page in pages if page not in placed]
    config.nav = _filled(config.nav or [], added)
    return config


def _filled(entries: list[Any], pages: dict[str, list[Any]]) -> list[Any]:
    return [
        entry
        if isinstance(entry, str)
        else {
            title: _filled(below, pages) + pages.get(title, []) if isinstance(below, list) else below
            for title, below in entry.items()
        }
        for entry in entries
    ]


def decisions() -> dict[str, str]:
    """Return the title of each decision, by the name of its file."""
    paths = sorted((ROOT / "docs" / "adr").glob("[0-9]*.md"))
    return {path.name: path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ") for path in paths}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that live elsewhere, and the one that is made from the AsyncAPI file."""
    for page, source in borrowed().items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8")))
    described = Path(config.docs_dir) / DESCRIBED
    files.append(File.generated(config, MESSAGES, content=content.page(described)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links to where things are in the site."""
    del config
    here = page.file.src_uri
    source = borrowed().get(here, f"docs/{here}")
    if here == DECISIONS:
        markdown += "\n" + "".join(f"- [{title}]({name})\n" for name, title in decisions().items())
    return _LINK.sub(lambda match: _link(match, here=here, source=source, files=files), markdown)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Draw formulas, and mend what docstrings and tables need."""
    del page, config, files
    html = _ROLE.sub("", html)
    # Wide tables scroll by themselves; without a tab stop only a mouse could move them.
    html = html.replace("<table>", '<div class="gf-table" tabindex="0"><table>').replace("</table>", "</table></div>")
    return content.replace(html)


def _link(match: re.Match[str], *, here: str, source: str, files: Files) -> str:
    words, target = match.groups()
    path, mark, anchor = target.partition("#")
    if not path or "://" in target or target.startswith("mailto:"):
        return match[0]
    where = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
    pages = {file: page for page, file in borrowed().items()}
    if here != MESSAGES:
        pages[f"docs/{DESCRIBED}"] = MESSAGES  # readers of the site get it as tables
    place = pages.get(where) or (where.removeprefix("docs/") if where.startswith("docs/") else None)
    if place is not None and files.get_file_from_path(place) is None:
        index = f"{place}/index.md"
        place = index if files.get_file_from_path(index) is not None else place
    if place is not None:
        return f"[{words}]({posixpath.relpath(place, posixpath.dirname(here) or '.')}{mark}{anchor})"
    if (ROOT / where).exists():  # part of the repository, and no page
        return words if words.strip("`") == where else f"{words} (`{where}`)"
    return match[0]  # leads nowhere: the strict build fails
