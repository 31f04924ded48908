"""The bodies of all messages, by kind. Each is checked on arrival; a fault is a WireError with its reason."""

from __future__ import annotations

from bisect import bisect_left
from functools import partial
from itertools import pairwise
from operator import is_, not_
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from schemas.limits import ID_PATTERN, MAX_FEATURES, MAX_PARTS
from schemas.rounds import Window, place_in_sample

Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Id = Annotated[str, Field(pattern=f"^{ID_PATTERN}$")]
Text = Annotated[str, Field(max_length=500)]
Name = Annotated[str, Field(min_length=1, max_length=200)]
Count = Annotated[int, Field(ge=0, lt=2**31)]
HeldBack = Literal["", "drives", "rows", "split"]
Kind = Annotated[str, Field(max_length=60, pattern=r"^(words|numbers( in [^\x00-\x1f\x7f]{1,40})?)$")]
"""What a column holds."""

Task = Annotated[dict[str, Any], Field(json_schema_extra={"x-ref": "payloads.json#/$defs/task"})]
Contribution = Annotated[dict[str, Any], Field(json_schema_extra={"x-ref": "payloads.json#/$defs/answer"})]
Total = Annotated[dict[str, Any], Field(json_schema_extra={"x-ref": "payloads.json#/$defs/total"})]

Outcome = Literal["accepted", "duplicate", "late", "rejected", "unknown-run"]
"""What became of a contribution. Every outcome ends the send."""

OUTSIDE = frozenset({"not-asked", "left-out"})
"""Reasons of rejected answers that hold for the rest of the run: it asks this agent nothing more."""


_is_none = partial(is_, None)


class Body(BaseModel):
    """Base of all bodies: frozen, nothing extra, nothing coerced."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)
    kind: ClassVar[str]


class CoordinatorState(Body):
    """Whether the coordinator is up (birth) or down (last will)."""

    kind: ClassVar[str] = "coordinator-state"
    status: Literal["up", "down"]
    incarnation: Name
    software: Text


class LogHead(Body):
    """Where a vehicle's log of forecasts ended at a moment: whoever has seen this is a witness of all records up to it.

    Attributes
    ----------
    n : int
        Number of its newest record.
    hash : str
        That record's hash, which covers all records before it.
    """

    kind: ClassVar[str] = "log-head"
    n: Annotated[int, Field(ge=1, lt=2**53)]
    hash: Digest


class AgentState(Body):
    """Birth certificate and last will of an agent.

    Attributes
    ----------
    status : "up" or "down"
    stopped : bool
        It is down because it was told to stop; else its connection broke off.
    fault : str
        It is down because its data cannot be used: why, without any cell. Empty: another reason.
    incarnation : str
        Random per process start; a foreign incarnation under the same id means that two processes share it.
    software : str
        Version.
    schemes : list of str
        Schemes that this agent can run.
    features : list of str
        Columns it can offer as inputs.
    target : str
        Column it offers as target.
    kinds : list of str
        What the columns hold, the target last: ``words``, ``numbers``, or ``numbers in km/h``. Empty: all hold numbers
        whose units nobody told.
    far : list of str
        Columns in which one value, which is there more than once, lies far from all the others: it may mean no value.
    plan : str
        SHA-256 of the plan that the rows were made by; empty: by none.
    held_back : str
        Which rows score models and do not train: the newest ``drives``, the newest ``rows``, those that a column
        ``split`` names; empty: none.
    forecasts : LogHead or None
        The newest head of the log of forecasts beside it; None: there is none, or it goes.
    """

    kind: ClassVar[str] = "agent-state"
    status: Literal["up", "down"]
    stopped: bool = Field(default=False, exclude_if=not_)
    fault: Annotated[str, Field(max_length=200)] = Field(default="", exclude_if=not_)
    incarnation: Name
    software: Text = ""
    schemes: list[Name] = Field(default_factory=list, max_length=256)
    features: list[Name] = Field(default_factory=list, max_length=MAX_FEATURES)
    target: Annotated[str, Field(max_length=200)] = ""
    kinds: list[Kind] = Field(default_factory=list, max_length=MAX_FEATURES + 1, exclude_if=not_)
    far: list[Name] = Field(default_factory=list, max_length=MAX_FEATURES + 1, exclude_if=not_)
    plan: Annotated[str, Field(pattern=r"^([0-9a-f]{64})?$")] = Field(default="", exclude_if=not_)
    held_back: HeldBack = Field(default="", exclude_if=not_)
    forecasts: LogHead | None = Field(default=None, exclude_if=_is_none)

    @model_validator(mode="after")
    def _kinds_of_all(self) -> AgentState:
        if self.kinds and len(self.kinds) != len(self.features) + 1:
            raise ValueError("kinds are told of all features and the target, or of none")
        return self


class PrivateGroup(Body):
    """One group of a private run, see ``glassfleet.private``.

    Attributes
    ----------
    group : int
        From 0.
    number : int
        Of its present edition, from 0.
    members : list of str
        Of that edition, in order.
    question : str
        Identity of the task in that edition.
    founders : list of bytes
        The contributions, as they came, in which the group's first members announced their keys; in the order of id.
    totals : list of map
        Sums of earlier runs that these announced (`glassfleet.private.totals.Total`): ``founders`` of a group, each the
        four texts of a member, and ``members``, their places.
    renews : bool
        Whether vehicles of the group that announced new rows answer from these.
    """

    kind: ClassVar[str] = "private-group"
    group: Count
    number: Count
    members: list[Id]
    question: Digest
    founders: list[bytes]
    totals: list[Total] = []
    renews: bool = False


class Rosters(Body):
    """Where the groups of a private run are that must be told who is in them: a blob each, a `PrivateGroup` in it.

    Each vehicle fetches the one of its own group, and what a request has for the others does not grow with the fleet.

    Attributes
    ----------
    piece : int
        Bytes of each part of a blob but its last.
    last : list of int
        Of each group the place of its last founder (`glassfleet.private.groups.place`); they rise.
    digests : list of bytes
        Of each group the SHA-256 of its blob.
    sizes : list of int
        Of each group the bytes of its blob.
    """

    kind: ClassVar[str] = "rosters"
    piece: Annotated[int, Field(ge=1, lt=2**31)]
    last: Annotated[list[Annotated[int, Field(ge=0, lt=2**48)]], Field(min_length=1, max_length=4096)]
    digests: list[Annotated[bytes, Field(min_length=32, max_length=32)]]
    sizes: list[Annotated[int, Field(ge=1, lt=2**31)]]

    @model_validator(mode="after")
    def _consistent(self) -> Rosters:
        if not len(self.last) == len(self.digests) == len(self.sizes):
            raise ValueError("last, digests and sizes must be of as many groups")
        if any(before >= after for before, after in pairwise(self.last)):
            raise ValueError("last must rise")
        if any(-(-size // self.piece) > MAX_PARTS for size in self.sizes):
            raise ValueError(f"a roster has at most {MAX_PARTS} parts")
        return self

    def manifests(self) -> list[Manifest]:
        """Return what each group's blob is, in the order of `last`."""
        return [
            Manifest(digest=digest.hex(), count=-(-size // self.piece), size=size, what="request")
            for digest, size in zip(self.digests, self.sizes, strict=True)
        ]

    def of(self, place: int) -> Manifest | None:
        """Return the blob of the group in which a founder with this place is; None: there is none so far back."""
        group = bisect_left(self.last, place)
        return self.manifests()[group] if group < len(self.last) else None


class Sample(Body):
    """Who is asked of many, said in few bytes however many they are.

    Attributes
    ----------
    salt : str
        Of the round: every round asks others.
    last : str
        An agent is asked when its place (`schemas.rounds.place_in_sample`) is this or before it.
    """

    kind: ClassVar[str] = "sample"
    salt: Name
    last: Digest

    def asks(self, agent: str) -> bool:
        """Whether an agent is asked."""
        return place_in_sample(self.salt, agent) <= self.last


class Request(Body):
    """The open round of a run: all that an agent needs to answer.

    Its size does not depend on how many are asked. Of a fixed cohort it names nobody: whoever is no member is told so
    (`OUTSIDE`) when it answers.

    Attributes
    ----------
    task : map
        ``glassfleet.contract.messages.Task.to_value()``.
    task_digest : str
        SHA-256 of the encoded task; the answer repeats it.
    remaining : float
        Seconds left when this was sent. Informative: only the coordinator decides what is late.
    asked : list of str or None
        Who is asked, where it is one group of a private run; None: every agent that can, and of a fixed cohort its
        members.
    sample : Sample or None
        Who is asked, where not all are.
    without : list of str or None
        Who is not asked, whatever the others are.
    private : list of PrivateGroup or None
        In a private run: in which groups it is answered, but for those in `rosters`. None: it is not answered under
        masks.
    rosters : Rosters or None
        In a private run: groups that must be told who is in them.
    window : Window or None
        Which rows of a vehicle count; None: all. The same in all requests of a run.
    """

    kind: ClassVar[str] = "request"
    task: Task
    task_digest: Digest
    remaining: Annotated[float, Field(ge=0)]
    asked: list[Id] | None = None
    private: Annotated[list[PrivateGroup], Field(max_length=4096)] | None = Field(default=None, exclude_if=_is_none)
    rosters: Rosters | None = Field(default=None, exclude_if=_is_none)
    sample: Sample | None = Field(default=None, exclude_if=_is_none)
    without: list[Id] | None = Field(default=None, exclude_if=_is_none)
    window: Window | None = Field(default=None, exclude_if=_is_none)


class ContributionBody(Body):
    """An agent's answer.

    Attributes
    ----------
    task_digest : str
        Which task this answers; with run and agent, the key under which it is counted once.
    rows : int
        Rows in the snapshot of this run.
    data_digest : str
        Keyed digest of the snapshot of the rows; a change within the run is rejected as ``data-changed``.
    contribution : map
        ``glassfleet.contract.messages.Contribution.to_value()``.
    """

    kind: ClassVar[str] = "contribution"
    task_digest: Digest
    rows: Count
    data_digest: Digest
    contribution: Contribution


class Refusal(Body):
    """An agent says that it cannot answer (a column is missing, too many rows), so that nobody waits for it."""

    kind: ClassVar[str] = "refusal"
    task_digest: Digest
    reason: Text


class Part(Body):
    """One numbered part of a contribution that is too large for one message.

    The parts, joined, are an encoded envelope whose SHA-256 is `digest`.
    """

    kind: ClassVar[str] = "part"
    digest: Digest
    index: Count
    count: Annotated[int, Field(ge=1, le=4096)]
    data: bytes


class Manifest(Body):
    """Stands in for a request, model or revocation lists too large: the bytes are ``blob/{digest}/0..count-1``.

    `rosters` are those of the request: whoever clears it can clear them, too.
    """

    kind: ClassVar[str] = "manifest"
    digest: Digest
    count: Annotated[int, Field(ge=1, le=MAX_PARTS)]
    size: Count
    what: Literal["request", "model", "revoked"]
    rosters: Rosters | None = Field(default=None, exclude_if=_is_none)


class Receipt(Body):
    """What became of a contribution.

    Attributes
    ----------
    run : str
    task_digest : str
    outcome : str
        See `Outcome`.
    reason : str
        Why, when rejected: ``conflict``, ``data-changed``, ``not-asked``, ``malformed: ...`` and so on.
    """

    kind: ClassVar[str] = "receipt"
    run: Id
    task_digest: Digest
    outcome: Outcome
    reason: Text = ""


class Former(Body):
    """An earlier version of a model."""

    kind: ClassVar[str] = "former"
    version: Annotated[int, Field(ge=1, lt=2**31)]
    digest: Digest


class Trial(Body):
    """Who tries a candidate, and against what; part of a candidate's pointer.

    Attributes
    ----------
    salt : str
        Of the rollout: who is first differs from rollout to rollout.
    below : int
        An agent takes part when its place (`schemas.rounds.place`) is below this, 0 to 2^32.
    champion : str
        Digest of the model that the candidate is compared with; empty: the constant, see `Evaluation`.
    formers : list of Former
        Earlier versions that were in use, at most three: the candidate is compared with them, too.
    """

    kind: ClassVar[str] = "trial"
    salt: Name
    below: Annotated[int, Field(ge=0, le=2**32)]
    champion: Annotated[str, Field(pattern=r"^([0-9a-f]{64})?$")]
    formers: Annotated[list[Former], Field(max_length=3)] = []


class ModelPointer(Body):
    """Which version of a named model is current, or is tried. Published last: blobs, then version, then this.

    Attributes
    ----------
    sequence : int
        Rises with every change of what a name stands for. A current pointer with a lower one than the agent has seen
        is refused: whoever runs the broker cannot bring an old model back. 0: published before there were sequences.
    reason : str
        Why, when a person or a rollout changed it: a rollback to a lower version says so here. Of a candidate that
        nobody tries any more: why it did not become current.
    trial : Trial or None
        Of a candidate's pointer only.
    """

    kind: ClassVar[str] = "model-pointer"
    name: Id
    version: Annotated[int, Field(ge=1, lt=2**31)]
    digest: Digest
    sequence: Annotated[int, Field(ge=0, lt=2**53)] = 0
    reason: Text = ""
    trial: Trial | None = None


class Evaluation(Body):
    """Local test scores of a model version at one agent, in the target's own unit.

    Attributes
    ----------
    metric : "rmse" or "f1"
    federated, local : float
        Score of the model named here, and of a model learned from the agent's own rows alone.
    rows : int
        Test rows.
    champion : float or None
        Score of the current model on the same rows, when the model named here is a candidate.
    champion_digest : str
        Which model that was; empty: none.
    constant : float or None
        Score of the constant on the same rows: the mean, or the most frequent class, of the agent's own training rows.
    confusion : list of list of int, or None
        Of a model of at most 16 classes: test rows by what they are (lines) and what the model says (columns). There is
        one for each class, in the model's order, and one for any other label. Classes of one or two rows are left out.
    beside : dict of str to list of float
        By digest of the champion and of the trial's former versions, as far as they can be used. How much worse the
        candidate is, relative to it; the variance of that (`glassfleet.evaluation.paired`); the same two of it and the
        champion.
    cannot : str
        Why the agent cannot score the candidate named here (then the scores are 0 and mean nothing); empty: it can.
    """

    kind: ClassVar[str] = "evaluation"
    name: Id
    version: Annotated[int, Field(ge=1, lt=2**31)]
    digest: Digest
    metric: Literal["rmse", "f1"]
    federated: float
    local: float
    rows: Count
    champion: float | None = None
    champion_digest: Annotated[str, Field(pattern=r"^([0-9a-f]{64})?$")] = ""
    beside: Annotated[dict[Digest, Annotated[list[float], Field(min_length=4, max_length=4)]], Field(max_length=4)] = {}
    cannot: Text = ""
    constant: float | None = None
    confusion: Annotated[list[Annotated[list[Count], Field(max_length=17)]], Field(max_length=17)] | None = Field(
        default=None, exclude_if=_is_none
    )

    @model_validator(mode="after")
    def _consistent(self) -> Evaluation:
        counts = self.confusion
        if counts is not None and any(len(line) != len(counts) for line in counts):
            raise ValueError("confusion must have as many columns as lines")
        if counts is not None and sum(map(sum, counts)) > self.rows:
            raise ValueError("confusion must count each test row once at most")
        return self


class Forecast(Body):
    """A live forecast and why it was made. It tells about the vehicle's row, so it is published only when asked.

    Attributes
    ----------
    rule : str
        In words; of a tree that the vehicle made of its own rows only that it is one.
    strength : float
        Degree to which the rule fired.
    memberships : list of float
        Degree of each of its conditions; none of such a tree.
    shares : dict of str to float
        Each input's part of the forecast; with `base` they add up to it. None of such a tree.
    alert : bool
        The forecast is beyond the vehicle's threshold.
    at : float
        When it was made, seconds since the epoch by the vehicle's clock.
    record : str
        Hash of its record in the vehicle's own log, which covers all records before it; empty: not logged.
    """

    kind: ClassVar[str] = "forecast"
    name: Id
    version: Annotated[int, Field(ge=1, lt=2**31)]
    digest: Digest
    prediction: float | Text
    rule: Annotated[str, Field(max_length=4000)]
    strength: Annotated[float, Field(ge=0, le=1)]
    memberships: list[Annotated[float, Field(ge=0, le=1)]] = Field(default_factory=list, max_length=MAX_FEATURES)
    shares: dict[Name, float] = Field(default_factory=dict, max_length=MAX_FEATURES)
    base: float = 0.0
    alert: bool = False
    at: float = 0.0
    record: Annotated[str, Field(pattern=r"^([0-9a-f]{64})?$")] = ""


BODIES: dict[str, type[Body]] = {
    body.kind: body
    for body in (
        CoordinatorState,
        AgentState,
        Request,
        ContributionBody,
        Refusal,
        Part,
        Manifest,
        Receipt,
        ModelPointer,
        Evaluation,
        Forecast,
    )
}
