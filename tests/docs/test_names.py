"""What pages name exists: commands, options, environment variables, files, Python names, pages."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from pydoc import locate

from coordinator.config import CoordinatorConfig
from edge_agent.config import AgentConfig
from glassfleet.contract import catalogue
from schemas.settings import settings_of
from tests.support.docs.commands import all_options, command_lines, fault
from tests.support.docs.pages import CODE, ROOT, Page, pages

GENERATED = {"docs/reference/cli.md", "docs/reference/settings.md"}
"""Written from the code, and compared with it elsewhere."""
OTHERS_OPTIONS = {
    "--build", "--detach", "--discard", "--max-bytes", "--no-deps", "--signed", "--timeout", "--vss", "--wheel-dir",
}  # fmt: skip
"""Options of docker, pytest and others in our pages."""


def of_every_page(find: Callable[[Page], Iterable[str]], but: set[str] = GENERATED) -> list[str]:
    """Return what `find` has to say about each page, with the page's name: one list of all faults."""
    return [f"{page.name}: {each}" for page in pages() if page.name not in but for each in find(page)]


def test_pages_show_commands_that_can_be_typed():
    def wrong(page: Page) -> Iterator[str]:
        shell = [block.text for block in page.blocks if block.language in {"", "bash", "sh", "console"}]
        named = [text for text in page.inline if text.startswith("glassfleet ")]
        for texts, whole in ((shell, True), (named, False)):
            for words in (words for text in texts for words in command_lines(text)):
                if seen := fault(words, whole=whole):
                    yield f"glassfleet {' '.join(words)}: {seen}"

    assert of_every_page(wrong) == []


def test_pages_name_options_that_exist():
    known = all_options() | OTHERS_OPTIONS

    def unknown(page: Page) -> set[str]:
        return {name for text in page.inline for name in re.findall(r"(?:^|\s)(--[a-z][a-z-]+)", text)} - known

    assert of_every_page(unknown) == []


@cache
def _variables() -> set[str]:
    named = {
        f"GLASSFLEET_{prefix}{field.upper()}"
        for service, config in (("AGENT_", AgentConfig), ("COORDINATOR_", CoordinatorConfig))
        for field in settings_of(config)
        for prefix in (service, "")
    }
    for folder in CODE:
        for path in (ROOT / folder).rglob("*.py"):
            named.update(re.findall(r"GLASSFLEET_[A-Z_]+[A-Z]", path.read_text(encoding="utf-8")))
    return named | {"GLASSFLEET_AGENT", "GLASSFLEET_COORDINATOR"}


def test_pages_name_environment_variables_that_exist():
    def unknown(page: Page) -> set[str]:
        return set(re.findall(r"GLASSFLEET_[A-Z_]+[A-Z]", page.text)) - _variables()

    assert of_every_page(unknown, but=set()) == []


_PYTHON = re.compile(r"(?:schemas|glassfleet|broker|coordinator|edge_agent|console|lab)(?:\.[A-Za-z_]\w*)+")
_NO_MODULES = {"json", "md", "toml", "io", "conf", "vspec"}


def test_pages_name_python_objects_that_exist():
    def unknown(page: Page) -> list[str]:
        named = {match[0] for text in page.inline if (match := _PYTHON.match(text)) and "/" not in text}
        return [name for name in named if name.rpartition(".")[2] not in _NO_MODULES and locate(name) is None]

    assert of_every_page(unknown) == []


def test_pages_name_extras_that_can_be_installed():
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = set(declared["project"]["optional-dependencies"])

    def unknown(page: Page) -> set[str]:
        return set(",".join(re.findall(r"glassfleet\[([a-z,]+)\]", page.text)).split(",")) - extras - {""}

    assert of_every_page(unknown, but=set()) == []


def test_page_of_schemes_says_of_each_what_its_code_declares():
    text = (ROOT / "docs/reference/schemes/index.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"(?m)^\| \[(\w+)\][^|]*(\|.*)$", text))
    words = {"regression": "numbers", "classification": "classes"}

    assert set(rows) == set(catalogue.names())
    for name, row in rows.items():
        scheme = catalogue.load(name)
        _, learns, equality, participation, _ = (cell.strip() for cell in row.split("|"))
        assert set(learns.split(", ")) == {words[purpose] for purpose in scheme.purpose}, name
        assert set(participation.split(", ")) == set(scheme.participation), name
        assert equality.startswith("equal") == (scheme.abilities.equals_central is not None), name


_PATH = re.compile(rf"(?:{'|'.join([*CODE, 'docs'])})/[\w./*-]+")
_OTHER = {"edge_agent/live/adapters/udp.py", "glassfleet/schemes/myscheme/", "coordinator/state"}
"""An example's folder; a topic."""


def test_pages_name_files_that_exist():
    def absent(page: Page) -> list[str]:
        named = {match[0] for text in page.inline if (match := _PATH.fullmatch(text.strip()))} - _OTHER
        return [name for name in sorted(named) if not any(ROOT.glob(name.rstrip("/")))]

    assert of_every_page(absent, but=set()) == []


def test_links_of_pages_lead_somewhere_in_the_repository():
    def broken(page: Page) -> Iterator[str]:
        for link in page.links:
            path, _, anchor = link.partition("#")
            if "://" in link or link.startswith("mailto:"):
                continue
            target = (page.path.parent / path).resolve() if path else page.path
            if not target.exists() or (anchor and target.suffix == ".md" and anchor not in _anchors(target)):
                yield link

    assert of_every_page(broken, but=set()) == []


def _anchors(path: Path) -> set[str]:
    titles = re.findall(r"(?m)^#+ (.+)$", path.read_text(encoding="utf-8"))
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", title).strip().lower()) for title in titles}


_TEST = re.compile(r"(?:unit|property|integration|acceptance|conformance|privacy|fuzz)/[\w/*-]+\.py")
"""A file of tests, in pages that say once that they mean the folder ``tests``."""


def test_pages_name_tests_that_exist() -> None:
    named = {
        (page.name, match[0]) for page in pages() for text in page.inline if (match := _TEST.fullmatch(text.strip()))
    }

    assert len(named) > 10
    assert [(page, path) for page, path in sorted(named) if not any((ROOT / "tests").glob(path))] == []


MOST_WORDS = 40
"""Most words of a sentence. Code in a line is one word; blocks of code, tables, titles and columns are none."""
_DOCSTRINGS_AND_COMMENTS = re.compile(r'(?ms)^ *r?"""[\w`*].*?"""|^(?: *# [^\n]*\n)+')
_NO_PROSE = re.compile(
    r"(?ms)^ *```.*?^ *```$|<!--.*?-->|\$\$.*?\$\$|!\[.*?\]\(.*?\)|\]\([^)]*\)"
    r"|^(?= *(?:\||#+ |---|>>>)|[^\n]*\S {3})[^\n]*$|(?<=:\n\n)(?: +[^\n]*\n+)+"
)


def long_sentences(text: str) -> Iterator[str]:
    """Give the sentences that are too long; none goes on in the next item of a list, or at another indentation."""
    lines, indent = list[str](), 0
    for line in [*re.sub(r"(`+)[^`]+\1", "Code", _NO_PROSE.sub("", text)).splitlines(), ""]:
        item = re.match(r" *(?:[-*]|\d+\.) ", line)
        begins = len(item[0]) if item else len(line) - len(line.lstrip())
        if item or not line.strip() or begins != indent:
            ended = re.split(r"(?<=[.!?])[\"')*]*\s+(?![a-z])", " ".join(lines))
            yield from (each for each in ended if len(re.findall(r"\S*\w\S*", each)) > MOST_WORDS)
            lines = []
        indent, lines = begins, [*lines, line.strip()]


def test_sentences_are_short() -> None:
    texts = [(page.name, re.sub(r"(?m)(?<=\n\n)(?: {4}.*\n)+", "", page.text)) for page in pages()]
    texts.append(("CHANGELOG.md", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")))
    for path in (path for folder in CODE for path in (ROOT / folder).rglob("*.py")):
        if path.parent.name != "dashboard":  # whose pictures would have to be taken anew, for a comment
            found = _DOCSTRINGS_AND_COMMENTS.findall(path.read_text(encoding="utf-8"))
            texts += [(path.name, re.sub(r'(?m)r?"""|^( *)# ', r"\1", each)) for each in found]
    assert [f"{name}: {each}" for name, text in texts for each in long_sentences(text)] == []
