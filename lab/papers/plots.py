"""Pictures of a report, drawn with matplotlib into PNGs. Colours are told apart by colour-blind readers too."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

COLOURS = {"LL": "#D55E00", "FL": "#0072B2", "CL": "#111111"}
OTHERS = ("#CC79A7", "#56B4E9", "#E69F00", "#555555")
DASHES = {"LL": "--", "FL": "-", "CL": ":"}

WIDE = 5.0

Series = Mapping[str, Sequence[float]]
Lines = Mapping[str, tuple[Sequence[float], Sequence[float]]]
"""Name -> (x, y)."""


def ecdf(panels: Mapping[str, Series], xlabel: str) -> bytes:
    """Draw empirical distribution functions, a panel each: for every value, the share of values up to it."""

    def draw(axis: Any, _: str, series: Series) -> None:
        for number, (name, values) in enumerate(series.items()):
            ordered = np.sort(np.asarray(values, dtype=np.float64))
            share = np.arange(1, len(ordered) + 1) / len(ordered)
            axis.step(ordered, share, where="post", label=name, **_style(name, number))
        axis.set_ylim(0, 1.02)

    figure, axes = _panels(panels, xlabel, "share of the values", draw)
    axes[0].legend(frameon=False)
    return _png(figure)


def bands(
    panels: Mapping[str, tuple[Sequence[float], Sequence[Sequence[float]]]],
    xlabel: str,
    ylabel: str,
    lines: Mapping[str, Mapping[str, float]],
) -> bytes:
    """Draw medians over repetitions with their range, a panel each: title -> (x, repetitions at each x).

    A panel whose values span more than a factor of :data:`WIDE` has a logarithmic axis.

    Parameters
    ----------
    lines : mapping
        Horizontal lines by panel: label -> height.
    """

    def draw(axis: Any, title: str, content: tuple[Sequence[float], Sequence[Sequence[float]]]) -> None:
        x, values = content
        low, middle, high = ([float(pick(line)) for line in values] for pick in (np.min, np.median, np.max))
        axis.fill_between(x, low, high, color=COLOURS["FL"], alpha=0.15, label="range of the repetitions")
        axis.plot(x, middle, "o-", color=COLOURS["FL"], label="FL, median")
        if max(high) > WIDE * min(low) > 0:
            axis.set_yscale("log")
        for number, (name, height) in enumerate(lines[title].items()):
            axis.axhline(height, label=name, **_style(name.partition(" ")[0], number))
        if len(x) <= 8:
            axis.set_xticks(list(x))
        axis.legend(frameon=False, fontsize=8)

    return _png(_panels(panels, xlabel, ylabel, draw)[0])


def curves(series: Lines, xlabel: str, ylabel: str, *, log: bool = False) -> bytes:
    """Draw lines."""

    def draw(axis: Any, _: str, series: Lines) -> None:
        for number, (name, (x, y)) in enumerate(series.items()):
            axis.plot(x, y, "o-", color=[*COLOURS.values(), *OTHERS][number % 7], label=name)
        if log:
            axis.set_xscale("log")
        axis.legend(frameon=False)

    return _png(_panels({"": series}, xlabel, ylabel, draw)[0])


def sizes(panels: Mapping[str, tuple[Lines, Mapping[str, float]]], xlabel: str, ylabel: str) -> bytes:
    """Draw errors against sizes, a panel each: title -> (lines, horizontal lines); one x is a single mark."""
    colours = [COLOURS["FL"], COLOURS["LL"], "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#555555"]

    def draw(axis: Any, _: str, content: tuple[Lines, Mapping[str, float]]) -> None:
        series, lines = content
        for number, (name, (x, y)) in enumerate(series.items()):
            line = "-" if len(x) > 1 else ""
            axis.plot(x, y, line + "osDv^Pd"[number % 7], color=colours[number % 7], label=name)
        for number, (name, height) in enumerate(lines.items()):
            style = ("--", "-.", ":")[number % 3]
            axis.axhline(height, color=("#111111", "#777777")[number % 2], linestyle=style, label=name)
        axis.set_xscale("log")
        axis.xaxis.set_major_formatter(lambda value, _: f"{value:g}")

    figure, axes = _panels(panels, xlabel, ylabel, draw)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=5, frameon=False)
    return _png(figure)


def spreads(groups: Mapping[str, Series], xlabel: str) -> bytes:
    """Draw values as dots with their mean, a line per name, a colour per group; a dashed line marks zero."""
    names = list(dict.fromkeys(name for series in groups.values() for name in series))
    axis = (figure := _figure(8, 1.2 + 0.55 * len(names))).subplots()
    handles = {}
    for number, (group, series) in enumerate(groups.items()):
        shift, colour = (number - (len(groups) - 1) / 2) * 0.28, list(COLOURS.values())[(1, 0, 2)[number]]
        for name, values in series.items():
            height = len(names) - 1 - names.index(name) - shift
            axis.plot(values, np.full(len(values), height), ".", color=colour, alpha=0.3, markersize=5)
            (handles[f"{group}: mean"],) = axis.plot(float(np.mean(values)), height, "D", color=colour, markersize=7)
    axis.axvline(0.0, color="#333333", linewidth=1, linestyle="--")
    axis.set_yticks(range(len(names)), names[::-1])
    axis.set(xlabel=xlabel, ylim=(-0.6, len(names) - 0.4))
    place = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.22 if len(names) > 2 else -0.3)}
    axis.legend(handles.values(), handles, frameon=False, fontsize=8, ncols=2, **place)
    axis.grid(alpha=0.3, axis="x")
    return _png(figure)


def _style(name: str, number: int) -> dict[str, Any]:
    if name in COLOURS:
        return {"color": COLOURS[name], "linestyle": DASHES[name], "linewidth": 2.4 if name == "FL" else 1.8}
    return {"color": OTHERS[number % len(OTHERS)], "linestyle": "-."}


def _figure(width: float, height: float) -> Any:
    from matplotlib.figure import Figure  # takes long to load

    return Figure(figsize=(width, height), layout="constrained")


def _panels(
    panels: Mapping[str, Any], xlabel: str, ylabel: str, draw: Callable[[Any, str, Any], None]
) -> tuple[Any, list[Any]]:
    """Return a figure of panels, three in a row, and their axes; `draw` draws each, given its title and content."""
    columns, rows = min(len(panels), 3), -(-len(panels) // 3)
    figure = _figure(7.0 if len(panels) == 1 else 4.4 * columns, 3.8 * rows)
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for unused in axes[len(panels) :]:
        unused.set_visible(False)
    for axis, (title, content) in zip(axes, panels.items(), strict=False):
        draw(axis, title, content)
        axis.set(title=title, xlabel=xlabel)
        axis.grid(alpha=0.3)
    for axis in axes[: len(panels) : 3]:
        axis.set_ylabel(ylabel)
    return figure, axes


def _png(figure: Any) -> bytes:
    target = io.BytesIO()
    # Without a date and a version in it, the same results are the same picture.
    figure.savefig(target, format="png", dpi=110, bbox_inches="tight", metadata={"Software": None})
    return target.getvalue()
