"""What an operator asks of a schedule: which run, when, and when not. Pure: times follow from what is given alone.

Theory. A time of a schedule is one of the wall clock of its zone, as cron means it (Debian's cron, see cronsim). Where
clocks go forward over it, it is the first moment after the gap. Where they go back and it comes twice, the first time
counts. A time that comes several times an hour is one of elapsed time, in every hour that there is. So a time is a
point on the line of UTC, and times only rise, whatever the clocks do.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, time, timedelta
from typing import Annotated, Any, Final, Literal
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from coordinator.specification.run import RunSpec
from schemas.errors import UsageError
from schemas.text import first_fault

NAME: Final = r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}"
"""What names look like: the id of a run that a schedule starts has its name, and the time."""

_SPANS: Final = (3600, 2 * 86_400, 62 * 86_400, 1500 * 86_400)
"""Seconds that are looked back for the last time; a short span where times are close together."""

_HOURS: Final = r"^(([01][0-9]|2[0-3]):[0-5][0-9]-([01][0-9]|2[0-3]):[0-5][0-9])?$"

IfRunning = Literal["skip", "wait", "cancel"]


class Schedule(BaseModel):
    """A run that is started again and again.

    Attributes
    ----------
    name : str
        1 to 40 letters, digits, ``.``, ``_`` or ``-``.
    at : str
        When: minute, hour, day of the month, month, day of the week, as cron has them. Seconds may come before these
        where minute and hour begin with ``*``.
    zone : str
        Whose wall clock, e.g. ``Europe/Berlin``.
    spec : dict
        The run, as `RunSpec.from_document` takes it, without an id.
    quiet : str
        Hours of that clock, ``06:00-22:00``, in which nothing is started: what is due then waits for their end. Empty:
        none.
    vehicles : int
        Fewest vehicles that must be up, at least 1; until then the start waits.
    if_running : "skip", "wait" or "cancel"
        While a run of the same model goes on: skip the night, start when it has ended, or end it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[str, Field(pattern=f"^{NAME}$")]
    at: Annotated[str, Field(max_length=200)]
    zone: Annotated[str, Field(max_length=64)] = "UTC"
    spec: dict[str, Any]
    quiet: Annotated[str, Field(pattern=_HOURS)] = ""
    vehicles: Annotated[int, Field(ge=1, lt=2**31)] = 1
    if_running: IfRunning = "skip"

    @field_validator("zone")
    @classmethod
    def _known(cls, zone: str) -> str:
        try:
            ZoneInfo(zone)
        except (ValueError, OSError, LookupError):
            raise ValueError(f"there is no time zone {zone!r}: write one such as Europe/Berlin or UTC") from None
        return zone

    @model_validator(mode="after")
    def _consistent(self) -> Schedule:
        parts = self.at.split()
        try:
            if len(parts) not in (5, 6):
                raise CronSimError("it needs five fields")  # noqa: TRY301 - as what the library finds
            if len(parts) == 6 and not (parts[1].startswith("*") and parts[2].startswith("*")):
                raise CronSimError("seconds are for what comes several times an hour")  # noqa: TRY301
            first = next(self.after(0.0), None)
        except CronSimError as fault:
            text = str(fault)
            raise ValueError(
                f"at {self.at!r}: {text[:1].lower()}{text[1:]}. Write minute, hour, day of the month, month, day of "
                "the week: '0 2 * * *' is every night at two"
            ) from None
        if first is None:
            raise ValueError(f"at {self.at!r}: there is no such day")
        if self.quiet and self.quiet[:5] == self.quiet[6:]:
            raise ValueError(f"quiet {self.quiet!r}: begin and end must differ")
        if self.spec.get("run"):
            raise ValueError("spec: leave run out; each run gets the schedule's name and the time as its id")
        return self

    @classmethod
    def from_document(cls, document: Any) -> Schedule:
        """Check a schedule, and its run; raises UsageError naming the first fault."""
        try:
            schedule = cls.model_validate(document)
        except ValidationError as fault:
            raise UsageError(f"this schedule cannot be meant: {first_fault(fault, cls)}") from fault
        schedule.run(0.0)
        return schedule

    @property
    def words(self) -> str:
        """When, in words."""
        return f"{CronSim(self.at, datetime.now(UTC)).explain()}, {self.zone}"

    @property
    def model(self) -> str:
        """Name of the model that is learned."""
        return str(self.spec.get("model", RunSpec.model_fields["model"].default))

    def run(self, at: float) -> RunSpec:
        """Return the run that is started for a time; raises UsageError."""
        return RunSpec.from_document({**self.spec, "run": self.run_id(at)})

    def run_id(self, at: float) -> str:
        """Return the id of the run for a time: the same whoever starts it, so that nobody starts it twice.

        >>> Schedule(name="nightly", at="0 2 * * *", spec={}).run_id(1764295200)
        'nightly-20251128-0200'
        """
        when = datetime.fromtimestamp(at, tz=UTC)
        return f"{self.name}-{when:%Y%m%d-%H%M}{when:%S}" if when.second else f"{self.name}-{when:%Y%m%d-%H%M}"

    def after(self, moment: float) -> Iterator[float]:
        """Yield the times after a moment, in order; seconds since the epoch, like the moment."""
        last = moment
        for each in CronSim(self.at, datetime.fromtimestamp(moment, tz=ZoneInfo(self.zone))):
            found = each.timestamp()
            # Two times in a gap are one moment; and from within an hour that comes twice the first one is asked for.
            if found > last:
                last = found
                yield found

    def last(self, since: float, until: float) -> float | None:
        """Return the last time after `since` and not after `until`; None: there is none."""
        for span in _SPANS:
            begin, found = max(since, until - span), None
            for each in self.after(begin):
                if each > until:
                    break
                found = each
            if found is not None or begin == since:
                return found
        return None

    def quiet_until(self, moment: float) -> float | None:
        """Return when the quiet hours end that a moment is in; None: it is in none."""
        if not self.quiet:
            return None
        begin, end = (time.fromisoformat(each) for each in self.quiet.split("-"))
        here = datetime.fromtimestamp(moment, tz=ZoneInfo(self.zone))
        now = here.time()
        is_in = begin <= now < end if begin < end else now >= begin or now < end
        if not is_in:
            return None
        day = here.date() + timedelta(days=int(begin > end and now >= begin))
        ends = (datetime.combine(day, end, tzinfo=here.tzinfo).replace(fold=fold).timestamp() for fold in (0, 1))
        return next((each for each in ends if each > moment), moment)
