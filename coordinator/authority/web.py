"""Where vehicles enrol and renew: a small HTTPS server, apart from the operators' API.

It is apart so that operators' actions stay on loopback while vehicles can reach this, and so that the authority's key
need not be on the coordinator's machine. Four addresses, JSON, no state of its own:

=======================  ============================================  ==============================================
``GET /v1/ca``           public                                        the CA's certificate (PEM)
``GET /v1/crl``          public                                        the revocation list (PEM)
``POST /v1/enrol``       ``token`` (its secret), ``request`` (CSR)     ``certificate``, ``ca``, ``crl``
``POST /v1/renew``       ``request``, ``certificate``, ``signature``   the same
=======================  ============================================  ==============================================

A vehicle that has nothing yet reads ``/v1/ca`` without verifying the server, compares its fingerprint with the one in
the token, and says the secret only on a second connection that this CA vouches for.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import datetime as dt
import logging
import socket
import ssl
import threading
import time
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import structlog
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from pydantic import BaseModel, ConfigDict, Field

from broker.tls import CERT, KEY, check_owner
from coordinator.authority.impatient import DoorLimits, ImpatientLoop, within
from coordinator.authority.store import DAYS, Authority
from schemas.errors import GlassfleetError, UsageError, WireError
from schemas.identity import MAX_REQUEST_BYTES

_log = structlog.get_logger("glassfleet.authority")

PEM_TYPE = "application/x-pem-file"

Pem = Annotated[str, Field(min_length=1, max_length=MAX_REQUEST_BYTES)]


class Enrolment(BaseModel):
    """What a vehicle sends to enrol."""

    model_config = ConfigDict(extra="forbid")

    token: Annotated[str, Field(min_length=1, max_length=200)]
    request: Pem


class Renewal(BaseModel):
    """What it sends to renew; the signature is base64."""

    model_config = ConfigDict(extra="forbid")

    request: Pem
    certificate: Pem
    signature: Annotated[str, Field(min_length=1, max_length=200)]


def make_app(  # noqa: C901 - one short function per address
    authority: Authority,
    *,
    days: int = DAYS,
    limits: DoorLimits = DoorLimits(),  # noqa: B008 - frozen
) -> FastAPI:
    """Return the application.

    Parameters
    ----------
    authority : Authority
    days : int
        How long the certificates that it issues are good for.
    limits : DoorLimits
    """
    app = FastAPI(title="Glassfleet authority", docs_url=None, redoc_url=None, openapi_url=None)

    @app.middleware("http")
    async def _bounded(request: Request, proceed: Any) -> Response:
        length = request.headers.get("content-length", "0")
        if (
            not (length.isascii() and length.isdigit() and len(length) < 10)
            or int(length) > limits.body_bytes
            or "transfer-encoding" in request.headers
        ):
            return JSONResponse({"detail": f"at most {limits.body_bytes} bytes, with their length"}, 413)
        # h11 has the same bound, but only for headers that do not come whole in one read.
        if sum(len(name) + len(value) for name, value in request.headers.raw) > limits.header_bytes:
            return JSONResponse({"detail": f"at most {limits.header_bytes} bytes of headers"}, 431)
        response: Response = await proceed(request)
        return response

    @app.exception_handler(WireError)
    async def _refused(request: Request, fault: WireError) -> JSONResponse:
        _log.warning("refused", path=request.url.path, peer=request.client and request.client.host, reason=str(fault))
        return JSONResponse({"detail": fault.detail, "code": fault.code}, 403)

    @app.exception_handler(GlassfleetError)
    async def _failed(_request: Request, fault: GlassfleetError) -> JSONResponse:
        _log.error("failed", reason=str(fault))
        return JSONResponse({"detail": "the authority cannot do this now; its log says why"}, 500)

    @app.get("/v1/ca")
    def _ca() -> Response:
        return PlainTextResponse(authority.ca_pem, media_type=PEM_TYPE)

    @app.get("/v1/crl")
    def _crl() -> Response:
        return PlainTextResponse(authority.crl_pem, media_type=PEM_TYPE)

    def answer(certificate: bytes) -> dict[str, str]:
        parts = {"certificate": certificate, "ca": authority.ca_pem, "crl": authority.crl_pem}
        return {name: pem.decode() for name, pem in parts.items()}

    @app.post("/v1/enrol")
    def _enrol(body: Enrolment) -> dict[str, str]:
        made = authority.enrol(body.request.encode(), body.token, days)
        _log.info("enrolled")
        return answer(made)

    @app.post("/v1/renew")
    def _renew(body: Renewal) -> dict[str, str]:
        try:
            signature = base64.b64decode(body.signature, validate=True)
        except (binascii.Error, ValueError) as fault:
            raise WireError("bad-signature", "the signature is not base64") from fault
        made = authority.renew(body.request.encode(), body.certificate.encode(), signature, days)
        _log.info("renewed")
        return answer(made)

    return app


class AuthorityServer:
    """The application over TLS, in a thread.

    Parameters
    ----------
    authority : Authority
    identity : Path
        Identity folder of the server: a coordinator's, with its host names in the certificate.
    host : str
        Address to bind.
    port : int
        0: a free one.
    days : int
        See `make_app`.
    limits : DoorLimits

    Raises
    ------
    UsageError
        The folder is not a coordinator's, or the port is taken.
    """

    def __init__(
        self,
        authority: Authority,
        identity: Path,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        days: int = DAYS,
        limits: DoorLimits = DoorLimits(),  # noqa: B008 - frozen
    ) -> None:
        check_owner(identity, "coordinator")
        self._limits = limits
        self._authority = authority
        config = uvicorn.Config(
            make_app(authority, days=days, limits=limits),
            host=host,
            port=port,
            ssl_certfile=identity / CERT,
            ssl_keyfile=identity / KEY,
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_keep_alive=5,
            timeout_graceful_shutdown=1,
            http=within(limits),
            h11_max_incomplete_event_size=limits.header_bytes,
            ws="none",
        )
        config.load()
        assert config.ssl is not None
        # The same key seals messages. What TLS 1.3 signs begins with a text of its own (RFC 8446, 4.4.3); what a server
        # signs in 1.2 begins with 32 bytes that the client chooses.
        config.ssl.minimum_version = ssl.TLSVersion.TLSv1_3
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
        self._server = uvicorn.Server(config)
        self._socket = _listen(host, port)
        self.port: int = self._socket.getsockname()[1]
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Serve."""
        self._thread = threading.Thread(target=self._serve, name="glassfleet-authority", daemon=True)
        self._thread.start()
        while not self._server.started and self._thread.is_alive():
            time.sleep(0.005)

    def _serve(self) -> None:
        with asyncio.Runner(loop_factory=partial(ImpatientLoop, self._limits.handshake)) as runner:
            runner.run(self._server.serve(sockets=[self._socket]))

    def keep_fresh(self) -> None:
        """Make a new revocation list when the current one is older than a day: lists expire."""
        self._authority.refresh_crl(unless_newer_than=dt.timedelta(days=1))

    def stop(self) -> None:
        """End the server. Idempotent."""
        self._server.should_exit = True
        if self._thread is not None:
            self._thread.join(5.0)
        with contextlib.suppress(OSError):
            self._socket.close()


def _listen(host: str, port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError as fault:
        listener.close()
        raise UsageError(f"the authority cannot listen on {host}:{port} ({fault.strerror}): choose another") from fault
    listener.listen(128)
    return listener
