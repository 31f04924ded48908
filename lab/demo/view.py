"""How the demonstration is drawn on a terminal: one screen of sections, each at its place, so that nothing jumps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rich.columns import Columns
from rich.console import Console, ConsoleRenderable, Group
from rich.layout import Layout
from rich.progress_bar import ProgressBar
from rich.rule import Rule
from rich.table import Table
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

STAGES = {
    "prepare": None,
    "gather": "gathering",
    "limits": "domain",
    "cohort": "recruiting",
    "grow": "learning",
    "compare": "finished",
}
"""What happens one after the other: a word, and the phase of the run that it stands for."""

GROWN = ("nodes", "leaves", "rules", "depth")
"""Which numbers of a scheme's progress are worth a word beside each round."""

WORDS = {
    "member": ("in cohort", "green"),
    "answered": ("answered", "green"),
    "asked": ("asked", "yellow"),
    "late": ("too late", "magenta"),
    "dropped": ("silent", "red"),
    "lost": ("lost", "red"),
    "idle": ("up", "green"),
}
"""What a vehicle does, by how the coordinator sees it, and the style to show it in."""

MARKS = {"starting": "·", "up": "●", "slow": "◐", "killed": "✗", "came back": "↺"}
DONE, DOING, TO_DO = "✓", "▸", "○"
ASCII = str.maketrans("·●◐✗↺✓▸○", ".*~x+x>.")
"""For terminals that know no other signs."""

CELL = 36
"""Columns for a vehicle's mark, name and word."""
FIXED = 62
"""Columns of a round before the reasons."""


@dataclass
class Step:
    """One of the preparations: what it does, when it began and ended (None: it goes on), in seconds of one clock."""

    text: str
    began: float
    ended: float | None = None


@dataclass
class Scene:
    """What is to be seen.

    Attributes
    ----------
    began : float
        Seconds, of the clock of all times here.
    address : str
        The dashboard's; empty before it is there.
    steps : list of Step
        What was prepared, and what is done after the run.
    status : mapping
        The run, as the API shows it; empty before it is opened.
    vehicles : mapping of str to str
        Vehicle -> what its process does: ``starting``, ``up``, ``slow``, ``killed`` or ``came back``.
    opened : float
        When the open round was seen first.
    events : list of str
        What happened, oldest first.
    ascii_only : bool
        The terminal knows no other signs.
    """

    began: float
    address: str = ""
    steps: list[Step] = field(default_factory=list)
    status: Mapping[str, Any] = field(default_factory=dict)
    vehicles: Mapping[str, str] = field(default_factory=dict)
    opened: float = 0.0
    events: list[str] = field(default_factory=list)
    ascii_only: bool = False

    def mark(self, sign: str) -> str:
        """Return a sign as the terminal can show it."""
        return sign.translate(ASCII) if self.ascii_only else sign


def draw(scene: Scene, console: Console, now: float) -> Layout:
    """Return the screen, as wide and as high as the terminal; `now` is by the clock of the scene."""
    airy = console.height >= 30
    events = (5 if airy else 3) + 1
    columns = max(1, console.width // CELL)
    fleet = min(max(2, console.height // 3), -(-len(scene.vehicles) // columns)) + 1
    room = console.height - 2 - events - (fleet if scene.vehicles else 0) - 3 * airy
    parts = [Layout(_head(scene, now), size=2 + airy)]
    if scene.vehicles:
        parts.append(Layout(_fleet(scene, columns * (fleet - 1)), size=fleet + airy))
    if scene.status and scene.status["phase"] != "gathering":
        rounds = max(3, min(14, room // 2 - 2))
        parts.append(Layout(_rounds(scene, rounds, console.width, now), size=rounds + 2 + airy))
        parts.append(Layout(_model(scene)))
    else:
        parts.append(Layout(_preparations(scene, room, now)))
    parts.append(Layout(_section("Events", "", [Text(line) for line in scene.events[1 - events :]]), size=events))
    screen = Layout()
    screen.split_column(*parts)
    return screen


def growth(status: Mapping[str, Any]) -> str:
    """Return what has grown so far in a few numbers, or an empty text."""
    progress = status.get("progress") or {}
    return ", ".join(counted(value, name) for name, value in progress.items() if name in GROWN and value)


def vehicle_word(condition: str, agent: Mapping[str, str] | None) -> tuple[str, str]:
    """Return what a vehicle does, in a few words, and the style to show it in.

    Parameters
    ----------
    condition : str
        What its process does, see `Scene`.
    agent : mapping or None
        How the coordinator sees it: ``status`` and ``reason``; None before the run knows it.
    """
    if condition in ("killed", "starting"):
        return condition, {"killed": "bold red", "starting": "dim"}[condition]
    word, style = WORDS.get(agent["status"], (agent["status"], "")) if agent else ("up", "green")
    reason = agent["reason"] if agent and agent["status"] in ("dropped", "lost") else ""
    if reason and reason != "deadline":
        word = f"{word}: {reason}"
    if condition == "came back":
        return f"back, {word}", "cyan" if style != "green" else style
    if condition == "slow":
        return "too late" if word == "too late" else f"slow, {word}", "magenta"
    return word, style


def why(item: Mapping[str, Any], width: int) -> Text:
    """Return why who is missing in a round; where the names do not fit `width`, each reason has their number."""
    reasons: dict[str, list[str]] = {}
    order = {LATE: 0, "deadline": 1}
    for agent, reason in sorted(missed(item).items(), key=lambda each: (order.get(each[1], 2), each)):
        reasons.setdefault("silent" if reason == "deadline" else reason, []).append(agent)
    text = Text("; ".join(f"{reason}: {', '.join(agents)}" for reason, agents in reasons.items()))
    if text.cell_len > width:
        text = Text("; ".join(f"{reason}: {len(agents)}" for reason, agents in reasons.items()))
    text.highlight_regex(r"too late: [^;]+", "magenta")
    text.highlight_regex(r"silent: [^;]+", "red")
    return text


def _section(name: str, more: str, content: Iterable[ConsoleRenderable]) -> Group:
    """Return a section: its name, what there is to say of the whole, a line to the edge, and below it the content."""
    return Group(Rule(Text.assemble((name, "bold"), f"  {more}" if more else ""), align="left", style="dim"), *content)


def _grid(*columns: Mapping[str, Any]) -> Table:
    """Return a table of lines that are never broken."""
    table = Table(box=None, expand=True, padding=(0, 1, 0, 0), header_style="dim", pad_edge=False)
    for column in columns:
        table.add_column(**{"no_wrap": True, **column})
    return table


def _head(scene: Scene, now: float) -> Group:
    status, seconds = scene.status, int(now - scene.began)
    words = [status["scheme"], f"{len(scene.vehicles)} vehicles", status["participation"]] if status else []
    line = Table.grid(expand=True)
    line.add_column(no_wrap=True, ratio=1)
    line.add_column(no_wrap=True, justify="right")
    title = Text.assemble(("Glassfleet demo", "bold cyan"), *(f" - {word}" for word in words))
    line.add_row(title, Text.assemble((scene.address, "cyan"), (f"  {seconds // 60}:{seconds % 60:02d}", "dim")))
    here = list(STAGES.values()).index(status.get("phase")) if status.get("phase") in STAGES.values() else 0
    stages = Text(no_wrap=True)
    for index, word in enumerate(STAGES):
        sign, style = (DONE, "green") if index < here else (DOING, "bold yellow") if index == here else (TO_DO, "dim")
        stages.append(f"{scene.mark(sign)} {word}   ", style)
    return Group(line, stages)


def _fleet(scene: Scene, most: int) -> Group:
    """Return how many vehicles do what, and the vehicles, as many as find room."""
    agents = scene.status.get("agents") or {}
    shown = {name: vehicle_word(how, agents.get(name)) for name, how in scene.vehicles.items()}
    # Those to whom something happens are worth seeing first.
    names = sorted(shown, key=lambda name: shown[name][1] in ("green", "dim"))[:most]
    cells = []
    for name in sorted(names):
        word, style = shown[name]
        cell = Text.assemble(
            (f"{scene.mark(MARKS[scene.vehicles[name]])} ", style), (f"{name[:20]:<12} ", "dim"), (word, style)
        )
        cell.truncate(CELL - 1)
        cells.append(cell)
    table = Columns(cells, width=CELL - 1, padding=(0, 1, 0, 0), column_first=True)
    return _section("Vehicles", _tally(scene), [table])


def _tally(scene: Scene) -> str:
    """Return how many vehicles do what."""
    count = Counter(scene.vehicles.values())
    if not scene.status or scene.status["phase"] == "gathering":
        return f"{len(scene.vehicles) - count['starting']} of {len(scene.vehicles)} up"
    numbers = {
        "in the cohort": len(scene.status.get("cohort") or ()),
        "killed": count["killed"] + count["came back"],
        "of them back": count["came back"],
        "too slow": count["slow"],
    }
    return ", ".join(f"{number} {what}" for what, number in numbers.items() if number)


def _preparations(scene: Scene, room: int, now: float) -> Group:
    table = _grid({}, {"ratio": 1, "overflow": "ellipsis"}, {"justify": "right", "style": "dim"})
    table.show_header = False
    # What is loaded before anything else takes the better part of a second.
    for step in (scene.steps or [Step("loading", scene.began)])[1 - room :]:
        goes_on = step.ended is None
        sign = Text(scene.mark(DOING), "bold yellow") if goes_on else Text(scene.mark(DONE), "green")
        seconds = (now if step.ended is None else step.ended) - step.began
        table.add_row(sign, Text(step.text, "" if goes_on else "dim"), f"{seconds:.1f} s")
    return _section("Preparations", "", [table])


def _rounds(scene: Scene, room: int, width: int, now: float) -> Group:
    """Return the last rounds, the open one with the seconds that are left and the share that has answered."""
    numbers = [{"header": name, "justify": "right"} for name in ("asked", "in", "late", "dropped", "time")]
    table = _grid({"header": "round", "width": 27}, *numbers, {"ratio": 1, "overflow": "ellipsis"})
    closed, current = scene.status.get("rounds") or [], scene.status.get("open")
    for item in closed[-room + bool(current) :]:
        table.add_row(*_cells(item), f"{item['seconds']:.2f} s", why(item, width - FIXED))
    if current:
        left = max(0.0, current["closes_at"] - current["opened_at"] - (now - scene.opened))
        bar = ProgressBar(max(1, current["asked"]), current["accepted"], width=max(3, min(30, width - FIXED - 7)))
        table.add_row(*_cells(current), f"{left:.2f} s left", bar, style="yellow")
    return _section("Rounds", f"{len(closed)} closed" if closed else "", [table])


def _cells(item: Mapping[str, Any]) -> list[str]:
    attempt = f", try {item['attempt']}" if item["attempt"] > 1 else ""
    kind = "limits" if item["phase"] == "domain" else item["kind"]
    counts = (item["asked"], item["accepted"], item["late"] or "", count(item, "dropped") or "")
    return [f"{item['phase'][:10]:<10} {item['number']:>2} {kind}{attempt}", *map(str, counts)]


def _model(scene: Scene) -> Group:
    growing = [Text(str(line), no_wrap=True) for line in (scene.status.get("progress") or {}).get("lines", [])]
    now = Text(PHASES.get(scene.status["phase"], ""), "dim")
    return _section("The model so far", growth(scene.status), growing or [now])
