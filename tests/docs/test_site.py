"""The documentation's site: builds without a warning, is whole, and needs nothing from elsewhere."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import yaml

from deploy.site import content
from tests.support.docs.pages import ROOT, pages


class _Loads(HTMLParser):
    """Collects what a page loads."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag != "a" and ("rel", "canonical") not in attrs:
            self.links += [value for name, value in attrs if name in {"src", "href"} and value]


def test_site_has_every_page_of_the_documentation_and_every_scheme(site: Path):
    expected = {
        page.name.removeprefix("docs/").removesuffix(".md") + ".html" for page in pages() if "docs/" in page.name
    }
    expected |= {f"reference/schemes/{path.parent.name}.html" for path in ROOT.glob("glassfleet/schemes/*/README.md")}
    expected |= {"reference/messages.html", "contributing.html", "changelog.html", "404.html"}

    assert {path.relative_to(site).as_posix() for path in site.rglob("*.html")} == expected


def test_site_loads_nothing_from_elsewhere(site: Path):
    loaded = {link for path in site.rglob("*.html") for link in _Loads(path).links}
    styles = {path: path.read_text(encoding="utf-8") for path in site.rglob("*.css")}

    assert [link for link in loaded if re.match(r"(?:https?:)?//", link)] == []
    assert [
        path.name for path, text in styles.items() if re.search(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//", text)
    ] == []


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
