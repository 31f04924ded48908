"""Draws how a private run hides a vehicle's numbers: ``python -m deploy.site.masks``.

It writes ``docs/images/private-runs.svg``. The numbers are a small example, computed here modulo 1000.
"""

from __future__ import annotations

from pathlib import Path

from deploy.site.shapes import WIDTH, box, sheet, text

PICTURE = Path(__file__).resolve().parents[2] / "docs" / "images" / "private-runs.svg"

NUMBERS = {"A": 12, "B": 30, "C": 5}
"""What each vehicle would answer."""
SECRETS = {"AB": 417, "AC": 288, "BC": 951}
"""What each two vehicles have drawn together, below `MODULUS`."""
MODULUS = 1000

_LEFT, _COLUMN, _ROW = 96, 116, 38
_STYLE = (
    ".head{font-weight:700;font-size:15px}.note{fill:#4d6462}.number{font-size:15px;text-anchor:middle}"
    ".label{text-anchor:middle;fill:#4d6462}.own{fill:#f4f9f8;stroke:#9fb8b5}.seen{fill:#cfe8e4;stroke:#2b7a74}"
    ".AB{fill:#e4eefb;stroke:#7d9cc4}.AC{fill:#fdeedd;stroke:#c89a63}.BC{fill:#f3e6f7;stroke:#a57bb3}"
    ".stays{fill:#2b7a74}.lost{fill:#fff;stroke:#a33;stroke-width:2}.company{fill:#fdeedd;stroke:#c89a63;stroke-width:2}"
    ".cross{stroke:#a33;stroke-width:2}.line{stroke:#cbdad8}"
)


def masked(vehicle: str) -> int:
    """Return what a vehicle sends: its number, plus what it adds and less what it subtracts."""
    return (NUMBERS[vehicle] + sum(_signed(vehicle, pair) for pair in SECRETS)) % MODULUS


def picture() -> str:
    """Return the picture as SVG: masks that cancel, and who leaves a group together."""
    shapes = [*_masks(), f'<path d="M0 292h{WIDTH}" class="line"/>', *_editions(318)]
    title = "Masks cancel in the sum over a whole group; when a vehicle is lost, two others leave with it"
    return sheet(title, 486, _STYLE, shapes)


def _signed(vehicle: str, pair: str) -> int:
    return 0 if vehicle not in pair else SECRETS[pair] if vehicle == pair[0] else -SECRETS[pair]


def _masks() -> list[str]:
    heads = ["its number", *(f"{pair[0]} and {pair[1]} share" for pair in SECRETS), "", "it sends"]
    shapes = [text(0, 20, "1. Each vehicle hides its number; the sum is right all the same", "head")]
    shapes += [text(_middle(column), 52, head, "label") for column, head in enumerate(heads)]
    for line, (vehicle, number) in enumerate(NUMBERS.items()):
        y = 64 + line * _ROW
        shapes += [text(0, y + 20, f"vehicle {vehicle}"), *_cell(0, y, str(number), "own")]
        for column, pair in enumerate(SECRETS, 1):
            if vehicle in pair:
                shapes += _cell(column, y, f"{_signed(vehicle, pair):+d}".replace("-", "\N{MINUS SIGN}"), pair)
        shapes += [text(_middle(4), y + 20, "modulo 1000 =", "label"), *_cell(5, y, str(masked(vehicle)), "seen")]
    y = 64 + 3 * _ROW + 8
    shapes += [f'<path d="M0 {y - 6}h{WIDTH}" class="line"/>', text(0, y + 20, "sum")]
    shapes += _cell(0, y, str(sum(NUMBERS.values())), "own")
    shapes += [text(_middle(column), y + 20, "0", "number") for column in (1, 2, 3)]
    total = sum(map(masked, NUMBERS)) % MODULUS
    shapes += [text(_middle(4), y + 20, "modulo 1000 =", "label"), *_cell(5, y, str(total), "seen")]
    notes = (
        "Coordinator and broker see the green column alone. With other secrets any number fits what a vehicle sends;",
        "in the sum over all of them the secrets cancel. They are never told to anybody. (After 999 comes 0 again.)",
    )
    return [*shapes, *(text(0, y + 58 + 18 * line, words, "note") for line, words in enumerate(notes))]


def _editions(top: float) -> list[str]:
    shapes = [text(0, top, "2. When a vehicle is lost, nobody leaves alone", "head")]
    rows = ("the group: a sum over 15", "the next edition: a sum over 12", "what the two sums differ by")
    for line, words in enumerate(rows):
        y = top + 34 + line * _ROW
        shapes.append(text(0, y + 5, words))
        for place in range(15):
            x = 232 + place * 26
            css = "stays" if place < 12 else "company" if place < 14 else "lost"
            if (line == 1 and place >= 12) or (line == 2 and place < 12):
                continue
            shapes.append(f'<circle cx="{x}" cy="{y}" r="8" class="{css}"/>')
            if css == "lost":
                shapes.append(f'<path d="M{x - 5} {y - 5}l10 10m0-10l-10 10" class="cross"/>')
    shapes += [
        text(640, top + 39, "1 is lost,"),
        text(640, top + 57, "2 go with it: company"),
        text(640, top + 39 + 2 * _ROW, "3, never 1"),
        text(
            0,
            top + 146,
            "Each vehicle looks after that itself, whatever the coordinator says about who was lost, and answers",
            "note",
        ),
        text(0, top + 164, "under new secrets: what was sent before the loss and after it cannot be mixed.", "note"),
    ]
    return shapes


def _middle(column: int) -> float:
    return _LEFT + column * _COLUMN + (_COLUMN - 8) / 2


def _cell(column: int, y: float, words: str, css: str) -> list[str]:
    place = _LEFT + column * _COLUMN
    return [box(place, y, _COLUMN - 8, _ROW - 8, css), text(_middle(column), y + 20, words, "number")]


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
