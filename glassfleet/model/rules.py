"""What every model says of itself: its rules, in words."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

STRONGEST = 6
"""So many terms of a consequent are told where words are to be few."""


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
    in_numbers : bool
        The term of a fuzzy condition is no name but limits: where the degree is one half.
    short : str
        The term in fewer letters, ``"2 to 5 m"``; empty: there is no shorter one.
    limits : str
        Of a fuzzy condition whose term is a name: where its degree is at least one half, ``"below 45 km/h"``.
    about_cell : bool
        The condition says whether the cell is empty, ``"missing"`` or ``"given"``, and nothing of its value.
    """

    feature: str
    term: str
    low: float
    high: float
    peak: float
    unit: str = ""
    crisp: bool = False
    in_numbers: bool = False
    short: str = ""
    limits: str = ""
    about_cell: bool = False

    @property
    def text(self) -> str:
        """Feature and term: ``speed is Low``."""
        return f"{self.feature} is {self.term}"


@dataclass(frozen=True)
class Slope:
    """How a linear consequent depends on one input.

    Attributes
    ----------
    feature : str
    per_unit : float
        By how much the target changes with one unit of the input, in the target's own unit.
    over_region : float
        By how much it changes when the input crosses the rule's own region: the limits of its condition on the input,
        or the whole range where it has none.
    unit : str
        The input's.
    when_missing : bool
        It is added where the input's cell is empty, and nowhere else.
    beyond : str
        It is multiplied with how far the input is ``"above 24"`` or ``"below 3"``, a limit in its unit, where the line
        over the input itself ends; empty: with the input.
    """

    feature: str
    per_unit: float
    over_region: float
    unit: str = ""
    when_missing: bool = False
    beyond: str = ""

    @property
    def name(self) -> str:
        """The input, what is beyond a limit of it, or that it is missing."""
        beside = f" {self.beyond}" if self.beyond else " is missing" if self.when_missing else ""
        return f"{self.feature}{beside}"

    @property
    def term(self) -> str:
        """What the slope is multiplied with: the input, or what is beyond a limit of it; or when it is added."""
        if self.beyond:
            return f"for each {self.unit or 'one'} of {self.name}"
        return f"if {self.name}" if self.when_missing else self.name


@dataclass(frozen=True)
class Consequent:
    """What a rule says of the target.

    Attributes
    ----------
    target : str
        Empty: `value` is all there is to say, of structures and networks.
    value : float or str
        In the target's own unit, where all inputs are 0; or the class.
    unit : str
    slopes : tuple of Slope or None
        Those that are not zero, in the order of the inputs. None: the rules of this model say numbers or classes.
    scores : tuple of Consequent
        Of a rule whose rows mostly have the class `value`, what it adds to the scores from which probabilities come.
    """

    target: str
    value: float | str
    unit: str = ""
    slopes: tuple[Slope, ...] | None = None
    scores: tuple[Consequent, ...] = ()

    def __str__(self) -> str:
        return self.text()

    def text(self, keep: int | None = None) -> str:
        """Return the consequent in words; with `keep` only the terms that can move it most.

        A sum stands in brackets before its unit, which would otherwise seem to be the last term's.

        >>> str(Consequent("frames", 90.0, "%", (Slope("speed", -0.5, -60.0),)))
        'frames = (90 - 0.5 speed) %'
        >>> str(Consequent("frames", 90.0, "%")), str(Consequent("quality", "good"))
        ('frames = 90 %', 'quality is good')
        """
        return "; ".join(self.parts(keep))

    def parts(self, keep: int | None = None) -> list[str]:
        """Return :meth:`text` in its parts: what is said of the target, then each score."""
        verb = "is mostly" if self.scores else "is" if isinstance(self.value, str) else "="
        text = f"{self.target} {verb} {self.answer(keep)}" if self.target else self.answer(keep)
        return [text, *(score.text(keep) for score in self.scores)]

    def answer(self, keep: int | None = None) -> str:
        """Return what is said of the target, without its name; see :meth:`text`."""
        if isinstance(self.value, str):
            return self.value
        slopes = kept = self.slopes or ()
        if keep is not None and len(slopes) > keep + 1:
            limit = sorted((abs(slope.over_region) for slope in slopes), reverse=True)[keep - 1]
            kept = tuple(slope for slope in slopes if abs(slope.over_region) >= limit)
        words = [f" {'-' if slope.per_unit < 0 else '+'} {abs(slope.per_unit):.4g} {slope.term}" for slope in kept]
        words += [f" and {len(slopes) - len(kept)} weaker terms"] * (len(kept) < len(slopes))
        total = f"{self.value:.4g}{''.join(words)}"
        if self.unit:
            total = f"({total}) {self.unit}" if words else f"{total} {self.unit}"
        return total


@dataclass(frozen=True)
class Errors:
    """How far the model is off on test rows where a rule decides, in the target's own unit: true less forecast.

    Attributes
    ----------
    low, high : float
        Nine of ten errors are within, see :mod:`glassfleet.model.intervals`.
    rows : int
        Test rows on which these two rest: the rule's own, or those of all rules that have few.
    own : int
        Test rows where the rule decides.
    mean : float or None
        Mean absolute error over these; None without any.
    """

    low: float
    high: float
    rows: int
    own: int
    mean: float | None


@dataclass(frozen=True)
class Forecasts:
    """What a rule alone forecasts over its training rows, in the target's own unit.

    Attributes
    ----------
    rows : float
        The share of all rows that is the rule's, [0, 1]; a row that is so in part counts in part.
    mean : float
    low, high : float
        The mean and 1.28 standard deviations either way, within the target's limits: the middle 80 % where forecasts
        spread evenly around their mean.
    moves : dict of str to float
        By how much the inputs that do most move the forecast over the middle 80 % of the rule's rows, from low to high
        values of the input, the others as they are.
    errors : Errors or None
        On test rows; None: nobody has told them.
    """

    rows: float
    mean: float
    low: float
    high: float
    moves: dict[str, float] = field(default_factory=dict)
    errors: Errors | None = None

    @property
    def short(self) -> str:
        """Mean and range, without the unit: ``"148 (117 to 179)"``."""
        spread = f" ({few_digits(self.low)} to {few_digits(self.high)})" if self.low < self.high else ""
        return f"{few_digits(self.mean)}{spread}"

    @property
    def text(self) -> str:
        """Mean and range in words, without the unit: ``"148, 8 of 10 from 117 to 179"``."""
        spread = f", 8 of 10 from {few_digits(self.low)} to {few_digits(self.high)}" if self.low < self.high else ""
        return f"{few_digits(self.mean)}{spread}"


def few_digits(value: float, digits: int = 4) -> str:
    """Return a number in few digits; up to ten millions without an exponent."""
    text = f"{value:.{digits}g}"
    return f"{float(text):.0f}" if "e+0" in text and abs(value) < 1e7 else text


@dataclass(frozen=True)
class Rule:
    """One rule of a model.

    Attributes
    ----------
    index : int
        Position among the model's rules, from 0.
    conditions : tuple of Condition
        Antecedent, in the order of the path.
    consequent : Consequent
    weight : float
        Rule weight, [0, 1].
    support, confidence : float
        [0, 1].
    otherwise : bool
        It answers where no other rule fires, and only there; it has no conditions.
    measured : bool
        False where weight, support and confidence are 0 because there are none to tell: structures and networks.
    fitness : float or None
        Of a structure that vehicles may fit; it is no rule, and its consequent is all there is to say of it.
    forecast : Forecasts or None
        What the rule forecasts; None: nobody knows, or it says a class.
    error : float or None
        In the target's own unit: the mean absolute error on the test rows where the rule decides, where it is known
        (:class:`Errors`). Else how far the rule alone is from the target on its training rows, as the scheme's page
        says. None: its `confidence` says how right it is.
    """

    index: int
    conditions: tuple[Condition, ...]
    consequent: Consequent
    weight: float
    support: float
    confidence: float
    otherwise: bool = False
    measured: bool = True
    fitness: float | None = None
    forecast: Forecasts | None = None
    error: float | None = None

    @property
    def measures(self) -> str:
        """How much the rule is used, what it forecasts, and how right it is, in words; see `measures_note`."""
        if not self.measured:
            return ""
        unit = f" {self.consequent.unit}" if self.consequent.unit else ""
        forecast = self.forecast
        if forecast is None:
            words = [f"support {self.support:.3f}"]
        else:
            words = [f"{100 * forecast.rows:.3g} % of the rows", f"mean forecast {forecast.text}{unit}"]
        right = f"confidence {self.confidence:.3f}"
        if self.error is not None:
            right = f"error {few_digits(self.error, 3)}{unit}"
        return ", ".join([*words, right])

    @property
    def output(self) -> str:
        """The consequent in words and numbers."""
        return str(self.consequent)

    @property
    def text(self) -> str:
        """The whole rule."""
        return str(self)

    @property
    def antecedent(self) -> str:
        """What the rule asks, in words: all its conditions, or ``always``."""
        return " AND ".join(part.text for part in self.conditions) or "always"

    @property
    def summary(self) -> list[str]:
        """The rule by the strongest terms of its consequent; each of its scores by itself."""
        return self._parts(STRONGEST)

    def _parts(self, keep: int | None) -> list[str]:
        first, *scores = self.consequent.parts(keep)
        before = "OTHERWISE " if self.otherwise else f"IF {self.antecedent} THEN " if self.measured else ""
        return [f"{before}{first}", *scores]

    def __str__(self) -> str:
        return "; ".join(self._parts(None))


def most_used(rule: Rule) -> tuple[float, int]:
    """Sort the most used rules (support) first, structures by their fitness; ties by index."""
    return -(rule.support if rule.fitness is None else rule.fitness), rule.index


_FORECASTS = (
    "Of each rule: its share of the training rows (a row that is the rule's in part counts in part), the mean of what "
    "it forecasts for them, and where about 8 of 10 of these forecasts are: the mean and 1.28 standard deviations "
    "either way. "
)
_ERROR = "Error: how far a rule alone is from the target on its training rows, on average."
_TEST_ERROR = "Error: the mean absolute error on test rows where the rule decides."


def measures_note(rules: Iterable[Any]) -> str:
    """Return what the measures of rules (or of their views) are; empty: they are well known."""
    rules = list(rules)
    note = _FORECASTS if any(rule.forecast is not None for rule in rules) else ""
    tested = {_is_tested(rule) for rule in rules if rule.error is not None}
    if tested == {True, False}:
        return f"{note}{_TEST_ERROR} Of a rule without such rows: how far it is from the target on its training rows."
    return note + (_TEST_ERROR if True in tested else _ERROR if tested else "")


def _is_tested(rule: Any) -> bool:
    """Whether a rule's error is that on test rows."""
    return rule.forecast is not None and rule.forecast.errors is not None and rule.forecast.errors.mean is not None
