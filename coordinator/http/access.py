"""Who may use which address: stated where the address is, and seen to before a byte of its body is read.

Theory. The web framework chooses the route; what is asked is decided by the route that it chose, and by nothing that
is read out of the request a second time. So no way of writing an address, and no header, can have one thing checked and
another one done. A route that states nothing cannot be made (`StatedRoute`), and an application with a route of another
kind is not served (`check_stated`).
"""

from __future__ import annotations

import asyncio
import hmac
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import structlog
from fastapi import Depends, FastAPI, Security
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Message, Receive

from coordinator.http.errors import ShownJson, check_characters
from coordinator.http.guard import WaitingLine, is_foreign
from coordinator.http.server import HttpLimits
from schemas.limits import MAX_DECODED_BYTES

EXPLAIN_AT_ONCE = 2
"""Explanations that are computed at a time; the others wait, for the coordinator needs the processor too."""

EXPLAIN_WAIT = 20.0
"""Seconds that an explanation, or a page, may wait for its turn before its asker is told to come again."""

FORM_BYTES = 64 * 1024
"""Longest form that is read: a reason and some numbers."""

LONGEST_LENGTH = 12
"""Digits of a ``Content-Length`` that are read."""

READS_AT_ONCE = 8
"""Pages and lists that are made at a time. The web framework has 40 threads; more of them are not faster."""

ROW_BYTES = 512 * 1024
"""Longest body of who need not have the token: a row of 4096 columns, their names of a hundred letters."""

HTTP_LIMITS = HttpLimits(lifetime=None, body_bytes=MAX_DECODED_BYTES, header_bytes=64 * 1024)
"""Live pages last; an operator may send the document of a model."""

NEEDS_TOKEN = "needs 'Authorization: Bearer TOKEN'; the token is in the state directory, file api-token"  # noqa: S105
SIGN_IN = "sign in first: this changes something"


@dataclass(frozen=True)
class Access:
    """A statement: who may use an address, and what he may cost.

    Attributes
    ----------
    who : str
        ``anybody`` who may ask this server at all (see `Guard`), who shows the ``token``, or who has a ``session``.
    line : str or None
        In which line it waits: ``reads`` or ``questions``; None: it does not wait.
    longest : int or None
        Bytes of the body that are read; None: as many as the server reads at all.
    is_linked : bool
        Whether a page of another site may ask for it. It may link to our pages; it may send us no form, and read
        nothing that is for programs.
    """

    who: Literal["anybody", "token", "session"]
    line: Literal["reads", "questions"] | None = None
    longest: int | None = FORM_BYTES
    is_linked: bool = False

    async def __call__(self) -> None:
        """Do nothing: a dependency of a route is called when all has been decided."""


PAGE = Depends(Access("anybody", "reads", is_linked=True))
PAGE_AT_ONCE = Depends(Access("anybody", is_linked=True))
PAGE_OF_A_MODEL = Depends(Access("anybody", "questions", is_linked=True))
"""Explains a model, or writes it as a file."""
READER = Depends(Access("anybody", "reads"))
READER_AT_ONCE = Depends(Access("anybody"))
"""Waits for nobody: it must not, or costs next to nothing."""
QUESTION = Depends(Access("anybody", "questions", ROW_BYTES))
"""Explains a model. It changes nothing, so whoever may read may ask; POST only because rows are long."""
SIGNING_IN = Depends(Access("anybody"))
"""Who says the token in the form itself."""
OPERATOR = Depends(Access("token", longest=None))
SIGNED_IN = Depends(Access("session"))
PUBLIC = Depends(Access("anybody", longest=None, is_linked=True))
"""Of the authority: anybody may have it, or it is given to who proves in the body itself who he is."""

_TOKEN = Security(HTTPBearer(auto_error=False, description=NEEDS_TOKEN))
"""Has the API's description say that an address needs the token."""


class Door:
    """What the routes of an application ask before they answer.

    Parameters
    ----------
    limits : HttpLimits
        Of the server.
    admits : mapping of str to callable
        By what is stated other than ``anybody``: raises HTTPException for a request that may not.
    """

    def __init__(self, limits: HttpLimits, admits: Mapping[str, Callable[[Request], Awaitable[None]]]) -> None:
        self._limits = limits
        self._admits = admits
        self._lines = {
            "questions": WaitingLine(EXPLAIN_AT_ONCE, EXPLAIN_WAIT),
            "reads": WaitingLine(READS_AT_ONCE, EXPLAIN_WAIT),
        }

    async def check(self, access: Access, request: Request) -> None:
        """Raise HTTPException when who asks may not."""
        if not access.is_linked and is_foreign(request):
            raise HTTPException(403, "what a page of another site sends is refused")
        if access.who != "anybody":
            await self._admits[access.who](request)

    async def body(self, access: Access, request: Request) -> bytes:
        """Return the body; raises HTTPException when it is longer than is read, or cannot be written down."""
        longest = self._limits.body_bytes if access.longest is None else access.longest
        too_long = HTTPException(413, f"a body of more than {longest} bytes is not read")
        length = request.headers.get("content-length", "0")
        if not (length.isascii() and length.isdigit()) or len(length) > LONGEST_LENGTH or int(length) > longest:
            raise too_long
        body = bytearray()
        try:
            async for part in request.stream():  # it may have come without its length
                body += part
                if len(body) > longest:
                    raise too_long
        except ClientDisconnect:
            raise HTTPException(400, "the body did not come whole") from None
        whole = bytes(body)
        check_characters(whole)
        return whole

    def place(self, access: Access) -> AbstractAsyncContextManager[None]:
        """Return the place in which a request is answered; it is waited for."""
        return nullcontext() if access.line is None else self._lines[access.line].place()


def with_token(tokens: TokenCheck) -> Callable[[Request], Awaitable[None]]:
    """Return what admits an operator's program."""

    async def admit(request: Request) -> None:
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer" or not await tokens.is_right(given, request):
            raise HTTPException(401, NEEDS_TOKEN)

    return admit


class StatedRoute(APIRoute):
    """A route that states who may use it: one of the statements above is among its dependencies.

    Attributes
    ----------
    access : Access
        The statement.
    door : Door
        What sees to it; `open_door` sets it, and without it nobody is answered.
    """

    door: Door

    def __init__(
        self, path: str, endpoint: Callable[..., Any], *, dependencies: Sequence[Any] | None = None, **rest: Any
    ) -> None:
        dependencies = list(dependencies or ())
        stated = [each.dependency for each in dependencies if isinstance(each.dependency, Access)]
        if len(stated) != 1:
            raise TypeError(f"{path} must state who may use it, once: give it a statement of coordinator.http.access")
        self.access = stated[0]
        described = [_TOKEN] if self.access.who == "token" else []
        super().__init__(path, endpoint, dependencies=[*dependencies, *described], **rest)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return what answers a request for this route: it is here that the framework has a route read the body."""
        answer = super().get_route_handler()

        async def stated(request: Request) -> Response:
            await self.door.check(self.access, request)
            # Whole, before it takes a place: who sends slowly holds up nobody.
            body = await self.door.body(self.access, request)
            async with self.door.place(self.access):
                return await answer(Request(request.scope, _again(body, request.receive)))

        return stated


def stated_app(title: str, responses: dict[int | str, dict[str, Any]] | None = None) -> FastAPI:
    """Return an application whose routes must state who may use them, without any; `responses` are described."""
    app = FastAPI(
        title=title,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        responses=responses,
        default_response_class=ShownJson,
    )
    app.router.route_class = StatedRoute
    return app


def open_door(app: FastAPI, door: Door) -> None:
    """Let an application be asked, when it has all its routes; raises TypeError for one that states nothing."""
    for route in app.routes:
        if not isinstance(route, StatedRoute):
            raise TypeError(f"{route!r} does not state who may use it")
        route.door = door


def _again(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that tells the whole body first."""
    is_given = False

    async def receive_again() -> Message:
        nonlocal is_given
        if is_given:
            return await receive()
        is_given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_again


# --- the operators' token: the right one opens at once, wrong ones are told in the log and answered late --------------


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
