"""How the demonstration is drawn on a terminal: one screen of sections, each at its place, so that nothing jumps.

Pure: what is to be seen comes in as a `Scene`, what to draw goes out as lines of the terminal's width.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.text import Text

from schemas.rounds import LATE, count, missed
from schemas.text import counted

PHASES = {
    "gathering": "waiting for the vehicles",
    "domain": "finding the variables' limits, federatedly (histograms; no row leaves a vehicle)",
    "recruiting": "fixing the cohort: the vehicles that answer the first statistics round",
    "learning": "growing the model",
    "finished": "the run has finished",
}
"""Phases of a run in words."""

STAGES = (
    ("prepare", ()),
    ("gather", ("gathering",)),
    ("limits", ("domain",)),
    ("cohort", ("recruiting",)),
    ("grow", ("learning",)),
    ("compare", ("finished",)),
)
"""What happens one after the other: a word, and the phases of the run that it stands for."""

GROWN = ("nodes", "leaves", "rules", "depth")
"""Which numbers of a scheme's progress are worth a word beside each round."""

WORD_WIDTH = 13
"""Columns for what a vehicle does."""

_WORDS = {
    "member": ("in cohort", "green"),
    "answered": ("answered", "green"),
    "asked": ("asked", "yellow"),
    "late": ("too late", "magenta"),
    "dropped": ("silent", "red"),
    "lost": ("lost", "red"),
    "idle": ("up", "green"),
}

_SHORTER = {"in cohort": "cohort", "answered": "in", "too late": "late"}
"""Words for a vehicle that came back, so that both find room."""

_MARKS = {
    "starting": "·",
    "up": "●",
    "slow": "◐",
    "killed": "✗",
    "came back": "↺",
    "done": "✓",
    "doing": "▸",
    "to do": "○",
    "full": "━",
    "empty": "─",
    "between": "·",
}
_ASCII = {
    "starting": ".",
    "up": "*",
    "slow": "~",
    "killed": "x",
    "came back": "+",
    "done": "x",
    "doing": ">",
    "to do": ".",
    "full": "#",
    "empty": ".",
    "between": "-",
}


@dataclass(frozen=True)
class Step:
    """One of the preparations: what it does, when it began and ended (None: it goes on), in seconds of one clock."""

    text: str
    began: float
    ended: float | None = None


@dataclass(frozen=True)
class Scene:
    """What is to be seen.

    Attributes
    ----------
    width, height : int
        Of the terminal, columns and lines.
    now : float
        Seconds, of the clock of all other times here.
    began : float
    address : str
        The dashboard's; empty before it is there.
    steps : sequence of Step
        What was prepared, and what is done after the run.
    status : mapping
        The run, as the API shows it; empty before it is opened.
    vehicles : mapping of str to str
        Vehicle -> what its process does.
    opened : float
        When the open round was seen first.
    events : sequence of str
        What happened, oldest first.
    ascii_only : bool
        The terminal knows no other signs.
    """

    width: int
    height: int
    now: float = 0.0
    began: float = 0.0
    address: str = ""
    steps: Sequence[Step] = ()
    status: Mapping[str, Any] = field(default_factory=dict)
    vehicles: Mapping[str, str] = field(default_factory=dict)
    opened: float = 0.0
    events: Sequence[str] = ()
    ascii_only: bool = False

    def mark(self, name: str) -> str:
        """Return a sign."""
        return (_ASCII if self.ascii_only else _MARKS)[name]

    @property
    def is_under_way(self) -> bool:
        """Whether rounds are opened, or were."""
        return bool(self.status) and self.status["phase"] != "gathering"


def draw(scene: Scene) -> list[Text]:
    """Return the screen: at most ``scene.height`` lines, none longer than ``scene.width`` columns."""
    airy = scene.height >= 30
    event_lines = 5 if airy else 3
    lines = [*_head(scene), *_gap(airy)]
    if scene.vehicles:
        lines += [*_fleet(scene, max(2, scene.height // 3)), *_gap(airy)]
    room = max(6, scene.height - len(lines) - event_lines - 2)
    if scene.is_under_way:
        gap = _gap(airy)
        rounds = max(3, min(14, (room - 2 - len(gap)) // 2))
        lines += [*_rounds(scene, rounds), *gap, *_model(scene, room - rounds - 2 - len(gap))]
    else:
        lines += _preparations(scene, room - 1)
    lines += [*_gap(airy), *_latest(scene, event_lines)]
    for line in lines:
        line.no_wrap = True
        line.truncate(scene.width, overflow="crop" if scene.ascii_only else "ellipsis")
    return lines[: scene.height]


def growth(status: Mapping[str, Any]) -> str:
    """Return what has grown so far in a few numbers, or an empty text."""
    progress = status.get("progress") or {}
    numbers = [counted(value, name) for name, value in progress.items() if name in GROWN and value]
    return f"  ({', '.join(numbers)})" if numbers else ""


def vehicle_word(condition: str, agent: Mapping[str, str] | None) -> tuple[str, str]:
    """Return what a vehicle does, in a few words, and the style to show it in.

    Parameters
    ----------
    condition : str
        What its process does: ``starting``, ``up``, ``slow``, ``killed`` or ``came back``.
    agent : mapping or None
        How the coordinator sees it: ``status`` and ``reason``; None before the run knows it.
    """
    if condition == "killed":
        return "killed", "bold red"
    if condition == "starting":
        return "starting", "dim"
    word, style = _WORDS.get(agent["status"], (agent["status"], "")) if agent else ("up", "green")
    reason = agent["reason"] if agent and agent["status"] in ("dropped", "lost") else ""
    if reason and reason != "deadline":
        word = f"{word}: {reason}"
    if condition == "came back":
        return f"back, {_SHORTER.get(word, word)}", "cyan" if style != "green" else style
    if condition == "slow":
        return "too late" if word == "too late" else f"slow, {word}", "magenta"
    return word, style


def short_round(item: Mapping[str, Any], width: int | None = None) -> str:
    """Return a closed round in one short line, below `ROUND_HEAD`: counts first, then why who is missing.

    Parameters
    ----------
    item : mapping
    width : int, optional
        Columns for the line; where the names do not fit, each reason has their number instead.
    """
    why: dict[str, list[str]] = {}
    order = {LATE: 0, "deadline": 1}
    for agent, reason in sorted(missed(item).items(), key=lambda each: (order.get(each[1], 2), each)):
        why.setdefault("silent" if reason == "deadline" else reason, []).append(agent)
    line = f"{_round_name(item)} {_counts(item)} {item['seconds']:6.2f} s  "
    named = line + "; ".join(f"{reason}: {', '.join(agents)}" for reason, agents in why.items())
    if width is not None and len(named) > width:
        named = line + "; ".join(f"{reason}: {len(agents)}" for reason, agents in why.items())
    return named.rstrip()


ROUND_HEAD = f"{'':<27} {'asked':>5} {'in':>4} {'late':>5} {'dropped':>8}     time"
"""The head of a table of `short_round` lines."""


def _round_name(item: Mapping[str, Any]) -> str:
    attempt = f", try {item['attempt']}" if item["attempt"] > 1 else ""
    kind = "limits" if item["phase"] == "domain" else item["kind"]
    return f"{item['phase'][:10]:<10} {item['number']:>2} {f'{kind}{attempt}':<13.13}"


def _counts(item: Mapping[str, Any]) -> str:
    late, dropped = item["late"] or "", count(item, "dropped") or ""
    return f"{item['asked']:>5} {item['accepted']:>4} {late:>5} {dropped:>8}"


def open_round(current: Mapping[str, Any], left: float, width: int = 100, bar: tuple[str, str] = ("#", ".")) -> str:
    """Return the open round in one short line, below `ROUND_HEAD`, with the seconds that are left and who has answered.

    Parameters
    ----------
    current : mapping
    left : float
        Seconds.
    width : int
        Columns for the line.
    bar : tuple of str
        The signs for those who have answered, and for those who have not.
    """
    line = f"{_round_name(current)} {_counts(current)} {left:6.2f} s left  "
    asked = max(1, int(current["asked"]))
    room = min(asked, max(3, width - len(line)))
    full = min(room, int(current["accepted"]) * room // asked)
    return line + bar[0] * full + bar[1] * (room - full)


def _gap(airy: bool) -> list[Text]:
    return [Text("")] if airy else []


def _title(scene: Scene, name: str, more: str = "") -> Text:
    """Return a section's head: its name, what there is to say of the whole, and a line to the edge."""
    line = Text(name, style="bold")
    if more:
        line.append(f"  {more}", "not bold")
    rest = scene.width - line.cell_len - 1
    if rest > 0:
        line.append(" " + scene.mark("empty") * rest, "not bold dim")
    return line


def _head(scene: Scene) -> list[Text]:
    status, seconds = scene.status, max(0.0, scene.now - scene.began)
    title = Text("Glassfleet demo", style="bold cyan")
    words = [status["scheme"], f"{len(scene.vehicles)} vehicles", status["participation"]] if status else []
    if scene.width >= 78:
        title.append(f" {scene.mark('between')} ".join(["", *words]), "not bold default")
    right = Text()
    if scene.address:
        right.append(scene.address, "cyan")
    right.append(f"  {int(seconds // 60)}:{int(seconds % 60):02d}", "dim")
    title.append(" " * max(1, scene.width - title.cell_len - right.cell_len))
    title.append_text(right)
    return [title, _stages(scene)]


def _stages(scene: Scene) -> Text:
    phase = scene.status.get("phase")
    now = next((index for index, (_, phases) in enumerate(STAGES) if phase in phases), 0)
    line = Text()
    for index, (word, _) in enumerate(STAGES):
        name = "done" if index < now else "doing" if index == now else "to do"
        style = {"done": "green", "doing": "bold yellow", "to do": "dim"}[name]
        line.append(f"{scene.mark(name)} {word}   ", style)
    return line


def _fleet(scene: Scene, most: int) -> list[Text]:
    """Return the fleet: how many do what, then the vehicles in columns, as many as `most` rows hold."""
    agents = scene.status.get("agents") or {}
    shown = {name: (*vehicle_word(how, agents.get(name)), how) for name, how in scene.vehicles.items()}
    names = list(shown)
    name_width = min(20, max(len(name) for name in names))
    cell = 2 + name_width + 1 + WORD_WIDTH
    columns = max(1, scene.width // cell)
    rows = min(most, -(-len(names) // columns))
    if len(names) > rows * columns:
        # Those to whom something happens are worth seeing first.
        quiet = ("green", "dim")
        names = sorted(sorted(names, key=lambda name: shown[name][1] in quiet)[: rows * columns])
    lines = [_title(scene, "Vehicles", _tally(scene))]
    for row in range(rows):
        line = Text()
        for name in names[row::rows]:
            word, style, how = shown[name]
            line.append(f"{scene.mark(how)} ", style)
            line.append(f"{name[:name_width]:<{name_width}} ", "dim")
            line.append(f"{word[: WORD_WIDTH - 1]:<{WORD_WIDTH}}", style)
        lines.append(line)
    return lines


def _tally(scene: Scene) -> str:
    """Return how many vehicles do what."""
    count = Counter(scene.vehicles.values())
    total = len(scene.vehicles)
    if not scene.is_under_way:
        return f"{total - count['starting']} of {total} up"
    words = [f"{len(scene.status['cohort'])} in the cohort"] if scene.status.get("cohort") else []
    words += [f"{count['killed'] + count['came back']} killed"] if count["killed"] + count["came back"] else []
    words += [f"{count['came back']} of them back"] if count["came back"] else []
    words += [f"{count['slow']} too slow"] if count["slow"] else []
    return ", ".join(words)


def _preparations(scene: Scene, room: int) -> list[Text]:
    lines = [_title(scene, "Preparations")]
    # What is loaded before anything else takes the better part of a second.
    for step in list(scene.steps or [Step("loading", scene.began)])[-room:]:
        seconds = (scene.now if step.ended is None else step.ended) - step.began
        line = Text(f"{scene.mark('doing')} ", "bold yellow") if step.ended is None else Text(f"{scene.mark('done')} ")
        line.stylize("green" if step.ended is not None else "")
        time = f"{seconds:5.1f} s"
        words = Text(step.text, "dim" if step.ended is not None else "default")
        words.truncate(max(10, scene.width - 12), overflow="ellipsis", pad=True)
        line.append_text(words)
        line.append(f"  {time}", "dim")
        lines.append(line)
    return lines + [Text("")] * (room + 1 - len(lines))


def _rounds(scene: Scene, room: int) -> list[Text]:
    closed = scene.status.get("rounds") or []
    current = scene.status.get("open")
    number = f"{len(closed)} closed" if closed else ""
    head = Text(ROUND_HEAD, "dim")
    shown = [_round_line(item, scene.width) for item in closed[-(room - 1) :]]
    if current:
        left = current["closes_at"] - current["opened_at"] - (scene.now - scene.opened)
        line = open_round(current, max(0.0, left), scene.width, (scene.mark("full"), scene.mark("empty")))
        shown.append(Text(line, "yellow"))
    return [_title(scene, "Rounds", number), head, *shown, *[Text("")] * (room - len(shown))][: room + 1]


def _round_line(item: Mapping[str, Any], width: int) -> Text:
    line = Text(short_round(item, width))
    line.highlight_regex(r"too late: [^;]+", "magenta")
    line.highlight_regex(r"silent: [^;]+", "red")
    return line


def _model(scene: Scene, room: int) -> list[Text]:
    status = scene.status
    growing = [str(line) for line in (status.get("progress") or {}).get("lines", [])]
    if len(growing) > room:
        growing = [*growing[: room - 1], f"... and {len(growing) - room + 1} lines more"]
    more = growth(status).strip().strip("()")
    now = PHASES.get(status.get("phase", ""), "")
    lines = [Text(line) for line in growing] or [Text(now, "dim")]
    return [_title(scene, "The model so far", more), *lines, *[Text("")] * (room - len(lines))]


def _latest(scene: Scene, room: int) -> list[Text]:
    latest = list(scene.events)[-room:]
    lines = [Text(line, "dim") for line in latest[:-1]] + [Text(line) for line in latest[-1:]]
    return [_title(scene, "Events"), *lines, *[Text("")] * (room - len(lines))]
