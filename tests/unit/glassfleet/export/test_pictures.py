"""Pictures and formats: whole, escaped, the same every time, in the engineers' words."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from glassfleet.explain import explain_row, in_words_of, partitions
from glassfleet.export import FORMATS, export
from glassfleet.export.formats import shares_picture, tree_picture
from glassfleet.model.protocol import Model
from schemas.errors import UsageError
from tests.support.sample_models import model, population, rows

SVG = "{http://www.w3.org/2000/svg}"

FEW = ("frt", "tree", "frbc", "dp_tree")
"""All kinds of pictures."""


def _shared_out(learned: Model) -> Any:
    """Return a row whose answer has shares; a classifier has none where no rule of another class fires."""
    return next(row for row in rows() if explain_row(learned, row).shares)


@pytest.mark.parametrize("kind", FEW)
def test_pictures_are_the_same_when_drawn_twice_and_escape_their_title(kind: str) -> None:
    learned = model(kind)
    shares = shares_picture(explain_row(learned, _shared_out(learned)))
    assert shares == shares_picture(explain_row(learned, _shared_out(learned)))
    assert "base" in {text.strip() for element in ET.fromstring(shares).iter() for text in element.itertext()}
    tree = tree_picture(learned, "<b>A title</b>")
    assert tree == tree_picture(learned, "<b>A title</b>")
    assert "<b>A title</b>" in {text for element in ET.fromstring(tree).iter() for text in element.itertext()}


def test_network_has_neither_tree_nor_shares_to_draw() -> None:
    learned = model("fedavg_mlp-numbers")
    with pytest.raises(UsageError, match="network"):
        tree_picture(learned)
    with pytest.raises(UsageError, match="no shares to draw"):
        shares_picture(explain_row(learned, rows()[0]))


@pytest.mark.parametrize("kind", ["frt", "tree", "frbc", "fedga-numbers"])
def test_tree_shows_every_leaf_or_how_many_are_folded_when_drawn(kind: str) -> None:
    learned = model(kind)
    boxes = [
        (box.get("class", ""), "".join(name.itertext()), "".join(note.itertext()))
        for group in ET.fromstring(tree_picture(learned)).iter(f"{SVG}g")
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
    for name in ("json", "fml", "svg"):
        text = export(spoken, name).decode()
        assert re.search(r"grade\d", text), name
        assert "dBm" in text or name == "svg"
        assert re.search(rf"{asked} is ((at (most|least)|between) )?(Very|Extremely)?(Low|Medium|High)", text) is None
    assert "dBm" in export(spoken, "c").decode()
    result = explain_row(spoken, rows()[0])
    assert {degree.term for part in result.inputs if part.feature == asked for degree in part.memberships} <= set(terms)
    assert (spoken.predict(rows()) == learned.predict(rows())).all()


def test_export_is_refused_when_the_format_is_unknown() -> None:
    with pytest.raises(UsageError, match="no format 'pdf'; there are: json, fml, c, svg"):
        export(model("frt"), "pdf")
