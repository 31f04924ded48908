"""Structures in words."""

from __future__ import annotations

from glassfleet.crisp.forest import Forest, Genes
from glassfleet.data.domain import Domain

MOST_CHARACTERS = 300


def draw_structure(genes: Genes, domain: Domain) -> str:
    """Return a structure as one line: ``speed (signal, lanes (., .))``, left before right, a dot for a leaf."""
    right = Forest.of([genes]).right
    parts: list[str] = []
    length = 0
    stack: list[int | str] = [0]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            text = item
        elif genes[item] < 0:
            text = "."
        else:
            text = domain.features[genes[item]].name
            left, other = item + 1, int(right[item])
            if genes[left] >= 0 or genes[other] >= 0:
                stack += [")", other, ", ", left, " ("]
        parts.append(text)
        length += len(text)
        if length > MOST_CHARACTERS:
            return "".join(parts)[: MOST_CHARACTERS - 4] + " ..."
    return "".join(parts)
