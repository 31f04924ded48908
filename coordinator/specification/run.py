"""What an operator asks for: a run and the policy of its rounds. Checked here once, then never doubted."""

from __future__ import annotations

import math
import re
import sys
import uuid
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationError, field_validator, model_validator

from coordinator.specification.rollout import RolloutPlan
from glassfleet.data.domain import Domain
from glassfleet.private.groups import LEAST_COMPANY, LEAST_FLOOR, SUPPORT_ROWS
from glassfleet.schemes import DEFAULT
from schemas.codec import encode
from schemas.errors import UsageError
from schemas.limits import ID_PATTERN, MAX_FEATURES
from schemas.messages import Id
from schemas.rounds import Window
from schemas.text import first_fault

Column = Annotated[str, Field(min_length=1, max_length=200)]
Seconds = Annotated[float, Field(ge=0, le=7 * 24 * 3600, allow_inf_nan=False)]
_ID = re.compile(ID_PATTERN)


def _share_or_number(what: str, value: float | None) -> None:
    if value is None:
        return
    whole = type(value) is int  # 1 is one agent, 1.0 is all of them
    if not whole and not 0 < value <= 1:
        raise ValueError(f"{what} as a fraction lies in (0, 1], got {value}; a number of agents is an integer")
    if whole and value < 1:
        raise ValueError(f"{what} as a number of agents is at least 1, got {value}")


class RoundPolicy(BaseModel):
    """When a round closes, and what happens when too few have answered.

    Attributes
    ----------
    min_agents : int, float or None
        Quorum: a number of agents >= 1, or a fraction in (0, 1] of those asked, or of a fixed cohort. ``1`` is one
        agent, ``1.0`` is all. None: half of the fleet, see `with_quorum`.
    target : int or None
        Close a round as soon as this many, and the quorum, have answered; default: wait for all. Cohort participation:
        chooses the cohort, once.
    deadline : float
        Seconds, > 0, after which a vehicle that has not answered is dropped.
    grace : float
        Seconds after the deadline in which answers still count.
    sample : int, float or None
        Ask only so many of those who can answer. Cohort participation: once, in the first statistics round.
    on_missed_quorum : "extend" or "fail"
        Without a quorum at the deadline: wait once more, or fail.
    extensions : int
        Most extensions of a round, 0 to 100.
    max_restarts : int
        How often a run may restart because it lost a member of its cohort.
    gather_agents : int
        Agents that must be up before the first round.
    gather_timeout : float
        Seconds to wait for them before the run fails (``not-enough-agents``).
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    min_agents: int | float | None = None
    target: Annotated[int, Field(ge=1)] | None = None
    deadline: Annotated[float, Field(gt=0, le=7 * 24 * 3600)] = 30.0
    grace: Seconds = 0.0
    sample: int | float | None = None
    on_missed_quorum: Literal["extend", "fail"] = "extend"
    extensions: Annotated[int, Field(ge=0, le=100)] = 2
    max_restarts: Annotated[int, Field(ge=0, le=1000)] = 5
    gather_agents: Annotated[int, Field(ge=1)] = 1
    gather_timeout: Seconds = 600.0

    @model_validator(mode="after")
    def _consistent(self) -> RoundPolicy:
        _share_or_number("min_agents", self.min_agents)
        _share_or_number("sample", self.sample)
        if isinstance(self.min_agents, int):
            for name, most in (("target", self.target), ("sample", self.sample)):
                if isinstance(most, int) and most < self.min_agents:
                    raise ValueError(
                        f"{name} {most} is below min_agents {self.min_agents}: no round could ever succeed"
                    )
        return self

    def with_quorum(self, fleet: int) -> RoundPolicy:
        """Return the policy with its quorum, where none was asked for: half of the fleet, and at least two vehicles.

        The run also waits for so many at its start. A `target` below that is enough, and with a `sample` half of those
        asked: the run waits for two.

        Parameters
        ----------
        fleet : int
            Vehicles that count, at least 0.
        """
        if self.min_agents is not None:
            return self
        if self.sample is not None:
            least = 1 if self.sample == 1 and isinstance(self.sample, int) else 2
            return self.model_copy(update={"min_agents": 0.5, "gather_agents": max(self.gather_agents, least)})
        quorum = min(max(2, math.ceil(fleet / 2)), self.target or sys.maxsize)
        return self.model_copy(update={"min_agents": quorum, "gather_agents": max(self.gather_agents, quorum)})


class Bounds(BaseModel):
    """What is known of a column beforehand, when it is more than two numbers.

    Attributes
    ----------
    low, high : float or None
        Bounds of the search for its limits, low < high; both or neither.
    unit : str
        Printed after numbers, e.g. ``"dB"``.
    terms : tuple of str
        Names for its fuzzy sets, lowest first; used when there are as many sets.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    low: float | None = None
    high: float | None = None
    unit: Annotated[str, Field(max_length=40)] = ""
    terms: tuple[Annotated[str, Field(min_length=1, max_length=40)], ...] = ()

    @model_validator(mode="after")
    def _both(self) -> Bounds:
        if (self.low is None) != (self.high is None):
            raise ValueError("give both low and high, or neither")
        return self


class PrivatePolicy(BaseModel):
    """What holds in a private run.

    Attributes
    ----------
    floor : int
        Fewest vehicles in a sum, at least 8.
    company : int
        Fewest vehicles that leave a group together, at least 3.
    patience : int
        How often a round is extended while fewer than `company` have not answered, as losing them excludes others.
    support : int
        Fewest rows on which a disclosed number rests; 0: any. See `glassfleet.private.support`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    floor: Annotated[int, Field(ge=LEAST_FLOOR, lt=2**31)] = LEAST_FLOOR
    company: Annotated[int, Field(ge=LEAST_COMPANY, lt=2**31)] = LEAST_COMPANY
    patience: Annotated[int, Field(ge=0, le=100)] = 1
    support: Annotated[int, Field(ge=0, le=1_000_000)] = SUPPORT_ROWS

    @property
    def least_vehicles(self) -> int:
        """Fewest vehicles with which a run can begin."""
        return max(self.floor, self.company)


def _is_mapping(value: Any) -> str:
    return "words" if isinstance(value, dict | Bounds) else "pair"


Known = Annotated[
    Annotated[tuple[float, float], Tag("pair")] | Annotated[Bounds, Tag("words")], Discriminator(_is_mapping)
]
"""``[low, high]``, or an object of :class:`Bounds`."""


class RunSpec(BaseModel):
    """One federated training.

    Attributes
    ----------
    run : str
        Id; default: made up.
    scheme : str
        Name in the catalogue.
    parameters : dict
        Of the scheme.
    participation : "cohort" or "elastic"
        One set of vehicles for the whole model, or whoever answers each round. Private runs begin with one set in
        either case; elastic ones learn on without those who are lost, and ask no former round again.
    rounds : RoundPolicy
        When rounds close, and what happens when too few have answered.
    model : str
        Name under which the model is published.
    features : list of str or None
        Input columns; default: those that most agents offer.
    target : str or None
        Target column; default: the one that most agents offer.
    domain : Domain or None
        Limits of all columns; default: the fleet finds them first.
    bounds : dict or None
        By column the range in which limits are searched, ``[low, high]``, or a map with ``unit`` and ``terms``, too.
    max_rows_each : int or None
        Most rows of each vehicle that count, chosen by a hash; default: five times the median, with five vehicles or
        more. A vehicle that claims more is not counted.
    window : Window or None
        Count only the last rows of each vehicle, or those of the last days.
    without : tuple of str
        Vehicles that are never asked.
    readmit : tuple of str
        Vehicles that may take part again after false answers in a private run.
    seed : int
        For all that the coordinator draws at random, 0 to 2^32 - 1.
    nonce : str
        Stands in each task of the run, see ``glassfleet.contract.messages.Task``. The coordinator draws it; what is
        given is replaced.
    private : PrivatePolicy or None
        Make it a private run, in which nobody sees a single vehicle's numbers.
    rollout : RolloutPlan or None
        Try the model in stages; default: the whole fleet judges it at once, as it does a first version in any case. See
        `GATE`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    run: str = Field(default_factory=lambda: f"run-{uuid.uuid4().hex[:12]}")
    scheme: str = Field(default=DEFAULT, min_length=1, max_length=64)
    parameters: dict[str, Any] = Field(default_factory=dict)
    participation: Literal["cohort", "elastic"] = "cohort"
    rounds: RoundPolicy = RoundPolicy()
    model: Id = "model"
    features: Annotated[tuple[Column, ...], Field(min_length=1, max_length=MAX_FEATURES)] | None = None
    target: Column | None = None
    domain: Domain | None = None
    bounds: dict[Column, Known] | None = None
    max_rows_each: Annotated[int, Field(ge=1, lt=2**31)] | None = None
    window: Window | None = None
    without: Annotated[tuple[Id, ...], Field(max_length=10_000)] = ()
    readmit: Annotated[tuple[Id, ...], Field(max_length=10_000)] = ()
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    nonce: Annotated[str, Field(pattern=r"^([0-9a-f]{32})?$", json_schema_extra={"readOnly": True})] = ""
    rollout: RolloutPlan | None = None
    private: PrivatePolicy | None = None

    @field_validator("run")
    @classmethod
    def _named(cls, run: str) -> str:
        if not run:
            return f"run-{uuid.uuid4().hex[:12]}"
        if _ID.fullmatch(run) is None:
            raise ValueError(
                f"{run!r} is not a valid id: use 1 to 64 letters, digits, '.', '_' or '-', starting with a letter or "
                "digit"
            )
        return run

    @model_validator(mode="after")
    def _consistent(self) -> RunSpec:
        if self.features is not None and len(set(self.features)) != len(self.features):
            raise ValueError("features must differ from each other")
        if self.features is not None and self.target in self.features:
            raise ValueError(f"the target {self.target!r} is also a feature")
        for column, (low, high) in limits_of(self.bounds or {}).items():
            if not low < high:
                raise ValueError(f"bounds of {column!r}: low {low} must be below high {high}")
        if self.domain is not None:
            if self.features is not None and self.features != self.domain.names:
                raise ValueError(
                    "features and domain name different columns: leave features out when a domain is given"
                )
            if self.target is not None and self.target != self.domain.target_name:
                raise ValueError(f"target {self.target!r} is not the domain's {self.domain.target_name!r}")
        return self

    @model_validator(mode="after")
    def _can_be_private(self) -> RunSpec:
        if self.private is not None and self.rollout is not None:
            raise ValueError(
                "the model of a private run is not tried in stages, as no vehicle tells its own scores: leave rollout "
                "out; the fleet's summed scores decide"
            )
        if self.private is None and self.readmit:
            raise ValueError("readmit is for private runs: others leave nobody out by themselves")
        if both := sorted(set(self.readmit) & set(self.without)):
            raise ValueError(f"{both[0]!r} cannot be both in readmit and in without")
        if self.private is not None and (self.rounds.sample is not None or self.max_rows_each is not None):
            raise ValueError("a private run takes no sample, and cannot limit the rows of a vehicle")
        if self.private is not None and self.window is not None:
            # Two windows that differ by a row would differ in their sums by it.
            raise ValueError("a private run takes no window: let each vehicle keep its own, with data collect")
        if self.parameters.get("support"):
            raise ValueError("support is no parameter of the scheme but of private runs: write private.support")
        return self

    def to_document(self) -> dict[str, Any]:
        """Return the spec as JSON values, complete."""
        document = self.model_dump(mode="json", exclude={"domain"})
        document["domain"] = None if self.domain is None else self.domain.to_document()
        return document

    @classmethod
    def from_document(cls, document: Any) -> RunSpec:
        """Rebuild a spec; raises UsageError naming the first fault."""
        try:
            spec = cls.model_validate(document)
            encode(spec.to_document())  # as the journal and the vehicles will have it
        except ValidationError as fault:
            raise UsageError(f"this run cannot be meant: {first_fault(fault, cls)}") from fault
        except ValueError as fault:
            raise UsageError(f"this run cannot be meant, for no message can carry it: {fault}") from fault
        return spec


def with_participation(document: Any, lookup: Callable[[str], Any]) -> Any:
    """Return a spec's document with its scheme's only participation, where it names none and there is just one.

    Parameters
    ----------
    document : any
        As it came; what is not a spec is returned as it is.
    lookup : callable
        Scheme by name; raises NotFoundError.
    """
    if not isinstance(document, dict) or document.get("participation") is not None:
        return document
    document = {name: value for name, value in document.items() if name != "participation"}
    scheme = document.get("scheme", DEFAULT)
    if isinstance(scheme, str):
        offered = lookup(scheme).participation
        if len(offered) == 1:
            document["participation"] = next(iter(offered))
    return document


def limits_of(bounds: Mapping[str, tuple[float, float] | Bounds]) -> dict[str, tuple[float, float]]:
    """Return column -> (low, high) of a run's `bounds`, where both are declared."""
    limits: dict[str, tuple[float, float]] = {}
    for column, known in bounds.items():
        if not isinstance(known, Bounds):
            limits[column] = known
        elif known.low is not None and known.high is not None:
            limits[column] = (known.low, known.high)
    return limits
