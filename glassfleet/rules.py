"""What every model says of itself: rules, and the explanation of one answer."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Condition:
    """One antecedent: ``feature is term``.

    Attributes
    ----------
    feature : str
        Feature name.
    term : str
        Linguistic term, e.g. ``"Low"``.
    low, high : float
        Where the fuzzy set is above zero, in the feature's own unit.
    peak : float
        Where its membership is one, in the feature's own unit.
    unit : str
        The feature's unit.
    crisp : bool
        The condition holds or does not, and `term` says all of it: limits, or categories.
    """

    feature: str
    term: str
    low: float
    high: float
    peak: float
    unit: str = ""
    crisp: bool = False


@dataclass(frozen=True)
class Rule:
    """One rule of a model.

    Attributes
    ----------
    index : int
        Position among the model's rules, from 0.
    conditions : tuple of Condition
        Antecedent, in the order of the path.
    output : str
        Consequent in words and numbers, in the target's own unit.
    weight : float
        Rule weight, [0, 1].
    support, confidence : float
        [0, 1].
    otherwise : bool
        It answers where no other rule fires, and only there; it has no conditions.
    measured : bool
        False where weight, support and confidence are 0 because there are none to tell: structures and networks.
    fitness : float or None
        Of a structure that vehicles may fit; it is no rule, and its `output` is all there is to say of it.
    """

    index: int
    conditions: tuple[Condition, ...]
    output: str
    weight: float
    support: float
    confidence: float
    otherwise: bool = False
    measured: bool = True
    fitness: float | None = None

    def __str__(self) -> str:
        if self.otherwise:
            return f"OTHERWISE {self.output}"
        if not self.measured:
            return self.output
        words = " AND ".join(f"{part.feature} is {part.term}" for part in self.conditions)
        return f"IF {words or 'always'} THEN {self.output}"


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
    notes : tuple of str
        What a reader of this explanation must know.
    """

    prediction: float | str
    fired: Activation
    runners_up: tuple[Activation, ...] = ()
    shares: dict[str, float] = field(default_factory=dict)
    base: float = 0.0
    fallback: bool = False
    measure: str = ""
    clipped_from: float | None = None
    notes: tuple[str, ...] = ()

    @property
    def other_notes(self) -> tuple[str, ...]:
        """The notes without the one about the fallback."""
        return self.notes[1:] if self.fallback else self.notes
