"""Pages and pictures: complete, escaped, self-contained, the same every time."""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from glassfleet.explain import explain_row, importance, partitions, reach, summary
from glassfleet.explain.terms import in_words_of
from glassfleet.export import FORMATS, export, to_html, to_markdown
from glassfleet.export.figures import PICTURES, picture
from glassfleet.export.run_page import run_page
from glassfleet.export.sheet import html_of, markdown_of
from glassfleet.model.protocol import Model, nature, readable_rules
from schemas.documents import document_digest
from schemas.errors import UsageError
from tests.support.sample_models import GAPPY, KINDS, NAMES, TEXTUAL, model, population, rows

SVG = "{http://www.w3.org/2000/svg}"

FEW = ("frt", "tree", "frbc", "dp_tree", "fedavg_mlp-numbers")
"""All kinds of pictures."""

STATUS: dict[str, Any] = {
    "run": "run-1",
    "scheme": "frt",
    "participation": "cohort",
    "outcome": "finished",
    "reason": "",
    "started": "2026-01-01T12:00:00+00:00",
    "ended": "2026-01-01T12:00:02+00:00",
    "cohort": ["va", "vb"],
    "domain_contributors": ["va"],
    "nullified": 7,
    "restarts": 1,
    "rounds": [
        {"number": 1, "phase": "statistics", "kind": "level", "attempt": 1, "asked": 3, "accepted": 2, "late": 1}
        | {"rejected": 0, "dropped": 1, "seconds": 0.5, "bytes": 12345, "dropped_agents": {"vc": "<b>offline</b>"}}
        | {"late_agents": ["vd"]}
    ],
    "agents": {"va": {"status": "member", "reason": ""}, "vc": {"status": "lost", "reason": "offline"}},
    "model": {"name": "qoe", "version": 1},
}
SCORES = [
    {"vehicle": "va", "metric": "rmse", "rows": 10, "local": 0.5, "federated": 0.25, "central": None},
    {"vehicle": "vb", "metric": "rmse", "rows": 12, "local": 0.7, "federated": 0.35, "central": None},
]


class _Links(HTMLParser):
    """Gathers what a page would load, and its open elements."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.loads += [value or "" for key, value in attrs if key in ("src", "href", "srcset", "action", "poster")]


@pytest.mark.parametrize("kind", FEW)
def test_html_holds_everything_and_loads_nothing_when_a_model_is_a_page(kind: str) -> None:
    learned = model(kind)
    text = to_html(learned, "qoe v1 <script>alert(1)</script>")
    page = _Links()
    page.feed(text)
    assert page.loads == []
    assert ("svg" in page.tags) == (nature(learned) != "network")
    assert "script" not in page.tags
    assert document_digest(learned.to_document()) in text
    assert text.count("<li>") == min(len(readable_rules(learned)), 200)


@pytest.mark.parametrize("kind", [*KINDS, *TEXTUAL, *GAPPY])
def test_markdown_states_rules_and_uses_when_a_model_is_a_page(kind: str) -> None:
    text = to_markdown(model(kind), "qoe v1")
    assert text.startswith("# qoe v1\n")
    assert text.count("- **rule ") == min(len(readable_rules(model(kind))), 200)
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if re.match(r"\| (---|--:)", line):  # a table's lines have as many cells as its head
            cells = re.split(r"(?<!\\)\|", line)
            assert len(re.split(r"(?<!\\)\|", lines[number - 1])) == len(cells)
            assert len(re.split(r"(?<!\\)\|", lines[number + 1])) == len(cells)


def test_report_tells_fleet_rounds_drops_scores_and_model_when_a_run_is_a_page() -> None:
    page = run_page(STATUS, model("frt"), {"training": {"rows": 500}}, SCORES, ["CL is not known, and why."])
    html, text = html_of(page), markdown_of(page)
    for each in (html, text):
        for word in ("run-1", "va, vb", "12,345", "0.2500", "0.3000", "too late", "CL is not known, and why.", "500"):
            assert word in each.replace("\\", ""), word
    assert "&lt;b&gt;offline" in html
    assert "<b>" not in html
    assert "vc: \\<b\\>offline" in text
    assert html.count("<figure>") == 3
    assert "<details>" not in html


def test_report_tells_how_far_inputs_move_the_answer_the_first_most() -> None:
    learned = model("frt")
    names = [use.feature for use in summary(learned).features]
    moves, spans = importance(learned, None, names), reach(learned, None, names)
    (table,) = [
        table
        for section in run_page(STATUS, learned).sections
        for table in section.tables
        if table.caption == "How the inputs are used"
    ]
    place = table.head.index("moves the answer by")
    order = sorted(names, key=lambda name: -moves[name])
    assert [(row[0], row[place].split()[0], row[place + 1].split()[0]) for row in table.rows] == [
        (name, f"{moves[name]:.4g}", f"{spans[name]:.4g}") for name in order
    ]


def test_report_has_central_scores_and_says_how_they_are_known_when_they_are() -> None:
    scores = [{**each, "central": each["federated"]} for each in SCORES]
    text = markdown_of(run_page(STATUS, None, None, scores, ["CL is FL."]))
    assert "| va | 10 | 0.5000 | 0.2500 | 0.2500 |" in text
    assert "| mean |  | 0.6000 | 0.3000 | 0.3000 |" in text
    assert "CL is FL." in text


def test_report_tells_the_end_when_a_run_made_no_model() -> None:
    page = run_page({"run": "r", "outcome": "failed", "reason": "quorum-missed", "rounds": []}, None)
    assert "failed: quorum-missed" in html_of(page)
    assert "No round was closed." in markdown_of(page)


def test_report_tells_and_draws_what_attacks_read_when_that_was_measured() -> None:
    line = {"protection": "exact", "seen": "each vehicle", "attack": "bands", "read": 30, "rows": 120, "false": 4}
    weaker = {**line, "attack": "spans", "read": 6}
    audit = {"vehicles": 3, "rows": 120, "lines": [weaker, line], "models": [{"auc": 0.5}, {"auc": None}]}
    page = run_page(STATUS, None, leakage=audit)
    html, text = html_of(page), markdown_of(page)
    assert "| exact | each vehicle | bands | 30 | 25.0% | 4 |" in text
    assert "membership AUC 0.500" in text
    assert html.count("<figure>") == 2
    assert "Rows read whole by the best attack, of 1 ways to look: at most 25.0%" in html
    assert "25.0% by bands" in html
    assert "No attack that was tried" in markdown_of(run_page(STATUS, None, leakage={**audit, "lines": []}))


def _shared_out(learned: Model) -> Any:
    """Return a row whose answer has shares; a classifier has none where no rule of another class fires."""
    return next(row for row in rows() if explain_row(learned, row).shares)


@pytest.mark.parametrize("kind", FEW)
@pytest.mark.parametrize("what", PICTURES)
def test_pictures_are_the_same_bytes_when_drawn_twice_or_refused_by_name(kind: str, what: str) -> None:
    learned = model(kind)
    network = kind.startswith("fedavg_mlp")
    row = rows()[0] if network else _shared_out(learned)
    try:
        svg = picture(learned, what, "svg", row=row, title="A title")
    except UsageError as fault:
        assert network or (what == "tree" and kind.startswith(("tsk", "frbc"))), fault  # noqa: PT017
        return
    assert svg == picture(learned, what, "svg", row=row, title="A title")
    root = ET.fromstring(svg)
    texts = {text.strip() for element in root.iter() for text in element.itertext()}
    assert "A title" in texts
    assert what != "shares" or "base" in texts
    assert what != "partitions" or any(name in text for name in NAMES for text in texts)


def test_tree_shows_every_leaf_or_how_many_are_folded_when_drawn() -> None:
    for kind in ("frt", "tree", "fedga-numbers"):
        learned = model(kind)
        boxes = [
            (box.get("class", ""), "".join(name.itertext()), "".join(note.itertext()))
            for group in ET.fromstring(picture(learned, "tree")).iter(f"{SVG}g")
            for box in group.iter(f"{SVG}rect")
            for name, *_, note in [group.findall(f"{SVG}text")]
        ]
        leaves = [name for of, name, note in boxes if of.endswith(" leaf") and note.startswith("→ ")]
        folded = [note for of, _, note in boxes if of.endswith(" shut")]
        assert all(re.search(r" · [\d.e-]+ %$", name) for name in leaves)
        assert len(leaves) + sum(int(note.split()[0]) for note in folded) == len(learned.rules())
        assert len(leaves) + len(folded) <= 40


@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_gives_bytes_or_a_clear_refusal_when_exported(kind: str) -> None:
    held = 0
    for learned in (*(model(name) for name in ("frt", "tsk", "fedavg_mlp-classes")), population()):
        try:
            data = export(learned, kind, title="qoe v1")
        except UsageError as fault:
            assert re.search(r"population|network", str(fault))  # noqa: PT017
            continue
        held += 1
        assert len(data) > 400
        assert kind != "png" or data[:4] == b"\x89PNG"
    assert held >= 2


@pytest.mark.parametrize("kind", ["frt", "tsk", "frbc"])
def test_every_format_speaks_the_engineers_terms_and_units_when_the_domain_names_them(kind: str) -> None:
    learned = model(kind)
    asked = learned.rules()[0].conditions[0].feature
    at = learned.domain.names.index(asked)
    terms = tuple(f"grade{number}" for number in range(len(partitions(learned)[at].sets)))
    features = list(learned.domain.features)
    features[at] = features[at].model_copy(update={"unit": "dBm", "terms": terms})
    spoken = in_words_of(learned, learned.domain.model_copy(update={"features": tuple(features)}))
    for name in ("json", "fml", "markdown", "html", "python"):
        text = export(spoken, name).decode()
        assert re.search(r"grade\d", text), name
        assert "dBm" in text, name
        assert re.search(rf"{asked} is ((at (most|least)|between) )?(Very|Extremely)?(Low|Medium|High)", text) is None
    assert "dBm" in export(spoken, "c").decode()
    assert b"grade0" in export(spoken, "svg", what="partitions")
    result = explain_row(spoken, rows()[0])
    assert {degree.term for part in result.inputs if part.feature == asked for degree in part.memberships} <= set(terms)
    assert (spoken.predict(rows()) == learned.predict(rows())).all()


def test_export_is_refused_when_format_or_picture_is_unknown() -> None:
    for kind, what in (("pdf", None), ("c", "tree"), ("svg", "shares")):
        with pytest.raises(UsageError):
            export(model("frt"), kind, what=what)
    with pytest.raises(UsageError, match="no picture 'x'"):
        picture(model("frt"), "x")


def test_pages_and_svg_need_no_matplotlib_and_png_says_that_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    for kind in ("svg", "html"):
        assert b"<svg" in export(model("frt"), kind)
    with pytest.raises(ModuleNotFoundError, match="matplotlib"):
        export(model("frt"), "png")
