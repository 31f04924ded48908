"""What ``glassfleet demo`` says of its plan, and what it tells the reader to type next."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from console.common import COMMANDLINE

if TYPE_CHECKING:
    from lab.demo.plan import Plan


def plan_words(plan: Plan) -> str:
    """Return in words how many vehicles are killed, come back and lag."""
    killed, back, slow = len(plan.kills), len(plan.returns), len(plan.slow)
    words = [f"{killed or 'none'} will be killed"]
    if killed == 1:
        words = [f"1 will be killed and {'come back' if back else 'stay away'}"]
    elif killed:
        words.append(f"{back or 'none'} of them {'come' if back > 1 else 'comes'} back")
    words.append(f"{slow or 'none'} {'are' if slow > 1 else 'is'} too slow")
    return ", ".join(words)


def staying_command() -> str:
    """Return what to type for the same demonstration with ``--stay``: the program as it is found, and its options.

    Of the options those that a file of settings gave are repeated too; ``--keep`` is not, as its folder is full now.
    """
    context = click.get_current_context()
    words = [program(), "demo"]
    for parameter in context.command.params:
        name = str(parameter.name)
        if context.get_parameter_source(name) not in (COMMANDLINE, ParameterSource.DEFAULT_MAP) or name in (
            "keep",
            "as_json",
            "stay",
        ):
            continue
        value = context.params.get(name)
        if value is True:
            words.append(parameter.opts[0])
        elif value is not None and value is not False:
            words += [parameter.opts[0], f"{value:g}" if isinstance(value, float) else str(value)]
    return shlex.join([*words, "--stay"])


def program() -> str:
    """Return how this program is started in this shell: make starts what is in .venv, which is on nobody's path."""
    started = sys.argv[0]
    is_found = shutil.which("glassfleet") is not None or Path(started).name != "glassfleet"
    return "glassfleet" if is_found else started
