"""Ctrl-C at the command line ends a command, and never only a part of it."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType

_AGAIN = 0.05
"""Seconds after which a signal that came at a bad moment is sent again."""


def raise_interrupt(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt; a signal's handler. During an import or a fork the signal is sent again a moment later.

    There the exception would be lost: libraries written in C print and drop what is raised while they build a class,
    and Python itself does so with what is raised while it forks. The command would go on.
    """
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>" or frame.f_code.co_name == "_execute_child":
            again = threading.Timer(_AGAIN, os.kill, (os.getpid(), number))
            again.daemon = True
            again.start()
            return
        frame = frame.f_back
    raise KeyboardInterrupt


def handle_interrupts() -> None:
    """Let `raise_interrupt` handle Ctrl-C; does nothing where it is ignored or handled already, or in a thread."""
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, raise_interrupt)
