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
    """

    index: int
    conditions: tuple[Condition, ...]
    output: str
    weight: float
    support: float
    confidence: float

    def __str__(self) -> str:
        words = " AND ".join(f"{part.feature} is {part.term}" for part in self.conditions)
        return f"IF {words or 'always'} THEN {self.output}"


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
        Each input's part of the output, in the target's own unit; with `base` they add up to the prediction.
    base : float
        The part that no input accounts for.
    fallback : bool
        True when no rule fired and the rule with the highest weight answered.
    measure : str
        What `base` and `shares` add up to where that is not the prediction itself; empty: it is.
    """

    prediction: float | str
    fired: Activation
    runners_up: tuple[Activation, ...] = ()
    shares: dict[str, float] = field(default_factory=dict)
    base: float = 0.0
    fallback: bool = False
    measure: str = ""
