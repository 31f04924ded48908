"""A service's flag that SIGTERM and Ctrl-C set."""

from __future__ import annotations

from tests.support.processes import python

SIGNALLED_WHILE_HANDLING = """
import signal, sys
from console.common import StopFlag

stop, left = StopFlag(), [50]

def again(frame, event, argument):
    if left[0] and event == "line":
        left[0] -= 1
        signal.raise_signal(signal.SIGINT if left[0] % 2 else signal.SIGTERM)
    return again

sys.settrace(again)  # a signal comes before every line that is run from here on, the handler's and the lock's included
signal.raise_signal(signal.SIGTERM)
sys.settrace(None)
print(stop.wait(60), left[0] < 50)
"""


def test_stop_flag_is_set_when_a_signal_comes_while_another_is_handled() -> None:
    child = python(SIGNALLED_WHILE_HANDLING, check=False)
    assert (child.stdout.strip(), child.stderr) == ("True True", "")
