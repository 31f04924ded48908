"""The documentation's site: builds without a warning, is whole, and needs nothing from elsewhere."""

from __future__ import annotations

import posixpath
import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest
import yaml

from deploy.site import content
from tests.support.docs.pages import ROOT, pages


class _Reader(HTMLParser):
    """Collects what a page is made of: its ids, what it loads, and where it leads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.loads: list[str] = []
        self.leads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.ids.update(values[name] for name in ("id", "name") if name in values)
        if tag == "a":
            self.leads += [values["href"]] if "href" in values else []
        else:
            self.loads += [
                values[name] for name in ("src", "href") if name in values and values.get("rel") != "canonical"
            ]


@pytest.fixture(scope="module")
def read(site: Path) -> dict[str, _Reader]:
    return {
        path.relative_to(site).as_posix(): _Reader(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")
    }


def test_site_has_every_page_of_the_documentation_and_every_scheme(read: dict[str, _Reader]):
    expected = {
        page.name.removeprefix("docs/").removesuffix(".md") + ".html" for page in pages() if "docs/" in page.name
    }
    expected |= {f"reference/schemes/{path.parent.name}.html" for path in ROOT.glob("glassfleet/schemes/*/README.md")}
    expected |= {"reference/messages.html", "contributing.html", "changelog.html", "404.html"}

    assert set(read) == expected


def test_navigation_names_no_page_twice():
    named = re.findall(r"(?m)^ +- (?:[^:\n]+: )?(\S+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"))

    assert len(named) > 30
    assert sorted(named) == sorted(set(named))


def test_site_leads_from_its_first_page_to_every_other(read: dict[str, _Reader]):
    seen, waiting = set(), ["index.html"]
    while waiting:
        page = waiting.pop()
        if page in seen or page not in read:
            continue
        seen.add(page)
        waiting += [_place(page, link)[0] for link in read[page].leads if "://" not in link]

    assert seen | {"404.html"} == set(read)


def test_site_loads_nothing_from_elsewhere(site: Path, read: dict[str, _Reader]):
    loaded = {link for page in read.values() for link in page.loads}
    styles = {path: path.read_text(encoding="utf-8") for path in site.rglob("*.css")}

    assert [link for link in loaded if re.match(r"(?:https?:)?//", link)] == []
    assert [
        path.name for path, text in styles.items() if re.search(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//", text)
    ] == []


def test_links_of_site_lead_somewhere(site: Path, read: dict[str, _Reader]):
    broken = []
    for page, reader in read.items():
        if page == "404.html":  # shown at any address, so its links are absolute
            continue
        for link in reader.leads + reader.loads:
            if re.match(r"[a-z]+:", link):
                continue
            target, anchor = _place(page, link)
            absent = not (site / target).is_file()
            if absent or (anchor and target in read and anchor not in read[target].ids):
                broken.append(f"{page}: {link}")

    assert broken == []


def _place(page: str, link: str) -> tuple[str, str]:
    path, _, anchor = unquote(link).partition("#")
    if not path:
        return page, anchor
    place = posixpath.normpath(posixpath.join(posixpath.dirname(page), path.partition("?")[0]))
    return ("index.html" if place == "." else place), anchor


def test_site_draws_formulas_without_scripts(site: Path):
    trees = (site / "explanation" / "tree.html").read_text(encoding="utf-8")

    assert trees.count('class="gf-formula"') > 10
    assert "arithmatex" not in trees


def test_site_shows_every_field_of_every_message(site: Path):
    described = yaml.safe_load((ROOT / "docs/reference/asyncapi.yaml").read_text(encoding="utf-8"))
    page = (site / "reference" / "messages.html").read_text(encoding="utf-8")

    absent = [
        f"{name}.{field}"
        for name in described["components"]["messages"]
        for field in described["components"]["schemas"].get(name, {}).get("properties", {})
        if f"<code>{field}</code>" not in page.partition(f'id="{name}"')[2].partition("<h2")[0]
    ]
    assert absent == []


def test_formula_becomes_a_picture_that_can_be_read_aloud():
    drawn = content.replace(r'<p><span class="arithmatex">\(w_i\)</span></p>')

    assert '<path d="M' in drawn
    assert 'aria-label="w_i"' in drawn
