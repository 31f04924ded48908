"""The operators' token: the right one opens at once, wrong ones are told in the log and answered late."""

from __future__ import annotations

import asyncio
import hmac
import time
from collections import OrderedDict
from dataclasses import dataclass

import structlog
from starlette.exceptions import HTTPException
from starlette.requests import Request

_log = structlog.get_logger("coordinator")

FREE = 5
"""Wrong tokens of an address that are answered at once, in each `PERIOD`: people mistype."""

PERIOD = 60.0

DELAY = 1.0
"""Seconds that the next one waits for its answer; one that comes while others wait, so much longer."""

WAITING = 4
"""Answers to an address that wait at a time; what comes beyond them is refused at once."""

ADDRESSES = 1000
"""Addresses that are remembered; the one that asked least recently gives way."""


@dataclass
class _Address:
    since: float
    wrong: int = 0
    waiting: int = 0


class TokenCheck:
    """Tells the right token from wrong ones.

    Theory. The token has 256 random bits: it is its length that nobody gets past, at any rate of guesses. So guessing
    is slowed down only where that costs its owner nothing. Many may share an address (a proxy's, loopback), and
    whoever guesses may share the owner's; therefore the right token is taken at once, whatever else came from there.

    Parameters
    ----------
    token : str
        The right one; empty: none is.
    """

    def __init__(self, token: str) -> None:
        self._token = token
        self._known: OrderedDict[str, _Address] = OrderedDict()

    async def is_right(self, given: str, request: Request) -> bool:
        """Whether `given` is the token; a wrong one is noted.

        Raises
        ------
        HTTPException
            429: it is not, and too many wrong ones of this address wait for their answers.
        """
        if is_token(given, self._token):
            return True
        address = "" if request.client is None else request.client.host
        _log.warning("wrong-token", peer=address, path=request.scope["path"])
        now = time.monotonic()
        known = self._known.setdefault(address, _Address(now))
        self._known.move_to_end(address)
        while len(self._known) > ADDRESSES:
            self._known.popitem(last=False)
        if now - known.since >= PERIOD:
            known.since, known.wrong = now, 0
        known.wrong += 1
        if known.wrong > FREE:
            if known.waiting >= WAITING:
                text = "too many wrong tokens came from this address: wait a moment (the right one is taken at once)"
                raise HTTPException(429, text, {"Retry-After": str(round(WAITING * DELAY))})
            known.waiting += 1
            try:
                await asyncio.sleep(known.waiting * DELAY)
            finally:
                known.waiting -= 1
        return False


def is_token(given: str, token: str) -> bool:
    """Whether `given` is the token, compared in constant time; an empty one never is."""
    return bool(token) and hmac.compare_digest(given.encode("utf-8", "replace"), token.encode())
