"""JSON lines: of standard input, a file, a file that grows, a named pipe."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from edge_agent.live.port import MAX_BYTES, TOO_LONG, Adapter, LiveSample, SampleRequest, parse
from edge_agent.live.stream import Lines
from schemas.errors import DataError

_ARRAY = re.compile(rb"\s*\[\s*(\{|$)")
"""How a JSON array of objects begins, whose lines are no samples."""


def read(asked: SampleRequest) -> Iterator[LiveSample | str]:
    """Open a file or pipe, or take standard input."""
    return _samples(asked, Lines(asked.source, MAX_BYTES, asked.stopping, follow=asked.follow, behind=asked.behind))


def _samples(asked: SampleRequest, lines: Lines) -> Iterator[LiveSample | str]:
    for number, (line, place) in enumerate(lines):
        if number == 0 and line is not None and _ARRAY.match(line):
            mend = "Write each of its objects on a line of its own, for example with: jq -c '.[]'"
            raise DataError("it is a JSON array", mend, f"--source {asked.source}")
        sample = TOO_LONG if line is None else parse(line)
        yield replace(sample, place=place) if isinstance(sample, LiveSample) else sample


ADAPTER = Adapter("a file or pipe with a JSON object on each line, or - for standard input", read, files="lines")
