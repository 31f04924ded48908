"""A table of transitions: what drives the phases of a machine, and its diagram."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Transition:
    """One row.

    Attributes
    ----------
    source : str
        The phase before; empty: there is nothing yet.
    cause : str
        What happened.
    target : str
        The phase after.
    when : str
        The condition in words.
    effects : str
        What the shell is told to do.
    given : callable or None
        Whether the row holds for a state. Of several rows with a source and a cause, the first that holds counts.
    """

    source: str
    cause: str
    target: str
    when: str
    effects: str
    given: Callable[[Any], bool] | None = None


class TransitionTable:
    """All rows of one machine; a move that is in none cannot be made.

    Parameters
    ----------
    ended : collection of str
        The phases in which it is over.
    """

    def __init__(self, ended: Collection[str], *rows: Transition) -> None:
        self.ended = ended
        self.rows = rows

    def find(self, source: str, cause: str, state: object) -> str | None:
        """Return the phase after `cause`; None: there is no such row."""
        rows = (row for row in self.rows if (row.source, row.cause) == (source, cause))
        return next((row.target for row in rows if row.given is None or row.given(state)), None)

    def target(self, source: str, cause: str, state: object) -> Any:
        """Return the phase after `cause`; raises AssertionError when the table has none: a fault of the machine."""
        phase = self.find(source, cause, state)
        if phase is None:
            raise AssertionError(f"the transition table has no way from {source!r} by {cause!r}: a fault of the engine")
        return phase

    def as_mermaid(self) -> str:
        """Draw the diagram for the documentation; causes between the same two phases share an arrow."""
        arrows: dict[tuple[str, str], list[str]] = {}
        for row in self.rows:
            arrows.setdefault((row.source or "[*]", row.target), []).append(row.cause)
        lines = ["stateDiagram-v2"]
        lines += [f"    {source} --> {target}: {', '.join(causes)}" for (source, target), causes in arrows.items()]
        lines += [f"    {phase} --> [*]" for phase in sorted(self.ended)]
        return "\n".join(lines)
