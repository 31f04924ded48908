"""The pure round engine. Start reading at `machine`; `table` lists every move that a run can make."""

from coordinator.engine.draft import standing
from coordinator.engine.effects import (
    ClearRequest,
    Effect,
    Ended,
    OpenRound,
    Publish,
    Restarted,
    RoundClosed,
    SendReceipt,
    WaitsForFormer,
)
from coordinator.engine.events import (
    AgentDown,
    AgentUp,
    Answer,
    Cancel,
    Checkpoint,
    Counted,
    Event,
    Malformed,
    NoBroker,
    Refused,
    Start,
    Tick,
    TurnedAway,
    Unable,
)
from coordinator.engine.machine import Engine, gives_up_at, wakes_at
from coordinator.engine.state import Offer, RoundSummary, RunState
from coordinator.engine.waiting import Waiting, waiting

__all__ = [
    "AgentDown",
    "AgentUp",
    "Answer",
    "Cancel",
    "Checkpoint",
    "ClearRequest",
    "Counted",
    "Effect",
    "Ended",
    "Engine",
    "Event",
    "Malformed",
    "NoBroker",
    "Offer",
    "OpenRound",
    "Publish",
    "Refused",
    "Restarted",
    "RoundClosed",
    "RoundSummary",
    "RunState",
    "SendReceipt",
    "Start",
    "Tick",
    "TurnedAway",
    "Unable",
    "Waiting",
    "WaitsForFormer",
    "gives_up_at",
    "standing",
    "waiting",
    "wakes_at",
]
