"""Recordings of buses and measuring systems: each kind is read into signals with times of their own.

``RECORDINGS`` has the readers; they run ``process`` beside themselves, which alone loads the libraries. ``bus`` and
``mf4`` read, ``vss`` gives columns the names and units of a catalogue.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from edge_agent.recordings import signals
from edge_agent.recordings.signals import Recording, Signal

__all__ = ["RECORDINGS", "Recording", "Signal"]

RECORDINGS: Final[Mapping[str, Recording]] = {
    **dict.fromkeys((".asc", ".blf", ".candump", ".log", ".trc"), partial(signals.read, "bus")),
    **dict.fromkeys((".mf4", ".mdf"), partial(signals.read, "mf4")),
}
"""Readers of recordings by the ending of a file's name, in small letters."""
