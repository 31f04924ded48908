"""The rounds of a run as a picture: what became of the answers, and how long and how heavy each round was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from glassfleet.export.canvas import INK, PALE, figure_bytes

OUTCOMES: Final = (
    ("accepted", "in", "#0f766e"),
    ("late", "late", "#d97706"),
    ("rejected", "rejected", "#b3261e"),
    ("dropped", "dropped", "#9aa8b5"),
)


def rounds_picture(rounds: Sequence[Mapping[str, Any]]) -> bytes:
    """Draw the rounds of a run one beside the other, as a PNG.

    Parameters
    ----------
    rounds : sequence of mapping
        As the coordinator's HTTP API shows them; at least one.
    """
    from matplotlib.figure import Figure  # noqa: PLC0415 - an extra
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415

    places = range(1, len(rounds) + 1)
    figure = Figure(figsize=(10.5, 3.8), layout="constrained")
    top, middle, low = figure.subplots(3, 1, sharex=True, height_ratios=[2.2, 1, 1])
    base = [0] * len(rounds)
    for name, words, colour in OUTCOMES:
        heights = [_drawn(item, name) for item in rounds]
        if any(heights) or name == "accepted":
            top.bar(places, heights, 0.85, bottom=base, color=colour, label=words)
        base = [below + height for below, height in zip(base, heights, strict=True)]
    top.legend(fontsize=7.5, frameon=False, ncols=4, loc="lower right", bbox_to_anchor=(1.0, 1.0), borderaxespad=0.2)
    middle.bar(places, [float(item.get("seconds", 0.0)) for item in rounds], 0.85, color=PALE)
    low.bar(places, [int(item.get("bytes", 0)) / 1000 for item in rounds], 0.85, color=PALE)
    for axes, words in ((top, "answers"), (middle, "seconds"), (low, "kB")):
        axes.set_ylabel(words, fontsize=8, color=INK)
        axes.tick_params(labelsize=7.5, colors=PALE)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    top.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    low.xaxis.set_major_locator(MaxNLocator(20, integer=True, min_n_ticks=1))
    low.set_xlim(0.4, max(len(rounds), 8) + 0.6)
    low.set_xlabel("rounds, in the order in which they were closed", fontsize=8, color=INK)
    return figure_bytes(figure, "png")


def _drawn(item: Mapping[str, Any], name: str) -> int:
    """Return how much of a bar an outcome takes: whoever was dropped and answered later is drawn once, as late."""
    both = set(item.get("dropped_agents") or ()) & set(item.get("late_agents") or ()) if name == "dropped" else ()
    return max(int(item.get(name, 0)) - len(both), 0)
