"""What an operator asks of a rollout. Checked here once, then never doubted."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from schemas.errors import UsageError
from schemas.text import first_fault

Share = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]


class RolloutPlan(BaseModel):
    """Stages and thresholds.

    Attributes
    ----------
    stages : tuple of float
        Shares of the fleet, rising, in (0, 1]. After the last one the candidate becomes current for all.
    min_reports : int or float
        Reports that a stage needs: a number >= 1, or a fraction in (0, 1] of the vehicles asked.
    max_worse : float
        Most by which the candidate's mean error may exceed that of the current version and the best before: 0.05 is
        5 %. Negative: it must be better.
    max_worse_share : float
        Largest share of vehicles, [0, 1], whose error may grow by more than `vehicle_worse`.
    vehicle_worse : float
        Growth of a vehicle's error above which it is worse off, >= 0: 0.1 is 10 %.
    deadline : float
        Seconds for each stage, > 0. Then it is judged by the reports that came, or rolled back if they are too few.
    gate : bool
        Judge it by the gate of every new version instead of `max_worse`. One that fails stays the candidate, with the
        reason. A first version is judged by the median over the vehicles, see `glassfleet.evaluation.paired`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    stages: Annotated[tuple[Share, ...], Field(min_length=1, max_length=20)] = (0.2, 0.5, 1.0)
    min_reports: int | float = 0.5
    max_worse: Annotated[float, Field(ge=-1, le=1)] = 0.05
    max_worse_share: Annotated[float, Field(ge=0, le=1)] = 0.25
    vehicle_worse: Annotated[float, Field(ge=0, le=1)] = 0.1
    deadline: Annotated[float, Field(gt=0, le=30 * 24 * 3600)] = 3600.0
    gate: bool = False

    @model_validator(mode="after")
    def _consistent(self) -> RolloutPlan:
        if list(self.stages) != sorted(set(self.stages)):
            raise ValueError(f"stages must rise, got {', '.join(f'{share:g}' for share in self.stages)}")
        whole = type(self.min_reports) is int
        if whole and not 1 <= self.min_reports < 2**53:
            raise ValueError(f"min_reports as a number of reports is from 1 to 2**53 - 1, got {self.min_reports}")
        if not whole and not 0 < self.min_reports <= 1:
            raise ValueError(f"min_reports as a fraction lies in (0, 1], got {self.min_reports}")
        return self

    @classmethod
    def from_document(cls, document: Any) -> RolloutPlan:
        """Check a plan; raises UsageError naming the first fault."""
        try:
            return cls.model_validate(document)
        except ValidationError as fault:
            raise UsageError(f"this rollout cannot be meant: {first_fault(fault, cls)}") from fault


BEATS = 0.01
"""A first version's error must be so much lower than the constant's: one that tells nothing is lower by chance."""

WORSE_THAN_ALONE = 1.0
"""A first version's error may be so much larger than that of what each vehicle learns alone; `GATE.max_worse` where one
is named without whom the others gain (`glassfleet.evaluation.influence`). Honest fleets had up to 0.47: they learn from
condensed rows, and a vehicle alone from its rows as they are."""

GATE = RolloutPlan(stages=(1.0,), max_worse_share=1.0, deadline=120.0, gate=True)
"""What every new version passes before it becomes current. The share of vehicles that are worse off, which a minority
of liars could raise, decides nothing. Vehicles that are up report within seconds."""
