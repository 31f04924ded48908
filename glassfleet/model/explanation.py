"""Why a model answered as it did for one row: the rules that fired, each input's share, the chances of classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from glassfleet.model.rules import Rule, few_digits

RUNNERS_UP = 3
"""Rules named beside the one that decided, in an explanation."""


def no_rule_fires(index: int) -> str:
    """Return the note for a row that meets no rule's conditions, in a model without OTHERWISE."""
    return f"no rule fires for this row, so rule {index} answers, which has the highest weight"


@dataclass(frozen=True)
class Activation:
    """A rule that fired for one row.

    Attributes
    ----------
    rule : Rule
    strength : float
        Degree to which the row fulfils the antecedent, [0, 1].
    memberships : tuple of float
        Degree of each condition, [0, 1].
    normalised_strength : float or None
        `strength` divided by the rule's mean strength over the training rows, >= 0 and often above 1, when the rule
        was chosen by it (maximum matching in a fuzzy regression tree, Eq. 22): a narrow rule that fits a row better
        than it fits most beats a broad one with a higher strength. None: rules were compared by `strength` itself (and
        their weights).
    """

    rule: Rule
    strength: float
    memberships: tuple[float, ...]
    normalised_strength: float | None = None


@dataclass(frozen=True)
class Chance:
    """What a model tells of one class.

    Attributes
    ----------
    label : str
    probability, among_all : float
        Of the class for this row, and its share of all rows; [0, 1].
    score : float
        Two classes' probabilities are to each other as e to the power of their scores.
    """

    label: str
    probability: float
    among_all: float
    score: float


def chance_lines(chances: Sequence[Chance], most: int = 10) -> list[str]:
    """Return a table of the first classes, a line each; with a line that tells how many more there are."""
    width = max(5, *(len(each.label) for each in chances))
    return [
        f"{'class':{width}}  probability  of all rows   score",
        *(
            f"{each.label:{width}}  {each.probability:11.3f}  {each.among_all:11.3f}  {each.score:+6.2f}"
            for each in chances[:most]
        ),
        *([f"and {len(chances) - most} less likely classes"] * (len(chances) > most)),
    ]


@dataclass(frozen=True)
class Explanation:
    """Why a model answered as it did for one row.

    Attributes
    ----------
    prediction : float or str
        In the target's own unit, or a class label.
    fired : Activation
        The rule that decided (maximum matching) or the strongest of those averaged.
    runners_up : tuple of Activation
        The next rules, in the order of what the choice was made on (see :class:`Activation`).
    shares : dict of str to float
        Each input's part of the output, in the target's own unit; with `base` they add up to the prediction. Empty
        where there is nothing to share out; `notes` says why.
    base : float
        The part that no input accounts for.
    fallback : bool
        No rule's conditions were met, so that the one for that case answered: OTHERWISE where the model has it, else
        the rule with the highest weight. The first of `notes` says which.
    measure : str
        What `base` and `shares` add up to where that is not the prediction itself; empty: it is, or there are none.
    clipped_from : float or None
        What the rules say, in the target's own unit, where the model keeps it within the target's limits; None: the
        forecast is what they say.
    interval : tuple of (float, float) or None
        Nine of ten true values are within, see :mod:`glassfleet.model.intervals`; None: nobody knows.
    notes : tuple of str
        What a reader of this explanation must know.
    reference : str
        Whose forecast `base` is, so that the shares say how this row differs from that one; empty: `base` is what no
        input accounts for.
    differences : dict of str to str
        By input whose value is not the reference's: both, such as "17 instead of 12".
    chances : tuple of Chance
        Every class, the likeliest first; empty: the model tells no probabilities.
    """

    prediction: float | str
    fired: Activation
    runners_up: tuple[Activation, ...] = ()
    shares: dict[str, float] = field(default_factory=dict)
    base: float = 0.0
    fallback: bool = False
    measure: str = ""
    clipped_from: float | None = None
    interval: tuple[float, float] | None = None
    notes: tuple[str, ...] = ()
    reference: str = ""
    differences: dict[str, str] = field(default_factory=dict)
    chances: tuple[Chance, ...] = ()

    @property
    def base_text(self) -> str:
        """What `base` is, for people."""
        if self.reference:
            return f"the forecast for {self.reference}"
        if self.measure:
            return "what no input accounts for"
        return "what no input accounts for; the model's record has no typical row to compare with"

    @property
    def interval_text(self) -> str:
        """The interval in words, without the unit: ``"9 of 10 between 0.41 and 0.88"``; empty where there is none."""
        if self.interval is None:
            return ""
        low, high = map(few_digits, self.interval)
        return f"9 of 10 between {low} and {high}"

    @property
    def other_notes(self) -> tuple[str, ...]:
        """The notes without the one about the fallback."""
        return self.notes[1:] if self.fallback else self.notes
