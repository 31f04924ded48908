"""Parameters of the fuzzy rule-based classifier."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from glassfleet.data.documents import RunParameters
from glassfleet.fuzzy.partition import MAX_SETS
from glassfleet.numerics.statistics import capacity

MAX_RULES = 1 << 18
"""Most candidate rules of a run, over all agents."""

MAX_CLASSES = 1 << 15
"""Most classes; class numbers travel as int16."""


MAX_CELLS = 1 << 22
"""Most pairs of an antecedent and a class: an agent keeps four int64 sums of each while it answers."""


class FrbcParameters(RunParameters):
    """Parameters of a run of FRBC.

    Attributes
    ----------
    n_sets : int
        Fuzzy sets per input, T. The paper has 5 on MAGIC and 3 on QoE; the finer, the fewer rows found a rule.
    weights : {"pooled", "owners"}
        Whose rows weigh a rule. ``"pooled"``: those of all agents, asked in a second round over the union of rules; the
        fleet's model then equals the central one. ``"owners"`` (the paper): those of the agents that found the rule.
    association : {"strength", "strength*weight"}
        What the rules compete by when a row is classified. The published tables are those of ``"strength"``.
    nullify : bool
        Agents protect their rows: see `min_rows`. False: they do not.
    min_rows : int
        Agents answer from condensed rows (:mod:`glassfleet.data.condense`), condensed class by class, of groups of at
        least this many, and of more rows than there are inputs. 1: from their own.
    max_rules : int or None
        Rule reduction: the coordinator keeps at most this many rules, those with the largest support.
    min_support : float
        Rule reduction: the coordinator leaves out rules with a smaller support, [0, 1].
    fraction_bits : int
        Strengths are rounded to multiples of 2^-fraction_bits. Even: half of the bits go to either limb.
    union : {"rules", "sum"}
        How the rules of all agents are found. ``"rules"``: each agent tells its own. ``"sum"``: as a sum of tables
        (:mod:`glassfleet.private.union`), so that nobody tells which rules are its own; pooled weights only. Private
        runs take it by themselves.
    support : int
        Of private runs, which set it; ``union="sum"`` only. Rules are left out that fewer rows found, or for which
        fewer fire in a sum that is opened. They are found input by input, some inputs a round. 0: all are asked about.
    """

    later = ("union", "support")

    n_sets: int = Field(default=3, ge=2, le=MAX_SETS)
    weights: Literal["pooled", "owners"] = "pooled"
    association: Literal["strength", "strength*weight"] = "strength"
    nullify: bool = True
    min_rows: int = Field(default=3, ge=1, le=1_000_000)
    max_rules: int | None = Field(default=None, ge=1)
    min_support: float = Field(default=0.0, ge=0.0, le=1.0)
    fraction_bits: int = Field(default=80, ge=48, le=80, multiple_of=2)
    union: Literal["rules", "sum"] = "rules"
    support: int = Field(default=0, ge=0, le=1_000_000)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.union == "sum" and self.weights == "owners":
            raise ValueError('weights="owners" needs each agent\'s own rules; union="sum" goes with weights="pooled"')
        if self.support and self.union != "sum":
            raise ValueError('support goes with union="sum"')
        return self

    @property
    def limb_bits(self) -> int:
        """Fraction bits of one limb."""
        return self.fraction_bits // 2

    @property
    def max_rows(self) -> int:
        """Largest total number of rows of a run for which no limb can overflow: 2^23 - 1 at 80 fraction bits."""
        return capacity(self.limb_bits)

    @property
    def group_rows(self) -> int:
        """Fewest rows of a group of condensed rows; 1: rows are not condensed."""
        return self.min_rows if self.nullify else 1
